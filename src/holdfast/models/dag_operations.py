"""Decisions that only DAGs have: fork a run, store its graph, follow changed code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from holdfast.core.dag_document import graph_of_nodes
from holdfast.core.errors import DagError, UsageError
from holdfast.core.graph import Graph
from holdfast.core.operations import Changed, ForkRun, Operation, ReshapeRun, Started, StoreGraph
from holdfast.core.queries import AllWork
from holdfast.core.rows import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    DEFINITIONS,
    LEASED,
    PENDING,
    RUNS,
    SATISFIED,
    WORK,
    Definition,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.dag import FORK, DagMachine, definition_id, node_of
from holdfast.models.dag_items import BUILT, is_alone
from holdfast.models.machine import (
    FORKED,
    Definitions,
    Handing,
    already_forked,
    existing_run,
    is_draining,
    record,
)


class StoredGraphs(Definitions, Protocol):
    """Definitions that can also read a graph from its stored form."""

    def parsed(self, definition: Definition) -> Graph: ...


class DagOperations:
    def __init__(self, machine: DagMachine, definitions: StoredGraphs) -> None:
        self.machine = machine
        self.definitions = definitions

    def decisions(self) -> dict[type[Operation], object]:
        return {ForkRun: self.fork, StoreGraph: self.store, ReshapeRun: self.reshape}

    def fork(self, view: View, op: ForkRun) -> Started:
        """I29: everything that was completed is shared, except a node and what depends on it."""
        if view.get(RUNS, (op.run,)) is not None:
            return Started(run=op.run)  # K8
        source = existing_run(view, op.source)
        if source.model != "dag":
            raise UsageError(
                f"run {source.id} of {source.workflow} is no DAG and cannot be forked from a node",
                hint="from_node= is for DAGs",
            )
        graph = self._graph(view, source)
        start = node_of(source, graph, op.from_node)
        if made := already_forked(view, source.workflow, op.key, source=source.id, node=start.name):
            return Started(run=made.id, existed=True)
        if is_draining(view, source.workflow):
            raise UsageError(
                f"workflow {source.workflow} is being drained and takes no new runs",
                hint=f"fork it after `holdfast drain {source.workflow} --off`",
            )
        anew = {start.id, *graph.descendants(start.id)}
        rows: list[Work] = view.find(AllWork(source.id))
        shared = {work.node for work in rows if work.status in SATISFIED} - anew
        run = self._copy_of(view, source, op)
        for work in rows:
            if work.node in shared:
                view.insert(WORK, replace(work, run=run.id))
        run = record(view, run, FORKED, by=op.by, source=source.id, node=start.name, shared=len(shared))
        record(view, source, FORKED, by=op.by, into=run.id, node=start.name)
        self.machine.follow(view, run, graph, Handing(None), self.definitions, by=FORK)
        return Started(run=run.id)

    def _copy_of(self, view: View, source: Run, op: ForkRun) -> Run:
        run = replace(
            Run(id=op.run, workflow=source.workflow, model=source.model),
            key=op.key,
            status=PENDING,
            input=source.input,
            codec=source.codec,
            input_digest=source.input_digest,
            on_failure=source.on_failure,
            queue=source.queue,
            priority=source.priority,
            tags=source.tags,
            created=view.now,
            updated=view.now,
        )
        if source.definition is not None:
            stored = view.get(DEFINITIONS, (source.definition,))
            if stored is None:
                raise DagError(f"the stored graph of run {source.id} is missing", hint="see `holdfast doctor`")
            copied = replace(stored, id=definition_id(_kind(source), run.id, 0), run=run.id)
            view.insert(DEFINITIONS, copied)
            run = replace(run, definition=copied.id)
        view.insert(RUNS, run)
        return run

    def store(self, view: View, op: StoreGraph) -> Changed:
        """I31: a stored graph wins over the class, keeps what is completed, and says who stored it and when."""
        run = existing_run(view, op.run)
        if run.status in (COMPLETED, CANCELLED, CANCELLING):
            raise UsageError(
                f"run {run.id} is {run.status} and never changes again", hint="start or fork a run, and change that"
            )
        current = run.signature
        before = None if run.definition is None else view.get(DEFINITIONS, (run.definition,))
        if current is None and before is not None:  # a run that failed: its rows will be made to agree by a retry
            current = before.signature
        if run.definition is not None and current == op.signature:
            return Changed(changed=False, status=run.status)  # K8: this very graph is stored already
        latest = {work.node: work for work in view.find(AllWork(run.id))}
        if any(is_alone(run, work) for work in latest.values()):  # whose arguments no graph holds
            raise DagError(
                f"run {run.id} of {run.workflow} is an action on its own, and no DAG",
                hint="deploys do not change what it is given; for other arguments, start another run",
            )
        if op.expected is not None and current is not None and op.expected != current:
            raise DagError(
                f"the graph of run {run.id} was changed since this document was exported (it was {op.expected}, "
                f"it is {current})",
                hint="export it again, and make the change there",
            )
        kind = _kind(run)
        stored = Definition(
            id=definition_id(kind, run.id, run.entries + 1),
            run=run.id,
            signature=op.signature,
            nodes=op.nodes,
            by=op.by,
            frozen=view.now,
        )
        # Not through the cache: a graph that is refused below would be remembered under the id of the next one.
        graph = graph_of_nodes(op.nodes)
        followed = self.definitions.graph(view, run)
        _check_keeps(run, graph, latest, followed)
        if before is not None:
            view.delete(DEFINITIONS, before)
        view.insert(DEFINITIONS, stored)
        run = record(view, run, f"graph {op.how}", by=op.by, signature=op.signature, before=current)
        run = replace(run, definition=stored.id)
        if run.ended:  # it failed: what follows is decided when it is retried
            view.put(RUNS, replace(run, signature=None))
        else:
            self.machine.follow(view, run, graph, Handing(None), self.definitions, by=op.by, instead_of=followed)
        return Changed(changed=True, status=existing_run(view, op.run).status)

    def reshape(self, view: View, op: ReshapeRun) -> Changed:
        run = existing_run(view, op.run)
        changed = self.machine.reshape_if_younger(view, run, self.definitions)
        return Changed(changed=changed, status=existing_run(view, op.run).status)

    def _graph(self, view: View, run: Run) -> Graph:
        graph = self.definitions.graph(view, run)
        if graph is None:
            raise DagError(
                f"this process does not know workflow {run.workflow} of run {run.id}",
                hint="import the module that defines it",
            )
        return graph


def _kind(run: Run) -> str:
    return "built" if run.definition is not None and run.definition.startswith(BUILT) else "frozen"


def _check_keeps(run: Run, graph: Graph, latest: Mapping[str, Work], before: Graph | None) -> None:
    for node, work in latest.items():
        if node in graph.by_id or work.status not in (COMPLETED, LEASED):
            continue
        state = "has completed" if work.status == COMPLETED else "is running"
        known = None if before is None else before.by_id.get(node)
        name = node if known is None or known.name == node else f"{known.name} ({node})"
        raise DagError(
            f"node {name} of run {run.id} {state}, and the new graph does not have it",
            hint="keep it (its name may change, its id may not); only nodes that have not begun can be removed",
        )


__all__ = ["DagOperations", "StoredGraphs"]
