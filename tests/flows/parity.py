"""A function as plain asyncio and as a simulated flow: both must end the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from holdfast.authoring.flows import Flow, flow
from holdfast.authoring.registry import Registry
from tests.flows.simulator import Failed, Simulation

_compiled: dict[Any, Flow[..., Any]] = {}


def compiled(function: Callable[..., Any]) -> Flow[..., Any]:
    """The function as a flow, compiled once."""
    if function not in _compiled:
        _compiled[function] = flow(registry=Registry())(function)
    return _compiled[function]


async def ending_of_plain(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """How plain asyncio ends, in a form that can be compared."""
    try:
        return ("returned", comparable(await function(*copy.deepcopy(args))))
    except Exception as error:
        return ("raised", type(error).__name__, str(error))


async def ending_of_flow(function: Callable[..., Any], args: tuple[Any, ...], seed: int = 0) -> tuple[Any, ...]:
    """How the compiled flow ends."""
    simulation = Simulation(compiled(function), seed)
    try:
        return ("returned", comparable(await simulation.run(*copy.deepcopy(args))))
    except Failed as failed:
        return ("raised", failed.record.type, failed.record.message)


def comparable(value: Any) -> Any:
    """The value with its types, since True equals 1 and [1] is not (1,)."""
    if isinstance(value, dict):
        return ("dict", [(comparable(key), comparable(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [comparable(item) for item in value])
    if isinstance(value, BaseException):
        return ("exception", type(value).__name__, str(value))
    return (type(value).__name__, repr(value))
