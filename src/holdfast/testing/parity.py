"""`parity`: a workflow is ordinary asyncio that survives crashes, so both must come to the same end, on every store."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from holdfast.authoring.actions import Action
from holdfast.authoring.functions import Workflow
from holdfast.authoring.registry import Registry
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
    """The result that a workflow has as plain asyncio and on each of the stores; AssertionError if two differ.

    If it ends with the same error everywhere, that error is raised. `stores` are URLs; `sqlite://` without a file is
    a new one that goes afterwards. What waits for events has no plain form, and nothing here is virtual: give it
    something short.
    """
    if not isinstance(fn, Workflow | Action):
        raise UsageError(
            f"parity was given {fn!r:.80}, a {type(fn).__name__}", hint="give an @hf.workflow or an @hf.action"
        )
    if isinstance(stores, str) or not stores:
        raise UsageError(f"stores is {stores!r:.80}", hint='give a list of URLs: stores=["memory://", "sqlite://"]')
    definition: Any = fn
    endings = [await _ending(PLAIN, definition(*copy.deepcopy(args)))]
    with tempfile.TemporaryDirectory(prefix="holdfast-parity-") as folder:
        for number, store in enumerate(stores):
            url = f"sqlite:///{Path(folder) / f'{number}.db'}" if store == SQLITE else store
            async with Engine(url, registry=registry) as engine, engine.worker():
                endings.append(await _ending(store, engine.run(definition, *args, timeout=timeout)))
    first = endings[0]
    if any(not first.same_as(ending) for ending in endings):
        lines = "\n  ".join(map(str, endings))
        raise AssertionError(f"{definition.name}{args!r:.200} does not end the same everywhere:\n  {lines}")
    if first.error is not None:
        raise first.error
    result: R = endings[-1].value
    return result


async def _ending(where: str, awaitable: Awaitable[Any]) -> Ending:
    try:
        return Ending(where, await awaitable)
    except RunFailed as failed:
        return Ending(where, error=failed.cause or failed)
    except Exception as error:
        return Ending(where, error=error)
