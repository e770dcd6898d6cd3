"""What commits mean for state graphs: events for emitters, and numbers.

Looks at what was committed, so that nothing is told that did not happen. Told once by the process that committed it; a
commit whose process dies before it could tell is not told: emitters are for people, the store is the truth.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.authoring.durations import instant
from holdfast.coordinator import Commit
from holdfast.core.codec import decode_error
from holdfast.core.errors import ConflictingWrites, NoProgress
from holdfast.core.operations import (
    RECORDED,
    Changed,
    CompleteWork,
    FailWork,
    Handed,
    KillWork,
    LapseWork,
    RunOperation,
    Settled,
    Started,
    SteerWork,
)
from holdfast.core.rows import (
    CANCELLED,
    CHECKPOINTS,
    CHILD,
    COMPLETED,
    FAILED,
    PAUSED,
    RUNNING,
    RUNS,
    SUSPENDED,
    Checkpoint,
    Run,
    Work,
)
from holdfast.core.state_items import node_of, step_of
from holdfast.core.state_operations import AnswerPerson, AskPerson
from holdfast.emitters import (
    BACKPRESSURE,
    INTERRUPT_ANSWERED,
    INTERRUPT_ASKED,
    NO_PROGRESS,
    NODE_COMPLETED,
    NODE_FAILED,
    NODE_RETRIED,
    NODE_STARTED,
    RUN_CANCELLED,
    RUN_COMPLETED,
    RUN_FAILED,
    RUN_PAUSED,
    RUN_RESUMED,
    RUN_STARTED,
    STEP_COMPLETED,
    Emitter,
    GraphEvent,
    checked_emitters,
)
from holdfast.models.state_code import GRAPH
from holdfast.models.state_memory import totals_of
from holdfast.runtime import telemetry as t
from holdfast.runtime.definitions import RegistryDefinitions

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

log = logging.getLogger("holdfast.graphs")

Told = tuple[str, int, str | None, int | None, dict[str, Any]]
"""Kind, step, node, attempt, data."""

_STATUS_KINDS = {COMPLETED: RUN_COMPLETED, FAILED: RUN_FAILED, CANCELLED: RUN_CANCELLED, PAUSED: RUN_PAUSED}
_MAY_BE_RETRIED: tuple[type[RunOperation], ...] = (FailWork, LapseWork)  # counted, whether anybody listens or not
_ENDS_ATTEMPT = (CompleteWork, FailWork, SteerWork, KillWork, LapseWork)
_ENDS_OR_ASKS: tuple[type[RunOperation], ...] = (*_ENDS_ATTEMPT, AskPerson, AnswerPerson)


class GraphEvents:
    """Observes commits and claims, for the state graphs that it was told of."""

    def __init__(self, definitions: RegistryDefinitions, metrics: t.Metrics, for_all: Sequence[Emitter] = ()) -> None:
        self._definitions = definitions
        self._metrics = metrics
        self._for_all = tuple(for_all)
        self._emitters: dict[str, tuple[Emitter, ...]] = {}  # of each graph that is known here
        self._anybody = bool(self._for_all)  # listens
        self._complained: set[tuple[int, str]] = set()

    def know(self, graphs: Mapping[str, StateGraph[Any]]) -> None:
        """The graphs that are registered here, by each name that their runs may be stored under."""
        self._emitters = {
            name: (*checked_emitters(graph.options.emitter, f"emitter= of graph {name!r}"), *self._for_all)
            for name, graph in graphs.items()
        }
        self._anybody = bool(self._for_all) or any(self._emitters.values())

    def on_commit(self, commit: Commit) -> None:
        changes = commit.changes
        runs: dict[str, Run] = {}
        for run in changes.inserts.get(RUNS, ()):
            if run.model == GRAPH:
                runs[run.id] = run
                started = {"key": run.key, "parent": run.parent}
                self._tell(run, commit.now, [(RUN_STARTED, run.base, None, None, started)])
        settled: list[tuple[Run, Run]] = []
        for before, after in changes.updates.get(RUNS, ()):
            if after.model == GRAPH:
                runs[after.id] = after
                if before.status != after.status:
                    settled.append((before, after))
        if not runs:
            return
        works: _Works | None = None
        looked_at = _ENDS_OR_ASKS if self._anybody else _MAY_BE_RETRIED
        for operation, result in commit.pairs:
            if isinstance(operation, looked_at) and not isinstance(result, BaseException):
                about = runs.get(operation.run)
                if about is not None:
                    works = works or _Works(commit)
                    self._tell(about, commit.now, self._item_events(operation, result, works))
        for checkpoint in changes.inserts.get(CHECKPOINTS, ()):
            if checkpoint.run in runs:
                self._step(runs[checkpoint.run], checkpoint)
        for before, after in settled:
            self._tell(after, commit.now, self._run_events(before, after))
        if self._anybody:
            for _, result in commit.pairs:
                if isinstance(result, Settled | Started) and result.handed:
                    self.on_claim(result.handed)

    def on_claim(self, handed: Sequence[Handed]) -> None:
        """These were leased to a worker of this process, which starts them."""
        if not self._anybody:
            return
        for item in handed:
            run, work = item.run, item.work
            if run.model == GRAPH and work.kind != CHILD and self._emitters.get(run.workflow, self._for_all):
                told = _told(NODE_STARTED, work.node, work.attempt)
                self._tell(run, work.started or run.updated, [told])

    # -- what happened

    def _item_events(self, operation: RunOperation, result: Any, works: _Works) -> Iterator[Told]:
        if isinstance(operation, _ENDS_ATTEMPT):
            if isinstance(result, Settled) and result.verdict == RECORDED:
                yield from self._ended(operation, works)
        elif isinstance(operation, AskPerson):
            if result.verdict == RECORDED:
                yield _told(INTERRUPT_ASKED, operation.node, operation.attempt, call=operation.call)
        elif isinstance(operation, AnswerPerson) and isinstance(result, Changed) and result.changed:
            for node in result.nodes:
                yield _told(INTERRUPT_ANSWERED, node, None, by=operation.by)

    def _ended(
        self, operation: CompleteWork | FailWork | SteerWork | KillWork | LapseWork, works: _Works
    ) -> Iterator[Told]:
        node, attempt = operation.node, operation.attempt
        work = works.of(operation.run, node, attempt)
        again = works.of(operation.run, node, attempt + 1)
        took = None if work is None else _took_us(work.started, work.finished)
        data: dict[str, Any] = {} if took is None else {"duration_ms": took / 1000}
        if isinstance(operation, CompleteWork) or (isinstance(operation, SteerWork) and again is None):
            if isinstance(operation, SteerWork):
                data |= {"wish": operation.wish, "reason": operation.reason or None}
            yield _told(NODE_COMPLETED, node, attempt, **data)
            return
        if isinstance(operation, SteerWork):  # it asked for another attempt, perhaps after a run of its own
            if not operation.after_runs:
                yield _told(NODE_RETRIED, node, attempt + 1, reason=operation.reason or operation.wish)
            return
        if isinstance(operation, LapseWork):
            data["error"] = "its worker was lost"
        else:
            failure = decode_error(operation.error)
            data |= {"error": f"{failure.type}: {failure.message}"}
        if isinstance(operation, FailWork) and operation.timed_out:
            data["timed_out"] = True
        yield _told(NODE_FAILED, node, attempt, **data, gave_up=again is None)
        if again is not None:
            self._metrics.count(t.GRAPH_RETRIES)
            delay = max(0, again.due - again.created) / 1000
            yield _told(NODE_RETRIED, node, again.attempt, delay_ms=delay)

    def _step(self, run: Run, checkpoint: Checkpoint) -> None:
        totals = totals_of(checkpoint)
        code = self._definitions.state_graph(run.workflow)
        # The frontier of the run's latest step is as long as what has not succeeded yet.
        frontier = run.remaining if run.base == checkpoint.step else 0
        waiting = 0 if code is None else max(0, frontier - code.max_concurrent)
        if totals.steps:
            self._metrics.observe(t.GRAPH_STEP_SECONDS, totals.last / 1e6)
        self._metrics.observe(t.GRAPH_QUEUE_DEPTH, waiting)
        blocked = 0 if code is None else max(0, waiting - code.queue_depth)
        if blocked:
            self._metrics.count(t.GRAPH_BACKPRESSURE_BLOCKS, blocked)
        if not self._emitters.get(run.workflow, self._for_all):
            return
        events: list[Told] = []
        if totals.steps:
            labels = [label for label in (checkpoint.label or "").split("\n") if label]
            data = {
                "duration_ms": totals.last / 1000,
                "state_digest": checkpoint.digest,
                "labels": labels,
                "frontier": frontier,
                "total_steps": totals.steps,
                "total_nodes_executed": totals.nodes,
                "avg_step_latency_ms": totals.latency / totals.steps / 1000,
                "max_queue_depth": totals.deepest,
                "total_retries": totals.retries,
                "total_backpressure_blocks": totals.blocks,
            }
            events.append((STEP_COMPLETED, checkpoint.step, None, None, data))
        if blocked:
            capacity = 0 if code is None else code.queue_depth
            told = {"blocked": blocked, "queue_depth": capacity, "total_backpressure_blocks": totals.blocks}
            events.append((BACKPRESSURE, checkpoint.step, None, None, told))
        self._tell(run, checkpoint.at, events)

    def _run_events(self, before: Run, after: Run) -> Iterator[Told]:
        kind = _STATUS_KINDS.get(after.status)
        if kind is None:
            if before.status in (PAUSED, FAILED) and after.status in (RUNNING, SUSPENDED):
                yield RUN_RESUMED, after.base, None, None, {}
            return
        data: dict[str, Any] = {} if after.reason is None else {"reason": after.reason}
        if (took := _took_us(after.started, after.finished)) is not None:
            data["duration_ms"] = took / 1000
        if kind == RUN_FAILED and after.error is not None:
            error = decode_error(after.error)
            data["error"] = f"{error.type}: {error.message}"
            name = error.type.rpartition(".")[2]
            if name == ConflictingWrites.__name__:
                self._metrics.count(t.GRAPH_MERGE_CONFLICTS)
            elif name == NoProgress.__name__:
                yield NO_PROGRESS, after.base, None, None, {"error": data["error"]}
        yield kind, after.base, None, None, data

    # -- telling it

    def _tell(self, run: Run, at: int, events: Iterator[Told] | list[Told]) -> None:
        emitters = self._emitters.get(run.workflow, self._for_all)
        for kind, step, node, attempt, data in events:  # also if nobody listens: they are counted on the way
            event = GraphEvent(
                kind=kind,
                run_id=run.id,
                workflow=run.workflow,
                step=step,
                at=instant(at),
                node=node,
                attempt=attempt,
                data=data,
            )
            for emitter in emitters:
                self._give(emitter.emit, emitter, event)

    def _give(self, emit: Callable[[GraphEvent], object], emitter: Emitter, event: GraphEvent) -> None:
        try:
            emit(event)
        except KeyboardInterrupt:
            raise
        except BaseException:  # whatever it is, the run goes on
            known = (id(emitter), event.kind)
            if known not in self._complained:
                self._complained.add(known)
                log.exception(
                    "%s raised at %s of run %s; further errors of it about events of this kind are not logged",
                    type(emitter).__name__,
                    event.kind,
                    event.run_id,
                )


class _Works:
    """The work items that a commit wrote, by their key; put together at the first question."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._rows: dict[tuple[str, str, int], Work] | None = None

    def of(self, run: str, node: str, attempt: int) -> Work | None:
        if self._rows is None:
            self._rows = {(row.run, row.node, row.attempt): row for row in self._commit.work}
        return self._rows.get((run, node, attempt))


def _took_us(started: int | None, finished: int | None) -> int | None:
    """Nothing, of what was claimed ahead of its time and had ended by then."""
    return None if started is None or finished is None else max(0, finished - started)


def _told(kind: str, address: str, attempt: int | None, **data: Any) -> Told:
    return kind, step_of(address), node_of(address), attempt, {"item": address, **data}
