"""`hf.Decision`: what follows from an input, as a value that a decider returns.

A decision is built up in a chain and never changed: each call gives a new one. It has at least one event; effects,
timers and cancelled timers are up to the author. Whether its parts belong to the decider is checked by whoever asked
for the decision, who knows the decider's name and the input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Never, TypeVar, overload

from holdfast.authoring.durations import LONGEST_SPAN, MICROSECOND, instant_us
from holdfast.core.errors import UsageError

__all__ = ["Decision", "TimerRequest", "timer_key"]

LONGEST_KEY: Final = 255

E_co = TypeVar("E_co", covariant=True)
F_co = TypeVar("F_co", covariant=True)
I_co = TypeVar("I_co", covariant=True)
# One for each argument: type checkers join the types of arguments that share one, and would lose the union.
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
G = TypeVar("G")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerRequest(Generic[I_co]):
    """An input that the instance is to be given later: after a span, or at an instant."""

    input: I_co
    key: str | None = None
    after: timedelta | None = None
    at: datetime | None = None

    def due_us(self, now_us: int) -> int:
        """When it is due, in microseconds since 1970, if it was decided now. One in the past is due at once."""
        if self.at is not None:
            due = instant_us("with_timer_at", self.at)
        else:
            due = now_us + (self.after or timedelta()) // MICROSECOND
        return max(due, 0)


@dataclass(frozen=True, slots=True)
class Decision(Generic[E_co, F_co, I_co]):
    """Events, and what is to be done about them. Begin with `hf.Decision.event(…)` and chain the rest."""

    events: tuple[E_co, ...] = ()
    effects: tuple[F_co, ...] = ()
    timers: tuple[TimerRequest[I_co], ...] = ()
    cancelled_timers: tuple[str, ...] = ()

    @overload
    @staticmethod
    def event(first: A, /) -> Decision[A, Never, Never]: ...
    @overload
    @staticmethod
    def event(first: A, second: B, /) -> Decision[A | B, Never, Never]: ...
    @overload
    @staticmethod
    def event(first: A, second: B, third: C, /) -> Decision[A | B | C, Never, Never]: ...
    @overload
    @staticmethod
    def event(first: A, second: B, third: C, fourth: D, /, *more: G) -> Decision[A | B | C | D | G, Never, Never]: ...
    @staticmethod
    def event(*events: Any) -> Decision[Any, Any, Any]:
        """A decision with these events, in this order; there must be at least one (I35)."""
        return Decision(events=events)

    def with_event(self, event: A, /) -> Decision[E_co | A, F_co, I_co]:
        """One more event, after those there are."""
        return self._with(events=(*self.events, event))

    @overload
    def with_events(self, events: Sequence[A], /) -> Decision[E_co | A, F_co, I_co]: ...
    @overload
    def with_events(self, first: A, second: B, /, *more: C) -> Decision[E_co | A | B | C, F_co, I_co]: ...
    @overload
    def with_events(self, *events: A) -> Decision[E_co | A, F_co, I_co]: ...
    def with_events(self, *events: Any) -> Decision[Any, Any, Any]:
        """More events, each on its own or in one list."""
        return self._with(events=(*self.events, *_listed(events)))

    def with_effect(self, effect: A, /) -> Decision[E_co, F_co | A, I_co]:
        """Ask for a side effect: `handle` is called with it after the decision is committed."""
        return self._with(effects=(*self.effects, effect))

    @overload
    def with_effects(self, effects: Sequence[A], /) -> Decision[E_co, F_co | A, I_co]: ...
    @overload
    def with_effects(self, first: A, second: B, /, *more: C) -> Decision[E_co, F_co | A | B | C, I_co]: ...
    @overload
    def with_effects(self, *effects: A) -> Decision[E_co, F_co | A, I_co]: ...
    def with_effects(self, *effects: Any) -> Decision[Any, Any, Any]:
        """Ask for several side effects, each on its own or in one list."""
        return self._with(effects=(*self.effects, *_listed(effects)))

    def with_timer_after(
        self, after: timedelta | float, input: A, /, key: str | None = None
    ) -> Decision[E_co, F_co, I_co | A]:
        """Give the instance this input after a timedelta or seconds; a timer of the same key is replaced."""
        request = TimerRequest(input=input, key=timer_key(key), after=_checked_span(after))
        return self._with(timers=(*self.timers, request))

    def with_timer_at(self, at: datetime, input: A, /, key: str | None = None) -> Decision[E_co, F_co, I_co | A]:
        """Give the instance this input at an instant, at once if it has passed; a timer of the same key is replaced."""
        instant_us("with_timer_at", at)
        return self._with(timers=(*self.timers, TimerRequest(input=input, key=timer_key(key), at=at)))

    def cancel_timer(self, key: str) -> Decision[E_co, F_co, I_co]:
        """Remove the timer of this key, if there is one. One set in the same decision, before or after, stays (I33)."""
        if key is None:
            raise UsageError("cancel_timer was given None", hint="give the key that the timer was set with")
        return self._with(cancelled_timers=(*self.cancelled_timers, str(timer_key(key))))

    def _with(self, **changes: tuple[Any, ...]) -> Decision[Any, Any, Any]:
        # Through Any: what a chain returns is declared by its methods, and replace() would keep the old types.
        changed: Decision[Any, Any, Any] = self
        return replace(changed, **changes)


def timer_key(key: object) -> str | None:
    """The key if it can be stored and shown everywhere, or None for a timer without one; UsageError otherwise."""
    fix = f"give a text of 1 to {LONGEST_KEY} printable characters, or no key"
    if key is None:
        return None
    if not isinstance(key, str):
        raise UsageError(f"the key {key!r:.80} of a timer is a {type(key).__name__}", hint=fix)
    if not key:
        raise UsageError("the key of a timer is empty", hint=fix)
    if len(key) > LONGEST_KEY:
        raise UsageError(f"the key {key[:40]!r}… of a timer has {len(key):,} characters", hint=fix)
    if not key.isprintable():
        raise UsageError(f"the key {key!r} of a timer has characters that cannot be printed", hint=fix)
    return key


def _listed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """What was given, or the contents of the one list that was: no event or effect is a list itself."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given


def _checked_span(after: object) -> timedelta:
    """A span may be negative, since a timer in the past is due at once; it may not be beyond all measure."""
    what = "with_timer_after"
    if isinstance(after, int | float) and not isinstance(after, bool) and math.isfinite(after):
        try:
            after = timedelta(seconds=after)
        except OverflowError:
            after = timedelta.max
    if not isinstance(after, timedelta):
        raise UsageError(
            f"{what} was given {after!r:.80}, a {type(after).__name__}",
            hint="give a timedelta, or a finite number of seconds; for an instant use with_timer_at",
        )
    if after > LONGEST_SPAN:
        raise UsageError(
            f"{what} was given {after!r}, which is over a century", hint="check the unit; seconds are meant"
        )
    return max(after, -LONGEST_SPAN)
