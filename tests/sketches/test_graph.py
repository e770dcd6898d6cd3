"""One node fans out to three, which join again; and a loop."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from holdfast.core.operations import Operation
from holdfast.core.rows import COMPLETED
from tests.sketches.graph import CHECKPOINTS, Finish, GraphSketch, Start, address
from tests.sketches.kernel import Played, both_ways, claims

# Names whose merge order is neither the declared nor the alphabetical one.
SIDES = ("search", "read", "write")
GRAPH = GraphSketch("plan", {"plan": SIDES, **{side: ("join",) for side in SIDES}, "join": ()})
DECISIONS = GRAPH.decisions()
START = Start(run="r", state=msgspec.Raw(b"{}"))


def finish(node: str, step: int, delta: object) -> list[Operation]:
    done = Finish(run="r", node=node, attempt=1, token=1, step=step, delta=msgspec.Raw(json.dumps(delta)))
    return [claims("r", node), done]


def frontier(end: Played, step: int) -> dict[str, str]:
    return {item.node: address(step, item) for item in end.rows["checkpoints"][("r", step)].frontier}


async def fanned_out() -> tuple[list[Operation], dict[str, str]]:
    begun = await both_ways(DECISIONS, [START], (CHECKPOINTS,))
    script = [START, *finish(frontier(begun, 0)["plan"], 0, {})]
    return script, frontier(await both_ways(DECISIONS, script, (CHECKPOINTS,)), 1)


@pytest.mark.parametrize("order", list(itertools.permutations(SIDES)))
async def test_deltas_merge_by_order_key_whatever_finishes_first(order: tuple[str, ...]) -> None:
    """I39 and I41: six schedules, one state, one frontier, one identity, to the byte."""
    script, places = await fanned_out()
    end = await both_ways(
        DECISIONS, [*script, *(op for name in order for op in finish(places[name], 1, {"log": [name]}))], (CHECKPOINTS,)
    )
    merged = end.rows["checkpoints"][("r", 2)]
    by_order_key = sorted(places, key=lambda name: places[name])
    assert json.loads(merged.state) == {"log": by_order_key}
    assert by_order_key not in (list(SIDES), sorted(SIDES))
    assert [item.node for item in merged.frontier] == ["join"]
    assert end.rows["runs"][("r",)].active == 1


async def test_the_checkpoint_and_the_next_frontier_come_with_the_last_item_and_not_before() -> None:
    """I44: two of three are in and there is no step 2; the third brings it whole, and its repeat adds nothing."""
    script, places = await fanned_out()
    two = [op for name in SIDES[:2] for op in finish(places[name], 1, {})]
    almost = await both_ways(DECISIONS, [*script, *two], (CHECKPOINTS,))
    assert set(almost.rows["checkpoints"]) == {("r", 0), ("r", 1)}

    last = finish(places["write"], 1, {})
    end = await both_ways(DECISIONS, [*script, *two, *last, last[1]], (CHECKPOINTS,))
    assert end.results[-2:] == ["recorded", "repeated"]
    assert set(end.rows["checkpoints"]) == {("r", 0), ("r", 1), ("r", 2)}
    assert ("r", frontier(end, 2)["join"], 1) in end.rows["work"]


async def test_a_run_is_complete_when_its_frontier_is_empty() -> None:
    """I40: the join leads nowhere; its step ends the run with the merged state as the result."""
    script, places = await fanned_out()
    script += [op for name in reversed(SIDES) for op in finish(places[name], 1, {"log": [name]})]
    joined = await both_ways(DECISIONS, script, (CHECKPOINTS,))
    end = await both_ways(
        DECISIONS, [*script, *finish(frontier(joined, 2)["join"], 2, {"log": ["end"]})], (CHECKPOINTS,)
    )
    run = end.rows["runs"][("r",)]
    assert (run.status, json.loads(run.result)["log"][-1]) == (COMPLETED, "end")


async def test_the_same_node_in_a_later_step_has_another_path() -> None:
    """I39: a path is the way that was really taken, so two passes of a loop never share an address."""
    loop = GraphSketch("again", {"again": ("again",)}).decisions()
    first = frontier(await both_ways(loop, [START], (CHECKPOINTS,)), 0)["again"]
    script = [START, *finish(first, 0, {})]
    second = frontier(await both_ways(loop, script, (CHECKPOINTS,)), 1)["again"]
    assert first.split("/")[1] != second.split("/")[1]
