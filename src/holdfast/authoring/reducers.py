"""`hf.reducers`: how what several nodes wrote to one field becomes one value.

A reducer is a function of the field's value and of what a node gave for it. It is named in the field's annotation,
`notes: Annotated[list[str], hf.reducers.append]`, and has to be pure: it runs inside decisions, in the order of the
items' keys, and runs again when a decision is made again. `operator.add` and functions of your own do as well.

To all of these but `last_writer` None is no value: the other one of the two is the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

__all__ = ["append", "counter", "last_writer", "maximum", "merge_dicts", "minimum", "union"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Any, Any], Any])


def _of_values(reducer: F) -> F:
    """The same for a field that has no value yet: `top: Annotated[int | None, hf.reducers.maximum] = None`."""

    @functools.wraps(reducer)
    def reduce(current: Any, given: Any) -> Any:
        if current is None or given is None:
            return given if current is None else current
        return reducer(current, given)

    return cast("F", reduce)


def last_writer(current: T, given: T) -> T:
    """The value of the last one in the order of the items' keys: several may write, and one of them wins."""
    return given


@_of_values
def append(current: Sequence[T], given: Sequence[T]) -> Sequence[T]:
    """What was there, and then what was given. A node gives a list, also for one thing."""
    return (*current, *given) if isinstance(current, tuple) else [*current, *given]


@_of_values
def union(current: T, given: T) -> T:
    """Everything that is in one of the two. A list keeps its order, and gets what it does not hold yet."""
    if isinstance(current, set | frozenset):
        return cast("T", current | cast("Any", given))
    known: list[Any] = list(cast("Any", current))
    for each in cast("Any", given):
        if each not in known:
            known.append(each)
    return cast("T", tuple(known) if isinstance(current, tuple) else known)


@_of_values
def counter(current: T, given: T) -> T:
    """The sum: a node gives by how much the number grows."""
    return cast("T", cast("Any", current) + given)


@_of_values
def maximum(current: T, given: T) -> T:
    """The larger of the two; the first one written while there is none."""
    return cast("T", max(cast("Any", current), cast("Any", given)))


@_of_values
def minimum(current: T, given: T) -> T:
    """The smaller of the two; the first one written while there is none."""
    return cast("T", min(cast("Any", current), cast("Any", given)))


@_of_values
def merge_dicts(current: Mapping[str, T], given: Mapping[str, T]) -> dict[str, T]:
    """The keys of both; what was given wins where both have one. What is inside of the values is not merged."""
    return {**current, **given}
