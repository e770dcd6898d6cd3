"""I46, I40: how much runs at once, what waits, what is refused, and what ends a run that gets nowhere."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.coordinator import Commit
from holdfast.core.queries import OpenWork
from holdfast.core.rows import LEASED, READY, WORK, Work
from holdfast.testing import engine_in_memory
from tests.worker.support import assert_sound, engine_on, until, work_of

SECONDS = 60.0
STORES = pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])


class Log(TypedDict):
    n: int
    log: Annotated[list[str], hf.reducers.append]


def url_of(request: pytest.FixtureRequest, store: str) -> str:
    return "memory://" if store == "memory" else str(request.getfixturevalue(f"{store}_url"))


def graph_of(**options: Any) -> tuple[hf.Registry, hf.StateGraph[Log]]:
    registry = hf.Registry()
    return registry, hf.StateGraph(Log, name="plan", registry=registry, **options)


EMPTY: Log = {"n": 0, "log": []}


@STORES
async def test_i41_five_independent_nodes_of_200_ms_take_at_most_400_ms(
    request: pytest.FixtureRequest, store: str
) -> None:
    """They run at once. Real time and a real engine; the best of three, since machines are shared."""
    registry, graph = graph_of()
    for number in range(5):

        async def work(state: Log) -> Any:
            await asyncio.sleep(0.2)

        graph.node(work, name=f"n{number}")
    names = [f"n{number}" for number in range(5)]
    graph.start_at(*names)
    graph.finish(*names)
    took = []
    async with hf.Engine(url_of(request, store), registry=registry) as engine, engine.worker():
        for _ in range(3):
            began = time.monotonic()
            await (await engine.start(graph, EMPTY)).result(timeout=SECONDS)
            took.append(time.monotonic() - began)
            if took[-1] <= 0.4:
                break
    assert min(took) <= 0.4, took


class Bounds:
    """Looks at every commit: how many items of a run are open at once, and how many of them wait."""

    def __init__(self, engine: hf.Engine) -> None:
        self.most_open = 0
        self._open: dict[tuple[str, str, int], str] = {}
        engine.coordinator.observers.append(self._look)

    def _look(self, commit: Commit) -> None:
        for work in commit.changes.rows(WORK):
            key = (work.run, work.node, work.attempt)
            if work.status in (READY, LEASED):
                self._open[key] = work.status
            else:
                self._open.pop(key, None)
        self.most_open = max(self.most_open, len(self._open))


@pytest.mark.parametrize(("store", "width"), [("memory", 2000), ("sqlite", 300), ("postgres", 200)])
async def test_i46_a_fan_out_into_a_small_frontier_never_blocks_and_never_exceeds_it(
    request: pytest.FixtureRequest, store: str, width: int
) -> None:
    """I46: every item sends another one, the bound holds at every commit, and what found no room is counted."""
    registry, graph = graph_of(max_concurrent=16, queue_depth=64)

    @graph.node(goes_to=("leaf",))
    async def fan(state: Log) -> Any:
        return [hf.Send("leaf", {"n": number}) for number in range(width)]

    @graph.node(goes_to=("leaf", "total"))
    async def leaf(state: Log, ctx: hf.NodeContext) -> Any:
        if state["n"] < width:
            return hf.Send("leaf", {"n": state["n"] + width})
        return hf.Goto("total", {"log": [str(state["n"])]})

    @graph.node
    async def total(state: Log) -> Any:
        return {"n": len(set(state["log"]))}

    graph.start_at("fan")
    graph.finish("total")
    samples = []
    async with engine_on(url_of(request, store), registry) as engine, engine.worker(concurrency=50):
        bounds = Bounds(engine)
        handle = await engine.start(graph, EMPTY)

        async def sample() -> bool:
            row = await handle._row()
            samples.append(await handle.scheduler())
            return row.ended

        await until(sample, "it ends", SECONDS)
        result = await handle.result(timeout=SECONDS)
        end = await handle.scheduler()
        executed = await work_of(engine, handle.id)
        await assert_sound(engine)
    assert result["n"] == width
    assert len(executed) == 2 * width + 2
    assert all(work.attempt == 1 for work in executed), "an item ran twice"
    assert bounds.most_open <= 16
    assert max(each.queue_depth for each in samples) <= 64
    assert max(each.active_nodes for each in samples) <= 16
    assert max(each.spilled for each in samples) > 0
    assert end.metrics.max_queue_depth == 64
    assert end.metrics.total_backpressure_blocks == 2 * (width - 64 - 16)
    assert end.metrics.total_nodes_executed == 2 * width + 2
    assert (end.queue_depth, end.active_nodes, end.spilled) == (0, 0, 0)


async def test_i46_items_that_wait_too_long_for_room_pause_the_run_at_its_checkpoint() -> None:
    """I46: what runs is finished and kept; a resume goes on with the rest, and nothing is run twice."""
    registry, graph = graph_of(max_concurrent=2, queue_depth=3, backpressure_seconds=30.0, default_timeout=None)
    gate, ran = asyncio.Event(), Counter[int]()

    @graph.node(goes_to=("leaf",))
    async def fan(state: Log) -> Any:
        return [hf.Send("leaf", {"n": number}) for number in range(10)]

    @graph.node
    async def leaf(state: Log) -> Any:
        ran[state["n"]] += 1
        await gate.wait()
        return {"log": [str(state["n"])]}

    graph.start_at("fan")
    graph.finish("leaf")
    async with engine_in_memory(registry=registry, patience_seconds=0.05) as (engine, clock):
        handle = await engine.start(graph, EMPTY)
        await until(lambda: len(ran) == 2, "two leaves run")
        await clock.advance(seconds=31)
        gate.set()
        await until(lambda: _is(handle, "paused"), "it is paused")
        row = await handle._row()
        assert "frontier of 3" in row.reason
        assert "31 s" in row.reason
        assert "resume" in row.reason
        latest = await handle.checkpoint()
        assert (latest.step_id, len(latest.frontier), latest.state["log"]) == (1, 10, [])
        kinds = [entry.kind for entry in await handle.history()]
        assert kinds.count("paused") == 1
        with pytest.raises(hf.RunPaused, match="frontier of 3"):
            await handle.result(timeout=1)
        await handle.resume()
        result = await handle.result(timeout=SECONDS)
        assert sorted(result["log"]) == sorted(str(number) for number in range(10))
        assert all(times == 1 for times in ran.values()), ran


async def test_i46_a_slow_node_that_nobody_waits_behind_pauses_nothing() -> None:
    """I46: only admission that is blocked counts; items within the frontier may wait."""
    registry, graph = graph_of(max_concurrent=1, queue_depth=3, backpressure_seconds=1.0, default_timeout=None)
    gate = asyncio.Event()
    running = asyncio.Event()

    async def work(state: Log) -> Any:
        running.set()
        await gate.wait()

    for number in range(4):
        graph.node(work, name=f"n{number}")
    names = [f"n{number}" for number in range(4)]
    graph.start_at(*names)
    graph.finish(*names)
    async with engine_in_memory(registry=registry, patience_seconds=0.05) as (engine, clock):
        handle = await engine.start(graph, EMPTY)
        await running.wait()
        await clock.advance(hours=1)
        gate.set()
        await handle.result(timeout=SECONDS)


async def _is(handle: hf.Handle[Any], status: str) -> bool:
    return await handle.status() == status


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_i46_i10_a_cancel_reaches_running_nodes_within_a_second(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I10: nodes of this process, async and plain, asked for by another engine if the store has room for two."""
    registry, graph = graph_of()
    stopped: dict[str, float] = {}
    began = threading.Barrier(2)

    @graph.node
    async def waits(state: Log) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            stopped["waits"] = time.monotonic()

    @graph.node
    def spins(state: Log, ctx: hf.NodeContext) -> Any:
        began.wait(20)
        while not ctx.cancelled:
            time.sleep(0.01)
        stopped["spins"] = time.monotonic()
        return {"log": ["too late"]}

    graph.start_at("waits", "spins")
    graph.finish("waits", "spins")
    url = url_of(request, store)
    async with hf.Engine(url, registry=registry) as engine, engine.worker():
        handle = await engine.start(graph, EMPTY)
        await asyncio.to_thread(began.wait, 20)
        if store == "memory":
            asked = time.monotonic()
            await handle.cancel()
        else:
            async with hf.Engine(url, registry=registry) as other:
                asked = time.monotonic()
                await other.get(handle.id).cancel()
        await until(lambda: len(stopped) == 2, "both nodes stop")
        assert max(stopped.values()) - asked < 1.0
        with pytest.raises(hf.RunCancelled):
            await handle.result(timeout=SECONDS)
        rows = await work_of(engine, handle.id)
        assert {row.status for row in rows} == {"cancelled"}
        assert (await handle.checkpoint()).state["log"] == []


async def test_i40_a_graph_that_never_ends_is_stopped_at_its_step_limit() -> None:
    """I40: exactly max_steps steps, the reason names where it would go on; a run of just as many is fine."""
    registry, graph = graph_of(max_steps=7)

    @graph.node
    async def turn(state: Log) -> Any:
        return {"n": state["n"] + 1}

    graph.start_at("turn")
    graph.edge("turn", "turn", when=lambda state: state["n"] != 7 or state["log"] != ["ends"])
    graph.finish("turn")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, EMPTY)
        with pytest.raises(hf.RunFailed, match="7 steps") as raised:
            await handle.result(timeout=SECONDS)
        assert isinstance(raised.value.cause, hf.NoProgress)
        assert "turn" in str(raised.value.cause)
        assert (await handle.checkpoint()).step_id == 6
        ending = await engine.run(graph, {"n": 0, "log": ["ends"]}, timeout=SECONDS)
        assert ending["n"] == 7


@STORES
async def test_i40_i46_a_node_that_leads_nowhere_is_no_progress_at_once_and_is_named(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I40, I46: no waiting for something that cannot come; what the step's nodes gave is kept."""
    registry, graph = graph_of()

    @graph.node
    async def stuck(state: Log) -> Any:
        return {"log": ["stuck"]}

    @graph.node
    async def end(state: Log) -> Any: ...

    graph.start_at("stuck")
    graph.edge("stuck", "end", when=lambda state: state["n"] > 0)
    graph.finish("end")
    async with engine_on(url_of(request, store), registry) as engine, engine.worker():
        handle = await engine.start(graph, EMPTY)
        began = time.monotonic()
        with pytest.raises(hf.RunFailed) as raised:
            await handle.result(timeout=SECONDS)
        assert time.monotonic() - began < 5.0
        assert isinstance(raised.value.cause, hf.NoProgress)
        assert "stuck" in str(raised.value.cause)
        assert "finish" in str(raised.value.cause)
        (row,) = await work_of(engine, handle.id)
        assert row.status == "completed"


@STORES
async def test_i46_no_error_is_lost_when_all_nodes_of_a_step_fail_at_once(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I46: each item's own error is stored and the run tells one of them; the numbers agree."""
    registry, graph = graph_of(max_concurrent=50)

    @graph.node(goes_to=("leaf",))
    async def fan(state: Log) -> Any:
        return [hf.Send("leaf", {"n": number}) for number in range(40)]

    @graph.node(retry=hf.Retry(attempts=2, base=0.001, cap=0.001))
    async def leaf(state: Log, ctx: hf.NodeContext) -> Any:
        raise ValueError(f"leaf {state['n']} attempt {ctx.attempt}")

    graph.start_at("fan")
    graph.finish("leaf")
    async with engine_on(url_of(request, store), registry) as engine, engine.worker(concurrency=50):
        handle = await engine.start(graph, EMPTY)
        with pytest.raises(hf.RunFailed, match="ValueError: leaf"):
            await handle.result(timeout=SECONDS)
        rows = [row for row in await work_of(engine, handle.id) if row.node.startswith("leaf")]
        told = {row.error.decode().partition("leaf ")[2].split('"')[0] for row in rows if row.error is not None}
        assert told == {f"{number} attempt {attempt}" for number in range(40) for attempt in (1, 2)}
        assert {row.status for row in rows} == {"failed"}
        await assert_sound(engine)


async def test_i46_an_answer_waits_for_room_like_everything_else() -> None:
    """I46: an item that asked a person gave its place away; with the answer it does not make one too many."""
    registry, graph = graph_of(max_concurrent=1)
    busy = Counter[str]()
    most = 0
    gate = asyncio.Event()

    @graph.node(goes_to=("leaf",))
    async def fan(state: Log) -> Any:
        return [hf.Send("leaf", {"n": number}) for number in range(3)]

    @graph.node
    async def leaf(state: Log, ctx: hf.NodeContext) -> Any:
        nonlocal most
        if not busy["asked"]:
            busy["asked"] += 1
            await ctx.interrupt("go on?")
        busy["now"] += 1
        most = max(most, busy["now"])
        await gate.wait()
        busy["now"] -= 1
        return {"log": [str(state["n"])]}

    graph.start_at("fan")
    graph.finish("leaf")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, EMPTY)
        await until(lambda: busy["now"] == 1, "another leaf took the place")
        (question,) = await handle.interrupts()
        busy["asked"] += 1
        await handle.resume_with("yes", node=question.node)
        open_work: list[Work] = await engine.store.rows(OpenWork(handle.id))
        assert sum(work.status in (READY, LEASED) for work in open_work) == 1
        assert (await handle.scheduler()).active_nodes == 1
        gate.set()
        assert len((await handle.result(timeout=SECONDS))["log"]) == 3
    assert most == 1


async def test_i46_a_retry_of_many_items_lets_in_as_many_as_may_run() -> None:
    """I46: max_concurrent holds for what an operator asks to be tried again, too."""
    registry, graph = graph_of(max_concurrent=2)
    broken, busy, most = True, 0, 0

    @graph.node(goes_to=("leaf",))
    async def fan(state: Log) -> Any:
        return [hf.Send("leaf", {"n": number}) for number in range(8)]

    @graph.node
    async def leaf(state: Log) -> Any:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        for _ in range(10):
            await asyncio.sleep(0)
        busy -= 1
        if broken:
            raise ValueError("not yet")
        return {"log": [str(state["n"])]}

    graph.start_at("fan")
    graph.finish("leaf")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, EMPTY)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=SECONDS)
        broken = False
        bounds = Bounds(engine)
        assert len(await handle.retry()) == 8
        assert len((await handle.result(timeout=SECONDS))["log"]) == 8
    assert most <= 2
    assert bounds.most_open <= 2
