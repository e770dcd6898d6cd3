"""Gathers inside of gathers, and task groups: a tree of calls is flattened to elements and put together again.

A fork of nested branches computes one tree. An inner node is a list whose first item is its mode, a leaf is a pair of
the branch's position and the arguments of one call. The elements of a branch are numbered in the order of the tree, and
what is left of the tree without arguments, its shape, is kept for the barrier, which fills in the outcomes.

Modes: `raise` and `return` are asyncio.gather without and with return_exceptions, `tasks` is a task group, and `list`
holds the tasks of one comprehension.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_values import Raised, raised_group

__all__ = ["TASK_GROUP_MESSAGE", "PlantedCall", "harvested", "is_task_group", "planted"]

TASK_GROUP_MESSAGE: Final = "unhandled errors in a TaskGroup"


class PlantedCall(NamedTuple):
    """An element: the position of its branch in the fork, its index there, and the arguments of its call."""

    branch: int
    element: int
    arguments: Any


def is_task_group(tree: Expression) -> bool:
    """Whether the expression of a fork is that of an asyncio.TaskGroup."""
    return bool(tree[1] == ("const", "tasks"))


def planted(tree: Any, branches: int) -> tuple[list[PlantedCall], Any]:
    """The elements of a tree in its order, and its shape."""
    calls: list[PlantedCall] = []
    counts = [0] * branches

    def plant(part: Any) -> Any:
        if isinstance(part, list):
            return [part[0], *map(plant, part[1:])]
        branch, arguments = part
        calls.append(PlantedCall(branch, counts[branch], arguments))
        counts[branch] += 1
        return branch

    return calls, plant(tree)


def harvested(shape: Any, outcomes: list[list[Any]]) -> Any:
    """The tree's value from the outcomes of each branch; a Raised if it failed."""
    following = [iter(each) for each in outcomes]
    return _harvest(shape, following)


def _harvest(shape: Any, following: list[Iterator[Any]]) -> Any:
    if not isinstance(shape, list):
        return next(following[shape])
    mode, *parts = shape
    values = [_harvest(part, following) for part in parts]
    if mode == "raise":
        return next((value for value in values if isinstance(value, Raised)), values)
    if mode == "tasks":
        failures = list(_failures(shape, values))
        return raised_group(TASK_GROUP_MESSAGE, failures) if failures else values
    return values


def _failures(shape: Any, values: list[Any]) -> Iterator[Raised]:
    for part, value in zip(shape[1:], values, strict=True):
        if isinstance(part, list):
            yield from _failures(part, value)
        elif isinstance(value, Raised):
            yield value
