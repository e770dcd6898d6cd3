"""The drawing of a flow: one place for each node of its source, with the passes and elements that reached it.

What is computed between two waits leaves no row behind, so such a place has no state of its own, and the edges around
it are taken where both what came before and what follows was reached.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.core.flow_addresses import parse_address
from holdfast.core.flow_graph import ENTRY, OUTPUT
from holdfast.core.queries import AllWork
from holdfast.documents.graph_view import GraphEdge, GraphNode, GraphView, most_urgent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.flow_graph import FlowGraph, FlowNode
    from holdfast.core.rows import Run, Work
    from holdfast.engine import Engine


def of_graph(graph: FlowGraph) -> GraphView:
    """The graph before it runs."""
    return GraphView(
        kind="flow",
        nodes=tuple(GraphNode(id=node.id, label=_label(node), kind=_kind(node)) for node in graph.nodes),
        edges=_edges(graph, frozenset()),
    )


async def of_run(engine: Engine, row: Run) -> GraphView:
    """The graph that a run follows; without it, what has been reached."""
    work: list[Work] = await engine.store.rows(AllWork(row.id))
    by_node: dict[str, dict[str, Work]] = {}
    attempts: Counter[str] = Counter()
    for item in sorted(work, key=lambda item: item.attempt):
        node = parse_address(item.node).node
        by_node.setdefault(node, {})[item.node] = item
        attempts[node] += item.status != "blocked"
    graph = await engine.definitions.flow_graph(engine.store, row)
    if graph is None:
        nodes = [
            _reached(node, node, items[next(iter(items))].kind, items, attempts) for node, items in by_node.items()
        ]
        return GraphView(kind="flow", nodes=tuple(nodes), truncated=True)
    places = []
    for each in graph.nodes:
        items = by_node.get(each.id, {})
        if items:
            places.append(_reached(each.id, _label(each), _kind(each), items, attempts))
        else:
            places.append(GraphNode(id=each.id, label=_label(each), kind=_kind(each), state=_unreached(row, each)))
    ended = {OUTPUT} if row.status == "completed" else set()
    return GraphView(kind="flow", nodes=tuple(places), edges=_edges(graph, _passed(graph, {ENTRY, *by_node} | ended)))


def _reached(node: str, label: str, kind: str, items: Mapping[str, Work], attempts: Counter[str]) -> GraphNode:
    states = dict(Counter(item.status for item in items.values()))
    only = next(iter(items.values()))
    counts = only.status == "blocked" and len(items) == 1 and only.kind != "child"
    return GraphNode(
        id=node,
        label=label,
        kind=kind,
        state=most_urgent(states),
        attempts=attempts[node],
        detail=f"{only.completed} of {only.required}" if counts else "",
        count=len(items) if len(items) > 1 else None,
        states=states if len(items) > 1 else None,
    )


def _unreached(row: Run, node: FlowNode) -> str:
    if node.id == ENTRY:
        return "completed"
    if node.id == OUTPUT:
        return row.status if row.ended else "pending"
    if not node.is_frontier:
        return ""
    return "skipped" if row.status == "completed" else "pending"


def _passed(graph: FlowGraph, reached: set[str]) -> frozenset[str]:
    """The places that a run has gone through, with those between them that leave nothing behind."""
    before, onward = set(reached), set(reached)
    for known, edges in ((before, graph.order), (onward, graph.order)):
        changed = True
        while changed:
            changed = False
            for edge in edges:
                came, goes = (edge.source, edge.target) if known is before else (edge.target, edge.source)
                if came in known and goes not in known and not graph.by_id[goes].is_frontier:
                    known.add(goes)
                    changed = True
    return frozenset(before & onward)


def _edges(graph: FlowGraph, passed: frozenset[str]) -> tuple[GraphEdge, ...]:
    order = [
        GraphEdge(
            source=edge.source,
            target=edge.target,
            label="next pass" if edge.back is not None and not edge.when else edge.when,
            loop=edge.back is not None,
            taken=edge.source in passed and edge.target in passed,
        )
        for edge in graph.order
    ]
    errors = [
        GraphEdge(source=node.id, target=node.on_error, label="error")
        for node in graph.nodes
        if node.on_error is not None and node.is_frontier
    ]
    return (*order, *errors)


def _label(node: FlowNode) -> str:
    return node.id if node.kind in ("input", "output") else node.label or node.id


def _kind(node: FlowNode) -> str:
    return node.category or node.kind
