"""`parity`: a workflow, and a flow, is ordinary asyncio that survives crashes: all come to one end, on every store."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from holdfast.authoring.actions import Action
from holdfast.authoring.flows import Flow, flow
from holdfast.authoring.functions import Workflow, workflow
from holdfast.authoring.registry import Registry, default_registry
from holdfast.core.errors import RunFailed, UsageError
from holdfast.engine import Engine

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

PLAIN = "plain asyncio"
SQLITE = "sqlite://"  # a file of its own, gone afterwards


@dataclass(frozen=True, slots=True)
class Ending:
    """How a function ended: with a value, or with an error."""

    where: str
    value: Any = None
    error: BaseException | None = None

    def same_as(self, other: Ending) -> bool:
        if self.error is not None or other.error is not None:
            return _told(self.error) == _told(other.error)
        return type(self.value) is type(other.value) and bool(self.value == other.value)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.where}: raised {': '.join(_told(self.error))}"
        return f"{self.where}: returned {self.value!r}"


def _told(error: BaseException | None) -> tuple[str, str]:
    return ("", "") if error is None else (type(error).__qualname__, str(error))


async def parity(
    fn: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
    stores: Sequence[str] = ("memory://", SQLITE),
    registry: Registry | None = None,
    timeout: float = 30.0,
) -> R:
    """The result that a function has as plain asyncio and as a run on each store; AssertionError if two differ.

    A plain `async def` is run as a `@workflow` and as a `@flow`; what is decorated already, as what it is. If it ends
    with the same error everywhere, that error is raised. `stores` are URLs, of PostgreSQL too; `sqlite://` without a
    file is a new one that goes afterwards. What waits for events has no plain form, and nothing here is virtual: give
    it something short.
    """
    if not isinstance(fn, Workflow | Action | Flow) and not inspect.iscoroutinefunction(fn):
        raise UsageError(
            f"parity was given {fn!r:.80}, a {type(fn).__name__}",
            hint="give an async def, or an @hf.workflow, @hf.flow or @hf.action",
        )
    if isinstance(stores, str) or not stores:
        raise UsageError(f"stores is {stores!r:.80}", hint='give a list of URLs: stores=["memory://", "sqlite://"]')
    called: Any = fn
    endings = [await _ending(PLAIN, called(*copy.deepcopy(args)))]
    with tempfile.TemporaryDirectory(prefix="holdfast-parity-") as folder:
        for number, store in enumerate(stores):
            url = f"sqlite:///{Path(folder) / f'{number}.db'}" if store == SQLITE else store
            for form, known, definition in _forms(fn, registry):
                async with Engine(url, registry=known) as engine, engine.worker():
                    where = f"{store}{form}"
                    endings.append(await _ending(where, engine.run(definition, *args, timeout=timeout)))
    first = endings[0]
    if any(not first.same_as(ending) for ending in endings):
        lines = "\n  ".join(map(str, endings))
        name = getattr(fn, "__qualname__", repr(fn))
        raise AssertionError(f"{name}{args!r:.200} does not end the same everywhere:\n  {lines}")
    if first.error is not None:
        raise first.error
    result: R = endings[-1].value
    return result


def _forms(fn: Any, registry: Registry | None) -> list[tuple[str, Registry | None, Any]]:
    """As what the function is run: each with its registry and what to start."""
    if isinstance(fn, Workflow | Action | Flow):
        return [("", registry, fn)]
    forms: list[tuple[str, Registry | None, Any]] = []
    decorators: tuple[tuple[str, Any], ...] = ((" as a workflow", workflow), (" as a flow", flow))
    for form, decorate in decorators:
        known = Registry()
        base = registry or default_registry
        for each in {id(found): found for found in (*base.actions.values(), *base.workflows.values())}.values():
            known.add(each)
        forms.append((form, known, decorate(registry=known, name=f"{fn.__name__} in parity")(fn)))
    return forms


async def _ending(where: str, awaitable: Awaitable[Any]) -> Ending:
    try:
        return Ending(where, await awaitable)
    except RunFailed as failed:
        return Ending(where, error=failed.cause or failed)
    except Exception as error:
        return Ending(where, error=error)
