"""`given(…).when(…).then_…`: a decider's decisions in a test, without a store, a clock or a worker.

Everything is written and read as the engine does it, so what cannot be stored fails here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from holdfast.authoring.decider_code import BoundDecider, bound_decider
from holdfast.authoring.deciders import Decider
from holdfast.authoring.durations import instant, instant_us
from holdfast.core.codec_faithful import difference
from holdfast.core.errors import DecideFailed, UsageError
from holdfast.core.rows import Fact
from holdfast.models.decider_code import Decided
from holdfast.models.folding import own

__all__ = ["Given", "given"]

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - the letters of hf.Decider
E = TypeVar("E")
F = TypeVar("F")

START = datetime(2030, 1, 1, tzinfo=UTC)
NOTHING = "nothing"
Expected = tuple[Any, ...]


def given(
    decider: type[Decider[S, I, E, F]],
    events: Iterable[E] = (),
    *,
    at: datetime = START,
    workflow_id: str | None = None,
) -> Given[S, I, E, F]:
    """An instance with these events behind it. `at` is the time at which it decides; inputs must be for `workflow_id`.

    Each `then_…` is about the last `when`. What a `when` raises is raised by the call after it, since `then_raises` may
    be that one: so a `when` must be followed by a `then_…`, or its error is lost. An input that an ended instance is
    given is ignored, as in the engine.
    """
    code = bound_decider(decider)
    if isinstance(events, str | bytes) or not isinstance(events, Iterable):
        raise UsageError(
            f"given({decider.__name__}, …) was given {events!r:.80}, a {type(events).__name__}, for its events",
            hint=f"put them into a list: given({decider.__name__}, [{type(events).__name__}(…)])",
        )
    return Given(code, list(events), at, workflow_id)


class Given(Generic[S, I, E, F]):
    """An instance in a test, and its last decision."""

    def __init__(self, code: BoundDecider, events: list[E], at: datetime, workflow_id: str | None) -> None:
        self._code = code
        self._now = instant_us("at= of given(…)", at)
        self._key = workflow_id
        self._sequence = 0
        self._decided: Decided | None = None
        self._error: Exception | None = None
        self._asked = False
        self._state: Any = code.initial()
        for event in events:
            self._append(event)

    @property
    def state(self) -> S:
        """The state now, for whatever no `then_…` says."""
        self._raise_error()
        state: S = self._state
        return state

    def when(self, input: I, /, *, now: datetime | None = None) -> Given[S, I, E, F]:
        """Give it an input, at `now` or at the time it had. What it decides is folded in, so that calls can follow.

        An error waits for the next call: `then_raises` takes it, and every other one raises it.
        """
        self._raise_error()
        if now is not None:
            self._now = instant_us("now= of when(…)", now)
        self._asked, self._decided = True, None
        try:
            self._decide(input)
        except Exception as error:  # for then_raises; whatever else is asked next raises it
            self._error = error
        return self

    def _decide(self, input: I) -> None:
        routed = self._code.route(input)
        if self._key is not None and routed.key != self._key:
            raise UsageError(
                f"{routed.type} is for instance {routed.key!r} of {self._code.name}, and this is {self._key!r}",
                hint="give inputs of one instance, or another workflow_id=",
            )
        self._key = routed.key
        if self._code.is_terminal(self._state):
            self._decided = Decided(events=(), state=self._state)
            return
        decided = self._code.decide(self._now, own(self._state, self._code), routed.data, routed.codec)
        self._decided, self._state = decided, decided.state
        self._sequence += len(decided.events)

    # -- expectations

    def then_events(self, *expected: E) -> Given[S, I, E, F]:
        """It recorded exactly these, in this order; nothing for none, as of an instance that has ended."""
        decided = self._last()
        return self._compare("events", _listed(expected), self._decoded_events(decided))

    def then_effects(self, *expected: F) -> Given[S, I, E, F]:
        """It asked for exactly these effects, in this order."""
        decided = self._last()
        got = [self._code.decode_effect(each.data, each.codec) for each in decided.effects]
        return self._compare("effects", _listed(expected), got)

    def then_no_effects(self) -> Given[S, I, E, F]:
        """It asked for no effects."""
        return self.then_effects()

    def then_timers(self, *expected: Expected) -> Given[S, I, E, F]:
        """It set exactly these timers: (delay or time, input) or (delay or time, input, key), in this order."""
        decided = self._last()
        wanted = [self._timer(each) for each in _listed(expected)]
        got = [(each.due, self._code.decode_input(each.data, each.codec), each.key) for each in decided.timers]
        if not _same(wanted, got):
            raise _unexpected("timers", [self._shown(one) for one in wanted], [self._shown(one) for one in got])
        return self

    def then_no_timers(self) -> Given[S, I, E, F]:
        """It set no timers."""
        return self.then_timers()

    def then_timer_cancelled(self, *keys: str) -> Given[S, I, E, F]:
        """It cancelled the timers of exactly these keys, in any order, whether or not they were set.

        As in all that is expected here, what is not named is not expected: name several keys in one call.
        """
        if not keys:
            raise UsageError("then_timer_cancelled was given no key", hint="name one, or use then_no_timer_cancelled()")
        cancelled = self._last().cancels
        if set(keys) != set(cancelled):
            error = _unexpected("cancelled timers", map(repr, keys), map(repr, cancelled))
            if set(keys) < set(cancelled):
                error.add_note(f"name all of them in one call: then_timer_cancelled{tuple(cancelled)}")
            raise error
        return self

    def then_no_timer_cancelled(self) -> Given[S, I, E, F]:
        """It cancelled no timer."""
        cancelled = self._last().cancels
        if cancelled:
            raise _unexpected("cancelled timers", (), map(repr, cancelled))
        return self

    def then_state(self, expected: S | Callable[[S], object]) -> Given[S, I, E, F]:
        """The state is this one, or one for which the function is true."""
        self._raise_error()
        if callable(expected) and type(expected) is not type(self._state):
            if not expected(self._state):
                name = getattr(expected, "__name__", repr(expected))
                raise _unexpected("state", [f"one for which {name} is true"], [repr(self._state)])
            return self
        return self._compare("state", [expected], [self._state])

    def then_terminal(self, terminal: bool = True) -> Given[S, I, E, F]:
        """The instance has ended, or with False: it has not."""
        self._raise_error()
        if self._code.is_terminal(self._state) != terminal:
            words = {True: "a state that is terminal", False: "a state that is not terminal"}
            raise _unexpected("state", [words[terminal]], [repr(self._state)])
        return self

    def then_ignored(self) -> Given[S, I, E, F]:
        """The input was accepted and ignored, since the instance had ended."""
        got = self._decoded_events(self._last())
        if got:
            raise _unexpected("events", (), map(repr, got))
        return self

    def then_raises(self, kind: type[BaseException], match: str | None = None) -> Given[S, I, E, F]:
        """The decision failed with this error, whose text matches. The caller gets it, or DecideFailed around it."""
        error = self._error
        if not self._asked or error is None:
            self._last()
            raise _unexpected("error", [_wanted_error(kind, match)], [NOTHING + " was raised"])
        fits = isinstance(error, kind) or issubclass(DecideFailed, kind)
        if not fits or (match is not None and re.search(match, str(error)) is None):
            raise _unexpected("error", [_wanted_error(kind, match)], [f"{type(error).__name__}: {error}"]) from error
        self._error, self._decided = None, Decided(events=(), state=self._state)
        return self

    # -- the instance

    def _append(self, event: E) -> None:
        written = self._code.encode_event(event)
        self._sequence += 1
        fact = Fact(
            run="given",
            sequence=self._sequence,
            workflow=self._code.name,
            key=self._key or "given",
            type=written.type,
            version=written.version,
            at=self._now,
            data=written.data,
            codec=written.codec,
        )
        self._state = self._code.evolve(self._state, fact)

    def _decoded_events(self, decided: Decided) -> list[Any]:
        return [self._code.decode_event(each) for each in decided.events]

    def _last(self) -> Decided:
        self._raise_error()
        if self._decided is None:
            raise UsageError("nothing was decided yet", hint="call when(input) before then_…")
        return self._decided

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _compare(self, what: str, expected: Iterable[Any], got: list[Any]) -> Given[S, I, E, F]:
        wanted = list(expected)
        if not _same(wanted, got):
            raise _unexpected(what, map(repr, wanted), map(repr, got))
        return self

    def _timer(self, expected: Any) -> tuple[int, Any, str | None]:
        if not isinstance(expected, tuple | list) or len(expected) not in (2, 3):
            raise UsageError(
                f"then_timers was given {expected!r:.80}",
                hint="give (delay or time, input) or (delay or time, input, key)",
            )
        when, input, key = (*expected, None)[:3]
        if isinstance(when, datetime):
            due = instant_us("then_timers", when)
        else:
            due = self._now + (when if isinstance(when, timedelta) else timedelta(seconds=when)) // timedelta(
                microseconds=1
            )
        return due, input, key

    def _shown(self, timer: tuple[int, Any, str | None]) -> str:
        due, input, key = timer
        return f"after {instant(due) - instant(self._now)} ({instant(due).isoformat()}): {input!r}, key {key!r}"


def _listed(given: tuple[Any, ...]) -> list[Any]:
    return list(given[0]) if len(given) == 1 and isinstance(given[0], list) else list(given)


def _same(wanted: Any, got: Any) -> bool:
    """Equal part by part, also for classes that do not compare themselves; a subclass is another class."""
    return difference(wanted, got) is None


def _wanted_error(kind: type[BaseException], match: str | None) -> str:
    return kind.__name__ if match is None else f"{kind.__name__} that matches {match!r}"


def _unexpected(what: str, expected: Iterable[str], got: Iterable[str]) -> AssertionError:
    def lines(values: Iterable[str]) -> str:
        return "".join(f"\n    {value}" for value in values) or f"\n    {NOTHING}"

    return AssertionError(f"expected {what}:{lines(expected)}\ngot:{lines(got)}")
