"""I10, I11, I13, I29: what people do to runs of graphs: pause, resume, retry, reattempt, skip, fork, cancel, answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.queries import CheckpointsOf, OpenWork, RecordedOf
from holdfast.core.rows import COMPLETED, GATE_PAUSED
from holdfast.core.state_operations import AnswerPerson
from holdfast.testing import engine_in_memory
from tests.graphs.worlds import LATEST
from tests.worker.support import assert_sound, engine_on, until, work_of

SECONDS = 30.0


class Log(TypedDict, total=False):
    n: int
    log: Annotated[list[str], hf.reducers.append]


@dataclass
class Bench:
    """A graph of two steps with a gate in front of each node, and a switch that breaks one of them."""

    registry: hf.Registry = field(default_factory=hf.Registry)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    began: Counter[str] = field(default_factory=Counter)
    keys: list[tuple[str, str]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.graph = hf.StateGraph(Log, name="bench", registry=self.registry, default_timeout=None)

        async def work(state: Log, ctx: hf.NodeContext) -> Any:
            return await self.work(ctx)

        for name in ("left", "right", "last"):
            self.gates[name] = asyncio.Event()
            self.graph.node(name=name)(work)
        self.graph.start_at("left", "right")
        self.graph.edge("left", "last")
        self.graph.edge("right", "last")
        self.graph.finish("last")

    async def work(self, ctx: hf.NodeContext) -> Any:
        self.began[ctx.node] += 1
        self.keys.append((ctx.node, ctx.idempotency_key))
        await self.gates[ctx.node].wait()
        if ctx.node in self.broken:
            raise ValueError(f"{ctx.node} is broken")
        return {"log": [ctx.node]}

    def open(self, *names: str) -> None:
        for name in names or self.gates:
            self.gates[name].set()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


@asynccontextmanager
async def started(bench: Bench, url: str) -> AsyncIterator[tuple[hf.Engine, hf.Handle[Any]]]:
    async with engine_on(url, bench.registry) as engine, engine.worker():
        yield engine, await engine.start(bench.graph, {"n": 0, "log": []})
        bench.open()
        await assert_sound(engine)


async def failed(handle: hf.Handle[Any]) -> None:
    with pytest.raises(hf.RunFailed):
        await handle.result(timeout=SECONDS)


async def test_i11_a_pause_lets_what_runs_end_and_starts_nothing_until_the_resume(url: str) -> None:
    """I11: the step is merged while it is paused; its next items wait, and run at once when it is resumed."""
    bench = Bench()
    async with started(bench, url) as (engine, handle):
        await until(lambda: len(bench.began) == 2, "both run")
        assert await handle.pause(reason="lunch")
        bench.open()
        await until(lambda: _steps(engine, handle, 1), "the step is merged")
        assert await handle.status() == "paused"
        (waiting,) = await engine.store.rows(OpenWork(handle.id))
        assert (waiting.node, waiting.status) == ("last@2", "ready")
        assert bench.began["last"] == 0
        assert await handle.resume()
        assert sorted((await handle.result(timeout=SECONDS))["log"]) == ["last", "left", "right"]
        assert bench.began == {"left": 1, "right": 1, "last": 1}


async def _steps(engine: hf.Engine, handle: hf.Handle[Any], step: int) -> bool:
    rows = await engine.store.rows(CheckpointsOf(handle.id, LATEST, 1))
    return bool(rows[0].step >= step)


async def test_i11_a_retry_tries_what_gave_up_and_keeps_what_was_done(url: str) -> None:
    """I11, I13: with the same idempotency keys; a run that has nothing to retry says so."""
    bench = Bench(broken={"left"})
    bench.open()
    async with started(bench, url) as (_, handle):
        await failed(handle)
        bench.broken.clear()
        assert await handle.retry() == ["left@1"]
        await handle.result(timeout=SECONDS)
        assert bench.began == {"left": 2, "right": 1, "last": 1}
        keys = [key for node, key in bench.keys if node == "left"]
        assert keys[0] == keys[1]
        assert len({key for _, key in bench.keys}) == 3
        assert handle.id in keys[0]
        with pytest.raises(hf.UsageError, match="nothing to retry"):
            await handle.retry()


async def test_i11_a_retry_of_a_paused_graph_waits_for_the_resume(url: str) -> None:
    bench = Bench(broken={"left"})
    async with started(bench, url) as (engine, handle):
        await until(lambda: len(bench.began) == 2, "both run")
        assert await handle.pause(reason="lunch")
        bench.open()

        async def gave_up() -> bool:
            (row,) = await engine.store.runs([handle.id])
            return (row.gave_up, row.active) == (1, 0)

        await until(gave_up, "left gave up")
        bench.broken.clear()
        assert await handle.retry() == ["left@1"]
        assert await handle.status() == "paused"
        (waiting,) = await engine.store.rows(OpenWork(handle.id))
        assert (waiting.node, waiting.status, waiting.gate) == ("left@1", "ready", GATE_PAUSED)
        assert await handle.resume()
        await handle.result(timeout=SECONDS)
        assert bench.began == {"left": 2, "right": 1, "last": 1}


async def test_i29_a_reattempt_is_for_one_item_that_gave_up(url: str) -> None:
    """I29: by node or by item; refused for one that completed, that runs, and when the run has ended well."""
    bench = Bench(broken={"left", "right"})
    bench.open()
    async with started(bench, url) as (engine, handle):
        await failed(handle)
        bench.broken.discard("left")
        await handle.reattempt("left")
        await until(lambda: _done(engine, handle, "left@1"), "left is done")
        await failed(handle)
        with pytest.raises(hf.ReattemptRefused, match=r"left@1.*completed"):
            await handle.reattempt("left@1")
        with pytest.raises(hf.UnknownNode, match="middle"):
            await handle.reattempt("middle")
        bench.broken.clear()
        await handle.reattempt("right@1")
        await handle.result(timeout=SECONDS)
        assert bench.began == {"left": 2, "right": 2, "last": 1}
        with pytest.raises(hf.ReattemptRefused, match="run is completed"):
            await handle.reattempt("right@1")


async def test_i29_the_fork_that_a_refused_reattempt_offers_is_granted(url: str) -> None:
    """From the step before the item's own, wherever the run has come since; also of one that was cancelled."""
    bench = Bench()
    bench.open("left", "right")
    async with started(bench, url) as (engine, cancelled):
        await until(lambda: _steps(engine, cancelled, 1), "the first step is done")
        await cancelled.cancel()
        bench.open()
        completed = await engine.start(bench.graph, {"n": 0, "log": []})
        await completed.result(timeout=SECONDS)
        for handle in (cancelled, completed):
            for item, step in (("left@1", 0), ("last@2", 1)):
                with pytest.raises(hf.ReattemptRefused) as refused:
                    await handle.reattempt(item)
                assert f"`holdfast fork {handle.id} --step {step}`" in refused.value.hint
                assert f"engine.fork(…, step={step})" in refused.value.hint
                forked = await engine.fork(handle.id, step=step)
                assert (await forked.result(timeout=SECONDS))["log"][-1] == "last"


async def _done(engine: hf.Engine, handle: hf.Handle[Any], node: str) -> bool:
    return any(row.status == COMPLETED for row in await work_of(engine, handle.id, node))


async def test_i11_a_skipped_item_gives_nothing_and_the_step_goes_on(url: str) -> None:
    """I11: its edges are followed as if it had returned nothing; it is not replayed as if it had run."""
    bench = Bench(broken={"left"})
    bench.open()
    async with started(bench, url) as (engine, handle):
        await failed(handle)
        await handle.skip("left")
        result = await handle.result(timeout=SECONDS)
        assert result["log"] == ["right", "last"]
        assert [row.status for row in await work_of(engine, handle.id, "left@1")] == ["skipped"]
        report = await engine.replay(handle.id)
        assert report.ok
        assert report.state == result


async def test_i10_a_cancelled_run_stays_where_it_is(url: str) -> None:
    """I10, G7: in one transaction; what still comes in is stale, and nothing moves it again."""
    bench = Bench()
    async with started(bench, url) as (engine, handle):
        await until(lambda: len(bench.began) == 2, "both run")
        assert await handle.cancel()
        bench.open()
        with pytest.raises(hf.RunCancelled):
            await handle.result(timeout=SECONDS)
        await engine.settle(timeout=SECONDS)
        assert {row.status for row in await work_of(engine, handle.id)} == {"cancelled"}
        assert (await handle.checkpoint()).step_id == 0
        assert not await handle.resume()
        with pytest.raises(hf.UsageError, match="cancelled"):
            await handle.retry()
        assert bench.began["last"] == 0


async def test_i13_i45_a_fork_goes_on_from_a_step_with_other_state_and_keys_of_its_own(url: str) -> None:
    """I11, I13: nothing before the step runs again, the source stays as it is, and both can be replayed."""
    bench = Bench()
    bench.open()
    async with started(bench, url) as (engine, handle):
        first = await handle.result(timeout=SECONDS)
        source = await handle.checkpoints()
        bench.keys.clear()
        fork = await engine.fork(handle.id, step=1, update={"log": ["rewritten"], "n": 5}, key="again")
        result = await fork.result(timeout=SECONDS)
        assert result == {"n": 5, "log": ["rewritten", "last"]}
        ((node, key),) = bench.keys
        assert node == "last"
        assert fork.id in key
        assert handle.id not in key
        assert [c.step_id for c in await fork.checkpoints()] == [1, 2]
        assert (await fork.checkpoint(step=1)).frontier[0].order_key == source[1].frontier[0].order_key
        assert await handle.checkpoints() == source
        assert await handle.result() == first
        for each in (handle, fork):
            assert (await engine.replay(each.id)).ok
        with pytest.raises(hf.KeyConflict, match="again"):
            await engine.fork(handle.id, step=1, key="again")
        with pytest.raises(hf.UsageError, match="no step 9"):
            await engine.fork(handle.id, step=9)
        with pytest.raises(hf.UsageError, match="it is the last"):
            await engine.fork(handle.id)
        with pytest.raises(hf.HoldfastError, match="lug"):
            await engine.fork(handle.id, step=1, update={"lug": []})


async def test_i11_a_fork_of_a_failed_run_needs_no_failure(url: str) -> None:
    """The way out when the state itself is wrong: what gave up is tried in the fork, from the same checkpoint."""
    bench = Bench(broken={"last"})
    bench.open()
    async with started(bench, url) as (engine, handle):
        await failed(handle)
        bench.broken.clear()
        fork = await engine.fork(handle.id)
        assert sorted((await fork.result(timeout=SECONDS))["log"]) == ["last", "left", "right"]
        assert bench.began == {"left": 1, "right": 1, "last": 2}
        assert await handle.status() == "failed"


# -- people


def asking(registry: hf.Registry, calls: Counter[str]) -> hf.StateGraph[Log]:
    graph = hf.StateGraph(Log, name="asking", registry=registry)

    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        calls[f"{ctx.node} began"] += 1

        def call() -> str:
            calls[f"{ctx.node} called"] += 1
            return "draft"

        draft = await ctx.record("draft", {}, call)
        first = await ctx.interrupt({"draft": draft, "of": ctx.node})
        second = await ctx.interrupt("sure?")
        return {"log": [f"{ctx.node} {first} {second}"]}

    for name in ("one", "two"):
        graph.node(name=name, recordable=True)(ask)
    graph.node(name="quick")(lambda state: {"log": ["quick"]})
    graph.start_at("one", "two", "quick")
    graph.finish("one", "two", "quick")
    return graph


async def test_i42_a_question_holds_no_slot_and_its_answer_goes_to_the_node_that_asked(url: str) -> None:
    """I42: the run is suspended, in the store alone; calls before the question are not made again."""
    registry, calls = hf.Registry(), Counter[str]()
    graph = asking(registry, calls)
    async with engine_on(url, registry) as engine, engine.worker(concurrency=1):
        handle = await engine.start(graph, {"n": 0, "log": []})
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        state = await handle.scheduler()
        assert (state.active_nodes, state.waiting_for_people, state.queue_depth) == (0, 2, 0)
        questions = {each.node: each.payload for each in await handle.interrupts()}
        assert questions == {f"{name}@1": {"draft": "draft", "of": name} for name in ("one", "two")}
        with pytest.raises(hf.UsageError, match=r"2 nodes .* wait for an answer"):
            await handle.resume_with("who?")
        await handle.resume_with({"deep": [1, None]}, node="one")
        await until(lambda: _payloads(handle, {"one@1": "sure?", "two@1": questions["two@1"]}), "one asks again")
        await handle.resume_with(2, node="one@1")
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        await until(lambda: _payloads(handle, {"two@1": questions["two@1"]}), "only two asks")
    # Nobody works on it, and nothing is lost.
    async with engine_on(url, registry) as engine:
        if url == "memory://":
            return
        assert len(await engine.get(handle.id).interrupts()) == 1
        await engine.get(handle.id).resume_with("three")
        async with engine.worker():
            await until(lambda: _payloads(engine.get(handle.id), {"two@1": "sure?"}), "two asks again")
            await engine.get(handle.id).resume_with(4)
            result = await engine.get(handle.id).result(timeout=SECONDS)
        assert sorted(result["log"]) == ["one {'deep': [1, None]} 2", "quick", "two three 4"]
        assert calls == {"one began": 3, "one called": 1, "two began": 3, "two called": 1}
        with pytest.raises(hf.UsageError, match="is completed and asks nobody"):
            await engine.get(handle.id).resume_with("late")
        await assert_sound(engine)


async def _payloads(handle: hf.Handle[Any], wanted: dict[str, Any]) -> bool:
    return {each.node: each.payload for each in await handle.interrupts()} == wanted


async def test_i42_an_answer_for_a_node_that_the_graph_lacks_is_refused_also_if_another_was_given_it(url: str) -> None:
    """I42, K8: repeated is what was given to the same node."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="asks twice", registry=registry)

    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        return {"log": [await ctx.interrupt("sure?")]}

    graph.node(name="one")(ask)
    graph.node(name="two")(ask)
    graph.start_at("one", "two")
    graph.finish("one", "two")

    async def both_ask() -> bool:
        return len(await handle.interrupts()) == 2

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await until(both_ask, "both ask")
        assert await handle.resume_with("yes", node="one")
        assert not await handle.resume_with("yes", node="one")
        with pytest.raises(hf.UnknownNode, match="onne"):
            await handle.resume_with("yes", node="onne")
        assert await handle.resume_with("yes", node="two")
        await handle.result(timeout=SECONDS)
        assert not await handle.resume_with("yes", node="two")
        with pytest.raises(hf.UsageError, match="asks nobody"):
            await handle.resume_with("yes", node="onne")


async def test_i11_an_answer_to_a_paused_run_is_kept_for_the_resume(url: str) -> None:
    """I11: answering is accepted, nothing starts; a cancelled run asks nobody any more."""
    registry, calls = hf.Registry(), Counter[str]()
    graph = asking(registry, calls)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        await handle.pause()
        before = Counter(calls)
        await handle.resume_with("yes", node="one")
        await engine.settle(timeout=SECONDS)
        assert (await handle.status(), calls) == ("paused", before)
        await handle.resume()
        await until(lambda: _asks(handle, "one@1", "sure?"), "one goes on with the answer")
        await handle.cancel()
        assert await handle.interrupts() == []
        with pytest.raises(hf.UsageError, match="cancelled"):
            await handle.resume_with("too late")


async def _asks(handle: hf.Handle[Any], node: str, payload: Any) -> bool:
    return any((each.node, each.payload) == (node, payload) for each in await handle.interrupts())


async def test_i42_a_failure_beside_a_question_is_told_when_the_question_is_answered(url: str) -> None:
    """I42: the step's other items settle first, and waiting for a person is not settled."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="both", registry=registry)
    broken = True

    @graph.node
    async def asks(state: Log, ctx: hf.NodeContext) -> Any:
        return {"log": [await ctx.interrupt("well?")]}

    @graph.node
    async def fails(state: Log) -> Any:
        if broken:
            raise ValueError("broken")
        return {"log": ["mended"]}

    graph.start_at("asks", "fails")
    graph.finish("asks", "fails")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        await until(lambda: _gave_up(engine, handle), "fails gives up")
        assert await handle.status() == "suspended"
        await handle.resume_with("fine")
        await failed(handle)
        broken = False
        await handle.retry()
        assert sorted((await handle.result(timeout=SECONDS))["log"]) == ["fine", "mended"]
        await assert_sound(engine)


async def _gave_up(engine: hf.Engine, handle: hf.Handle[Any]) -> bool:
    return any(row.status == "failed" for row in await work_of(engine, handle.id, "fails@1"))


async def test_i42_a_question_is_skipped_like_any_item(url: str) -> None:
    """I11: a person who never answers need not hold up the rest."""
    registry, calls = hf.Registry(), Counter[str]()
    graph = asking(registry, calls)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        await handle.skip("one")
        await handle.skip("two@1")
        assert (await handle.result(timeout=SECONDS))["log"] == ["quick"]
        await assert_sound(engine)


async def test_k8_an_answer_whose_acknowledgement_was_lost_counts_once(sqlite_url: str) -> None:
    """K8, I42: the commit happened and its answer did not come; the caller learns that it was given."""
    registry, calls = hf.Registry(), Counter[str]()
    graph = asking(registry, calls)
    async with engine_on(sqlite_url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(graph, {"n": 0, "log": []})
            await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        lost = Counter[str]()

        def lose(name: str) -> None:
            if name == "flush.after_commit" and not lost[name]:
                lost[name] += 1
                raise hf.StoreUnavailable("gone after the commit, for this test")

        failpoints.arm(lose)
        try:
            await handle.resume_with("yes", node="one")
        finally:
            failpoints.disarm()
        assert lost["flush.after_commit"] == 1
        rows = [row for row in await engine.store.rows(RecordedOf(handle.id)) if row.kind == "interrupt"]
        assert sum(row.response is not None for row in rows) == 1
        kinds = [entry.kind for entry in await handle.history()]
        assert kinds.count("answered") == 1


async def test_k8_i42_a_recorded_call_whose_acknowledgement_was_lost_is_recorded_once(sqlite_url: str) -> None:
    """K8, I42: the node goes on with the answer it has, and no second record is written."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="records", registry=registry)
    called, lost = Counter[str](), Counter[str]()

    def lose(name: str) -> None:
        if name == "flush.after_commit" and not lost[name]:
            lost[name] += 1
            raise hf.StoreUnavailable("gone after the commit, for this test")

    @graph.node(recordable=True)
    async def records(state: Log, ctx: hf.NodeContext) -> Any:
        def call() -> int:
            called["now"] += 1
            failpoints.arm(lose)
            return 41

        try:
            return {"n": await ctx.record("number", {}, call)}
        finally:
            failpoints.disarm()

    graph.start_at("records")
    graph.finish("records")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        assert (await handle.result(timeout=SECONDS))["n"] == 41
        assert (called["now"], lost.total()) == (1, 1)
        (record,) = await handle.recorded()
        assert (record.response, record.attempt, record.call) == (41, 1, 1)
        (work,) = await work_of(engine, handle.id)
        assert (work.attempt, work.status) == (1, "completed")


# -- time


async def test_i3_i5_a_node_has_thirty_seconds_and_retries_hold_no_slot() -> None:
    """I3, I5: an attempt past its time is timed out and tried again, in virtual time."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="slow", registry=registry)
    attempts: list[int] = []

    @graph.node(retry=hf.Retry(attempts=2, base=60.0, cap=60.0))
    async def sleeps(state: Log, ctx: hf.NodeContext) -> Any:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.Event().wait()

    graph.start_at("sleeps")
    graph.finish("sleeps")
    async with engine_in_memory(registry=registry, patience_seconds=0.05) as (engine, clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        await clock.advance(seconds=29)
        assert [row.status for row in await work_of(engine, handle.id)] == ["leased"]
        await clock.advance(seconds=2)
        assert [row.status for row in await work_of(engine, handle.id)] == ["timed_out", "ready"]
        assert (await handle.scheduler()).active_nodes == 0
        await clock.advance(seconds=59)
        await handle.result(timeout=SECONDS)
        assert attempts == [1, 2]
        assert (await handle.scheduler()).metrics.total_retries == 1


@pytest.mark.parametrize("beside", [(), ("other",)])
async def test_i3_retries_of_before_an_operators_retry_are_counted_too(url: str, beside: tuple[str, ...]) -> None:
    """I3: the retry gives a new budget; what was tried before stays tried."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="counted", registry=registry)

    @graph.node(retry=hf.Retry(attempts=2, base=0.001, cap=0.001))
    async def fails(state: Log, ctx: hf.NodeContext) -> Any:
        if ctx.attempt < 4:
            raise ValueError("not yet")

    graph.node(name="other")(lambda state: None)
    graph.start_at("fails", *beside)
    graph.edge("fails", "other")
    graph.finish("other")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=SECONDS)
        await handle.retry()
        await handle.result(timeout=SECONDS)
        assert (await handle.scheduler()).metrics.total_retries == 3


async def test_k8_an_answer_that_is_repeated_never_answers_the_next_question(url: str) -> None:
    """K8: the acknowledgement was lost, the node went on and asks something else meanwhile; a person has to answer."""
    registry, calls = hf.Registry(), Counter[str]()
    graph = asking(registry, calls)
    async with engine_on(url, registry) as engine:
        given: list[AnswerPerson] = []
        engine.coordinator.observers.append(
            lambda commit: given.extend(op for op, _ in commit.pairs if isinstance(op, AnswerPerson))
        )
        async with engine.worker():
            handle = await engine.start(graph, {"n": 0, "log": []})
            await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
            assert await handle.resume_with("yes", node="one")
            await until(lambda: _asks(handle, "one@1", "sure?"), "one asks the next question")
            (operation,) = given
            assert not (await engine.coordinator.submit(operation)).changed
            assert await _asks(handle, "one@1", "sure?")
            other = msgspec.structs.replace(operation, answer=b'"no"', answer_hash="another")
            with pytest.raises(hf.UsageError, match="answered already"):
                await engine.coordinator.submit(other)
            assert await handle.resume_with("yes", node="one"), "the same words are an answer to the new question"
            await until(lambda: _payloads_of(handle, {"two@1"}), "one has ended")
        await assert_sound(engine)


async def _payloads_of(handle: hf.Handle[Any], nodes: set[str]) -> bool:
    return {each.node for each in await handle.interrupts()} == nodes
