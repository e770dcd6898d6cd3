"""Suspend against everything that can end a wait, in every order."""

from __future__ import annotations

import itertools
import json

import pytest

from holdfast.core.operations import Operation
from holdfast.core.rows import CANCELLED, CANCELLING, COMPLETED, READY, RUNNING, SUSPENDED
from tests.sketches.function import (
    TURN,
    Broadcast,
    Cancel,
    End,
    FireTimer,
    Record,
    Send,
    Start,
    Suspend,
    decisions,
)
from tests.sketches.kernel import INPUTS, NOW, TIMERS, Played, both_ways, claims

OWN_TABLES = (TIMERS, INPUTS)
SUSPEND = Suspend(run="r", node=TURN, attempt=1, token=1, events=("a", "b"), deadline=NOW)
RACERS: dict[str, Operation] = {
    "suspend": SUSPEND,
    "send": Send(run="r", event="e1", name="a"),
    "broadcast": Broadcast(run="e2", name="b"),
    "deadline": FireTimer(run="r", generation=0),
}


async def played(*operations: Operation) -> Played:
    return await both_ways(decisions(), operations, OWN_TABLES)


def begin(run: str) -> list[Operation]:
    return [Start(run=run), claims(run, TURN)]


def call(address: str, after: int, token: int = 1) -> Record:
    return Record(run="r", node=TURN, attempt=1, token=token, address=address, after=after)


def finish(run: str, token: int = 1) -> End:
    return End(run=run, node=TURN, attempt=1, token=token)


def won(end: Played, run: str = "r") -> list[str]:
    entries = (row for key, row in sorted(end.rows["history"].items()) if key[0] == run)
    return [json.loads(row.data)["by"] for row in entries if row.kind == "won"]


async def test_entries_have_one_sequence_and_a_repeated_one_is_recognised() -> None:
    """I49 and K8: after a lost answer the owner records again; the address tells, also when others wrote since."""
    sent = Send(run="r", event="e1", name="a")
    end = await played(*begin("r"), call("#1", 0), call("#1", 0), sent, call("#2", 1), call("#2", 1))
    assert end.results[2:] == ["recorded", "repeated", "queued", "recorded", "repeated"]
    assert sorted(end.rows["history"]) == [("r", 1), ("r", 2)]


async def test_an_owner_without_the_newest_token_records_nothing() -> None:
    """K3: two processes believe that they own a run; the fenced one is refused."""
    end = await played(
        *begin("r"), SUSPEND, RACERS["send"], claims("r", TURN, token=3), call("#1", 1), call("#1", 1, 3)
    )
    assert end.results[-3:] == ["recorded", "stale", "recorded"]


@pytest.mark.parametrize("order", list(itertools.permutations(RACERS)), ids="-".join)
async def test_a_wait_for_two_events_and_a_deadline_has_one_winner_in_every_order(order: tuple[str, ...]) -> None:
    """I50 and G5: one entry says who won; an event is consumed by it or still stored, never both and never neither."""
    end = await played(*begin("r"), *(RACERS[name] for name in order))
    assert len(won(end)) == 1
    consumed = {json.loads(row.data)["event"] for row in end.rows["history"].values()} - {None}
    stored = {row.id for row in end.rows["events"].values()}
    assert sorted([*consumed, *stored]) == ["e1", "e2"]
    assert not end.rows["waits"]
    assert not end.rows["timers"]
    assert end.rows["runs"][("r",)].status == RUNNING
    suspended = order.index("suspend")
    before, after = order[:suspended], order[suspended + 1 :]
    # Queued events first, what was sent to the run before what was broadcast; else whatever comes next.
    expected = next((name for name in ("send", "broadcast") if name in before), after[0] if after else None)
    assert won(end) == [{"send": "a", "broadcast": "b", "deadline": "deadline"}[str(expected)]]


async def test_a_deadline_of_a_wait_that_is_over_does_not_end_the_next_one() -> None:
    """I50: its generation is another, though run, key and due time are the same."""
    again = Suspend(run="r", node=TURN, attempt=1, token=3, events=("a",), deadline=NOW)
    end = await played(*begin("r"), SUSPEND, RACERS["send"], claims("r", TURN, token=3), again, RACERS["deadline"])
    assert (end.results[-1], won(end)) == ("over", ["a"])
    assert end.rows["runs"][("r",)].status == SUSPENDED


async def test_an_event_sent_to_the_run_wins_over_an_older_broadcast() -> None:
    """I51: targeted before broadcast, whichever came first."""
    end = await played(*begin("r"), RACERS["broadcast"], RACERS["send"], SUSPEND)
    assert (end.results[-1], won(end)) == ("delivered", ["a"])


async def test_a_broadcast_reaches_one_of_two_that_wait_and_the_next_reaches_the_other() -> None:
    """I52: one waiter each; a third broadcast is kept."""
    waits = [Suspend(run=run, node=TURN, attempt=1, token=1, events=("b",)) for run in ("r", "s")]
    end = await played(*begin("r"), *begin("s"), *waits, *(Broadcast(run=f"e{n}", name="b") for n in range(3)))
    assert end.results[-3:] == ["delivered", "delivered", "queued"]
    assert (won(end, "r"), won(end, "s")) == (["b"], ["b"])


async def test_the_end_of_an_awaited_run_wakes_who_waits_for_it() -> None:
    """I50: the finisher names only its own run; its waiter is found, locked with it and woken in the same commit."""
    wait = Suspend(run="r", node=TURN, attempt=1, token=1, events=("a",), ends=("child",))
    end = await played(*begin("r"), *begin("child"), wait, finish("child"))
    assert end.rows["runs"][("child",)].status == COMPLETED
    assert (won(end), end.rows["work"][("r", TURN, 1)].status) == (["end of child"], READY)
    assert not end.rows["waits"]


async def test_to_wait_for_a_run_that_has_ended_is_to_go_on() -> None:
    """I50: the other order of the same race."""
    wait = Suspend(run="r", node=TURN, attempt=1, token=1, ends=("child",))
    end = await played(*begin("r"), *begin("child"), finish("child"), wait)
    assert (end.results[-1], won(end)) == ("delivered", ["end of child"])


@pytest.mark.parametrize("suspended", [False, True])
async def test_a_cancelled_function_gets_one_more_turn_and_then_is_cancelled(suspended: bool) -> None:
    """I10: the owner of the turn that was overtaken is stale; the new one may record its rollback and end."""
    first = [SUSPEND] if suspended else []
    asked = [*begin("r"), *first, Cancel(run="r"), Cancel(run="r"), call("#1", 0)]
    halfway = await played(*asked)
    assert halfway.results[-3:] == ["delivered", "over", "stale"]
    assert halfway.rows["runs"][("r",)].status == CANCELLING
    assert not halfway.rows["waits"]
    assert not halfway.rows["timers"]
    end = await played(*asked, claims("r", TURN, token=3), call("#rollback", 1, token=3), finish("r", token=3))
    assert end.results[-3:] == ["recorded", "recorded", "recorded"]
    assert end.rows["runs"][("r",)].status == CANCELLED
