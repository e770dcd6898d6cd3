"""Conditions: values that are combined at module level and become one wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.conditions import AllOf, AnyOf, Condition, Wait, make_wait
from holdfast.core.codec import MSGPACK, Codecs

registry = hf.Registry()
NOW = 1_000_000_000
HOUR = 3_600_000_000


@dataclass(frozen=True)
class Approval:
    by: str


@dataclass(frozen=True)
class Rejection:
    why: str


approved = hf.event("approved", Approval, registry=registry)
rejected = hf.event("rejected", Rejection, registry=registry)


def wait_of(condition: Condition[Any], now_us: int = NOW) -> Wait:
    members = condition.members if isinstance(condition, AnyOf) else (condition,)
    return make_wait(members, now_us, registry.events)


def test_alternatives_are_flat_however_they_are_written() -> None:
    a, b, c = hf.after(1), hf.after(2), hf.after(3)
    assert (a | b | c) == hf.any_of(a, b, c) == hf.any_of([a, b, c]) == hf.any_of(a, hf.any_of(b, c)) == a | (b | c)
    assert ("name" | a).members == hf.any_of("name", a).members
    assert (hf.all_of(a, b) | c).members == (AllOf((a, b)), c)
    assert hf.all_of(x for x in (a, b)) == hf.all_of(a, b)


def test_a_time_counts_from_when_the_wait_begins() -> None:
    """A condition may be made once and used in many waits."""
    limit = hf.after(hours=1)
    assert wait_of(limit).until_us == NOW + HOUR
    assert wait_of(limit, NOW + 5).until_us == NOW + 5 + HOUR


def test_i50_of_several_times_the_earliest_counts() -> None:
    when = datetime.fromtimestamp(NOW / 1e6 + 60, UTC)
    assert wait_of(hf.after(hours=1) | hf.at(when) | hf.after(timedelta(hours=2))).until_us == NOW + 60_000_000
    assert wait_of(hf.at(when.astimezone(timezone(timedelta(hours=5))))).until_us == NOW + 60_000_000
    assert wait_of(approved | rejected).until_us is None


def test_i48_the_digest_covers_the_conditions_and_not_their_order_or_the_time() -> None:
    same = [approved | "rejected" | hf.after(60), hf.after(minutes=1) | rejected | approved]
    assert len({wait_of(each).digest() for each in same}) == 1
    assert len({wait_of(each).name for each in same}) == 1
    assert wait_of(same[0]).digest() == wait_of(same[0], NOW + 1).digest()
    at = datetime.fromtimestamp(5, UTC)
    others = [
        approved,
        approved | hf.after(60),
        approved | hf.after(61),
        hf.at(at),
        hf.ended("at"),
        approved | hf.ended("r"),
    ]
    assert len({wait_of(each).digest() for each in [*same, *others]}) == 1 + len(others)


def test_a_wait_is_named_for_people_and_not_longer_than_they_read() -> None:
    assert wait_of(approved | hf.after(days=2) | hf.ended("r1")).name == (
        "wait_for(after(2 days, 0:00:00) | approved | ended(r1))"
    )
    many = hf.any_of([f"event-{number}" for number in range(100)])
    assert len(wait_of(many).name) == 200
    assert wait_of(many).digest() != wait_of(many | "one-more").digest()


def test_i14_the_winner_has_the_type_of_its_event() -> None:
    wait = wait_of(approved | "rejected" | "other" | hf.ended("r1") | hf.after(hours=1))
    assert wait.received("approved", b'{"by":"Ada"}', id="e1", at_us=NOW) == hf.Received(
        Approval("Ada"), "approved", "e1"
    )
    assert wait.received("rejected", b'{"why":"no"}').value == Rejection("no")
    assert wait.received("other", b"[1]").value == [1]
    in_msgpack = Codecs(MSGPACK)
    data = approved.encode(Approval("Ada"), codecs=in_msgpack)
    assert wait.received("approved", data.data, data.codec, codecs=in_msgpack).value == Approval("Ada")
    with pytest.raises(hf.PayloadRefused, match="the payload of event approved"):
        wait.received("approved", b"3")


def test_the_other_winners_say_what_happened() -> None:
    wait = wait_of(hf.ended("r1") | hf.after(hours=1))
    reached = wait.time_reached()
    assert (reached.value, reached.at) == (None, datetime.fromtimestamp((NOW + HOUR) / 1e6, UTC))
    assert wait.run_ended("r1", "completed", b"[1]") == hf.RunEnded("r1", "completed", [1])
    failed = wait.run_ended("r1", "failed")
    assert (failed.status, failed.result, failed.value) == ("failed", None, None)
    with pytest.raises(hf.UsageError, match="has no deadline"):
        wait_of(approved).time_reached()


def told(outcome: object) -> object:
    match outcome:
        case hf.Received(value=Approval() as approval):
            return approval.by
        case hf.Received(value=Rejection(why=why)):
            return why
        case hf.TimeReached(at=at):
            return at
        case hf.RunEnded(status="completed", result=result):
            return result
        case hf.RunEnded(run_id=run):
            return run
        case _:
            return "something else"


def test_outcomes_are_told_apart_with_match() -> None:
    now = datetime.now(UTC)
    assert told(hf.Received(Approval("Ada"), "approved")) == "Ada"
    assert told(hf.Received(Rejection("no"), "rejected")) == "no"
    assert told(hf.TimeReached(now)) == now
    assert told(hf.RunEnded("r1", "completed", 3)) == 3
    assert told(hf.RunEnded("r1", "failed")) == "r1"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hf.any_of(), "hf.any_of was given nothing"),
        (lambda: hf.all_of([]), "hf.all_of was given nothing"),
        (lambda: hf.any_of(5), "given 5, a int, which is no condition.*hf.after"),  # type: ignore[call-overload]
        (lambda: hf.all_of(approved, None), "given None"),  # type: ignore[call-overload]
        (lambda: hf.any_of([approved, 5]), "given 5"),  # type: ignore[arg-type]
        (lambda: approved | 5, "given 5"),  # type: ignore[operator]
        (lambda: approved | hf.ChildHandle("r1", "w", None), "hf.ended"),  # type: ignore[operator]
        (lambda: hf.any_of("a\nb"), "unprintable"),
        (lambda: hf.after(), "hf.after was given no time"),
        (lambda: hf.after(days=-1), "-1, which is negative"),
        (lambda: hf.after(days=timedelta(1)), "days=.*a timedelta"),  # type: ignore[arg-type]
        (lambda: hf.at(datetime(2031, 5, 1)), "no time zone"),
        (lambda: hf.at("tomorrow"), "given 'tomorrow', a str"),  # type: ignore[arg-type]
        (lambda: hf.ended(17), "given 17, a int, which is no run"),  # type: ignore[call-overload]
        (lambda: hf.ended(hf.Received(1, "approved", "e1")), "no run"),
        (lambda: bool(approved), "used as true or false"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_refused_when_it_is_made(make: Any, says: str) -> None:
    with pytest.raises(hf.UsageError, match=says):
        make()
