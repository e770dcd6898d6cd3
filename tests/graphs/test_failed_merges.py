"""I42, I16: a step whose merge or edges fail loses nothing: `retry` merges what was kept, with better code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from tests.worker.support import assert_sound, engine_on, work_of

SECONDS = 30.0
LIMIT = 20_000


def graph_of(executed: Counter[str], fixed: bool, fault: str) -> tuple[hf.Registry, hf.StateGraph[Any]]:
    """Two nodes beside each other, and what is wrong with what follows them."""

    def reducer(old: list[str], new: list[str]) -> list[str]:
        if fault == "reducer" and not fixed and "b" in new:
            raise KeyError("no room for b")
        if fault == "growth" and not fixed:
            return [*old, *new, "x" * LIMIT]
        return [*old, *new]

    def when(state: Any) -> bool:
        if fault == "when" and not fixed:
            raise ZeroDivisionError("what a condition")
        return fault != "nowhere" or fixed

    plain = Annotated[str, hf.reducers.last_writer] if fixed or fault != "conflict" else str
    state: Any = TypedDict("Log", {"log": Annotated[list[str], reducer], "plain": plain})  # type: ignore[misc]
    registry = hf.Registry()
    graph: hf.StateGraph[Any] = hf.StateGraph(state, name="merging", registry=registry)

    async def work(state: Any, ctx: hf.NodeContext) -> Any:
        executed[ctx.node] += 1
        return {"log": [ctx.node], "plain": ctx.node}

    graph.node(name="a")(work)
    graph.node(name="b")(work)
    graph.node(name="end")(lambda state: {"log": ["end"]})
    graph.start_at("a", "b")
    graph.edge("a", "end", when=when)
    graph.edge("b", "end", when=when)
    graph.finish("end")
    return registry, graph


def reduced(executed: Counter[str], fixed: bool, fault: str) -> tuple[hf.Registry, hf.StateGraph[Any]]:
    """The same with one function for all fields."""
    assert fault == "reduce"

    def reduce(state: Any, given: Any) -> Any:
        if not fixed:
            raise LookupError("what a reduce")
        return {"log": [*state["log"], *given["log"]]}

    state: Any = TypedDict("Log", {"log": list[str], "plain": str})  # type: ignore[misc]
    registry = hf.Registry()
    graph: hf.StateGraph[Any] = hf.StateGraph(state, name="merging", registry=registry, reduce=reduce)

    async def work(state: Any, ctx: hf.NodeContext) -> Any:
        executed[ctx.node] += 1
        return {"log": [ctx.node]}

    graph.node(name="a")(work)
    graph.node(name="b")(work)
    graph.node(name="end")(lambda state: {"log": ["end"]})
    graph.start_at("a", "b")
    graph.edge("a", "end")
    graph.edge("b", "end")
    graph.finish("end")
    return registry, graph


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("fault", "made", "told"),
    [
        ("conflict", graph_of, ["ConflictingWrites", "plain"]),
        ("reducer", graph_of, ["KeyError", "no room for b", "log"]),
        ("reduce", reduced, ["LookupError", "what a reduce"]),
        ("when", graph_of, ["ZeroDivisionError", "what a condition", "end"]),
        ("nowhere", graph_of, ["NoProgress", "finish"]),
        ("growth", graph_of, ["log", "20"]),
    ],
)
async def test_i42_a_merge_that_fails_fails_the_run_and_a_retry_with_better_code_merges_what_was_kept(
    request: pytest.FixtureRequest, store: str, fault: str, made: Callable[..., Any], told: list[str]
) -> None:
    """I42: the reason names what to repair; no node runs again; a retry with the same code fails in the same way."""
    url = str(request.getfixturevalue(f"{store}_url"))
    executed: Counter[str] = Counter()
    registry, graph = made(executed, False, fault)
    limit = {"payload_limit_bytes": LIMIT}
    async with engine_on(url, registry, **limit) as engine, engine.worker():
        handle = await engine.start(graph, {"log": [], "plain": ""})
        for _ in range(2):
            with pytest.raises(hf.RunFailed) as raised:
                await handle.result(timeout=SECONDS)
            for part in told:
                assert part in str(raised.value), raised.value
            assert [(row.node, row.status) for row in await work_of(engine, handle.id)] == [
                ("a@1", "completed"),
                ("b@1", "completed"),
            ]
            assert (await handle.checkpoint()).step_id == 0
            assert await handle.retry() == []
            await engine.watch.wait(handle.id, lambda row: row.ended, SECONDS)
        await assert_sound(engine)
    assert executed == {"a": 1, "b": 1}
    registry, _ = made(executed, True, fault)
    async with engine_on(url, registry, **limit) as engine, engine.worker():
        mended = engine.get(handle.id)
        await mended.retry()
        result = await mended.result(timeout=SECONDS)
        assert sorted(result["log"]) == ["a", "b", "end"]
        assert executed == {"a": 1, "b": 1}
        assert [c.step_id for c in await mended.checkpoints()] == [0, 1, 2]
        assert (await engine.replay(handle.id)).ok
        await assert_sound(engine)


async def test_i42_i41_a_conflict_that_a_node_is_mended_for_is_forked_as_the_error_says(sqlite_url: str) -> None:
    """I42, I41: a retry merges what was kept and conflicts again; the step that is run again, in a fork, does not."""
    registry = hf.Registry()
    state: Any = TypedDict("Log", {"plain": str})  # type: ignore[misc]
    graph: hf.StateGraph[Any] = hf.StateGraph(state, name="conflict", registry=registry)
    writers = ["a", "b"]
    for name in ("a", "b"):
        graph.node(name=name)(lambda state, ctx: {"plain": ctx.node} if ctx.node in writers else None)
    graph.start_at("a", "b")
    graph.finish("a", "b")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"plain": ""})
        with pytest.raises(hf.RunFailed) as raised:
            await handle.result(timeout=SECONDS)
        assert f"`holdfast fork {handle.id} --step 0`" in str(raised.value)
        assert "fork the run from the step before" in str(raised.value.cause)
        writers.remove("b")
        fork = await engine.fork(handle.id, step=0)
        assert (await fork.result(timeout=SECONDS))["plain"] == "a"
