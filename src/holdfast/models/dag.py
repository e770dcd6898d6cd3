"""The dag machine: nodes become ready by counting.

One way to become ready (I17): the first parent to finish inserts a node's item with its `required`
count, each parent adds one to `completed`, and the item is blocked until the two are equal. An entry
point is the same with a count of one. The cost of a completion depends on the node's own edges, never
on the size of the graph: the run's row carries how many nodes remain and how many items are active.

Which graph is followed. A stored graph, if the run has one; else the one of the code, which may change
under a run with every deploy (I31). `run.signature` names the graph that the counts agree with. Where it
differs from the code of the process that decides, the counts are made to agree first (`dag_shape.py`), by
the code that was deployed later only: a worker of before a deploy settles what it ran, and leaves the run
without a signature for a worker of after it.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.dag_document import node_names
from holdfast.core.errors import MissingJob, ReadinessOverflow, UnknownNode
from holdfast.core.graph import Graph, Node
from holdfast.core.ids import ancestry_hash, parents_hash
from holdfast.core.operations import StartRun
from holdfast.core.queries import AllWork, Attempts, CodeGraph, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    COMPLETED,
    DEAD,
    DEFINITIONS,
    FAILED,
    LOST,
    PAUSED,
    READY,
    RUNS,
    SATISFIED,
    SKIPPED,
    TIMED_OUT,
    WORK,
    Definition,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.dag_items import NO_PARENTS, first_due, is_alone, item_of, overridden
from holdfast.models.dag_shape import Reshaped, followed, reshape, without_signature
from holdfast.models.delivery import gate_for
from holdfast.models.machine import (
    ON_FAILURE,
    Definitions,
    Handing,
    end_run,
    make_ready,
    pause_asked_for,
    record,
    settle,
)

NAMES_SHOWN = 20
ATTEMPTED = frozenset({FAILED, TIMED_OUT, DEAD, LOST, CANCELLED})  # and there may be a later attempt
FORK = "fork"  # what it shares may have begun under another graph


class DagMachine:
    """Class DAGs, built ones, and an action that runs on its own (a graph of one node)."""

    cancels_gracefully = False

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None:
        if operation.nodes:
            stored = definition_id("built", run.id, 0)
            view.insert(
                DEFINITIONS,
                Definition(
                    id=stored, run=run.id, signature=operation.signature, nodes=operation.nodes, frozen=view.now
                ),
            )
            run = replace(run, definition=stored)
        graph = _graph(view, run, definitions)
        run = replace(
            run,
            remaining=len(graph.nodes),
            active=len(graph.entries),
            signature=graph.signature,
            adopted=definitions.seen(run, graph),
        )
        view.put(RUNS, run)
        for name in graph.entries:
            node = graph.by_id[name]
            work = item_of(run, node, required=1, now=view.now, parents=NO_PARENTS)
            if operation.override is not None:
                work = overridden(work, run, operation.override)
            view.insert(WORK, handing.lease(view, work))

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        if is_alone(run, work):  # an action on its own: nothing can follow, whatever the code says now
            end_run(view, replace(run, remaining=0), COMPLETED, result=work.result)
            return
        graph = definitions.graph(view, run)
        if graph is None or graph.signature != run.signature:
            self._differs(view, run, graph, handing, definitions)
            return
        if work.node in graph.by_id:  # else it was leased when its node was removed: it counts for nothing
            started = self._count_in_all(view, run, graph, work, handing)
            run = replace(run, remaining=run.remaining - 1, active=run.active + started)
        self._go_on(view, run)

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """I30: independent branches go on; what depends on the node stays blocked; then `on_failure` applies."""
        graph = definitions.graph(view, run)
        if run.on_failure == "skip":
            run = record(view, run, "skipped", by=ON_FAILURE, node=self.label(view, run, work.node, definitions))
            run = replace(run, gave_up=run.gave_up - 1)
            skipped = replace(work, status=SKIPPED)
            view.put(WORK, skipped)
            self.advance(view, run, skipped, handing, definitions)
            return
        if not is_alone(run, work) and graph is not None and graph.signature != run.signature:
            self._differs(view, run, graph, handing, definitions)
            return
        if graph is None:  # whoever has the code goes on from what is stored; what is to be done about it is stored too
            run = without_signature(run)
            view.put(RUNS, run)
        if graph is not None and run.gave_up == 1:
            run = replace(run, reason=f"{run.reason}{self.position(view, run, work.node, definitions)}")
            view.put(RUNS, run)
        if run.active == 0:
            settle(view, run)

    def before_another(self, view: View, run: Run, work: Work, definitions: Definitions) -> Run | None:
        """I31: a node that was removed while it ran is not tried again; who has other code cannot tell, and says so."""
        if run.definition is None and not is_alone(run, work):
            graph = definitions.graph(view, run)
            if graph is None or graph.signature != run.signature:
                return without_signature(run)
            if work.node not in graph.by_id:
                return None
        return run

    def tried_again(self, view: View, run: Run, work: Work) -> None:
        """Nothing more follows from it."""

    def idle(self, view: View, run: Run) -> None:
        if run.signature is not None:  # else whoever has the right code goes on first, and may find something to do
            settle(view, run)

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """An operator took the run up again, here: what this process knows is what it follows, if it knows anything."""
        graph = definitions.graph(view, run)
        if graph is None:
            if run.active == 0:
                view.put(RUNS, without_signature(run))  # a worker that has the code finds it
            return
        if graph.signature != run.signature:
            self.follow(view, run, graph, Handing(None), definitions, by="the code of who resumed it")
        elif run.active == 0:
            self._go_on(view, run)

    def reshape_if_younger(self, view: View, run: Run, definitions: Definitions) -> bool:
        """A worker saw that its code differs. False: nothing to do, or not for this worker to do."""
        graph = definitions.graph(view, run)
        if graph is None or run.ended or run.status == PAUSED or run.definition is not None:
            return False
        if graph.signature == run.signature or run.adopted > definitions.seen(run, graph):
            return False
        self.follow(view, run, graph, Handing(None), definitions, by="a deploy")
        return True

    def follow(
        self,
        view: View,
        run: Run,
        graph: Graph,
        handing: Handing,
        definitions: Definitions,
        *,
        by: str,
        instead_of: Graph | None = None,
    ) -> Reshaped:
        """Make the run's rows and counts agree with this graph, tell what that changed, and go on.

        What it followed until now is `instead_of`, or code that somebody had once."""
        nodes = _nodes_before(view, run, graph) if instead_of is None else names_of(instead_of)
        changed = reshape(view, run, graph, handing, nodes)
        run = replace(changed.run, signature=graph.signature, token=0)
        if run.error is not None and run.gave_up == 0:  # what gave up is not in the graph any more
            kept = pause_asked_for(view, run) or run.reason
            run = replace(run, error=None, reason=kept if run.status == PAUSED else None)
        if run.definition is None:
            run = replace(run, adopted=definitions.seen(run, graph))
        before = followed(changed.run)
        another = before is not None and before != graph.signature
        if another or changed.left_out:  # a freeze changes nothing, and most forks do not
            run = record(view, run, "graph changed", by=by, signature=graph.signature, **changed.told(NAMES_SHOWN))
        self._go_on(view, run)
        return changed

    def cancel(self, view: View, run: Run, definitions: Definitions, by: str) -> None:
        raise AssertionError("a DAG has no code that runs after a cancel")

    # -- names

    def label(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        graph = definitions.graph(view, run)
        known = None if graph is None else graph.by_id.get(node)
        return node if known is None else known.name

    def position(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        graph = definitions.graph(view, run)
        if graph is None or node not in graph.by_id:
            return ""
        path = [graph.by_id[each].name for each in graph.path_from_entry(node)]
        waiting = len(graph.descendants(node))
        where = f" (path {' > '.join(path)})" if len(path) > 1 else ""
        return where + (f"; {waiting} node{'s' if waiting > 1 else ''} blocked by it" if waiting else "")

    def find(self, view: View, run: Run, name: str, definitions: Definitions) -> str:
        graph = definitions.graph(view, run)
        if graph is not None:
            return node_of(run, graph, name).id
        if not view.find(Attempts(run.id, frozenset({name}))):
            raise UnknownNode(
                f"run {run.id} of {run.workflow} has no work for node {name!r}, and this process lacks the code of "
                f"{run.workflow}, which may have more nodes",
                hint=f"see `holdfast show {run.id}` for its nodes; to say something of one that nothing has reached, "
                "import the module that defines it",
            )
        return name

    def parents(self, view: View, run: Run, node: str, definitions: Definitions) -> str | None:
        graph = definitions.graph(view, run)
        if graph is None or node not in graph.by_id:
            return None
        return parents_hash(list(_ancestries(view, run, [graph.by_id[node]]).values()))

    def below(self, view: View, run: Run, node: str, definitions: Definitions) -> tuple[str, ...]:
        graph = definitions.graph(view, run)
        return () if graph is None or node not in graph.by_id else graph.descendants(node)

    def skip_unbegun(self, view: View, run: Run, node: str, definitions: Definitions) -> Work:
        graph = _graph(view, run, definitions)
        latest = {work.node: work for work in view.find(Attempts(run.id, frozenset(graph.by_id[node].depends_on)))}
        met = sum(work.status in SATISFIED for work in latest.values())
        item = item_of(run, graph.by_id[node], required=graph.required(node), now=view.now)
        return replace(item, status=SKIPPED, completed=met, finished=view.now)

    # -- counting

    def _count_in_all(self, view: View, run: Run, graph: Graph, parent: Work, handing: Handing) -> int:
        """Whatever depends on `parent` has one parent more that is satisfied; how many of them became active.

        What is read for them is read together: a node that very many follow must not cost a round trip for each.
        """
        following = graph.successors(parent.node)
        if not view.optimistic:
            view.expect(WORK, ((run.id, name, 1) for name in following))
        by_id, joins, items = graph.by_id, [], []
        for name in following:
            node, work = by_id[name], view.probe(WORK, (run.id, name, 1))
            items.append((node, work))
            if len(node.depends_on) > 1 and len(node.depends_on) == 1 + (work.completed if work else 0):
                joins.append(node)  # and this is the last that it waited for
        above = _ancestries(view, run, joins, parent) if joins else {parent.node: parent.ancestry or ""}
        started = 0
        for node, work in items:
            if work is None and len(node.depends_on) == 1:  # the common case: ready as it is made
                parents = parents_hash([above[parent.node]])
                work = item_of(run, node, required=1, now=view.now, parents=parents)
                view.insert(WORK, handing.lease(view, work))
                started += 1
            else:
                started += self._count(view, run, node, work, above, handing)
        return started

    def _count(
        self,
        view: View,
        run: Run,
        node: Node,
        work: Work | None,
        above: dict[str, str],
        handing: Handing,
    ) -> bool:
        """One parent more of `node` is satisfied; `above` names the attempts of all of them if this is the last."""
        known, began = work is not None, False
        if work is None:
            work = item_of(run, node, required=len(node.depends_on), now=view.now)
        elif work.completed >= work.required:
            raise ReadinessOverflow(
                f"node {node.name} of run {run.id} has {work.required} parents and was counted once more",
                hint="this operation was undone and nothing else changed; please report this bug",
            )
        if work.completed + 1 == work.required and work.status == BLOCKED:  # one that was skipped stays so
            parents = parents_hash([above[name] for name in node.depends_on if name in above])
            due = first_due(run, view.now)
            work = replace(
                work,
                status=READY,
                completed=work.required,
                due=due,
                gate=gate_for(run, due, view.now),
                parents=parents,
                ancestry=ancestry_hash(node.id, 1, parents),
            )
            work, began = handing.lease(view, work), True
        else:
            work = replace(work, completed=work.completed + 1)
        if known:
            view.put(WORK, work)
        else:
            view.insert(WORK, work)
        if work.completed == work.required and work.status in ATTEMPTED:
            began = self._ready_again(view, run, node, above, handing)
        return began

    def _ready_again(self, view: View, run: Run, node: Node, above: dict[str, str], handing: Handing) -> bool:
        """A later attempt that a changed graph put something new before: it waited as the first one did."""
        latest: Work = view.find(Attempts(run.id, frozenset({node.id})))[-1]
        if latest.status != BLOCKED or any(wait.address == node.id for wait in view.find(WaitsOf(run.id))):
            return False
        parents = parents_hash([above[name] for name in node.depends_on if name in above])
        ancestry = ancestry_hash(node.id, latest.attempt, parents)
        latest = replace(latest, due=view.now, parents=parents, ancestry=ancestry)
        view.put(WORK, make_ready(view, run, latest, handing))
        return True

    def _differs(self, view: View, run: Run, graph: Graph | None, handing: Handing, definitions: Definitions) -> None:
        """Something was settled here, and the run's counts agree with another graph than this process's."""
        if graph is not None and (run.definition is not None or run.adopted <= definitions.seen(run, graph)):
            self.follow(view, run, graph, handing, definitions, by="a deploy")
        else:
            view.put(RUNS, without_signature(run))  # older code, or none: what follows is not for it to say

    def _go_on(self, view: View, run: Run) -> None:
        if run.remaining == 0 and run.active == 0:
            end_run(view, run, COMPLETED)
            return
        view.put(RUNS, run)
        if run.active == 0:
            settle(view, run)


def names_of(graph: Graph) -> dict[str, str]:
    return {node.id: node.name for node in graph.nodes}


def _nodes_before(view: View, run: Run, graph: Graph) -> dict[str, str]:
    """The nodes of the code that the run followed until now, by id: those that nothing has reached have no rows."""
    before = followed(run)
    if run.definition is not None or before is None or before == graph.signature:
        return {}
    stored: list[Definition] = view.find(CodeGraph(run.workflow, before))
    return node_names(stored[0].nodes) if stored else {}


def definition_id(kind: str, run: str, number: int) -> str:
    """`kind` is "built" for a graph that no code has, "frozen" for one that a class had."""
    return f"{kind}-{run}-{number}"


def _graph(view: View, run: Run, definitions: Definitions) -> Graph:
    graph = definitions.graph(view, run)
    if graph is None:
        raise MissingJob(
            f"this process does not know workflow {run.workflow} (run {run.id})",
            hint="import the module that defines it, or run this from a worker that does",
        )
    return graph


def node_of(run: Run, graph: Graph, name: str) -> Node:
    """The node that a person means, by name or id; UnknownNode with the run otherwise."""
    try:
        return graph.find(name)
    except UnknownNode as error:
        raise UnknownNode(f"run {run.id} of {run.workflow} has no node {name!r}", hint=error.hint) from None


def _ancestries(view: View, run: Run, nodes: list[Node], last: Work | None = None) -> dict[str, str]:
    """I28: the hashes of the satisfied attempts of all parents of these nodes; a chain needs no lookup."""
    hashes = {} if last is None else {last.node: last.ancestry or ""}
    others = frozenset(parent for node in nodes for parent in node.depends_on if parent not in hashes)
    if others:
        # Of a join of very many, one question for all its run's work is answered faster than a list of names.
        query = Attempts(run.id, others) if len(others) <= MANY_PARENTS else AllWork(run.id)
        for work in view.find(query):
            if work.status in SATISFIED and work.node in others:
                hashes[work.node] = work.ancestry or ""
    return hashes


MANY_PARENTS = 1000
