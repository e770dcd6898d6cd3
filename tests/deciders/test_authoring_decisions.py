"""`hf.Decision`: a value that authors build in a chain."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.decision import TimerRequest


@dataclass(frozen=True)
class Happened:
    n: int = 1


def test_a_decision_is_built_in_a_chain_and_no_link_changes_another() -> None:
    """Each call gives a new decision, so that a prefix can be shared by two branches of `decide`."""
    first = hf.Decision.event(Happened(1), Happened(2))
    second = first.with_event(Happened(3)).with_effect("a").with_effects("b", "c").cancel_timer("k")
    assert first == hf.Decision(events=(Happened(1), Happened(2)))
    assert second.events == (Happened(1), Happened(2), Happened(3))
    assert second.effects == ("a", "b", "c")
    assert second.cancelled_timers == ("k",)
    with pytest.raises(FrozenInstanceError):
        second.events = ()  # type: ignore[misc]


def test_several_events_and_effects_may_come_in_one_list() -> None:
    """A computed list needs no star."""
    decision = hf.Decision.event(Happened(1)).with_events([Happened(2), Happened(3)]).with_effects(["a", "b"])
    assert decision.events == (Happened(1), Happened(2), Happened(3))
    assert decision.effects == ("a", "b")
    assert hf.Decision.event(Happened(1)).with_events(Happened(2), Happened(3)).events[1:] == (Happened(2), Happened(3))


@pytest.mark.parametrize(
    ("after", "microseconds"), [(timedelta(minutes=30), 1_800_000_000), (2, 2_000_000), (0.5, 500_000)]
)
def test_a_timer_is_set_after_a_timedelta_or_seconds(after: Any, microseconds: int) -> None:
    decision = hf.Decision.event(Happened()).with_timer_after(after, Happened(9), key="payment")
    (timer,) = decision.timers
    assert (timer.input, timer.key, timer.due_us(1_000)) == (Happened(9), "payment", 1_000 + microseconds)


def test_a_timer_is_set_at_an_instant() -> None:
    at = datetime(2031, 5, 1, 12, tzinfo=UTC)
    (timer,) = hf.Decision.event(Happened()).with_timer_at(at, Happened(9)).timers
    assert timer == TimerRequest(input=Happened(9), at=at)
    assert timer.due_us(5) == int(at.timestamp() * 1_000_000)


def test_a_timer_in_the_past_is_due_at_once() -> None:
    """It is no error: between a decision's thought and its commit, any instant may pass."""
    past = hf.Decision.event(Happened()).with_timer_after(timedelta(seconds=-5), Happened()).timers[0]
    assert past.due_us(10_000_000) == 5_000_000
    ancient = hf.Decision.event(Happened()).with_timer_at(datetime(1, 1, 1, tzinfo=UTC), Happened()).timers[0]
    assert ancient.due_us(10_000_000) == 0


@pytest.mark.parametrize(
    ("key", "said"),
    [("", "is empty"), ("k" * 10_000, "10,000 characters"), ("a\nb", "cannot be printed"), (7, "is a int")],
)
def test_a_key_that_could_not_be_stored_or_shown_is_refused(key: Any, said: str) -> None:
    """Bad input: a key of 10,000 characters is a clear error, before anything is decided."""
    start = hf.Decision.event(Happened())
    for call in (
        lambda: start.with_timer_after(1, Happened(), key=key),
        lambda: start.with_timer_at(datetime.now(UTC), Happened(), key=key),
        lambda: start.cancel_timer(key),
    ):
        with pytest.raises(hf.UsageError, match=said):
            call()


@pytest.mark.parametrize("after", [float("nan"), float("inf"), True, "5", None, timedelta.max, 1e300])
def test_a_span_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(hf.UsageError, match="with_timer_after was given"):
        hf.Decision.event(Happened()).with_timer_after(after, Happened())


@pytest.mark.parametrize("at", [datetime(2031, 1, 1), 5, None])
def test_an_instant_without_a_time_zone_is_refused(at: Any) -> None:
    with pytest.raises(hf.UsageError, match="with_timer_at was given"):
        hf.Decision.event(Happened()).with_timer_at(at, Happened())
