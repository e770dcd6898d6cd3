"""A flow with an if/else, a spread and a loop."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from holdfast.core.rows import BLOCKED, COMPLETED, READY
from tests.sketches.flow import INBOX, OUTPUT, Edge, Finish, FlowSketch, Start
from tests.sketches.kernel import both_ways, claims

# items = fetch(); many(items) if len(items) > 1 else few(items); total = gather(*[work(i) for i in items]);
# while total: total = shrink(total); return total
FLOW = FlowSketch(
    "fetch",
    {
        "fetch": (Edge("many", lambda items: len(items) > 1), Edge("few")),
        "many": (Edge("join"),),
        "few": (Edge("join"),),
        "join": (Edge("work", spread="gathered"),),
        "work": (Edge("gathered"),),
        "gathered": (Edge("shrink"),),
        "shrink": (Edge("shrink", lambda left: bool(left), loops=True), Edge(OUTPUT)),
    },
)
DECISIONS = FLOW.decisions()


def done(node: str, value: object = None) -> list[object]:
    return [claims("r", node), Finish(run="r", node=node, attempt=1, token=1, value=msgspec.Raw(json.dumps(value)))]


def up_to_the_join(items: list[int]) -> list[object]:
    branch = "many" if len(items) > 1 else "few"
    return [Start(run="r"), *done("fetch", items), *done(branch, items), *done("join", items)]


@pytest.mark.parametrize(("items", "branch"), [([1, 2, 3], "many"), ([1], "few")])
async def test_a_join_of_exclusive_branches_runs_after_the_one_that_was_taken(items: list[int], branch: str) -> None:
    """I17: the join requires one of its two predecessors; the branch not taken leaves no row behind."""
    played = await both_ways(DECISIONS, up_to_the_join(items)[:-2], (INBOX,))  # type: ignore[arg-type]
    work = {key[1]: row for key, row in played.rows["work"].items()}
    assert set(work) == {"fetch", branch, "join"}
    assert (work["join"].status, work["join"].required, work["join"].completed) == (READY, 1, 1)


async def test_a_spread_of_nothing_opens_its_barrier_at_once_with_an_empty_list() -> None:
    """I20: required 0 is full from the start."""
    played = await both_ways(DECISIONS, [*up_to_the_join([]), *done("gathered")], (INBOX,))  # type: ignore[list-item]
    barrier = played.rows["work"][("r", "gathered", 1)]
    assert (barrier.required, barrier.status, barrier.result) == (0, COMPLETED, b"[]")
    assert played.rows["work"][("r", "shrink", 1)].status == READY


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_barrier_gathers_by_index_whatever_finishes_first(order: tuple[int, ...]) -> None:
    """I20 and I23: blocked until all three are in, then claimed like any item, its values in index order."""
    elements = [step for index in order for step in done(f"work[{index}]", index * 10)]
    begun = [*up_to_the_join([7, 8, 9]), *elements]
    almost = await both_ways(DECISIONS, begun[:-1], (INBOX,))  # type: ignore[arg-type]
    assert almost.rows["work"][("r", "gathered", 1)].status == BLOCKED
    played = await both_ways(DECISIONS, [*begun, *done("gathered")], (INBOX,))  # type: ignore[list-item]
    assert played.rows["work"][("r", "gathered", 1)].result == b"[0,10,20]"


async def test_every_iteration_of_a_loop_has_its_own_address_and_releases_the_one_before() -> None:
    """I18: counters and inbox of one iteration never meet another's, and the run does not grow."""
    loop = [*done("gathered"), *done("shrink", 2), *done("shrink@1", 1), *done("shrink@2", 0)]
    begun = [*up_to_the_join([]), *loop[:-1]]
    looping = await both_ways(DECISIONS, begun, (INBOX,))  # type: ignore[arg-type]
    assert [key[1] for key in looping.rows["work"] if key[1].startswith("shrink")] == ["shrink@2"]
    late = Finish(run="r", node="shrink@1", attempt=1, token=1, value=msgspec.Raw(b"1"))
    ended = await both_ways(DECISIONS, [*begun, late, loop[-1]], (INBOX,))  # type: ignore[list-item]
    assert ended.results[-2:] == ["stale", "recorded"]
    assert (ended.rows["runs"][("r",)].status, ended.rows["runs"][("r",)].result) == (COMPLETED, b"0")


async def test_a_flow_that_cannot_go_on_says_so_and_leaves_the_completion_undone() -> None:
    """I17: nothing reachable is an error that names the node, never a stall."""
    stuck = FlowSketch("only", {"only": (Edge(OUTPUT, lambda value: False),)})
    played = await both_ways(stuck.decisions(), [Start(run="r"), *done("only")], (INBOX,))  # type: ignore[list-item]
    assert "cannot leave node only" in played.results[-1]
