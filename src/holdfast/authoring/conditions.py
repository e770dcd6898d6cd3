"""What a workflow can wait for, and what it is told when one of them happens.

Conditions are plain values: `approved | rejected | hf.after(days=2)` asks nothing of anybody, so one can be made at
module level and used for many waits. Only `hf.wait_for` turns them into a `Wait`, the request that a run records:
names of events, ids of runs, and one deadline. Exactly one of them wins (I50).

`all_of` is no request of its own: it is one Wait for each member, side by side.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from holdfast.authoring.durations import instant, instant_us, span_us
from holdfast.authoring.function_calls import PayloadType, Wait
from holdfast.authoring.registry import validated_name
from holdfast.core.codec import ResultCodec
from holdfast.core.errors import UsageError

__all__ = [
    "After",
    "AllOf",
    "AnyOf",
    "At",
    "Condition",
    "Ended",
    "NamedEvent",
    "Received",
    "RunEnded",
    "TimeReached",
    "Wait",
    "after",
    "all_of",
    "any_of",
    "as_condition",
    "at",
    "checked_run_id",
    "ended",
    "make_wait",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
V = TypeVar("V")
W = TypeVar("W")

WAITABLE = "an hf.event or its name, hf.after(…), hf.at(…), hf.ended(run), hf.any_of(…) or hf.all_of(…)"


# --- what a wait gives -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received(Generic[T_co]):
    """An event came: `value` is its payload, `event` its name, `id` the id it was sent under, `at` when it came."""

    value: T_co
    event: str
    id: str = ""
    at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TimeReached:
    """The time came first; `at` is the instant that was waited for."""

    at: datetime

    @property
    def value(self) -> None:
        """Nothing: here so that every outcome of a wait has a value."""


@dataclass(frozen=True, slots=True)
class RunEnded(Generic[T_co]):
    """A run ended; `result` is its result if `status` is "completed", and None otherwise."""

    run_id: str
    status: str
    result: T_co | None = None

    @property
    def value(self) -> T_co | None:
        """The result, under the name that every outcome of a wait has."""
        return self.result


# --- conditions --------------------------------------------------------------------------------------------------


class WaitParts:
    """A wait while it is put together from its conditions."""

    __slots__ = ("ends", "events", "known", "now_us", "shown", "until_us")

    def __init__(self, now_us: int, known: Mapping[str, PayloadType]) -> None:
        self.now_us = now_us
        self.known = known
        self.events: dict[str, PayloadType | None] = {}
        self.ends: dict[str, ResultCodec | None] = {}
        self.until_us: int | None = None
        self.shown: list[str] = []

    def add_event(self, name: str, payload: PayloadType | None) -> None:
        self.events[name] = payload
        self.shown.append(name)

    def add_end(self, run: str, result: ResultCodec | None) -> None:
        self.ends[run] = result
        self.shown.append(f"ended({run})")

    def add_deadline(self, until_us: int, shown: str) -> None:
        self.until_us = until_us if self.until_us is None else min(self.until_us, until_us)
        self.shown.append(shown)


class Condition(Generic[T_co]):
    """Something to wait for; `hf.wait_for(condition)` gives a T. Combine with `|`, hf.any_of and hf.all_of."""

    __slots__ = ()

    @overload
    def __or__(self, other: Condition[U]) -> AnyOf[T_co | U]: ...
    @overload
    def __or__(self, other: str) -> AnyOf[T_co | Received[Any]]: ...
    def __or__(self, other: object) -> AnyOf[Any]:
        return _any_of((self, other))

    def __ror__(self, other: str) -> AnyOf[Received[Any] | T_co]:
        return _any_of((other, self))

    def __bool__(self) -> bool:
        raise UsageError(
            f"{self!r} was used as true or false, and whether it has happened is not known before it is awaited",
            hint="combine conditions with | and hf.all_of(…), not with `or` and `and`; await hf.wait_for(condition)",
        )

    def add_to(self, parts: WaitParts) -> None:
        """Name what it waits for."""
        raise UsageError(f"a {type(self).__name__} cannot be waited for", hint=f"wait for {WAITABLE}")


@dataclass(frozen=True, slots=True)
class NamedEvent(Condition[Received[Any]]):
    """An event by its name alone. If the name has a type in this registry, its payload has it too."""

    name: str

    def add_to(self, parts: WaitParts) -> None:
        parts.add_event(self.name, parts.known.get(self.name))


@dataclass(frozen=True, slots=True)
class After(Condition[TimeReached]):
    """A time from the moment that the wait begins, not from when this value was made."""

    microseconds: int

    def add_to(self, parts: WaitParts) -> None:
        parts.add_deadline(parts.now_us + self.microseconds, f"after({timedelta(microseconds=self.microseconds)})")


@dataclass(frozen=True, slots=True)
class At(Condition[TimeReached]):
    """An instant."""

    microseconds: int

    def add_to(self, parts: WaitParts) -> None:
        parts.add_deadline(self.microseconds, f"at({instant(self.microseconds).isoformat()})")


@dataclass(frozen=True, slots=True)
class Ended(Condition[RunEnded[T_co]], Generic[T_co]):
    """The end of a run, whatever its status."""

    run_id: str
    result: ResultCodec | None = field(default=None, repr=False, compare=False)

    def add_to(self, parts: WaitParts) -> None:
        parts.add_end(self.run_id, self.result)


@dataclass(frozen=True, slots=True)
class AnyOf(Condition[T_co], Generic[T_co]):
    """The first of several; `any_of` makes one, without another AnyOf inside."""

    members: tuple[Condition[Any], ...]


@dataclass(frozen=True, slots=True)
class AllOf(Condition[list[T]], Generic[T]):
    """All of several, as a list in their order."""

    members: tuple[Condition[Any], ...]


def after(
    span: timedelta | float | None = None,
    /,
    *,
    weeks: float | None = None,
    days: float | None = None,
    hours: float | None = None,
    minutes: float | None = None,
    seconds: float | None = None,
) -> After:
    """A time from when the wait begins: `after(days=2)`, `after(timedelta(…))`, or `after(5)` for seconds."""
    return After(span_us("hf.after", span, weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds))


def at(when: datetime, /) -> At:
    """An instant, as an aware datetime; one that has passed is reached at once."""
    return At(instant_us("hf.at", when))


class Identified(Protocol):
    """A handle, or anything else that has a run's id."""

    @property
    def id(self) -> str: ...


class Child(Protocol[T_co]):
    """What hf.start_child gives: a run whose result has a known type."""

    @property
    def id(self) -> str: ...

    @property
    def result_codec(self) -> ResultCodec | None: ...

    def result(self) -> Coroutine[object, None, T_co]: ...


@overload
def ended(run: Child[T], /) -> Ended[T]: ...
@overload
def ended(run: str | Identified, /) -> Ended[Any]: ...
def ended(run: object, /) -> Ended[Any]:
    """The end of a run, given as its id or as a handle."""
    return Ended(checked_run_id("hf.ended", run), getattr(run, "result_codec", None))


@overload
def any_of(conditions: Iterable[Condition[T]], /) -> AnyOf[T]: ...
@overload
def any_of(conditions: Iterable[str], /) -> AnyOf[Received[Any]]: ...
@overload
def any_of(conditions: Iterable[Condition[Any] | str], /) -> AnyOf[Any]: ...
@overload
def any_of(first: Condition[T], second: Condition[U], /) -> AnyOf[T | U]: ...
@overload
def any_of(first: Condition[T], second: Condition[U], third: Condition[V], /) -> AnyOf[T | U | V]: ...
@overload
def any_of(
    first: Condition[T], second: Condition[U], third: Condition[V], fourth: Condition[W], /
) -> AnyOf[T | U | V | W]: ...
@overload
def any_of(*conditions: Condition[Any] | str) -> AnyOf[Any]: ...
def any_of(*conditions: Any) -> AnyOf[Any]:
    """The first of these, given one by one or as a list: the wait gives what that one gives."""
    return _any_of(_listed("hf.any_of", conditions))


@overload
def all_of(conditions: Iterable[Condition[T]], /) -> AllOf[T]: ...
@overload
def all_of(conditions: Iterable[str], /) -> AllOf[Received[Any]]: ...
@overload
def all_of(conditions: Iterable[Condition[Any] | str], /) -> AllOf[Any]: ...
@overload
def all_of(first: Condition[T], second: Condition[U], /) -> AllOf[T | U]: ...
@overload
def all_of(first: Condition[T], second: Condition[U], third: Condition[V], /) -> AllOf[T | U | V]: ...
@overload
def all_of(
    first: Condition[T], second: Condition[U], third: Condition[V], fourth: Condition[W], /
) -> AllOf[T | U | V | W]: ...
@overload
def all_of(*conditions: Condition[Any] | str) -> AllOf[Any]: ...
def all_of(*conditions: Any) -> AllOf[Any]:
    """All of these, given one by one or as a list: the wait gives a list in the same order.

    Each member is a wait of its own and takes its event when it comes. Inside an any_of that something else wins,
    events that this has taken by then stay taken.
    """
    return AllOf(tuple(as_condition("hf.all_of", each) for each in _listed("hf.all_of", conditions)))


def as_condition(what: str, thing: object) -> Condition[Any]:
    """What can be waited for, a plain name included; UsageError says what it was instead."""
    if isinstance(thing, Condition):
        return thing
    if isinstance(thing, str):
        return NamedEvent(validated_name(thing, f"an event in {what}"))
    fix = f"wait for {WAITABLE}"
    if isinstance(thing, int | float | timedelta):
        fix = "write hf.after(seconds=…) for a time from now"
    elif isinstance(thing, datetime):
        fix = "write hf.at(…) for an instant"
    elif hasattr(thing, "send") and hasattr(thing, "close"):
        fix = "await it by itself: a call is not waited for with hf.wait_for, and asyncio.wait_for limits its time"
        cast("Coroutine[Any, Any, Any]", thing).close()  # or Python would warn far from here that it was never awaited
    elif isinstance(getattr(thing, "id", None), str):
        fix = "write hf.ended(…) for the end of a run"
    raise UsageError(f"{what} was given {thing!r:.80}, a {type(thing).__name__}, which is no condition", hint=fix)


def checked_run_id(what: str, run: object) -> str:
    """The id of a run that is given as itself or as a handle."""
    found = run if isinstance(run, str) else getattr(run, "id", None)
    if not isinstance(found, str) or isinstance(run, Received):  # whose id is the event's
        raise UsageError(
            f"{what} was given {run!r:.80}, a {type(run).__name__}, which is no run",
            hint="give a run's id or its handle",
        )
    return validated_name(found, f"the run in {what}")


def _listed(what: str, conditions: tuple[Any, ...]) -> Sequence[Any]:
    if len(conditions) == 1 and not isinstance(conditions[0], str | Condition):
        (given,) = conditions
        if not isinstance(given, Iterable):
            as_condition(what, given)
        conditions = tuple(given)
    if not conditions:
        raise UsageError(f"{what} was given nothing to wait for", hint=f"give at least one: {WAITABLE}")
    return conditions


def _any_of(conditions: Sequence[object]) -> AnyOf[Any]:
    members: list[Condition[Any]] = []
    for each in conditions:
        condition = as_condition("hf.any_of", each)
        members += condition.members if isinstance(condition, AnyOf) else (condition,)
    return AnyOf(tuple(members))


# --- the request -------------------------------------------------------------------------------------------------


def make_wait(conditions: Sequence[Condition[Any]], now_us: int, known: Mapping[str, PayloadType]) -> Wait:
    """The request for the first of these; times count from `now_us`, and `known` are the events that have types."""
    parts = WaitParts(now_us, known)
    for condition in conditions:
        condition.add_to(parts)
    return Wait(
        events=tuple(sorted(parts.events)),
        runs=tuple(sorted(parts.ends)),
        until_us=parts.until_us,
        shown=tuple(sorted(set(parts.shown))),
        payloads={name: payload for name, payload in parts.events.items() if payload is not None},
        results={run: result for run, result in parts.ends.items() if result is not None},
    )
