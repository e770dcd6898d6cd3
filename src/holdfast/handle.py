"""A handle on one run: what people and programs do with a run after it was started."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar

import msgspec

from holdfast.authoring.dags import Dag
from holdfast.authoring.startable import result_codec_of
from holdfast.core import failpoints
from holdfast.core.codec import ErrorRecord, decode_error, decode_stored_result, unlabelled
from holdfast.core.dag_document import document, frozen, stored_nodes
from holdfast.core.decider_operations import DECIDER
from holdfast.core.errors import (
    DagError,
    HoldfastError,
    RemoteError,
    RunCancelled,
    RunFailed,
    RunPaused,
    StoreUnavailable,
    UnknownWorkflow,
    UsageError,
)
from holdfast.core.function_operations import entry_of
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
    StoreGraph,
)
from holdfast.core.queries import AllWork, ByAncestry, DefinitionById, HistoryPage, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    COMPLETED,
    ENDED,
    FAILED,
    LEASED,
    PAUSED,
    PENDING,
    RUNNING,
    SKIPPED,
    Definition,
    Run,
    Wait,
    Work,
)
from holdfast.core.stored import iso_text, moment, undecided
from holdfast.dag_reading import OTHER_MODELS, AncestryReport, check_ancestry, check_code, graph_followed
from holdfast.listing import readable, readable_entry
from holdfast.models.dag import node_of
from holdfast.models.dag_items import awaited_by, latest_of
from holdfast.models.flow_code import FLOW
from holdfast.models.machine import ON_FAILURE, discarded_node
from holdfast.models.state_code import GRAPH
from holdfast.runtime.exception_classes import known_exception
from holdfast.runtime.watch import limited
from holdfast.start_options import checked_node, checked_text

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.explain import Explanation
    from holdfast.graph_documents import Checkpoint, Interrupt, RecordedIO, SchedulerState

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
    name: str
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
        wanted = _has_ended if wait_paused else _has_ended_or_paused
        watch = self._engine.watch
        became = "has not ended after {:g} s; it goes on"
        try:
            async with limited(timeout):
                row = await watch.wait(self.id, wanted, None, settled=True)
                became = "has ended, but the store did not tell all of how within {:g} s"
                told = await watch.patiently(lambda: self._told_of(row))
        except TimeoutError:
            raise TimeoutError(f"run {self.id} {became.format(timeout)}") from None
        if row.status == COMPLETED:
            value: R = self._decoded(row, told or row.workflow)
            return value
        self._raise_outcome(row, told)

    async def _told_of(self, row: Run) -> str | None:
        """What its row does not say: as which workflow it has completed, or for which node it has failed."""
        if row.status == COMPLETED:
            return await self._ended_as(row)
        return await self._failed_node(row) if row.status == FAILED else None

    async def _ended_as(self, row: Run) -> str:
        """The workflow that its result is of: a function may have gone on as another one."""
        if row.model != "function" or not row.base:
            return row.workflow
        began = await self._engine.store.rows(HistoryPage(row.id, row.base - 1, 1))
        return entry_of(began[0].data).name if began else row.workflow

    async def _failed_node(self, row: Run) -> str | None:
        """The name of the node that the run failed for; of a function, that of the call or child."""
        if row.model == "function":
            from holdfast.runtime.failed_calls import failed_call  # for those whose functions fail

            return await failed_call(self._engine.store, row)
        if row.model not in ("dag", FLOW, GRAPH) or not row.gave_up:
            return None
        to_blame = next((work.node for work in await self._work() if work.error and work.error == row.error), None)
        graph = await self._engine.definitions.load(self._engine.store, row) if row.model == "dag" else None
        known = None if graph is None else graph.by_id.get(to_blame or "")
        return to_blame if known is None else known.name

    def _raise_outcome(self, row: Run, node: str | None) -> Never:
        record = None if row.error is None else decode_error(row.error)
        cause = None if record is None else record.to_cause(known_exception)
        told, fix = row.reason or str(cause), ""
        if isinstance(cause, HoldfastError) and not isinstance(cause, RemoteError):  # its fix and ours are told as one
            told, fix = told.replace(f". Fix: {cause.hint}", ""), f"{cause.hint}; "
        if row.status == FAILED:
            raise RunFailed(
                f"run {row.id} of {row.workflow} failed: {told}",
                run_id=row.id,
                workflow=row.workflow,
                node=node,
                cause=cause,
                attempts=() if record is None or cause is None else record.attempts(cause, known_exception),
                hint=f"{fix}see `holdfast show {row.id} --traceback`; {_what_helps(row)}",
            ) from cause
        if row.status == CANCELLED:
            by, what = _who_cancelled(row)
            # An instance is not started by anybody: its first input makes it.
            hint = "it ignores what it is given: use another instance" if row.model == DECIDER else None
            raise RunCancelled(f"run {row.id} of {row.workflow} was {what}", run_id=row.id, by=by, hint=hint)
        command = f"holdfast resume {row.id}"
        raise RunPaused(
            f"run {row.id} of {row.workflow} is paused: {told}",
            run_id=row.id,
            reason=row.reason or "",
            command=command,
            hint=f"{fix}`{command}` goes on, retrying what failed; result(wait_paused=True) waits for that",
        ) from cause

    def _decoded(self, row: Run, workflow: str) -> Any:
        found = self._engine.definitions.thing(workflow)
        if row.result is None or (isinstance(found, type) and issubclass(found, Dag)):
            return None
        reader = result_codec_of(found)
        if reader is not None:
            return decode_stored_result(reader, self._engine.codecs, row.result)
        result = unlabelled(row.result)
        return self._engine.codecs.decode(result.data, where=f"the result of {row.workflow}", codec=result.codec)

    # -- what can be asked of it

    async def _ask(self, operation: Operation) -> Changed:
        try:
            changed: Changed = await self._engine.coordinator.submit(operation)
        except HoldfastError:
            raise
        except Exception as error:  # no code of a user's is asked here
            raise undecided(operation, error) from error
        return changed

    async def _wish(self) -> dict[str, Any]:
        """A name for what is asked, which makes a repetition known as one. While the store is away it goes without."""
        try:
            rows = await self._engine.store.runs([self.id])
        except StoreUnavailable:
            return {}
        return {"wish": self._engine.system.ids.new(), "known": rows[0].entries if rows else 0}

    async def cancel(self, *, force: bool = False, by: str = "an operator") -> bool:
        """Stop the run for good; False if it had ended before."""
        if failpoints.armed:
            await failpoints.reach("cancel.requested")
        changed = (await self._ask(CancelRun(run=self.id, force=force, by=checked_text(by, "by")))).changed
        if failpoints.armed:
            await failpoints.reach("cancel.recorded")
        return changed

    async def pause(self, *, by: str = "an operator", reason: str = "") -> bool:
        """Start nothing more of this run until it is resumed. What is running goes on to its end."""
        wish = await self._wish()
        return (
            await self._ask(
                PauseRun(
                    run=self.id, by=checked_text(by, "by"), reason=reason and checked_text(reason, "reason"), **wish
                )
            )
        ).changed

    async def resume(self, *, by: str = "an operator") -> bool:
        """Go on; if a failure paused the run, retry what failed."""
        return (await self._ask(ResumeRun(run=self.id, by=checked_text(by, "by"), **await self._wish()))).changed

    async def retry(self, *, by: str = "an operator") -> list[str]:
        """Give every node that gave up a new attempt; their names."""
        answer = await self._ask(RetryRun(run=self.id, by=checked_text(by, "by"), **await self._wish()))
        if not answer.changed:
            hint = "retry is for a run whose nodes gave up; a completed or cancelled run never changes again"
            if answer.status == FAILED:
                hint = _what_helps(await self._row())
            raise UsageError(f"run {self.id} has nothing to retry: it is {answer.status}", hint=hint)
        return list(answer.nodes)

    async def reattempt(self, node: str, *, by: str = "an operator") -> None:
        """Give one node that gave up a new attempt; ReattemptRefused if that could not be told apart later (I29).

        Of a node that waits for its next attempt, that one is due now.
        """
        await self._ask(ReattemptNode(run=self.id, node=checked_node(node), by=checked_text(by, "by")))

    async def skip(self, node: str, *, by: str = "an operator") -> None:
        """Mark a node as skipped, which satisfies what depends on it."""
        await self._ask(SkipNode(run=self.id, node=checked_node(node), by=checked_text(by, "by")))

    async def resume_with(self, answer: Any, *, node: str | None = None, by: str = "a person") -> bool:
        """Answer a node of a state graph that asks a person (`ctx.interrupt`); `node` if several do.

        False if it was given this very answer before.
        """
        from holdfast.core.state_operations import AnswerPerson
        from holdfast.graph_reading import question_meant
        from holdfast.runtime.recorded_calls import answer_of

        stored, digest = answer_of(answer, self._engine.codecs, self._engine.settings.payload_limit_bytes)
        asked = None if node is None else checked_node(node)
        meant, question = await question_meant(self._engine, self.id, asked)
        operation = AnswerPerson(
            run=self.id, answer=stored, answer_hash=digest, node=meant, question=question, by=checked_text(by, "by")
        )
        return (await self._ask(operation)).changed

    # -- what can be known about it

    async def checkpoints(self) -> list[Checkpoint[Any]]:
        """Every checkpoint that is kept of a state graph's run, oldest first."""
        from holdfast import graph_reading

        return await graph_reading.checkpoints(self._engine, await self._row())

    async def checkpoint(self, *, step: int | None = None, label: str | None = None) -> Checkpoint[Any]:
        """What a state graph had become after a step, or where a label was set last; without either, the latest."""
        from holdfast import graph_reading

        return await graph_reading.checkpoint(self._engine, await self._row(), step=step, label=label)

    async def scheduler(self) -> SchedulerState:
        """What a state graph's run does now, and what it has done."""
        from holdfast import graph_reading

        return await graph_reading.scheduler(self._engine, await self._row())

    async def interrupts(self) -> list[Interrupt]:
        """The questions to people that a state graph's run waits with."""
        from holdfast import graph_reading

        return await graph_reading.interrupts(self._engine, await self._row())

    async def recorded(self) -> list[RecordedIO]:
        """The calls to the outside world that a state graph's nodes have recorded."""
        from holdfast import graph_reading

        return await graph_reading.recorded_ios(self._engine, await self._row())

    async def history(self) -> list[HistoryEntry]:
        """The run's record: what people and the engine did to it, oldest first."""
        await self._row()  # a run that is not there must not look like one without a record
        return [
            HistoryEntry(
                sequence=entry.sequence,
                kind=entry.kind,
                at=moment(entry.at),
                data=readable_entry(entry, self._engine.codecs),
            )
            for entry in await self._engine.store.history(self.id)
        ]

    async def explain(self) -> Explanation:
        """In plain words: why this run is where it is, and what would move it."""
        from holdfast.explain import explain  # of use to people, and not to every program

        return await explain(self._engine.store, await self._row(), self._engine.definitions)

    async def query(self, name: str) -> Any:
        """What the run's function exposes under this name (`hf.expose`), as of its last entry.

        Answered by replaying its history here, so this process must have its code; nothing is started.
        """
        from holdfast.querying import answer_query  # of use to few

        return await answer_query(self._engine, await self._row(), checked_text(name, "name"))

    async def waits(self) -> list[Wait]:
        """What this run waits for."""
        await self._row()
        return await self._engine.store.rows(WaitsOf(self.id))

    async def dag(self) -> Graph:
        """The graph that this run follows now."""
        row = await self._row()
        graph = await self._engine.definitions.load(self._engine.store, row)
        if row.model in OTHER_MODELS:
            kind, instead = OTHER_MODELS[row.model]
            raise DagError(
                f"run {self.id} of {row.workflow} is {kind}, and no DAG", hint=instead.replace("RUN", self.id)
            )
        if graph is None:
            raise DagError(
                f"workflow {row.workflow} of run {self.id} is not known here", hint="import the module that defines it"
            )
        return graph

    async def dag_definition(self) -> dict[str, Any] | None:
        """The DAG that is stored for this run; None while it follows its class, which is read from code."""
        row = await self._row()
        graph, stored = await self._graph_and_definition(row)
        return None if stored is None or graph is None else document(graph, iso_text(stored.frozen))

    async def freeze_dag(self, *, by: str = "an operator") -> dict[str, Any]:
        """Store the graph that the run's class has now: from here on only `import_dag` changes it. The stored DAG."""
        row = await self._row()
        if row.definition is None:
            graph = self._engine.definitions.of_code(row.workflow) or await self.dag()
            await self._store_graph(frozen(graph), row.signature, "frozen", by)
        stored = await self.dag_definition()
        if stored is None:
            raise DagError(f"the graph of run {self.id} could not be frozen", hint="try again")
        return stored

    async def export_dag(self) -> str:
        """The graph that this run follows now, as a JSON document: structure only, no state."""
        stored = await self.dag_definition()
        exported = stored or document(frozen(await self.dag()), None)
        return msgspec.json.format(msgspec.json.encode(exported), indent=2).decode()

    async def import_dag(self, text: str, *, by: str = "an operator") -> None:
        """Follow the graph of an exported and edited document from now on. The last resort: see the docs first.

        Refused unless it is a valid DAG that keeps every node that has completed or is running, names jobs that
        are known here or were in the graph before, and was exported from the graph as it is now.
        """
        from holdfast.core.dag_document_reading import parse_document

        graph, exported_from = parse_document(text)
        row = await self._row()
        before = await self.load_graph()
        check_code(graph, self._engine.definitions, row, before)
        if row.definition is None and before is not None and exported_from == frozen(before).signature:
            exported_from = row.signature  # an export says nothing of retry_on, which is code
        await self._store_graph(graph, exported_from, "imported", by)

    async def _store_graph(self, graph: Graph, expected: str | None, how: str, by: str) -> None:
        await self._ask(
            StoreGraph(
                run=self.id,
                nodes=stored_nodes(graph),
                signature=graph.signature,
                expected=expected,
                by=checked_text(by, "by"),
                how=how,
            )
        )

    async def load_graph(self) -> Graph | None:
        """The graph that this run follows; None if it follows code that this process does not have."""
        return await self._engine.definitions.load(self._engine.store, await self._row())

    async def _graph_and_definition(self, row: Run) -> tuple[Graph | None, Definition | None]:
        if row.definition is None:
            return None, None
        for stored in await self._engine.store.rows(DefinitionById(row.definition)):
            return self._engine.definitions.parsed(stored), stored
        return None, None

    async def verify_ancestry(self) -> AncestryReport:
        """Whether every recorded attempt followed the attempts of its parents that it claims; names the first break."""
        while True:
            row, graph = await self._row(), await self.dag()
            known = await graph_followed(self._engine.store, row, graph)
            work, history = await self._work(), await self._engine.store.history(self.id)
            after = await self._row()
            if (after.definition, after.signature) == (row.definition, row.signature):  # else rows of two graphs
                break
        completed = row.status == COMPLETED
        return check_ancestry(known or graph, work, history, completed=completed, agrees=known is not None)

    async def nodes_with_state(self) -> list[NodeState]:
        """Every node of the graph in topological order, with its latest attempt.

        Of a run whose class is gone, or that nobody here knows, the nodes that have begun.
        """
        row = await self._row()
        graph = await self.load_graph()
        attempts: dict[str, list[Work]] = {}
        for work in await self._work():
            attempts.setdefault(work.node, []).append(work)
        latest = {node: latest_of(row, rows) for node, rows in attempts.items()}
        if graph is None:
            return [_node_state(row, node, node, work) for node, work in latest.items()]
        absent = SKIPPED if row.status == COMPLETED else "pending"
        return [
            _node_state(row, node, graph.by_id[node].name, latest.get(node), absent) for node in graph.topological_order
        ]

    async def step_executions(self, node: str | None = None) -> list[StepExecution]:
        """Every attempt that was recorded, of one node or of all; also of a node that the graph has no more."""
        graph, found = await self.load_graph(), await self._work()
        wanted = node
        if graph is not None and node is not None:
            gone = node not in graph.by_name and node not in graph.by_id and any(work.node == node for work in found)
            wanted = node if gone else node_of(await self._row(), graph, node).id
        names = {} if graph is None else {each.id: each.name for each in graph.nodes}
        return [
            _execution(work, names.get(work.node, work.node)) for work in found if wanted is None or work.node == wanted
        ]

    async def mermaid(self) -> str:
        """The graph with the state of every node, for a page or a document; of a state graph, with the taken path."""
        row = await self._row()
        if row.model == GRAPH:
            from holdfast.graph_path import path_of
            from holdfast.graph_reading import code_of_run

            code = code_of_run(self._engine, row)
            path = await path_of(self._engine.store, row, code)
            shown = {name: node.shown for name, node in path.nodes.items()}
            return code.graph.mermaid(states=shown, taken=path.taken)
        states = {state.id: state.state for state in await self.nodes_with_state()}
        return (await self.dag()).mermaid(states)


async def executions_by_ancestry(engine: Engine, ancestry_hash: str) -> list[tuple[str, StepExecution]]:
    """Every attempt with this hash (I28), with the run it belongs to."""
    found: list[Work] = await engine.store.rows(ByAncestry(ancestry_hash))
    runs = {run.id: run for run in await engine.store.runs([work.run for work in found])}
    executions = []
    for work in found:
        graph = await engine.definitions.load(engine.store, runs[work.run]) if work.run in runs else None
        known = None if graph is None else graph.by_id.get(work.node)
        executions.append((work.run, _execution(work, work.node if known is None else known.name)))
    return executions


def _who_cancelled(row: Run) -> tuple[str | None, str]:
    """Who cancelled the run, if that is known, and the end of the sentence that says so."""
    if row.reason is None:
        return None, "cancelled"
    if row.reason.startswith("cancelled by "):
        return row.reason.removeprefix("cancelled by ").removesuffix(", by force"), row.reason
    return ON_FAILURE, f"cancelled because {row.reason}"


def _what_helps(row: Run) -> str:
    node = None if row.gave_up else discarded_node(row.reason)
    if node is not None:  # which `retry` passes over
        import shlex  # for those whose work was discarded

        return f"`holdfast reattempt {row.id} {shlex.quote(node)}` tries after all what was discarded"
    if row.model == "flow" and not row.gave_up:
        return "the flow's own code raised it and would again: start a new run, with other code or another input"
    retry = f"after a fix, `holdfast retry {row.id}` goes on where it stopped"
    if row.model == "graph" and not row.gave_up:  # its nodes have returned, and are not run again
        return f"{retry}; after a fix of a node, `holdfast fork {row.id} --step {row.base}` runs the step again"
    return retry


def _has_ended(run: Run) -> bool:
    return run.status in ENDED


def _has_ended_or_paused(run: Run) -> bool:
    return run.status in ENDED or run.status == PAUSED


def _node_state(run: Run, node: str, name: str, work: Work | None, absent: str = "pending") -> NodeState:
    if work is None:
        return NodeState(id=node, name=name, state=absent)
    detail = awaited_by(run, work) if work.status == BLOCKED else ""
    return NodeState(
        id=node,
        name=name,
        state=work.status,
        attempt=work.attempt,
        detail=detail,
        started_at=None if work.started is None else moment(work.started),
        completed_at=None if work.finished is None else moment(work.finished),
        error=None if work.error is None else decode_error(work.error).message,
    )


def _execution(work: Work, name: str) -> StepExecution:
    return StepExecution(
        node=work.node,
        name=name,
        attempt=work.attempt,
        state=work.status,
        worker=work.worker,
        started_at=None if work.started is None else moment(work.started),
        completed_at=None if work.finished is None else moment(work.finished),
        error=None if work.error is None else decode_error(work.error),
        outcome=None if work.outcome is None else readable(work.outcome),
        ancestry_hash=work.ancestry,
        token=work.token,
    )
