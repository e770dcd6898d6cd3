"""The dag machine: nodes become ready by counting.

One way to become ready (I17): the first parent to finish inserts a node's item with its `required`
count, each parent adds one to `completed`, and the item is blocked until the two are equal. An entry
point is the same with a count of one. The cost of a completion depends on the node's own edges, never
on the size of the graph: the run's row carries how many nodes remain and how many items are active.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.core.errors import MissingJob, ReadinessOverflow
from holdfast.core.graph import Graph, Node
from holdfast.core.ids import ancestry_hash, parents_hash
from holdfast.core.operations import PolicyOverride, StartRun
from holdfast.core.queries import AllWork, Attempts
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    COMPLETED,
    FAILED,
    PAUSED,
    RUNS,
    SATISFIED,
    SKIPPED,
    WORK,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.machine import Definitions, Handing, end_run, make_ready, record

NO_PARENTS = parents_hash([])


class DagMachine:
    """Class DAGs, and an action that runs on its own (a graph of one node)."""

    cancels_gracefully = False

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None:
        graph = _graph(run, definitions)
        run = replace(run, remaining=len(graph.nodes), active=len(graph.entries), definition=graph.signature)
        view.put(RUNS, run)
        for name in graph.entries:
            node = graph.by_id[name]
            work = replace(
                _item(run, node, required=1, now=view.now),
                completed=1,
                due=max(operation.due, view.now),
                parents=NO_PARENTS,
                ancestry=ancestry_hash(node.id, 1, NO_PARENTS),
            )
            if operation.override is not None:
                work = _overridden(work, run, operation.override)
            view.insert(WORK, make_ready(view, run, work, handing))

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        graph = _graph(run, definitions)
        run = replace(run, remaining=run.remaining - 1)
        for successor in graph.successors(work.node):
            run = self._count(view, run, graph, graph.by_id[successor], work, handing)
        if run.remaining == 0:
            result = work.result if len(graph.nodes) == 1 else None
            end_run(view, run, COMPLETED, result=result)
            return
        view.put(RUNS, run)
        if run.active == 0:
            self._settle(view, run)

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """I30: independent branches go on; what depends on the node stays blocked; then `on_failure` applies."""
        graph = definitions.graph(run.workflow)
        if run.on_failure == "skip" and graph is not None:  # without it nobody can say what follows: the run fails
            run = record(view, run, "skipped", by="on_failure", node=work.node)
            run = replace(run, gave_up=run.gave_up - 1, error=None, reason=None)
            skipped = replace(work, status=SKIPPED)
            view.put(WORK, skipped)
            self.advance(view, run, skipped, handing, definitions)
            return
        if graph is not None and run.gave_up == 1 and work.node in graph.by_id:
            run = replace(run, reason=f"{run.reason}{_position(graph, work.node)}")
            view.put(RUNS, run)
        if run.active == 0:
            self._settle(view, run)

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """Read the graph from this process's code again, and make ready what nothing holds back (I31)."""
        graph = _graph(run, definitions)
        latest: dict[str, Work] = {work.node: work for work in view.find(AllWork(run.id))}
        done = {node for node, work in latest.items() if work.status in SATISFIED}
        remaining = [node for node in graph.nodes if node.id not in done]
        run = replace(run, remaining=len(remaining), definition=graph.signature)
        if not remaining:
            end_run(view, run, COMPLETED)
            return
        for node in remaining:
            if node.id not in latest and done.issuperset(node.depends_on):
                required = graph.required(node.id)
                parents = parents_hash([latest[parent].ancestry or "" for parent in node.depends_on])
                work = replace(
                    _item(run, node, required=required, now=view.now),
                    completed=required,
                    parents=parents,
                    ancestry=ancestry_hash(node.id, 1, parents),
                )
                view.insert(WORK, make_ready(view, run, work, Handing(None)))
                run = replace(run, active=run.active + 1)
        view.put(RUNS, run)
        if run.active == 0:  # G9: a run that nothing can move must not look as if it ran
            self._pause(view, run, f"{run.remaining} nodes are left and none can start; skip them, or cancel the run")

    def _count(self, view: View, run: Run, graph: Graph, node: Node, parent: Work, handing: Handing) -> Run:
        """One parent more of `node` is satisfied."""
        required = graph.required(node.id)
        work = view.probe(WORK, (run.id, node.id, 1))
        if work is None:
            work = replace(_item(run, node, required=required, now=view.now), completed=1)
            known = False
        else:
            if work.completed >= work.required:
                raise ReadinessOverflow(
                    f"node {node.name} of run {run.id} has {work.required} parents and was counted once more",
                    hint="this operation was undone and nothing else changed; please report this bug",
                )
            work = replace(work, completed=work.completed + 1)
            known = True
        if work.completed == work.required and work.status == BLOCKED:  # one that was skipped stays so
            parents = _parents(view, run, node, parent)
            work = replace(work, due=view.now, parents=parents, ancestry=ancestry_hash(node.id, 1, parents))
            work = make_ready(view, run, work, handing)
            run = replace(run, active=run.active + 1)
        if known:
            view.put(WORK, work)
        else:
            view.insert(WORK, work)
        return run

    def _settle(self, view: View, run: Run) -> None:
        """Nothing is running any more and nodes remain: the run cannot go on by itself."""
        if run.gave_up == 0:
            # A worker whose code lacks the next node settled this one: a deploy is under way. Never fail for that.
            self._pause(
                view, run, f"{run.remaining} nodes are left that the code of the last worker does not have (a deploy?)"
            )
        elif run.on_failure == "pause":
            if run.status != PAUSED:
                run = record(view, run, "paused", by="on_failure", reason=run.reason)
                view.put(RUNS, replace(run, status=PAUSED))
        elif run.on_failure == "cancel":
            end_run(view, run, CANCELLED, reason=run.reason)
        else:
            end_run(view, run, FAILED, reason=run.reason)

    def _pause(self, view: View, run: Run, reason: str) -> None:
        run = record(view, run, "paused", by="holdfast", reason=reason)
        view.put(RUNS, replace(run, status=PAUSED, reason=reason))


def _graph(run: Run, definitions: Definitions) -> Graph:
    graph = definitions.graph(run.workflow)
    if graph is None:
        raise MissingJob(
            f"this process does not know workflow {run.workflow} (run {run.id})",
            hint="import the module that defines it, or run this from a worker that does",
        )
    return graph


def _item(run: Run, node: Node, *, required: int, now: int) -> Work:
    timeout = node.policy.timeout_seconds
    return Work(
        run=run.id,
        node=node.id,
        attempt=1,
        workflow=run.workflow,
        name=node.job or method_name(run.workflow, node.id),
        status=BLOCKED,
        required=required,
        queue=node.policy.queue or run.queue,
        priority=run.priority,
        due=now,
        timeout=None if timeout is None else int(timeout * 1_000_000),
        payload=node.args,
        created=now,
    )


def _position(graph: Graph, node: str) -> str:
    """Where a node that gave up stands, and what it holds up."""
    path = graph.path_from_entry(node)
    waiting = len(graph.descendants(node))
    where = f" (path {' > '.join(path)})" if len(path) > 1 else ""
    return where + (f"; {waiting} node{'s' if waiting > 1 else ''} blocked by it" if waiting else "")


def method_name(workflow: str, node: str) -> str:
    """What a worker must know to run a node that is a method: two workers with different code differ here (I8)."""
    return f"{workflow}.{node}"


def _overridden(work: Work, run: Run, override: PolicyOverride) -> Work:
    numbers = {"attempts": override.attempts, "base": override.base_seconds, "cap": override.cap_seconds}
    timeout = override.timeout_seconds
    return replace(
        work,
        queue=override.queue or run.queue,
        timeout=None if timeout is None else int(timeout * 1_000_000),
        policy=msgspec.json.encode(numbers).decode(),
    )


def _parents(view: View, run: Run, node: Node, last: Work) -> str:
    """I28: a hash over the latest satisfied attempt of each parent; a chain needs no lookup."""
    others = frozenset(parent for parent in node.depends_on if parent != last.node)
    hashes = {last.node: last.ancestry or ""}
    if others:
        for work in view.find(Attempts(run.id, others)):
            if work.status in SATISFIED:
                hashes[work.node] = work.ancestry or ""
    return parents_hash(list(hashes.values()))
