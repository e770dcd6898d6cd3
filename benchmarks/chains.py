"""The workflows that are measured: chains of steps that do nothing, so that only the engine's own cost is left."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import holdfast as hf
from holdfast.authoring.registry import Registry

OnStep = Callable[[int], None]


def chain_of(
    length: int, registry: Registry, *, name: str | None = None, on_step: OnStep | None = None
) -> type[hf.Dag]:
    """A class DAG whose steps `s0`, `s1`, … follow each other; `on_step` is called in each of them with its number."""
    name = name or f"Chain{length}"
    steps = {f"s{number}": hf.step(_body(number, on_step)) for number in range(length)}
    made: type[hf.Dag] = types.new_class(name, (hf.Dag,), {"registry": registry}, lambda body: body.update(steps))
    return made


def _body(number: int, on_step: OnStep | None) -> Any:
    async def body(self: Any) -> None:
        if on_step is not None:
            on_step(number)

    body.__name__ = body.__qualname__ = f"s{number}"
    return body
