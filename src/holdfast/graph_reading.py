"""Reading the checkpoints, records and questions of a state graph's run. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.codec import decode_error
from holdfast.core.errors import MissingJob, UsageError
from holdfast.core.queries import (
    CheckpointsOf,
    LabelledCheckpoint,
    OpenWork,
    RecordedBy,
    RecordedOf,
    StateChain,
)
from holdfast.core.rows import BLOCKED, LEASED, NODE, Checkpoint, Recorded, Run, Work
from holdfast.core.state_items import node_of, run_seed, step_of
from holdfast.core.stored import moment, unreadable
from holdfast.graph_documents import Checkpoint as CheckpointDocument
from holdfast.graph_documents import (
    Interrupt,
    RecordedIO,
    SchedulerMetrics,
    SchedulerState,
    WorkItem,
)
from holdfast.graph_steps import GraphWithoutCode, Step, each_step, labels_of
from holdfast.models.state_code import GRAPH
from holdfast.models.state_graph import asks_person, waits_for_room
from holdfast.models.state_memory import Totals, frontier_of, put_together, totals_of
from holdfast.runtime.recorded_calls import CallCoding, redaction

if TYPE_CHECKING:
    from holdfast.authoring.state_code import BoundGraph
    from holdfast.engine import Engine

PAGE = 500
LATEST = 2**62


def code_of_run(engine: Engine, run: Run) -> BoundGraph:
    """The code of the graph that a run follows; refused, with the fix, for runs of other models."""
    if run.model != GRAPH:
        raise UsageError(
            f"run {run.id} of {run.workflow} is a {run.model} and has no checkpoints", hint="state graphs have them"
        )
    code = engine.definitions.state_graph(run.workflow)
    if code is None:
        raise MissingJob(f"graph {run.workflow} is not registered here", hint="import the module that defines it")
    return code


def update_from_json(engine: Engine, run: Run, update: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The fields of a fork that came as JSON, as the graph's state has them."""
    if update is None or run.model != GRAPH:
        return update
    return code_of_run(engine, run).state_type.from_json(update, f"the update of run {run.id}")


def reader_of_run(engine: Engine, run: Run) -> BoundGraph | GraphWithoutCode:
    """Who reads what is stored of a run: the graph's code, whose states are the author's, or else nobody in particular.

    Looking needs no code: without it, states are plain values.
    """
    code = engine.definitions.state_graph(run.workflow) if run.model == GRAPH else code_of_run(engine, run)
    return GraphWithoutCode(engine.codecs) if code is None else code


async def checkpoints(engine: Engine, run: Run) -> list[CheckpointDocument[Any]]:
    """Every checkpoint that is kept, oldest first, each with its state."""
    code = reader_of_run(engine, run)
    recorded = await _recorded_by_step(engine, run, code)
    return [
        _document(run, step, code, recorded.get(step.row.step, ())) async for step in each_step(engine.store, run, code)
    ]


async def checkpoint(
    engine: Engine, run: Run, *, step: int | None = None, label: str | None = None
) -> CheckpointDocument[Any]:
    """One checkpoint: the latest, that of a step, or the latest with a label."""
    code = reader_of_run(engine, run)
    step = await step_at(engine, run, step=step, label=label)
    chain: list[Checkpoint] = await engine.store.rows(StateChain(run.id, step))
    if not chain or chain[-1].step != step:
        raise await _without_checkpoint(engine, run, step)
    recorded = await _recorded_by_step(engine, run, code)
    known = put_together(chain, code)
    return _document(run, Step(chain[-1], known.fields, known.frontier), code, recorded.get(step, ()))


async def refuse_pruned(engine: Engine, run: Run, step: int) -> None:
    """UsageError if the graph's own policy has deleted the checkpoint of this step."""
    if step <= run.base and code_of_run(engine, run).keep_checkpoints is not None:
        found: list[Checkpoint] = await engine.store.rows(CheckpointsOf(run.id, step + 1, 1))
        if not found or found[0].step != step:
            raise await _without_checkpoint(engine, run, step)


async def _without_checkpoint(engine: Engine, run: Run, step: int) -> UsageError:
    """That there is no checkpoint of a step, why, and which ones there are."""
    rows: list[Checkpoint] = await engine.store.rows(CheckpointsOf(run.id, LATEST, PAGE))
    told = f"run {run.id} of graph {run.workflow} has no checkpoint of step {step}"
    if step <= run.base:
        told = f"checkpoint {step} of run {run.id} of graph {run.workflow} was deleted, as its keep_checkpoints says"
    return UsageError(
        f"{told}: its latest is {run.base}",
        hint=f"take a step that is there: {_ranges(sorted(row.step for row in rows))}; labelled ones are always kept",
    )


def _ranges(steps: Sequence[int]) -> str:
    """`0, 8 to 12`."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][-1] + 1:
            spans[-1][1:] = [step]
        else:
            spans.append([step])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


async def step_at(engine: Engine, run: Run, *, step: int | None = None, label: str | None = None) -> int:
    """The step that is meant."""
    if step is not None and label is not None:
        raise UsageError(f"both step={step} and label={label!r} were given", hint="give one of them")
    if step is not None and (type(step) is not int or not 0 <= step < LATEST):
        raise UsageError(
            f"step is {step!r:.80}, a {type(step).__name__}",
            hint=f"give a whole number from 0 to {run.base}, the latest of run {run.id}",
        )
    if label is None:
        return run.base if step is None else step
    if not isinstance(label, str):
        raise UsageError(f"label is {label!r:.80}, a {type(label).__name__}", hint="give the text of @g.node(label=…)")
    rows: list[Checkpoint] = await engine.store.rows(LabelledCheckpoint(run.id, label))
    if not rows:
        raise UsageError(
            f"no checkpoint of run {run.id} has the label {label!r}",
            hint="a step gets the labels of the nodes that ran in it: @g.node(label=…)",
        )
    return rows[0].step


async def scheduler(engine: Engine, run: Run) -> SchedulerState:
    """What the run does now, and has done."""
    code = reader_of_run(engine, run)
    latest: list[Checkpoint] = await engine.store.rows(CheckpointsOf(run.id, LATEST, 1))
    open_work: list[Work] = await engine.store.rows(OpenWork(run.id))
    if not latest:
        raise unreadable(f"what run {run.id} is doing", LookupError("it has no checkpoint"))
    row = latest[0]
    totals = totals_of(row)
    waiting = 0 if run.ended else max(0, len(frontier_of(row, code)) - run.due)
    ready = sum(work.status not in (LEASED, BLOCKED) or waits_for_room(work) for work in open_work)
    room = max(0, code.queue_depth - ready) if code.queue_depth else waiting  # without the code nobody knows
    queued = min(waiting, room)
    return SchedulerState(
        active_nodes=sum(work.status == LEASED for work in open_work),
        queue_depth=queued + ready,
        completed_steps=totals.steps,
        spilled=waiting - queued,
        waiting_for_people=sum(map(asks_person, open_work)),
        step=run.base,
        max_concurrent=code.max_concurrent,
        capacity=code.queue_depth,
        metrics=metrics_of(totals),
    )


def metrics_of(totals: Totals) -> SchedulerMetrics:
    """What was counted up to a checkpoint."""
    return SchedulerMetrics(
        total_steps=totals.steps,
        total_nodes_executed=totals.nodes,
        avg_step_latency_ms=totals.latency / totals.steps / 1000 if totals.steps else 0.0,
        max_queue_depth=totals.deepest,
        total_retries=totals.retries,
        total_backpressure_blocks=totals.blocks,
    )


async def interrupts(engine: Engine, run: Run) -> list[Interrupt]:
    """The questions that nodes of this run wait for answers to."""
    calls = _calls_of(reader_of_run(engine, run))
    found = []
    for work in await engine.store.rows(OpenWork(run.id)):
        if work.status != BLOCKED or work.kind != NODE:
            continue
        rows: list[Recorded] = await engine.store.rows(RecordedBy(run.id, work.node))
        for row in rows:
            if row.kind == "interrupt" and row.response is None:
                found.append(Interrupt(node=work.node, payload=calls.unseal(row.request), since=moment(row.at)))
    return found


async def question_meant(engine: Engine, run: str, node: str | None) -> tuple[str | None, tuple[int, int] | None]:
    """The item that an answer is for, and the attempt and call that asked; as given, if that cannot be told."""
    asking = [work for work in await engine.store.rows(OpenWork(run)) if asks_person(work)]
    meant = [work for work in asking if node is None or node in (work.node, node_of(work.node))]
    if len(meant) == 1:
        for row in await engine.store.rows(RecordedBy(run, meant[0].node)):
            if row.kind == "interrupt" and row.response is None:
                return row.node, (row.attempt, row.call)
    return node, None


async def recorded_ios(engine: Engine, run: Run) -> list[RecordedIO]:
    """Every call that the run's nodes have recorded."""
    code = reader_of_run(engine, run)
    rows: list[Recorded] = await engine.store.rows(RecordedOf(run.id))
    return sorted((recorded_io(row, code) for row in rows), key=lambda call: (call.step_id, call.timestamp, call.call))


def recorded_io(row: Recorded, code: BoundGraph | GraphWithoutCode) -> RecordedIO:
    calls = _calls_of(code)
    return RecordedIO(
        step_id=step_of(row.node),
        node_id=row.node,
        attempt=row.attempt,
        call=row.call,
        name=row.name,
        kind=row.kind,
        request=calls.unseal(row.request),
        response=None if row.response is None else calls.unseal(row.response),
        error=None if row.error is None else decode_error(row.error).message,
        hash=row.response_hash,
        request_hash=row.request_hash,
        timestamp=moment(row.at),
        duration_ms=row.duration / 1000,
    )


def _calls_of(code: BoundGraph | GraphWithoutCode) -> CallCoding:
    return CallCoding(code.codecs, 0, redaction())  # only to read: what was hidden is not stored


async def _recorded_by_step(
    engine: Engine, run: Run, code: BoundGraph | GraphWithoutCode
) -> dict[int, list[RecordedIO]]:
    by_step: dict[int, list[RecordedIO]] = {}
    for call in await recorded_ios(engine, run):
        by_step.setdefault(call.step_id, []).append(call)
    return by_step


def _document(
    run: Run, step: Step, code: BoundGraph | GraphWithoutCode, recorded: Sequence[RecordedIO]
) -> CheckpointDocument[Any]:
    row, labels = step.row, labels_of(step.row)
    return CheckpointDocument(
        run_id=run.id,
        step_id=row.step,
        state=code.state_for(step.fields, None),
        frontier=tuple(
            WorkItem(
                step_id=row.step + 1,
                order_key=item.order_key,
                node_id=item.node,
                state=code.state_for(step.fields, item.sent),
                parent_node_id=item.parents[0][0] if item.parents else None,
                edge_index=item.parents[0][1] if item.parents else 0,
                path=item.path,
                parents=item.parents,
            )
            for item in step.frontier
        ),
        rng_seed=run_seed(run.id),
        recorded_ios=tuple(recorded),
        idempotency_key=row.key,
        timestamp=moment(row.at),
        label=labels[0] if labels else None,
        labels=labels,
        state_digest=row.digest,
    )
