"""Emitters: events of what was committed, in order, for whoever listens, and without harm when a listener fails."""

from __future__ import annotations

import asyncio
import logging
import operator
import sys
import threading
import types
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.core.codec import encode_error
from holdfast.core.operations import CompleteWork, FailWork
from holdfast.core.queries import OpenWork
from holdfast.emitters import (
    KINDS,
    BufferedEmitter,
    Emitter,
    GraphEvent,
    LogEmitter,
    NullEmitter,
    OpenTelemetryEmitter,
    Several,
)
from holdfast.runtime import telemetry as t
from holdfast.testing import engine_in_memory


class Notes(TypedDict):
    n: int
    log: Annotated[list[str], operator.add]


class Failing:
    """Raises whatever it is given to raise."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def emit(self, event: GraphEvent) -> None:
        self.calls += 1
        raise self.error


def an_event(kind: str = "node_completed", **changes: Any) -> GraphEvent:
    values: dict[str, Any] = {
        "run_id": "run-1",
        "workflow": "notes",
        "step": 2,
        "node": "write",
        "attempt": 1,
        "at": datetime(2030, 1, 1, 12, tzinfo=UTC),
    }
    return GraphEvent(kind=kind, **(values | changes))


def fan_graph(registry: hf.Registry, emitter: Any, *, width: int = 3, **options: Any) -> hf.StateGraph[Notes]:
    graph = hf.StateGraph(Notes, name="notes", registry=registry, emitter=emitter, **options)

    @graph.node(retry=hf.Retry(attempts=3, base=1.0), goes_to=["leaf"], label="spread")
    async def fan(state: Notes, ctx: hf.NodeContext) -> Any:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return hf.Many([hf.Send("leaf", {"n": number}) for number in range(width)], {"log": ["fan"]})

    @graph.node
    async def leaf(state: Notes) -> dict[str, Any]:
        return {"log": [str(state["n"])]}

    graph.start_at("fan")
    graph.finish("leaf")
    return graph


async def test_a_run_is_told_from_its_start_to_its_end_in_order() -> None:
    """The seed's triggers: run, node, retry, step, completion."""
    registry, kept = hf.Registry(), BufferedEmitter()
    graph = fan_graph(registry, kept, width=1)
    async with engine_in_memory(registry=registry) as (engine, clock):
        handle = await engine.start(graph, {"n": 0, "log": []}, key="k")
        await clock.advance(seconds=10)
        await handle.result()
    told = kept.history()
    assert [(event.kind, event.step, event.node, event.attempt) for event in told] == [
        ("run_started", 0, None, None),
        ("node_started", 1, "fan", 1),
        ("node_failed", 1, "fan", 1),
        ("node_retried", 1, "fan", 2),
        ("node_started", 1, "fan", 2),
        ("node_completed", 1, "fan", 2),
        ("step_completed", 1, None, None),
        ("node_started", 2, "leaf", 1),
        ("node_completed", 2, "leaf", 1),
        ("step_completed", 2, None, None),
        ("run_completed", 2, None, None),
    ]
    assert {event.run_id for event in told} == {handle.id}
    assert {event.workflow for event in told} == {"notes"}
    assert all(event.at.tzinfo is UTC for event in told)
    assert [event.at for event in told] == sorted(event.at for event in told)
    failed, retried = told[2], told[3]
    assert failed.data["error"] == "ValueError: not yet"
    assert failed.data["gave_up"] is False
    assert 0 < retried.data["delay_ms"] <= 2_000
    step = told[6]
    assert step.data["labels"] == ["spread"]
    assert step.data["total_steps"] == 1
    assert step.data["total_retries"] == 1
    assert step.data["frontier"] == 1
    assert all(event.kind in KINDS for event in told)


async def test_a_step_tells_the_metrics_that_the_scheduler_has() -> None:
    """SchedulerMetrics are exported with events, updated by each step."""
    registry, kept = hf.Registry(), BufferedEmitter()
    graph = fan_graph(registry, kept, width=12, max_concurrent=2, queue_depth=4)
    async with engine_in_memory(registry=registry) as (engine, clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        await clock.advance(seconds=10)
        await handle.result()
        metrics = (await handle.scheduler()).metrics
        measured = engine.metrics.snapshot()  # type: ignore[attr-defined]  # of a Recorder
    last = kept.history(kind="step_completed")[-1].data
    assert last["total_steps"] == metrics.total_steps == 2
    assert last["total_nodes_executed"] == metrics.total_nodes_executed == 13
    assert last["avg_step_latency_ms"] == metrics.avg_step_latency_ms
    assert last["max_queue_depth"] == metrics.max_queue_depth == 4
    assert last["total_retries"] == metrics.total_retries == 1
    assert last["total_backpressure_blocks"] == metrics.total_backpressure_blocks == 6
    (pressure,) = kept.history(kind="backpressure")
    assert pressure.step == 1
    assert pressure.data == {"blocked": 6, "queue_depth": 4, "total_backpressure_blocks": 6}
    assert measured["counters"][t.GRAPH_RETRIES] == 1
    assert measured["counters"][t.GRAPH_BACKPRESSURE_BLOCKS] == 6
    assert measured["distributions"][t.GRAPH_STEP_SECONDS]["count"] == 2
    assert measured["distributions"][t.GRAPH_QUEUE_DEPTH]["max"] == 10
    assert measured["gauges"][t.GRAPH_NODES_RUNNING] == 0


async def test_questions_pauses_and_cancels_are_told() -> None:
    """Triggers of people: an interrupt asked and answered, a pause, a resume, a cancel."""
    registry, kept = hf.Registry(), BufferedEmitter()
    graph = hf.StateGraph(Notes, name="ask", registry=registry, emitter=kept)

    @graph.node
    async def ask(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        return {"log": [await ctx.interrupt({"may I": state["n"]})]}

    graph.start_at("ask")
    graph.edge("ask", "ask")
    graph.finish("ask")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        await engine.settle()
        await handle.resume_with("yes", by="ada")
        await engine.settle()
        await handle.pause()
        await handle.resume()
        await engine.settle()
        await handle.cancel()
        await engine.settle()
    kinds = [event.kind for event in kept.history() if not event.kind.startswith(("node", "step"))]
    assert kinds == [
        *("run_started", "interrupt_asked", "interrupt_answered", "interrupt_asked"),
        *("run_paused", "run_resumed", "run_cancelled"),
    ]
    (answered,) = kept.history(kind="interrupt_answered")
    assert (answered.node, answered.step, answered.data["by"]) == ("ask", 1, "ada")


async def test_a_run_that_cannot_go_on_is_told_with_its_reason() -> None:
    """I40, I41: no progress and a conflict of writes each end a run, and both are told and counted."""
    registry, kept = hf.Registry(), BufferedEmitter()
    stuck = hf.StateGraph(Notes, name="stuck", registry=registry, emitter=kept)

    @stuck.node
    async def wander(state: Notes) -> None:
        return None

    stuck.start_at("wander")
    stuck.edge("wander", "end", when=lambda state: False)

    @stuck.node
    async def end(state: Notes) -> None:
        return None

    stuck.finish("end")
    clash = hf.StateGraph(Notes, name="clash", registry=registry, emitter=kept)
    for name in ("left", "right"):

        @clash.node(name=name)
        async def write(state: Notes) -> dict[str, Any]:
            return {"n": 1}

    clash.start_at("left", "right")
    clash.finish("left", "right")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        for graph in (stuck, clash):
            handle = await engine.start(graph, {"n": 0, "log": []})
            with pytest.raises(hf.HoldfastError):
                await handle.result()
        counters = engine.metrics.snapshot()["counters"]  # type: ignore[attr-defined]  # of a Recorder
    (lost,) = kept.history(kind="no_progress")
    assert "wander" in lost.data["error"]
    failed = kept.history(kind="run_failed")
    assert ["NoProgress" in event.data["error"] for event in failed] == [True, False]
    assert "ConflictingWrites" in failed[1].data["error"]
    assert counters[t.GRAPH_MERGE_CONFLICTS] == 1


@pytest.mark.parametrize(
    "error", [RuntimeError("no disk"), KeyError("x"), SystemExit(3)], ids=lambda e: type(e).__name__
)
async def test_an_emitter_that_raises_does_no_harm_and_is_logged_once_for_each_kind(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Emitters may raise: the run goes on, the others hear everything, and the log is not flooded."""
    registry, failing, kept = hf.Registry(), Failing(error), BufferedEmitter()
    graph = fan_graph(registry, [failing, kept], width=5)
    with caplog.at_level(logging.ERROR, logger="holdfast.graphs"):
        async with engine_in_memory(registry=registry) as (engine, clock):
            handle = await engine.start(graph, {"n": 0, "log": []})
            await clock.advance(seconds=10)
            assert (await handle.result())["log"][0] == "fan"
    assert failing.calls == len(kept.history())
    complaints = [record.getMessage() for record in caplog.records if record.name == "holdfast.graphs"]
    assert len(complaints) == len({event.kind for event in kept.history()})
    assert all("Failing raised at" in complaint and handle.id in complaint for complaint in complaints)


async def test_an_engine_tells_its_emitters_of_all_graphs_and_of_nothing_else() -> None:
    """An engine-wide emitter hears every graph, those without one of their own too; other models have no events."""
    registry, kept, own = hf.Registry(), BufferedEmitter(), BufferedEmitter()

    @hf.action(registry=registry)
    async def plain() -> int:
        return 1

    graph = fan_graph(registry, own, width=1)
    silent = hf.StateGraph(Notes, name="silent", registry=registry)

    @silent.node
    async def only(state: Notes) -> None:
        return None

    silent.start_at("only")
    silent.finish("only")
    async with engine_in_memory(registry=registry, emitter=kept) as (engine, clock):
        await engine.run(plain)
        await engine.run(silent, {"n": 0, "log": []})
        handle = await engine.start(graph, {"n": 0, "log": []})
        await clock.advance(seconds=10)
        await handle.result()
    assert {event.workflow for event in kept.history()} == {"silent", "notes"}
    assert own.history() == kept.history(run=handle.id)


async def test_what_was_not_committed_is_not_told() -> None:
    """Events follow commits: a start that is refused, and a result that came too late, are told to nobody."""
    registry, kept = hf.Registry(), BufferedEmitter()
    graph = fan_graph(registry, kept, width=1)
    async with engine_in_memory(registry=registry) as (engine, clock):
        first = await engine.start(graph, {"n": 0, "log": []}, key="k")
        with pytest.raises(hf.KeyConflict):
            await engine.start(graph, {"n": 1, "log": []}, key="k")
        assert (await engine.start(graph, {"n": 0, "log": []}, key="k")).id == first.id
        await engine.settle()
        await first.cancel()
        await clock.advance(seconds=10)
    assert len(kept.history(kind="run_started")) == 1
    assert not kept.history(kind=["node_completed", "step_completed"])
    assert kept.history()[-1].kind == "run_cancelled"


async def test_k3_a_report_by_somebody_who_lost_the_lease_is_not_told() -> None:
    """Of two reports about one attempt in one batch, the one that counts is told and the stale one is not."""
    registry, kept, may_end = hf.Registry(), BufferedEmitter(), asyncio.Event()
    graph = hf.StateGraph(Notes, name="slow", registry=registry, emitter=kept)

    @graph.node
    async def slow(state: Notes) -> None:
        await may_end.wait()

    graph.start_at("slow")
    graph.finish("slow")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        (work,) = await engine.store.rows(OpenWork(handle.id))
        lease = {"run": work.run, "node": work.node, "attempt": work.attempt}
        stale = FailWork(**lease, token=work.token - 1, error=encode_error(ValueError("late")))
        results = await engine.coordinator.submit_batch([stale, CompleteWork(**lease, token=work.token, result=b"{}")])
        assert [result.verdict for result in results] == ["stale", "recorded"]
        may_end.set()
        await handle.result()
    assert [event.kind for event in kept.history()] == [
        *("run_started", "node_started", "node_completed", "step_completed", "run_completed"),
    ]


async def test_a_subgraph_tells_its_own_emitter_as_a_run_with_a_parent() -> None:
    """A subgraph is a run of its own; the node that stands for it completes with it."""
    registry, outside, inside = hf.Registry(), BufferedEmitter(), BufferedEmitter()
    inner = hf.StateGraph(Notes, name="inner", registry=registry, emitter=inside)

    @inner.node
    async def work(state: Notes) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    inner.start_at("work")
    inner.finish("work")
    outer = hf.StateGraph(Notes, name="outer", registry=registry, emitter=outside)
    outer.subgraph("part", inner)
    outer.start_at("part")
    outer.finish("part")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(outer, {"n": 0, "log": []})
        assert (await handle.result())["n"] == 1
    (began,) = inside.history(kind="run_started")
    assert began.data["parent"] == handle.id
    assert [event.kind for event in outside.history() if event.kind != "node_started"] == [
        *("run_started", "node_completed", "step_completed", "run_completed"),
    ]


def test_a_buffer_is_filtered_by_run_node_kind_and_step_and_forgets_the_oldest() -> None:
    """BufferedEmitter: bounded, with filters."""
    kept = BufferedEmitter(limit=4)
    for number in range(6):
        kept.emit(an_event(run_id=f"run-{number % 2}", step=number, node="even" if number % 2 == 0 else "odd"))
    assert [event.step for event in kept.history()] == [2, 3, 4, 5]
    assert (len(kept), kept.dropped) == (4, 2)
    assert [event.step for event in kept.history(run="run-1")] == [3, 5]
    assert [event.step for event in kept.history(node="even")] == [2, 4]
    assert [event.step for event in kept.history(step=4)] == [4]
    assert [event.step for event in kept.history(kind="node_completed", step=5)] == [5]
    assert not kept.history(kind=["run_started", "run_failed"])
    with pytest.raises(hf.UsageError, match="node_complete"):
        kept.history(kind="node_complete")
    kept.clear()
    assert (kept.history(), kept.dropped) == ([], 0)
    with pytest.raises(hf.UsageError, match="limit=0"):
        BufferedEmitter(limit=0)


def test_a_buffer_takes_events_from_many_threads() -> None:
    """Emitters are called concurrently: nothing is lost."""
    kept = BufferedEmitter(limit=8_000)
    threads = [
        threading.Thread(target=lambda: [kept.emit(an_event(step=step)) for step in range(1_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(kept), kept.dropped) == (4_000, 0)


def test_a_log_has_one_line_for_an_event_and_warns_of_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """LogEmitter: readable lines, with the keys that every record about user code has."""
    emitter = LogEmitter(level=logging.DEBUG)
    with caplog.at_level(logging.DEBUG, logger="holdfast.graphs"):
        emitter.emit(an_event(data={"duration_ms": 1.5, "reason": None}))
        emitter.emit(an_event("run_failed", node=None, attempt=None, data={"error": "ValueError: x"}))
    usual, trouble = caplog.records
    assert usual.getMessage() == "notes: node_completed of run run-1, write in step 2 duration_ms=1.5"
    assert (usual.levelno, trouble.levelno) == (logging.DEBUG, logging.WARNING)
    assert trouble.getMessage() == "notes: run_failed of run run-1, step 2 error='ValueError: x'"
    assert [getattr(usual, key) for key in ("run", "workflow", "node", "attempt")] == ["run-1", "notes", "write", 1]
    with caplog.at_level(logging.ERROR, logger="holdfast.graphs"):
        caplog.clear()
        emitter.emit(an_event())
        assert not caplog.records


def test_several_emitters_all_hear_an_event_also_if_one_of_them_raises() -> None:
    """Several at once, each on its own."""
    first, last = BufferedEmitter(), BufferedEmitter()
    both = Several(first, Failing(ValueError("no")), last)
    with pytest.raises(ValueError, match="no"):
        both.emit(an_event())
    assert (len(first), len(last)) == (1, 1)
    NullEmitter().emit(an_event())
    assert all(isinstance(each, Emitter) for each in (both, first, NullEmitter(), LogEmitter()))


@pytest.mark.parametrize("wrong", [print, LogEmitter, [LogEmitter(), "log"], 3], ids=["def", "class", "list", "int"])
def test_what_is_no_emitter_is_refused_with_the_fix(wrong: Any) -> None:
    """The mistake is told where it is made: at the graph, and at the engine."""
    with pytest.raises(hf.UsageError, match="no emitter") as refused:
        hf.StateGraph(Notes, name="wrong", registry=hf.Registry(), emitter=wrong)
    assert "graph 'wrong'" in str(refused.value)
    assert "emit(event)" in str(refused.value)
    with pytest.raises(hf.UsageError, match="emitter= of Engine"):
        hf.Engine("memory://", emitter=wrong)


class _Span:
    def __init__(self, name: str, context: Any, start_time: int, attributes: dict[str, Any]) -> None:
        self.name, self.context, self.start, self.attributes = name, context, start_time, attributes
        self.status: Any = None
        self.end_time = 0

    def set_status(self, status: Any) -> None:
        self.status = status

    def end(self, end_time: int) -> None:
        self.end_time = end_time


class _Tracer:
    def __init__(self) -> None:
        self.spans: list[_Span] = []

    def start_span(self, name: str, *, context: Any, start_time: int, attributes: dict[str, Any]) -> _Span:
        self.spans.append(_Span(name, context, start_time, attributes))
        return self.spans[-1]


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> _Tracer:
    """A stand-in for opentelemetry-api with the parts of its surface that are used."""
    made = _Tracer()
    api = types.ModuleType("opentelemetry")
    trace = types.ModuleType("opentelemetry.trace")

    class SpanContext(types.SimpleNamespace):
        pass

    class TraceFlags(int):
        SAMPLED = 1

    trace.__dict__.update(
        get_tracer=lambda name: made,
        SpanContext=SpanContext,
        TraceFlags=TraceFlags,
        NonRecordingSpan=lambda context: context,
        set_span_in_context=lambda span: span,
        Status=lambda code, told: (code, told),
        StatusCode=types.SimpleNamespace(ERROR="error"),
    )
    api.__dict__["trace"] = trace
    monkeypatch.setitem(sys.modules, "opentelemetry", api)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    return made


async def test_spans_are_made_for_nodes_steps_and_the_run_in_one_trace(tracer: _Tracer) -> None:
    """OpenTelemetryEmitter: each attempt, step and run is a span with its times; failures have their status."""
    registry = hf.Registry()
    graph = fan_graph(registry, OpenTelemetryEmitter(), width=1)
    async with engine_in_memory(registry=registry) as (engine, clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        await clock.advance(seconds=10)
        await handle.result()
    names = [span.name for span in tracer.spans]
    assert names == [
        *("notes.fan", "notes node_retried", "notes.fan", "notes step", "notes.leaf", "notes step", "notes"),
    ]
    failed, _, completed, step, *_, whole = tracer.spans
    assert failed.status == ("error", "ValueError: not yet")
    assert completed.status is None
    assert completed.attributes["holdfast.attempt"] == 2
    assert step.attributes["holdfast.labels"] == ["spread"]
    assert whole.start <= failed.start
    assert all(span.start <= span.end_time <= whole.end_time for span in tracer.spans)
    assert whole.end_time - whole.start >= 1_000_000  # the retry's delay is in it, in nanoseconds
    assert len({(span.context.trace_id, span.context.span_id) for span in tracer.spans}) == 1
    assert tracer.spans[0].context.trace_id < 2**128


def test_opentelemetry_that_is_not_installed_is_told_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra is imported when it is used, and its absence is no ImportError from the depth."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(hf.UsageError, match="opentelemetry-api") as refused:
        OpenTelemetryEmitter()
    assert "pip install" in str(refused.value)
