"""Reading the checkpoints, records and questions of a state graph's run. Nothing here changes anything."""

from __future__ import annotations

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
from holdfast.core.state_items import run_seed, step_of
from holdfast.graph_documents import Checkpoint as CheckpointDocument
from holdfast.graph_documents import (
    Interrupt,
    RecordedIO,
    SchedulerMetrics,
    SchedulerState,
    WorkItem,
    moment,
)
from holdfast.models.state_code import GRAPH
from holdfast.models.state_memory import Known, frontier_of, put_together, totals_of

from holdfast.runtime.recorded_calls import coding_of

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


async def checkpoints(engine: Engine, run: Run) -> list[CheckpointDocument[Any]]:
    """Every checkpoint that is kept, oldest first, each with its state."""
    code = code_of_run(engine, run)
    rows: list[Checkpoint] = []
    before = LATEST
    while page := await engine.store.rows(CheckpointsOf(run.id, before, PAGE)):
        rows += page
        before = page[-1].step
    rows.reverse()
    recorded = await _recorded_by_step(engine, run, code)
    found: list[CheckpointDocument[Any]] = []
    chain: list[Checkpoint] = []
    for row in rows:
        chain = [row] if row.whole else [*chain, row]
        known = put_together(chain, code)
        chain = [_as_whole(chain, known, code)]  # so that each step is put together once
        found.append(_document(run, row, known, code, recorded.get(row.step, ())))
    return found


async def checkpoint(
    engine: Engine, run: Run, *, step: int | None = None, label: str | None = None
) -> CheckpointDocument[Any]:
    """One checkpoint: the latest, that of a step, or the latest with a label."""
    code = code_of_run(engine, run)
    step = await step_at(engine, run, step=step, label=label)
    chain: list[Checkpoint] = await engine.store.rows(StateChain(run.id, step))
    if not chain or chain[-1].step != step:
        raise UsageError(
            f"run {run.id} of graph {run.workflow} has no checkpoint of step {step}: its latest is {run.base}",
            hint="handle.checkpoints() lists them; a graph with keep_checkpoints keeps the latest only",
        )
    recorded = await _recorded_by_step(engine, run, code)
    return _document(run, chain[-1], put_together(chain, code), code, recorded.get(step, ()))


async def step_at(engine: Engine, run: Run, *, step: int | None = None, label: str | None = None) -> int:
    """The step that is meant."""
    if step is not None and label is not None:
        raise UsageError(f"both step={step} and label={label!r} were given", hint="give one of them")
    if label is None:
        return run.base if step is None else step
    rows: list[Checkpoint] = await engine.store.rows(LabelledCheckpoint(run.id, label))
    if not rows:
        raise UsageError(
            f"no checkpoint of run {run.id} has the label {label!r}",
            hint="a step gets the labels of the nodes that ran in it: @g.node(label=…)",
        )
    return rows[0].step


async def scheduler(engine: Engine, run: Run) -> SchedulerState:
    """What the run does now, and has done."""
    code = code_of_run(engine, run)
    latest: list[Checkpoint] = await engine.store.rows(CheckpointsOf(run.id, LATEST, 1))
    open_work: list[Work] = await engine.store.rows(OpenWork(run.id))
    row = latest[0]
    totals = totals_of(row)
    waiting = 0 if run.ended else max(0, len(frontier_of(row, code)) - run.due)
    queued = min(waiting, code.queue_depth)
    ready = sum(work.status not in (LEASED, BLOCKED) for work in open_work)
    return SchedulerState(
        active_nodes=sum(work.status == LEASED for work in open_work),
        queue_depth=queued + ready,
        completed_steps=totals.steps,
        spilled=waiting - queued,
        waiting_for_people=sum(work.status == BLOCKED and work.kind == NODE for work in open_work),
        step=run.base,
        max_concurrent=code.max_concurrent,
        capacity=code.queue_depth,
        metrics=SchedulerMetrics(
            total_steps=totals.steps,
            total_nodes_executed=totals.nodes,
            avg_step_latency_ms=totals.latency / totals.steps / 1000 if totals.steps else 0.0,
            max_queue_depth=totals.deepest,
            total_retries=totals.retries,
            total_backpressure_blocks=totals.blocks,
        ),
    )


async def interrupts(engine: Engine, run: Run) -> list[Interrupt]:
    """The questions that nodes of this run wait for answers to."""
    code = code_of_run(engine, run)
    found = []
    for work in await engine.store.rows(OpenWork(run.id)):
        if work.status != BLOCKED or work.kind != NODE:
            continue
        rows: list[Recorded] = await engine.store.rows(RecordedBy(run.id, work.node))
        for row in rows:
            if row.kind == "interrupt" and row.response is None:
                found.append(Interrupt(node=work.node, payload=coding_of(code).unseal(row.request), since=moment(row.at)))
    return found


async def recorded_ios(engine: Engine, run: Run) -> list[RecordedIO]:
    """Every call that the run's nodes have recorded."""
    code = code_of_run(engine, run)
    rows: list[Recorded] = await engine.store.rows(RecordedOf(run.id))
    return sorted((recorded_io(row, code) for row in rows), key=lambda call: (call.step_id, call.timestamp, call.call))


def recorded_io(row: Recorded, code: BoundGraph) -> RecordedIO:
    return RecordedIO(
        step_id=step_of(row.node),
        node_id=row.node,
        attempt=row.attempt,
        call=row.call,
        name=row.name,
        kind=row.kind,
        request=coding_of(code).unseal(row.request),
        response=None if row.response is None else coding_of(code).unseal(row.response),
        error=None if row.error is None else decode_error(row.error).message,
        hash=row.response_hash,
        request_hash=row.request_hash,
        timestamp=moment(row.at),
        duration_ms=row.duration / 1000,
    )


async def _recorded_by_step(engine: Engine, run: Run, code: BoundGraph) -> dict[int, list[RecordedIO]]:
    by_step: dict[int, list[RecordedIO]] = {}
    for call in await recorded_ios(engine, run):
        by_step.setdefault(call.step_id, []).append(call)
    return by_step


def _as_whole(chain: list[Checkpoint], known: Known, code: BoundGraph) -> Checkpoint:
    from msgspec.structs import replace

    from holdfast.core.state_outcomes import joined

    return replace(chain[-1], whole=True, state=code.seal(joined(known.fields)))


def _document(
    run: Run, row: Checkpoint, known: Known, code: BoundGraph, recorded: Any
) -> CheckpointDocument[Any]:
    labels = tuple(label for label in (row.label or "").split("\n") if label)
    return CheckpointDocument(
        run_id=run.id,
        step_id=row.step,
        state=code.state_for(known.fields, None),
        frontier=tuple(
            WorkItem(
                step_id=row.step + 1,
                order_key=item.order_key,
                node_id=item.node,
                state=code.state_for(known.fields, item.sent),
                parent_node_id=item.parents[0][0] if item.parents else None,
                edge_index=item.parents[0][1] if item.parents else 0,
                path=item.path,
                parents=item.parents,
            )
            for item in known.frontier
        ),
        rng_seed=run_seed(run.id),
        recorded_ios=tuple(recorded),
        idempotency_key=row.key,
        timestamp=moment(row.at),
        label=labels[0] if labels else None,
        labels=labels,
        state_digest=row.digest,
    )
