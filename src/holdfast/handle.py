"""A handle on one run: what people and programs do with a run after it was started."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.dags import Dag
from holdfast.core import failpoints
from holdfast.core.codec import DEFAULT_CODECS, ErrorRecord, decode_error
from holdfast.core.errors import (
    DagError,
    ReattemptRefused,
    RunCancelled,
    RunFailed,
    RunPaused,
    UnknownWorkflow,
    UsageError,
)
from holdfast.core.graph import Graph
from holdfast.core.operations import (
    CancelRun,
    Changed,
    Operation,
    PauseRun,
    ReattemptNode,
    ResumeRun,
    RetryRun,
    SkipNode,
)
from holdfast.core.queries import AllWork, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    COMPLETED,
    FAILED,
    LEASED,
    PAUSED,
    PENDING,
    RUNNING,
    Run,
    Wait,
    Work,
)
from holdfast.dag_reading import AncestryReport, check_ancestry, dag_document
from holdfast.explain import Explanation, explain
from holdfast.listing import readable
from holdfast.runtime.definitions import known_exception
from holdfast.start_options import checked_text

if TYPE_CHECKING:
    from holdfast.engine import Engine

R = TypeVar("R")


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a run's record."""

    sequence: int
    kind: str
    at: datetime
    data: dict[str, Any]


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node and where it stands now."""

    id: str
    name: str
    state: str
    attempt: int = 0
    detail: str = ""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str | None = None


class StepExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one node, as it was recorded."""

    node: str
    attempt: int
    state: str
    worker: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: ErrorRecord | None = None
    outcome: dict[str, Any] | None = None
    ancestry_hash: str | None = None
    token: int = 0


class Handle(Generic[R]):
    """A run: its id, its key, and what can be asked of it.

    Awaiting the handle itself checks that the run exists and returns the handle.
    """

    def __init__(self, engine: Engine, run_id: str, key: str | None = None) -> None:
        self._engine = engine
        self.id = run_id
        self.key = key

    def __repr__(self) -> str:
        return f"<Handle {self.id}>" if self.key is None else f"<Handle {self.id} key={self.key!r}>"

    def __await__(self) -> Generator[Any, None, Self]:
        return self._checked().__await__()

    async def _checked(self) -> Self:
        self.key = (await self._row()).key
        return self

    async def _row(self) -> Run:
        rows = await self._engine.store.runs([self.id])
        if not rows:
            raise UnknownWorkflow(f"there is no run {self.id}", hint="`holdfast runs` lists the runs of this database")
        return rows[0]

    async def _work(self) -> list[Work]:
        return await self._engine.store.rows(AllWork(self.id))

    # -- results

    async def status(self) -> str:
        """pending, running, suspended, paused, cancelling, completed, failed or cancelled."""
        row = await self._row()
        if row.status == PENDING and any(work.status == LEASED for work in await self._work()):
            return RUNNING  # a claim does not write the run's row, and the first attempt is under way
        return row.status

    async def result(self, timeout: float | None = None, *, wait_paused: bool = False) -> R:
        """What the run returned.

        Raises `RunFailed` with the original exception as its cause, `RunCancelled`, `RunPaused` (unless
        `wait_paused`), or `TimeoutError`; the run itself goes on after a timeout.
        """
        try:
            row = await self._engine.watch.wait(
                self.id, lambda run: run.ended or (run.status == PAUSED and not wait_paused), timeout
            )
        except TimeoutError:
            raise TimeoutError(f"run {self.id} has not ended after {timeout:g} s; it goes on") from None
        return self._outcome(row)

    def _outcome(self, row: Run) -> R:
        if row.status == COMPLETED:
            value: R = self._decoded(row)
            return value
        cause = None if row.error is None else decode_error(row.error).to_exception(known_exception)
        if row.status == FAILED:
            raise RunFailed(
                f"run {row.id} of {row.workflow} failed: {row.reason or cause}",
                run_id=row.id,
                workflow=row.workflow,
                cause=cause,
                hint=f"see `holdfast show {row.id} --traceback`; after a fix, `holdfast retry {row.id}` goes on where "
                "it stopped",
            ) from cause
        if row.status == CANCELLED:
            raise RunCancelled(
                f"run {row.id} of {row.workflow} was cancelled: {row.reason}", run_id=row.id, by=row.reason
            )
        command = f"holdfast resume {row.id}"
        raise RunPaused(
            f"run {row.id} of {row.workflow} is paused: {row.reason}",
            run_id=row.id,
            reason=row.reason or "",
            command=command,
            hint=f"`{command}` goes on, retrying what failed; result(wait_paused=True) waits for that",
        ) from cause

    def _decoded(self, row: Run) -> Any:
        found = self._engine.definitions.thing(row.workflow)
        if row.result is None or (isinstance(found, type) and issubclass(found, Dag)):
            return None
        if isinstance(found, Action):
            return found.call.decode_result(row.result, row.codec)
        return DEFAULT_CODECS.decode(row.result, where=f"the result of {row.workflow}", codec=row.codec)

    # -- what can be asked of it

    async def _ask(self, operation: Operation) -> Changed:
        changed: Changed = await self._engine.coordinator.submit(operation)
        return changed

    async def cancel(self, *, force: bool = False, by: str = "an operator") -> bool:
        """Stop the run for good; False if it had ended before."""
        if failpoints.armed:
            await failpoints.reach("cancel.requested")
        return (await self._ask(CancelRun(run=self.id, force=force, by=checked_text(by, "by")))).changed

    async def pause(self, *, by: str = "an operator", reason: str = "") -> bool:
        """Start nothing more of this run until it is resumed. What is running goes on to its end."""
        return (
            await self._ask(
                PauseRun(run=self.id, by=checked_text(by, "by"), reason=reason and checked_text(reason, "reason"))
            )
        ).changed

    async def resume(self, *, by: str = "an operator") -> bool:
        """Go on; if a failure paused the run, retry what failed."""
        return (await self._ask(ResumeRun(run=self.id, by=checked_text(by, "by")))).changed

    async def retry(self, *, by: str = "an operator") -> list[str]:
        """Give every node that gave up a new attempt; their names."""
        answer = await self._ask(RetryRun(run=self.id, by=checked_text(by, "by")))
        if not answer.changed:
            raise UsageError(
                f"run {self.id} has nothing to retry: it is {answer.status}",
                hint="retry is for a run whose nodes gave up; a completed or cancelled run never changes again",
            )
        return list(answer.nodes)

    async def reattempt(self, node: str, *, by: str = "an operator") -> None:
        """Give one node that gave up a new attempt."""
        answer = await self._ask(ReattemptNode(run=self.id, node=checked_text(node, "node"), by=checked_text(by, "by")))
        if not answer.changed:
            raise ReattemptRefused(
                f"node {node} of run {self.id} cannot be attempted again: its latest attempt did not give up, or the "
                f"run is {answer.status}",
                hint="only a node whose latest attempt failed, timed out or is dead can be",
            )

    async def skip(self, node: str, *, by: str = "an operator") -> None:
        """Mark a node as skipped, which satisfies what depends on it."""
        await self._ask(SkipNode(run=self.id, node=checked_text(node, "node"), by=checked_text(by, "by")))

    # -- what can be known about it

    async def history(self) -> list[HistoryEntry]:
        """The run's record: what people and the engine did to it, oldest first."""
        await self._row()  # a run that is not there must not look like one without a record
        return [
            HistoryEntry(sequence=entry.sequence, kind=entry.kind, at=_time(entry.at), data=readable(entry.data))
            for entry in await self._engine.store.history(self.id)
        ]

    async def explain(self) -> Explanation:
        """In plain words: why this run is where it is, and what would move it."""
        return await explain(self._engine.store, await self._row())

    async def waits(self) -> list[Wait]:
        """What this run waits for."""
        await self._row()
        return await self._engine.store.rows(WaitsOf(self.id))

    async def dag(self) -> Graph:
        """The graph that this run follows now."""
        row = await self._row()
        graph = self._engine.definitions.graph(row.workflow)
        if graph is None:
            raise DagError(
                f"workflow {row.workflow} of run {self.id} is not known here, or is no DAG",
                hint="import the module that defines it",
            )
        return graph

    async def dag_definition(self) -> dict[str, Any] | None:
        """The DAG that is stored for this run; None while it follows its class, which is read from code."""
        await self._row()
        return None

    async def export_dag(self) -> str:
        """The graph that this run follows now, as a JSON document: structure only, no state."""
        document = dag_document(await self.dag())
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()

    async def verify_ancestry(self) -> AncestryReport:
        """Whether every recorded attempt followed the attempts of its parents that it claims; names the first break."""
        return check_ancestry(await self.dag(), await self._work())

    async def nodes_with_state(self) -> list[NodeState]:
        """Every node of the graph in topological order, with its latest attempt."""
        graph = await self.dag()
        latest = {work.node: work for work in await self._work()}
        return [_node_state(node, graph.by_id[node].name, latest.get(node)) for node in graph.topological_order]

    async def step_executions(self, node: str | None = None) -> list[StepExecution]:
        """Every attempt that was recorded, of one node or of all."""
        await self._row()
        return [_execution(work) for work in await self._work() if node is None or work.node == node]


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def _node_state(node: str, name: str, work: Work | None) -> NodeState:
    if work is None:
        return NodeState(id=node, name=name, state="pending")
    detail = f"{work.completed} of {work.required}" if work.status == BLOCKED else ""
    return NodeState(
        id=node,
        name=name,
        state=work.status,
        attempt=work.attempt,
        detail=detail,
        started_at=None if work.started is None else _time(work.started),
        completed_at=None if work.finished is None else _time(work.finished),
        error=None if work.error is None else decode_error(work.error).message,
    )


def _execution(work: Work) -> StepExecution:
    return StepExecution(
        node=work.node,
        attempt=work.attempt,
        state=work.status,
        worker=work.worker,
        started_at=None if work.started is None else _time(work.started),
        completed_at=None if work.finished is None else _time(work.finished),
        error=None if work.error is None else decode_error(work.error),
        outcome=None if work.outcome is None else readable(work.outcome),
        ancestry_hash=work.ancestry,
        token=work.token,
    )
