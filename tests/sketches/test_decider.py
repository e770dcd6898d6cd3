"""A subscription: billed by an effect, reminded by a timer that sets itself again, ended by an input."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.operations import Operation
from holdfast.core.rows import COMPLETED, READY
from tests.sketches.decider import DeciderSketch, Decision, Execute, FireTimer, SettleEffect
from tests.sketches.kernel import INPUTS, NOW, TIMERS, Played, both_ways, claims

BILLING = {
    "open": Decision(("opened",), effects=("charge",), timers=(("remind", 0, "remind"),)),
    "charged": Decision(("charged",), cancels=("remind",)),
    "remind": Decision(("reminded",), timers=(("remind", 0, "remind"),)),
    "later": Decision(("postponed",), cancels=("remind",), timers=(("remind", 500, "remind"),)),
    "close": Decision(("closed",), effects=("say goodbye",)),
    "wait": Decision(("waiting",), timers=(("remind", 0, "expire"),)),
    "expire": Decision(("expired",)),
    "nonsense": Decision(()),
}
SUBSCRIPTION = DeciderSketch(
    (), lambda state, event: (*state, event), lambda state, given: BILLING[given], lambda state: "closed" in state
)


async def played(*operations: Operation | Sequence[Operation]) -> Played:
    flat = [op for given in operations for op in (given if isinstance(given, Sequence) else [given])]
    return await both_ways(SUBSCRIPTION.decisions(), flat, (TIMERS, INPUTS))


def execute(given: str, command: str | None = None) -> Execute:
    return Execute(run="r", input=given, command=command or given)


def settle(node: str, follow_up: str | None = None) -> list[Operation]:
    return [claims("r", node), SettleEffect(run="r", node=node, attempt=1, token=1, follow_up=follow_up)]


def fire(generation: int) -> FireTimer:
    return FireTimer(run="r", key="remind", generation=generation)


def stream(end: Played) -> list[str]:
    return [row.kind for _, row in sorted(end.rows["history"].items())]


async def test_one_input_creates_the_run_its_events_its_effect_and_its_timer() -> None:
    """I33: everything that a decision asks for is there after one operation."""
    end = await played(execute("open"))
    assert stream(end) == ["opened"]
    assert end.rows["work"][("r", "effect/1.0", 1)].status == READY
    assert end.rows["timers"][("r", "remind")].generation == 1


async def test_a_command_that_is_repeated_applies_once() -> None:
    """I12: the command's id is kept with the run, in the transaction that applied it."""
    end = await played(execute("open"), execute("open"), execute("remind", "c2"), execute("remind", "c2"))
    assert end.results == ["recorded", "repeated", "recorded", "repeated"]
    assert stream(end) == ["opened", "reminded"]


async def test_an_effect_is_settled_together_with_the_input_it_returned() -> None:
    """No gap between the two: one operation, and its repetition changes neither."""
    end = await played(execute("open"), settle("effect/1.0", "charged"), settle("effect/1.0", "charged")[1:])
    assert end.results == ["recorded", "recorded", "recorded", "repeated"]
    assert stream(end) == ["opened", "charged", "timer cancelled"]
    assert end.rows["work"][("r", "effect/1.0", 1)].status == COMPLETED


async def test_a_follow_up_that_cannot_be_decided_leaves_the_effect_unsettled() -> None:
    """I16 and I35: the error reaches whoever settles, and nothing is written, the settlement included."""
    end = await played(execute("open"), settle("effect/1.0", "nonsense"))
    assert "has no event" in end.results[-1]
    assert end.rows["work"][("r", "effect/1.0", 1)].status == "leased"


async def test_a_timer_that_sets_itself_again_while_firing_stays_set() -> None:
    """I33: the second firing carries an old generation and finds nothing; the new timer lives on."""
    end = await played(execute("open"), fire(1), fire(1), fire(2))
    assert end.results == ["recorded", "recorded", "over", "recorded"]
    assert end.rows["timers"][("r", "remind")].generation == 3


async def test_a_timer_that_fired_and_was_not_set_again_is_gone() -> None:
    """G6: applied exactly once; firing it again finds nothing."""
    end = await played(execute("wait"), fire(1), fire(1))
    assert (end.results[1:], end.rows["timers"]) == (["recorded", "over"], {})


async def test_a_timer_cancelled_and_set_again_in_one_decision_is_live() -> None:
    """I33: cancellations come before new timers, and the cancellation is on record but never folded."""
    end = await played(execute("open"), execute("later"), fire(1))
    timer = end.rows["timers"][("r", "remind")]
    assert (timer.due, end.results[-1]) == (NOW + 500, "over")
    assert stream(end) == ["opened", "postponed", "timer cancelled"]


async def test_a_timer_that_is_fired_early_does_nothing() -> None:
    """G6: the due time is checked where the timer is applied, not only where it was found."""
    end = await played(execute("open"), execute("later"), fire(3))
    assert (end.results[-1], end.rows["timers"][("r", "remind")].generation) == ("over", 3)


async def test_a_generation_is_not_used_again_after_its_timer_was_cancelled() -> None:
    """A firing found before the cancel must not hit the timer that was set after it under the same key."""
    end = await played(execute("open"), settle("effect/1.0", "charged"), execute("remind"), fire(1))
    assert (end.results[-1], end.rows["timers"][("r", "remind")].generation) == ("over", 4)


async def test_the_effects_of_the_last_decision_still_happen_and_later_inputs_are_ignored() -> None:
    """I34: the run has ended, its goodbye is settled, and an input that comes too late changes nothing."""
    end = await played(execute("open"), execute("close"), execute("remind"), settle("effect/2.0"), fire(1))
    assert end.results == ["recorded", "recorded", "ignored", "recorded", "recorded", "ignored"]
    assert end.rows["runs"][("r",)].status == COMPLETED
    assert stream(end) == ["opened", "closed"]
