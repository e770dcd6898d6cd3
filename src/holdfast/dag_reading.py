"""A run's graph and its proof of order, read for people: nothing here is ever used for a decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.dags import Dag
from holdfast.core.codec import JSON
from holdfast.core.dag_document import graph_of_nodes
from holdfast.core.errors import DagError, PayloadRefused, UsageError
from holdfast.core.graph import Graph, Node, known_names
from holdfast.core.ids import ancestry_hash, parents_hash
from holdfast.core.rows import BLOCKED, CANCELLED, SATISFIED, SKIPPED, History, Run, Work
from holdfast.models.dag_shape import followed
from holdfast.models.machine import FORKED, facts_of
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.store.contract import Store

UNSTAMPED: Final = frozenset({BLOCKED, SKIPPED, CANCELLED})  # it may never have been enqueued
GRAPH_ENTRIES: Final = frozenset({"graph changed", "graph frozen", "graph imported"})

# What a run may be that has no DAG, and where to look instead.
OTHER_MODELS: Final[Mapping[str, tuple[str, str]]] = {
    "graph": ("a state graph", "`holdfast graph RUN` draws it, `holdfast checkpoints RUN` shows its steps"),
    "flow": ("a flow", "`holdfast graph RUN` draws it with its states; its code has it as `.graph`"),
    "function": ("a function", "it has no graph: `holdfast show RUN` and `handle.history()` show what it did"),
    "decider": ("an instance of a decider", "`holdfast show RUN` shows its state and `holdfast stream` its events"),
    "projection": ("a projection", "`holdfast projections` shows where it stands"),
}


class AncestryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether every recorded attempt followed the very attempts of its parents that it claims to follow (I28)."""

    ok: bool
    checked: int
    first_break: str | None = None

    def __bool__(self) -> bool:
        return self.ok


def check_ancestry(
    graph: Graph,
    work: list[Work],
    history: Iterable[History] = (),
    *,
    completed: bool = False,
    agrees: bool = True,
) -> AncestryReport:
    """Recompute the hashes of a run in topological order; the first attempt that does not fit is named.

    The history tells of nodes that began under other parents than the graph gives them now: only their own hash is
    checked. Where the rows do not agree with the graph, as after an import into a failed run, that holds for all.
    """
    told = _told_by(history)
    whole = agrees and completed and not told.finished
    satisfied: dict[str, str] = {}
    attempts: dict[str, list[Work]] = {}
    for item in work:
        attempts.setdefault(item.node, []).append(item)
        if item.status in SATISFIED:
            satisfied[item.node] = item.ancestry or ""
    checked = 0
    for node_id in (*graph.topological_order, *(node for node in attempts if node not in graph.by_id)):
        node = graph.by_id.get(node_id)
        name = node_id if node is None else node.name
        parents = node.depends_on if node is not None and agrees and node_id not in told.rewired else None
        missing = [parent for parent in parents or () if parent not in satisfied]
        expected = None if parents is None or missing else parents_hash([satisfied[parent] for parent in parents])
        for item in attempts.get(node_id, ()):
            if node is None and agrees and not told.changed:
                return _broken(checked, item, name, "is of a node that the graph never had")
            if item.ancestry is None:
                if item.status in UNSTAMPED:
                    continue
                return _broken(checked, item, name, f"is {item.status} and has no hash")
            checked += 1
            if missing:
                before = graph.by_id[missing[0]].name
                return _broken(checked, item, name, f"follows {before}, of which no attempt has completed")
            if expected is not None and item.parents != expected:
                return _broken(
                    checked, item, name, "follows other attempts of its parents than those that are recorded"
                )
            if item.ancestry != ancestry_hash(node_id, item.attempt, item.parents or ""):
                return _broken(checked, item, name, "does not have the hash of what it is")
        if whole and node is not None and node_id not in satisfied:
            what = f"the run has completed, and no attempt of node {name} has"
            return AncestryReport(ok=False, checked=checked, first_break=what)
    return AncestryReport(ok=True, checked=checked)


def _broken(checked: int, item: Work, name: str, what: str) -> AncestryReport:
    return AncestryReport(
        ok=False, checked=checked, first_break=f"attempt {item.attempt} of node {name} (run {item.run}) {what}"
    )


class _Told(msgspec.Struct):
    """What the history says that explains rows which the graph alone does not."""

    rewired: set[str]  # had begun when the graph gave them other parents
    changed: bool = False  # there was another graph once, and with it other nodes
    finished: bool = False  # a node ended the run before all of them were done


def _told_by(history: Iterable[History]) -> _Told:
    told = _Told(set())
    for entry in history:
        if entry.kind == "finished":
            told.finished = True
        elif entry.kind in GRAPH_ENTRIES:
            told.changed = True
            told.rewired.update(facts_of(entry).get("rewired", ()))
        elif entry.kind == FORKED and "source" in facts_of(entry):
            told.changed = True  # it shares what its source did, under other graphs too
    return told


async def graph_followed(store: Store, run: Run, graph: Graph) -> Graph | None:
    """The graph that the run's rows agree with, which the one of the code may be ahead of; None if nobody knows it."""
    signature = followed(run)
    if signature == graph.signature:
        return graph
    nodes = None if run.definition is not None or signature is None else await store.code_nodes(run.workflow, signature)
    return None if nodes is None else graph_of_nodes(nodes)


def check_code(graph: Graph, definitions: RegistryDefinitions, run: Run, before: Graph | None) -> None:
    """A graph to be imported names only code that is known here, or that the run used before."""
    jobs = set(definitions.registry.known_actions())
    methods: set[str] = set()
    found = definitions.thing(run.workflow)
    if isinstance(found, type) and issubclass(found, Dag):
        methods.update(found.__dag__.methods)
    for node in before.nodes if before is not None else ():
        jobs.update([node.job] if node.job is not None else [])
        methods.update([node.method] if node.method is not None else [])
    for node in graph.nodes:
        if node.job is not None and node.job not in jobs:
            raise DagError(
                f"node {node.name!r} runs the job {node.job!r}, which is no action that is known here",
                hint=known_names(node.job, jobs),
            )
        if node.method is not None and node.method not in methods:
            raise DagError(
                f"node {node.name!r} runs the method {node.method!r}, which {run.workflow} does not have",
                hint=known_names(node.method, methods),
            )
        earlier = None if before is None else before.by_id.get(node.id)
        if earlier is None or (earlier.job, earlier.args) != (node.job, node.args):
            _check_arguments(node, definitions.registry.actions.get(node.job or ""))


def _check_arguments(node: Node, action: Action[..., Any] | None) -> None:
    """What was edited has to fit the job as it is now; what was not is as good or bad as it was before."""
    if action is None:
        return
    try:
        args, kwargs = ((), {}) if node.args is None else action.call.decode_call(node.args, JSON.tag)
        action.check_arguments(args, kwargs)
    except PayloadRefused as error:
        raise DagError(
            f"the args of node {node.name!r} do not fit action {action.name}: {error.__cause__ or error.message}",
            hint=f"its signature is {action.name}{action.call.signature}",
        ) from error
    except UsageError as error:
        raise DagError(f"node {node.name!r}: {error.message}", hint=error.hint) from error
