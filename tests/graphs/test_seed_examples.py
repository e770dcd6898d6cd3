"""Seed 003's worked examples, lives and rules, in our syntax: the seed's values under its names."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import operator
import sqlite3
from contextlib import closing
from datetime import UTC
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import holdfast as hf
from holdfast.core.operations import CompleteWork
from holdfast.core.queries import AllWork, CheckpointsOf, OpenWork
from holdfast.core.rows import Work
from holdfast.core.state_items import Item, checkpoint_key, edge_path, in_merge_order, item_seed, run_seed, state_digest
from holdfast.graph_documents import RecordedIO, SchedulerMetrics, SchedulerState, WorkItem
from holdfast.testing import engine_in_memory

LARGEST = 18_446_744_073_709_551_615  # the order key of the seed's example


class Queries(TypedDict):
    query: str
    counter: int


class Notes(TypedDict, total=False):
    n: int
    log: Annotated[list[str], operator.add]


def chain(*names: str, registry: hf.Registry, **options: Any) -> hf.StateGraph[Notes]:
    """Nodes that follow each other and do nothing."""
    graph = hf.StateGraph(Notes, name="chain", registry=registry, **options)
    for name in names:

        @graph.node(name=name)
        async def nothing(state: Notes) -> None:
            return None

    for source, target in itertools.pairwise(names):
        graph.edge(source, target)
    graph.start_at(names[0])
    graph.finish(names[-1])
    return graph


# -- the documents


def summary_graph(registry: hf.Registry) -> hf.StateGraph[Queries]:
    """A model is called, the checkpoint after it has a name, and a summary follows."""
    graph = hf.StateGraph(Queries, name="summary", registry=registry)

    @graph.node(recordable=True, label="before_summary")
    async def call_llm(state: Queries, ctx: hf.NodeContext) -> dict[str, Any]:
        reply = await ctx.record("llm", {"prompt": state["query"]}, lambda: {"text": "Hi there!"})
        assert reply == {"text": "Hi there!"}
        return {"query": "result", "counter": 10}

    @graph.node
    async def summarize(state: Queries) -> None:
        return None

    graph.start_at("call_llm")
    graph.edge("call_llm", "summarize")
    graph.finish("summarize")
    return graph


async def test_i47_a_work_item_is_a_document_with_the_fields_of_the_example() -> None:
    """I39, I47: the same names and types, but attempts from 1 and the order key as 16 hex digits."""
    registry = hf.Registry()
    graph = hf.StateGraph(Queries, name="queries", registry=registry)

    @graph.node
    async def input_validator(state: Queries) -> dict[str, Any]:
        return {"counter": state["counter"] + 1}

    @graph.node
    async def process_query(state: Queries) -> None:
        return None

    graph.start_at("input_validator")
    graph.edge("input_validator", "process_query", when=lambda state: state["counter"] == 45)
    graph.edge("input_validator", "input_validator", when=lambda state: state["counter"] < 45)
    graph.finish("process_query")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"query": "hello", "counter": 4})
        await handle.result()
        checkpoint = await handle.checkpoint(step=41)
    (item,) = checkpoint.frontier
    document = json.loads(json.dumps(item.document()))
    assert document == {
        "version": 1,
        "step_id": 42,
        "order_key": item.order_key,
        "node_id": "process_query",
        "state": {"query": "hello", "counter": 45},
        "attempt": 1,
        "parent_node_id": "input_validator",
        "edge_index": 0,
    }
    assert len(item.order_key) == 16
    assert item.order_key == item.path[:16] == edge_path(_path(40), "process_query", 0)[:16]


def _path(loops: int) -> str:
    """The path of `input_validator` after it led to itself so often, by its second edge."""
    path = hashlib.sha256(b"".join(len(p).to_bytes(8, "big") + p for p in (b"entry", b"input_validator"))).hexdigest()
    for _ in range(loops):
        path = edge_path(path, "input_validator", 1)
    return path


def test_i39_an_order_key_may_be_the_largest_of_64_bits() -> None:
    """I39: the example's key fits neither SQLite's integers nor a browser's numbers, so it is written in hex."""
    last = Item(node="process_query", path="f" * 64)
    assert int(last.order_key, 16) == LARGEST
    assert in_merge_order([last, Item(node="a", path="0" * 64)])[-1] is last
    item: WorkItem[Any] = WorkItem(step_id=42, order_key=last.order_key, node_id="process_query", state={})
    assert json.loads(json.dumps(item.document()))["order_key"] == "ffffffffffffffff"


async def test_i47_a_checkpoint_is_a_document_with_the_fields_of_the_example() -> None:
    """I44, I47: state, frontier, seed, recorded I/O, key, time and label of a step, in one document."""
    registry = hf.Registry()
    graph = summary_graph(registry)
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"query": "hello", "counter": 9})
        await handle.result()
        checkpoint = await handle.checkpoint(label="before_summary")
        rows = await engine.store.rows(CheckpointsOf(handle.id, 2, 1))
    document = json.loads(json.dumps(checkpoint.document()))
    (item,), (call,) = document["frontier"], document["recorded_ios"]
    assert {name: document[name] for name in ("version", "run_id", "step_id", "state", "label")} == {
        "version": 1,
        "run_id": handle.id,
        "step_id": 1,
        "state": {"query": "result", "counter": 10},
        "label": "before_summary",
    }
    assert (item["step_id"], item["node_id"], item["state"], item["attempt"]) == (2, "summarize", document["state"], 1)
    assert {name: call[name] for name in ("node_id", "attempt", "request", "response", "name", "call")} == {
        "node_id": "call_llm@1",
        "attempt": 1,
        "request": {"prompt": "hello"},
        "response": {"text": "Hi there!"},
        "name": "llm",
        "call": 1,
    }
    assert call["hash"] == "sha256:" + hashlib.sha256(b'{"text":"Hi there!"}').hexdigest()
    assert call["request_hash"] == "sha256:" + hashlib.sha256(b'{"prompt":"hello"}').hexdigest()
    assert call["duration_ms"] >= 0
    assert call["timestamp"] <= document["timestamp"]
    assert document["timestamp"].endswith("Z")
    assert document["rng_seed"] == str(run_seed(handle.id))
    (row,) = rows
    assert document["idempotency_key"] == row.key == checkpoint.idempotency_key
    assert document["state_digest"] == state_digest({"query": b'"result"', "counter": b"10"})


async def test_a_recorded_call_keeps_its_time_and_its_length_and_can_be_listed() -> None:
    """RecordedIO field by field, and `handle.recorded()`."""
    registry = hf.Registry()
    graph = summary_graph(registry)
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"query": "hello", "counter": 9})
        await handle.result()
        (call,) = await handle.recorded()
    assert isinstance(call, RecordedIO)
    assert (call.step_id, call.kind, call.error) == (1, "call", None)
    assert call.timestamp.tzinfo is UTC
    assert call.duration_ms >= 0.0


# -- rules of items and checkpoints


async def test_i44_a_checkpoint_has_a_key_that_only_its_own_run_step_state_and_frontier_make() -> None:
    """I44: unique per run and step, and computed anew from what it covers."""
    registry = hf.Registry()
    graph = chain("one", "two", "three", registry=registry)
    async with engine_in_memory(registry=registry) as (engine, _clock):
        first = await engine.start(graph, {"n": 0, "log": []})
        second = await engine.start(graph, {"n": 0, "log": []})
        keys = []
        for handle in (first, second):
            await handle.result()
            keys += [checkpoint.idempotency_key for checkpoint in await handle.checkpoints()]
    assert len(set(keys)) == len(keys) == 8
    digest, item = state_digest({"n": b"0"}), Item(node="two", path="a" * 64)
    same = checkpoint_key("run", 3, digest, [item])
    assert same == checkpoint_key("run", 3, digest, [item])
    others = [
        checkpoint_key("rum", 3, digest, [item]),
        checkpoint_key("run", 4, digest, [item]),
        checkpoint_key("run", 3, state_digest({"n": b"1"}), [item]),
        checkpoint_key("run", 3, digest, []),
        checkpoint_key("run", 3, digest, [Item(node="two", path="a" * 64, sent={"n": msgspec.Raw(b"1")})]),
    ]
    assert len({same, *others}) == 6


async def test_i43_the_seed_of_a_run_is_the_same_for_its_whole_life_and_of_an_item_in_every_attempt() -> None:
    """I43: sha256 of the run's id, and that XOR the order key."""
    registry, drawn = hf.Registry(), []
    graph = hf.StateGraph(Notes, name="dice", registry=registry)

    @graph.node(retry=hf.Retry(attempts=2, base=0.0))
    async def roll(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        drawn.append((ctx.path, ctx.rng.random()))
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return {"n": state["n"] + 1}

    graph.start_at("roll")
    graph.edge("roll", "roll", when=lambda state: state["n"] < 2)
    graph.finish("roll")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        await handle.result()
        seeds = {checkpoint.rng_seed for checkpoint in await handle.checkpoints()}
    assert seeds == {int.from_bytes(hashlib.sha256(handle.id.encode()).digest()[:8], "big")}
    (path, first), again, (other, third), fourth = drawn
    assert (path, first) == again
    assert (other, third) == fourth
    assert first != third
    assert item_seed(handle.id, path) == run_seed(handle.id) ^ int(path[:16], 16)


async def test_i14_a_state_that_is_not_json_is_refused_before_anything_is_written() -> None:
    """State must be JSON-serialisable: at the start, and in what a node returns."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="strict", registry=registry)

    @graph.node
    async def wrong(state: Notes) -> dict[str, Any]:
        return {"log": [object()]}

    graph.start_at("wrong")
    graph.finish("wrong")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        with pytest.raises(hf.UsageError, match="n"):
            await engine.start(graph, {"n": object(), "log": []})
        assert not await engine.find(workflow="strict")
        handle = await engine.start(graph, {"n": 0, "log": []})
        with pytest.raises(hf.RunFailed, match="log"):
            await handle.result()
        assert [checkpoint.step_id for checkpoint in await handle.checkpoints()] == [0]


async def test_i40_a_node_that_is_not_in_the_graph_is_refused_when_built_and_when_reached() -> None:
    """NodeID must exist: an edge to nowhere is refused at the start, a Goto to nowhere fails the run by name."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="lost", registry=registry)

    @graph.node
    async def begin(state: Notes) -> Any:
        return hf.Goto("nowhere")

    graph.start_at("begin")
    graph.finish("begin")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        with pytest.raises(hf.RunFailed, match="nowhere"):
            await engine.run(graph, {"n": 0, "log": []})
    broken = chain("one", "two", registry=hf.Registry())
    broken.edge("one", "three")
    with pytest.raises(hf.GraphError, match="three"):
        broken.check()


# -- lives


async def test_the_life_of_an_item_from_created_to_merged() -> None:
    """Queued, executing, failed, queued again with the next attempt, executing, completed, merged, checkpointed."""
    registry, gates = hf.Registry(), [asyncio.Event(), asyncio.Event()]
    graph = hf.StateGraph(Notes, name="life", registry=registry)

    @graph.node(retry=hf.Retry(attempts=2, base=10.0))
    async def live(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        await gates[ctx.attempt - 1].wait()
        if ctx.attempt == 1:
            raise ConnectionError("not yet")
        return {"n": 1}

    graph.start_at("live")
    graph.finish("live")
    async with engine_in_memory(registry=registry) as (engine, clock):
        handle = await engine.start(graph, {"n": 0, "log": []}, paused=True)

        async def seen() -> list[tuple[int, str]]:
            rows: list[Work] = await engine.store.rows(AllWork(handle.id))
            return [(work.attempt, work.status) for work in rows]

        assert await seen() == [(1, "ready")]
        assert (await handle.scheduler()).queue_depth == 1
        await handle.resume()
        await clock.advance(seconds=1)
        assert await seen() == [(1, "leased")]
        assert (await handle.scheduler()).active_nodes == 1
        gates[0].set()
        await clock.advance(seconds=1)
        assert await seen() == [(1, "failed"), (2, "ready")]
        gates[1].set()
        await clock.advance(seconds=30)
        assert (await handle.result())["n"] == 1
        assert await seen() == [(1, "failed"), (2, "completed")]
        assert [(each.step_id, each.state["n"]) for each in await handle.checkpoints()] == [(0, 0), (1, 1)]


async def test_i42_the_life_of_an_item_that_gives_up_ends_with_the_error_propagated() -> None:
    """Failed, not retryable: the error reaches the caller with its type and the node's name."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="doomed", registry=registry)

    @graph.node
    async def doomed(state: Notes) -> None:
        raise LookupError("no such thing")

    graph.start_at("doomed")
    graph.finish("doomed")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        with pytest.raises(hf.RunFailed, match="no such thing") as failed:
            await handle.result()
        assert "doomed" in str(failed.value)
        (work,) = await engine.store.rows(AllWork(handle.id))
        assert work.status == "failed"


async def test_i44_the_life_of_a_checkpoint_whose_commit_is_repeated_ends_with_one() -> None:
    """I44: computed, found to be a duplicate, skipped; what was committed is there to go on from."""
    registry, gate = hf.Registry(), asyncio.Event()
    graph = hf.StateGraph(Notes, name="twice", registry=registry)

    @graph.node
    async def slow(state: Notes) -> None:
        await gate.wait()

    graph.start_at("slow")
    graph.finish("slow")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        (work,) = await engine.store.rows(OpenWork(handle.id))
        done = CompleteWork(run=work.run, node=work.node, attempt=1, token=work.token, result=b'{"delta":{"n":1}}')
        first, second = await engine.coordinator.submit_batch([done, done])
        third = await engine.coordinator.submit(done)
        assert (first.verdict, second.verdict, third.verdict) == ("recorded", "repeated", "repeated")
        gate.set()
        assert (await handle.result())["n"] == 1
        assert [checkpoint.step_id for checkpoint in await handle.checkpoints()] == [0, 1]


# -- the frontier and the scheduler


async def test_i46_the_frontier_is_ordered_by_order_key_and_bounded_and_its_length_is_known() -> None:
    """I46: items run in ascending order of their keys; those beyond the capacity are spilled and counted."""
    registry, order, gate = hf.Registry(), [], asyncio.Event()
    graph = hf.StateGraph(Notes, name="wide", registry=registry, max_concurrent=1, queue_depth=4)

    @graph.node(goes_to=["leaf"])
    async def fan(state: Notes) -> Any:
        return [hf.Send("leaf", {"n": number}) for number in range(10)]

    @graph.node
    async def leaf(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        order.append(ctx.order_key)
        await gate.wait()
        return {"log": [str(state["n"])]}

    graph.start_at("fan")
    graph.finish("leaf")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        for _ in range(1000):
            state = await handle.scheduler()
            if state.active_nodes == 1 and state.completed_steps == 1:
                break
            await asyncio.sleep(0)
        assert isinstance(state, SchedulerState)
        assert (state.active_nodes, state.queue_depth, state.spilled) == (1, 4, 5)
        assert (state.max_concurrent, state.capacity) == (1, 4)
        gate.set()
        assert len((await handle.result())["log"]) == 10
        metrics = (await handle.scheduler()).metrics
    assert order == sorted(order)
    assert len(order) == 10
    assert isinstance(metrics, SchedulerMetrics)
    assert (metrics.total_steps, metrics.total_nodes_executed, metrics.total_retries) == (2, 11, 0)
    assert (metrics.max_queue_depth, metrics.total_backpressure_blocks) == (4, 5)
    assert metrics.avg_step_latency_ms >= 0


async def test_i42_a_checkpoint_is_found_by_latest_step_and_label() -> None:
    """The seed's indexes: (run, step), (run, label), and the key."""
    registry = hf.Registry()
    graph = summary_graph(registry)
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"query": "hello", "counter": 9})
        await handle.result()
        latest, named = await handle.checkpoint(), await handle.checkpoint(label="before_summary")
        assert (latest.step_id, named.step_id, (await handle.checkpoint(step=0)).step_id) == (2, 1, 0)
        assert latest.frontier == ()
        with pytest.raises(hf.UsageError, match="no checkpoint of step 3"):
            await handle.checkpoint(step=3)
        with pytest.raises(hf.UsageError, match="label"):
            await handle.checkpoint(label="after_summary")


async def test_the_tables_can_be_read_under_the_names_of_the_seed(sqlite_url: str) -> None:
    """Views for people: checkpoints and recorded calls with the seed's columns."""
    registry = hf.Registry()
    graph = summary_graph(registry)
    async with hf.Engine(sqlite_url, registry=registry) as engine, engine.worker():
        handle = await engine.start(graph, {"query": "hello", "counter": 9})
        await handle.result()
        keys = [checkpoint.idempotency_key for checkpoint in await handle.checkpoints()]
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database:
        found = database.execute(
            "SELECT run_id, step_id, idempotency_key, label FROM graph_checkpoints ORDER BY step_id"
        )
        assert found.fetchall() == [
            (handle.id, step, key, "before_summary" if step == 1 else None) for step, key in enumerate(keys)
        ]
        calls = database.execute(
            "SELECT run_id, node_id, attempt, request, response, hash FROM recorded_ios"
        ).fetchall()
    ((run, node, attempt, request, response, digest),) = calls
    assert (run, node, attempt) == (handle.id, "call_llm@1", 1)
    assert (json.loads(request), json.loads(response)) == ({"prompt": "hello"}, {"text": "Hi there!"})
    assert digest.startswith("sha256:")


async def test_i47_totals_go_on_in_the_process_that_goes_on(sqlite_url: str) -> None:
    """SchedulerMetrics are those of the run's whole life: they are in the checkpoint, not in a process."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="totals", registry=registry)

    @graph.node(retry=hf.Retry(attempts=2, base=0.0))
    async def flaky(state: Notes, ctx: hf.NodeContext) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("again")

    @graph.node
    async def ask(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        return {"log": [await ctx.interrupt("go on?")]}

    graph.start_at("flaky")
    graph.edge("flaky", "ask")
    graph.finish("ask")
    async with hf.Engine(sqlite_url, registry=registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        await engine.settle()
        assert (await handle.scheduler()).metrics.total_steps == 1
    async with hf.Engine(sqlite_url, registry=registry) as engine, engine.worker():
        again = engine.get(handle.id)
        await again.resume_with("yes")
        await again.result()
        metrics = (await again.scheduler()).metrics
    assert (metrics.total_steps, metrics.total_nodes_executed, metrics.total_retries) == (2, 2, 1)
