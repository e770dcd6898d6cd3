"""The drawing of a state graph: its nodes and edges, and the way that a run has taken through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.documents.graph_view import GraphEdge, GraphNode, GraphView
from holdfast.graph_path import END, NodeOnPath, Path, path_of

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph
    from holdfast.core.rows import Run
    from holdfast.engine import Engine

START: Final = "(start)"
FINISH: Final = "(finish)"


def of_graph(graph: StateGraph[Any]) -> GraphView:
    """The graph before it runs."""
    graph.check()
    return _drawn(graph, Path(), None)


async def of_run(engine: Engine, row: Run) -> GraphView:
    """The graph of a run's code with its path; without the code, what the path alone tells."""
    from holdfast.graph_reading import reader_of_run

    code = engine.definitions.state_graph(row.workflow)
    path = await path_of(engine.store, row, reader_of_run(engine, row))
    return _told(path, row) if code is None else _drawn(code.graph, path, row)


def _drawn(graph: StateGraph[Any], path: Path, row: Run | None) -> GraphView:
    ways: dict[tuple[str, str], str] = {(END, name): "" for name in graph.entries}
    for edge in graph.edges:
        ways[edge.source, edge.target] = edge.condition or ""
    for name, node in graph.nodes.items():
        for target in node.goes_to or ():
            ways.setdefault((name, target), "goes to")
    ways |= {(name, END): "" for name in graph.finish_nodes if (name, END) not in ways}
    for way in sorted(path.taken):
        if way not in ways and {*way} <= {END, *graph.nodes}:
            ways[way] = "went to"
    kinds = {name: "subgraph" if node.subgraph is not None else "node" for name, node in graph.nodes.items()}
    return _view(kinds, ways, path, row)


def _told(path: Path, row: Run) -> GraphView:
    names = dict.fromkeys([*path.nodes, *(name for way in sorted(path.taken) for name in way if name != END)])
    return _view(dict.fromkeys(names, "node"), {way: "" for way in sorted(path.taken)}, path, row)


def _view(kinds: dict[str, str], ways: dict[tuple[str, str], str], path: Path, row: Run | None) -> GraphView:
    place = {name: number for number, name in enumerate([END, *kinds])}
    nodes = [GraphNode(id=START, label="start", kind="start", state="" if row is None else "completed")]
    for name, kind in kinds.items():
        nodes.append(_node(name, kind, path.nodes.get(name), row))
    ended = row is not None and row.status == "completed"
    nodes.append(GraphNode(id=FINISH, label="finish", kind="finish", state="completed" if ended else ""))
    edges = [
        GraphEdge(
            source=source or START,
            target=target or FINISH,
            label=label,
            # Back to where it was declared before: drawn as a loop, not as a way onward.
            loop=bool(source and target) and place[target] <= place[source],
            taken=(source, target) in path.taken,
        )
        for (source, target), label in ways.items()
    ]
    return GraphView(kind="graph", nodes=tuple(nodes), edges=tuple(edges))


def _node(name: str, kind: str, on_path: NodeOnPath | None, row: Run | None) -> GraphNode:
    if on_path is None:
        absent = "" if row is None else "skipped" if row.status == "completed" else "pending"
        return GraphNode(id=name, label=name, kind=kind, state=absent)
    several = on_path.items > 1
    return GraphNode(
        id=name,
        label=name,
        kind=kind,
        state=on_path.state,
        attempts=on_path.steps,
        detail=on_path.shown if several or on_path.steps > 1 else "",
        count=on_path.items if several else None,
        states={on_path.state: on_path.with_state} if several else None,
    )
