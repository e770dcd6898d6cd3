"""I39 to I44, sentence by sentence, on real runs."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.core.operations import REPEATED, STALE, CompleteWork
from holdfast.core.queries import CheckpointsOf
from holdfast.core.state_items import (
    Item,
    checkpoint_key,
    edge_path,
    entry_path,
    in_merge_order,
    join_path,
    state_digest,
)
from tests.graphs.worlds import LATEST
from tests.support.stores import every_row
from tests.worker.support import engine_on, until, work_of

SECONDS = 30.0


class Log(TypedDict, total=False):
    n: int
    log: Annotated[list[str], hf.reducers.append]
    free: str


def graph_of(name: str = "plan", **options: Any) -> tuple[hf.Registry, hf.StateGraph[Log]]:
    registry = hf.Registry()
    return registry, hf.StateGraph(Log, name=name, registry=registry, **options)


def telling(graph: hf.StateGraph[Log], *names: str, **policy: Any) -> None:
    """Nodes that say their name and their order key."""
    for name in names:

        async def tell(state: Log, ctx: hf.NodeContext) -> Any:
            return {"log": [f"{ctx.step} {ctx.node} {ctx.order_key}"]}

        graph.node(name=name, **policy)(tell)


async def ran(registry: hf.Registry, graph: hf.StateGraph[Log], state: Log | None = None) -> Any:
    async with engine_on("memory://", registry) as engine, engine.worker():
        return await engine.run(graph, state or {"n": 0, "log": []}, timeout=SECONDS)


# -- I39: paths and order keys


async def test_i39_a_path_goes_on_from_the_parents_path_so_passes_of_a_loop_differ() -> None:
    """I39: entry over the node, then parent path, node and edge index, for as long as the loop turns."""
    registry, graph = graph_of()
    telling(graph, "out", "back")
    graph.node(name="ends")(lambda state: None)
    graph.start_at("out")
    graph.edge("out", "ends", when=lambda state: len(state["log"]) >= 6)
    graph.edge("out", "back", when=lambda state: len(state["log"]) < 6)
    graph.edge("back", "out")
    graph.finish("ends")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await handle.result(timeout=SECONDS)
        paths = [(item.node_id, item.path, item.order_key) for c in await handle.checkpoints() for item in c.frontier]
    path, wanted = entry_path("out"), [("out", entry_path("out"))]
    for _ in range(3):
        path = edge_path(path, "back", 1)
        wanted.append(("back", path))
        path = edge_path(path, "out", 0)
        wanted.append(("out", path))
    wanted.append(("ends", edge_path(path, "ends", 0)))
    assert [(node, found) for node, found, _ in paths] == wanted
    assert len({found for _, found, _ in paths}) == len(paths)
    for _, found, key in paths:
        assert key == found[:16]
        assert int(key, 16) < 2**64


def test_i39_paths_differ_when_any_of_their_parts_does_and_parts_do_not_run_together() -> None:
    """I39: ten thousand ways have ten thousand order keys; lengths are hashed along."""
    paths = {entry_path(f"n{number}") for number in range(100)}
    for parent in sorted(paths)[:10]:
        paths |= {edge_path(parent, f"n{node}", edge) for node in range(31) for edge in range(32)}
    assert len(paths) == 100 + 10 * 31 * 32
    assert len({path[:16] for path in paths}) == len(paths)
    assert edge_path("ab", "c", 1) != edge_path("a", "bc", 1)
    assert edge_path("a", "b1", 1) != edge_path("a", "b", 11)
    assert join_path("n", [("a", 1), ("b", 2)]) == join_path("n", [("b", 2), ("a", 1)])
    assert len({join_path("n", way) for way in ([("a", 1)], [("a", 2)], [("a", 1), ("a", 2)], [("b", 1)])}) == 4
    assert join_path("n", [("a", 1)]) != edge_path("a", "n", 1)


@given(st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=1, max_size=20, unique=True))
@settings(max_examples=50)
def test_i39_items_merge_by_order_key_and_ties_by_the_whole_path(paths: list[str]) -> None:
    """I39: two items whose keys are equal still have one order."""
    twins = [path[:16] + "f" * 48 for path in paths]
    items = [Item(node="n", path=path) for path in {*paths, *twins}]
    random.shuffle(items)
    ordered = in_merge_order(items)
    assert [(item.order_key, item.path) for item in ordered] == sorted((item.order_key, item.path) for item in items)
    assert in_merge_order(reversed(ordered)) == ordered


async def test_i39_i41_deltas_merge_by_order_key_whatever_finished_first() -> None:
    """I39, I41: nodes end in the opposite order of their keys, and in this one; the log does not tell which."""
    logs = set()
    for turned in (False, True):
        registry, graph = graph_of()
        names = [f"n{number}" for number in range(6)]
        ended: list[str] = []
        turn = asyncio.Condition()
        order = sorted(names, key=entry_path, reverse=turned)

        async def tell(
            state: Log,
            ctx: hf.NodeContext,
            ended: list[str] = ended,
            turn: asyncio.Condition = turn,
            order: list[str] = order,
        ) -> Any:
            async with turn:
                await turn.wait_for(lambda: len(ended) == order.index(ctx.node))
                ended.append(ctx.node)
                turn.notify_all()
            return {"log": [ctx.node]}

        for name in names:
            graph.node(name=name)(tell)
        graph.start_at(*names)
        graph.finish(*names)
        result = await ran(registry, graph)
        assert ended == order
        assert result["log"] == sorted(names, key=entry_path)
        logs.add(tuple(result["log"]))
    assert len(logs) == 1


async def test_i39_a_join_has_the_path_of_its_node_and_its_sorted_parents() -> None:
    """I39: with the edge by which each of them led there."""
    registry, graph = graph_of()
    telling(graph, "a", "b", "join")
    graph.start_at("a", "b")
    graph.edge("a", "a", when=lambda state: False)
    graph.edge("a", "join")
    graph.edge("b", "join")
    graph.finish("join", "a")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await handle.result(timeout=SECONDS)
        (item,) = (await handle.checkpoint(step=1)).frontier
    assert item.path == join_path("join", [(entry_path("a"), 1), (entry_path("b"), 0)])
    assert sorted(item.parents) == [("a", 1), ("b", 0)]


# -- I40: edges and routes


async def test_i40_every_edge_whose_condition_holds_is_taken_with_its_declared_number() -> None:
    """I40: those that do not hold keep their number; conditions see the state after the merge."""
    registry, graph = graph_of()
    telling(graph, "w", "x", "y", "z")
    graph.node(name="start")(lambda state: {"n": 5})
    graph.start_at("start")
    graph.edge("start", "w", when=lambda state: state["n"] == 0)
    graph.edge("start", "x", when=lambda state: state["n"] == 5)
    graph.edge("start", "y", when=lambda state: False)
    graph.edge("start", "z")
    graph.finish("w", "x", "y", "z")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await handle.result(timeout=SECONDS)
        frontier = (await handle.checkpoint(step=1)).frontier
    assert {(item.node_id, item.edge_index, item.parent_node_id) for item in frontier} == {
        ("x", 1, "start"),
        ("z", 3, "start"),
    }


async def test_i40_goto_and_many_take_the_place_of_the_edges_and_a_branch_may_end_in_finish() -> None:
    """I40: an edge that would hold is not followed; a node in finish without an edge ends its branch, not the run."""
    registry, graph = graph_of()
    telling(graph, "edge", "one", "two", "after")
    graph.node(name="go", goes_to=("one",))(lambda state: hf.Goto("one", {"log": ["went"]}))
    graph.node(name="many", goes_to=("one", "two"))(lambda state: hf.Many(["one", "two"], {"n": 9}))
    graph.start_at("go", "many")
    graph.edge("go", "edge")
    graph.edge("many", "edge")
    graph.edge("two", "after")
    graph.finish("edge", "one", "after")
    result = await ran(registry, graph)
    assert [line.split()[:2] for line in result["log"][1:]] == [
        *sorted([["2", "one"], ["2", "two"]], key=lambda each: _key_in(result, each[1])),
        ["3", "after"],
    ]
    assert result["n"] == 9


def _key_in(result: Any, node: str) -> str:
    return next(line.split()[2] for line in result["log"] if f" {node} " in line)


async def test_i40_stop_ends_the_run_after_the_merge_of_its_step() -> None:
    """I40: what the others of the step gave is merged, where they would go is not gone to."""
    registry, graph = graph_of()
    telling(graph, "other", "never")
    graph.node(name="stops", goes_to=())(lambda state: hf.Stop({"log": ["stopped"]}))
    graph.start_at("other", "stops")
    graph.edge("other", "never")
    graph.finish("never")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        result = await handle.result(timeout=SECONDS)
        latest = await handle.checkpoint()
    assert len(result["log"]) == 2
    assert "stopped" in result["log"]
    assert (latest.step_id, latest.frontier) == (1, ())


async def test_i40_many_without_targets_ends_its_branch_only_where_finish_says_so() -> None:
    """I40: nothing to go to and an empty frontier: the run is complete."""
    registry, graph = graph_of()
    graph.node(name="none", goes_to=())(lambda state: hf.Many([], {"log": ["done"]}))
    graph.start_at("none")
    graph.finish("none")
    assert (await ran(registry, graph))["log"] == ["done"]


@pytest.mark.parametrize("nowhere", [[], hf.Many([]), hf.Many([], {"log": ["kept"]})])
async def test_i40_an_answer_that_leads_nowhere_is_no_progress_outside_of_finish(nowhere: Any) -> None:
    """I40: like a node of whose edges none is taken; otherwise a run would be complete that never reached its end."""
    registry, graph = graph_of()
    graph.node(name="none", goes_to=["end"])(lambda state: nowhere)
    telling(graph, "end")
    graph.start_at("none")
    graph.finish("end")
    with pytest.raises(hf.RunFailed) as raised:
        await ran(registry, graph)
    assert isinstance(raised.value.cause, hf.NoProgress)
    assert "node none of graph plan answered with an empty list" in str(raised.value.cause)


# -- I41: states


async def test_i41_every_item_has_a_copy_and_only_what_it_returns_counts() -> None:
    """I41: changes in place are nobody's; items of a step see the state merged in the step before."""
    registry, graph = graph_of()
    seen: list[tuple[int, list[str]]] = []

    async def vandal(state: Log, ctx: hf.NodeContext) -> Any:
        seen.append((state["n"], list(state["log"])))
        state["n"] += 100
        state["log"].append("in place")
        await asyncio.sleep(0)
        return {"log": [f"{ctx.step}"]}

    for name in ("a", "b"):
        graph.node(name=name)(vandal)
    graph.start_at("a", "b")
    graph.edge("a", "b")
    graph.finish("a", "b")
    result = await ran(registry, graph)
    assert seen == [(0, []), (0, []), (0, ["1", "1"])]
    assert result == {"n": 0, "log": ["1", "1", "2"]}


async def test_i41_a_node_that_several_edges_lead_to_runs_once_and_each_sent_item_once() -> None:
    """I41: also when it is reached and sent to in the same step; a sent item sees its own fields before the merged."""
    registry, graph = graph_of()
    runs: Counter[tuple[int, str]] = Counter()

    @graph.node(goes_to=("meet",))
    async def sends(state: Log) -> Any:
        return hf.Many([hf.Send("meet", {"n": 7}), hf.Send("meet", {"n": 7}), "meet"], {"free": "merged"})

    @graph.node
    async def meet(state: Log) -> Any:
        runs[state["n"], state["free"]] += 1

    telling(graph, "x", "y")
    graph.start_at("sends", "x", "y")
    graph.edge("x", "meet")
    graph.edge("y", "meet")
    graph.finish("meet")
    await ran(registry, graph)
    assert runs == {(7, "merged"): 2, (0, "merged"): 1}


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_i41_two_writers_of_a_plain_field_fail_the_run_with_field_and_nodes(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I41: ConflictingWrites; the same value twice is a conflict as well; one writer a step is fine."""
    url = "memory://" if store == "memory" else request.getfixturevalue(f"{store}_url")
    registry, graph = graph_of()
    for name in ("left", "right"):
        graph.node(name=name)(lambda state: {"free": "same"})
    graph.node(name="before")(lambda state: {"free": "first"})
    graph.start_at("before")
    graph.edge("before", "left")
    graph.edge("before", "right")
    graph.finish("left", "right")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        with pytest.raises(hf.RunFailed) as raised:
            await handle.result(timeout=SECONDS)
        assert isinstance(raised.value.cause, hf.ConflictingWrites)
        for part in ("free", "left", "right"):
            assert part in str(raised.value.cause)
        assert (await handle.checkpoint()).state["free"] == "first"


# -- I42: failures within a step


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_i42_a_node_that_gives_up_fails_the_run_when_the_others_have_settled_and_they_are_kept(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I42: nobody is cut off, and after a retry only the one that gave up runs again."""
    url = "memory://" if store == "memory" else request.getfixturevalue(f"{store}_url")
    registry, graph = graph_of()
    gate, executed, broken = asyncio.Event(), Counter[str](), True

    @graph.node
    async def slow(state: Log) -> Any:
        executed["slow"] += 1
        await gate.wait()
        return {"log": ["slow"]}

    @graph.node
    async def bad(state: Log) -> Any:
        executed["bad"] += 1
        if broken:
            raise ValueError("broken")
        return {"log": ["mended"]}

    graph.start_at("slow", "bad")
    graph.finish("slow", "bad")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})

        async def gave_up() -> bool:
            return any(row.status == "failed" for row in await work_of(engine, handle.id, "bad@1"))

        await until(gave_up, "bad gives up")
        assert await handle.status() == "running"
        gate.set()
        with pytest.raises(hf.RunFailed, match="broken"):
            await handle.result(timeout=SECONDS)
        assert [row.status for row in await work_of(engine, handle.id, "slow@1")] == ["completed"]
        broken = False
        assert await handle.retry() == ["bad@1"]
        result = await handle.result(timeout=SECONDS)
        assert sorted(result["log"]) == ["mended", "slow"]
        assert executed == {"slow": 1, "bad": 2}
        assert [c.step_id for c in await handle.checkpoints()] == [0, 1]


# -- I43: randomness


async def test_i43_an_items_numbers_come_from_the_runs_seed_and_its_order_key_in_every_attempt() -> None:
    """I43: the run's seed is the first 8 bytes of sha256 over its id; a fork has numbers of its own."""
    registry, graph = graph_of()
    drawn: dict[tuple[str, int], list[float]] = {}

    @graph.node(retry=hf.Retry(attempts=3, base=0.001, cap=0.001))
    async def draw(state: Log, ctx: hf.NodeContext) -> Any:
        drawn[ctx.run_id, ctx.attempt] = [ctx.rng.random() for _ in range(3)]
        if ctx.attempt < 3:
            raise ValueError("again")

    graph.start_at("draw")
    graph.finish("draw")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await handle.result(timeout=SECONDS)
        seed = int.from_bytes(hashlib.sha256(handle.id.encode()).digest()[:8], "big")
        assert (await handle.checkpoint()).rng_seed == seed
        chance = random.Random(seed ^ int(entry_path("draw")[:16], 16))
        wanted = [chance.random() for _ in range(3)]
        assert [drawn[handle.id, attempt] for attempt in (1, 2, 3)] == [wanted] * 3
        fork = await engine.fork(handle.id, step=0)
        await fork.result(timeout=SECONDS)
        assert drawn[fork.id, 3] != wanted


# -- I44: checkpoints


def test_i44_a_checkpoints_key_depends_on_run_step_state_and_frontier_and_on_nothing_else() -> None:
    """I44: canonical JSON with length prefixes."""
    item, other = Item(node="a", path=entry_path("a")), Item(node="b", path=entry_path("b"))
    digest = state_digest({"x": b"1", "y": b"2"})
    key = checkpoint_key("run", 3, digest, (item,))
    assert key == checkpoint_key("run", 3, state_digest({"y": b"2", "x": b"1"}), (item,))
    others = {
        checkpoint_key("other", 3, digest, (item,)),
        checkpoint_key("run3", 3, digest, (item,)),
        checkpoint_key("run", 33, digest, (item,)),
        checkpoint_key("run", 4, digest, (item,)),
        checkpoint_key("run", 3, state_digest({"x": b"12", "y": b""}), (item,)),
        checkpoint_key("run", 3, state_digest({"x": b"2", "y": b"1"}), (item,)),
        checkpoint_key("run", 3, digest, ()),
        checkpoint_key("run", 3, digest, (other,)),
        checkpoint_key("run", 3, digest, (item, other)),
        checkpoint_key("run", 3, digest, (Item(node="a", path=entry_path("a"), sent={}),)),
    }
    assert len(others) == 10
    assert key not in others


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_i44_g2_a_step_that_is_committed_again_writes_nothing_and_another_outcome_is_refused(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I44, G2: the report that closed the step, once more as it was, and once more with something else in it."""
    url = "memory://" if store == "memory" else request.getfixturevalue(f"{store}_url")
    registry, graph = graph_of()
    telling(graph, "a", "b")
    graph.start_at("a")
    graph.edge("a", "b")
    graph.finish("b")
    async with engine_on(url, registry) as engine:
        reports: list[CompleteWork] = []
        engine.coordinator.observers.append(
            lambda commit: reports.extend(op for op, _ in commit.pairs if isinstance(op, CompleteWork))
        )
        async with engine.worker():
            handle = await engine.start(graph, {"n": 0, "log": []})
            await handle.result(timeout=SECONDS)
        before = await every_row(engine.store)
        assert [report.node for report in reports] == ["a@1", "b@2"]
        other = b'{"delta":{"log":["forged"]}}'
        for report in list(reports):
            forged = CompleteWork(
                run=report.run, node=report.node, attempt=report.attempt, token=report.token, result=other
            )
            for again in (report, forged):
                assert (await engine.coordinator.submit(again)).verdict in (REPEATED, STALE)
        assert await every_row(engine.store) == before
        rows = await engine.store.rows(CheckpointsOf(handle.id, LATEST, 100))
        assert sorted(row.step for row in rows) == [0, 1, 2]
        assert len({row.key for row in rows}) == 3


async def test_i44_a_hundred_runs_of_ten_steps_with_retries_have_exactly_a_thousand_checkpoints() -> None:
    """I44: and the one that each began with; retries and concurrency add none and lose none."""
    registry, graph = graph_of()
    failures: Counter[tuple[str, int]] = Counter()

    @graph.node(retry=hf.Retry(attempts=3, base=0.001, cap=0.001))
    async def turn(state: Log, ctx: hf.NodeContext) -> Any:
        if failures[ctx.run_id, ctx.step] < 2:
            failures[ctx.run_id, ctx.step] += 1
            raise ValueError("again")
        return {"n": state["n"] + 1}

    graph.start_at("turn")
    graph.edge("turn", "turn", when=lambda state: state["n"] < 10)
    graph.finish("turn")
    async with engine_on("memory://", registry) as engine, engine.worker(concurrency=100):
        handles = [await engine.start(graph, {"n": 0, "log": []}) for _ in range(100)]
        results = [await handle.result(timeout=SECONDS) for handle in handles]
        assert [result["n"] for result in results] == [10] * 100
        steps = Counter[int]()
        for handle in handles:
            rows = await engine.store.rows(CheckpointsOf(handle.id, LATEST, 100))
            assert len({row.key for row in rows}) == 11
            steps.update(row.step for row in rows)
            assert (await handle.scheduler()).metrics.total_retries == 20
    assert steps == dict.fromkeys(range(11), 100)
    assert steps.total() - steps[0] == 1000
