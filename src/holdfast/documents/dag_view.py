"""The drawing of a DAG: its nodes, what each depends on, and where a run of it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.queries import AllWork
from holdfast.core.rows import SATISFIED
from holdfast.documents.graph_view import GraphEdge, GraphNode, GraphView

if TYPE_CHECKING:
    from holdfast.core.graph import Graph, Node
    from holdfast.core.rows import Run, Work
    from holdfast.engine import Engine


def of_graph(graph: Graph) -> GraphView:
    """The graph before it runs."""
    nodes = tuple(_node(graph.by_id[node]) for node in graph.topological_order)
    return GraphView(kind="dag", nodes=nodes, edges=_edges(graph, frozenset()))


async def of_run(engine: Engine, row: Run) -> GraphView:
    """The graph that a run follows; without it, the nodes that have begun."""
    from holdfast.documents.nodes import nodes_and_graph

    work: list[Work] = await engine.store.rows(AllWork(row.id))
    shown, graph = await nodes_and_graph(engine, row, work)
    nodes = []
    for each in shown:
        known = None if graph is None else graph.by_id.get(each.id)
        nodes.append(
            GraphNode(
                id=each.id,
                label=each.name,
                kind="action" if known is None or known.job is not None else "method",
                state=each.state,
                attempts=len(each.attempts),
                detail=_detail(known, each.detail),
            )
        )
    satisfied = frozenset(each.id for each in shown if each.state in SATISFIED)
    return GraphView(kind="dag", nodes=tuple(nodes), edges=() if graph is None else _edges(graph, satisfied))


def _node(node: Node) -> GraphNode:
    return GraphNode(
        id=node.id, label=node.name, kind="action" if node.job is not None else "method", detail=_detail(node, "")
    )


def _detail(node: Node | None, waits: str) -> str:
    """What it waits for, or the action that it runs, if that is not what it is called."""
    if waits or node is None:
        return waits
    return node.job if node.job is not None and node.job != node.name else ""


def _edges(graph: Graph, taken: frozenset[str]) -> tuple[GraphEdge, ...]:
    return tuple(
        GraphEdge(source=parent, target=node.id, taken=parent in taken)
        for node in graph.nodes
        for parent in node.depends_on
    )
