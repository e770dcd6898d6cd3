"""Wide fan-outs as one place each: nodes that do the same on the same level of a graph are one group."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.errors import UnknownNode

if TYPE_CHECKING:
    from holdfast.documents.graph_view import GraphEdge, GraphNode, GraphView

MOST_PLACES: Final = 2_000
MOST_MEMBERS: Final = 1_000
MARK: Final = "group:"


def grouped(view: GraphView) -> GraphView:
    """The same graph with alike nodes of one level in one place, and what is still too long cut off."""
    from holdfast.documents.graph_view import GraphEdge

    place = _places(view)
    members: dict[str, list[GraphNode]] = {}
    for node in view.nodes:
        members.setdefault(place[node.id], []).append(node)
    # A group of one is that node.
    alone = {name: nodes[0].id for name, nodes in members.items() if len(nodes) == 1}
    shown = {node: alone.get(name, name) for node, name in place.items()}
    nodes = [nodes[0] if len(nodes) == 1 else _group(name, nodes) for name, nodes in members.items()][:MOST_PLACES]
    kept = {node.id for node in nodes}
    edges: dict[tuple[str, str, str, bool], bool] = {}
    for edge in view.edges:
        source, target = shown[edge.source], shown[edge.target]
        if source in kept and target in kept and (source != target or edge.loop):
            key = (source, target, edge.label, edge.loop)
            edges[key] = edges.get(key, False) or edge.taken
    return msgspec.structs.replace(
        view,
        nodes=tuple(nodes),
        edges=tuple(
            GraphEdge(source=source, target=target, label=label, loop=loop, taken=taken)
            for (source, target, label, loop), taken in edges.items()
        ),
        truncated=len(members) > len(nodes),
    )


def members(view: GraphView, group: str) -> GraphView:
    """The nodes of one group, and the edges among them; UnknownNode if there is no such group."""
    place = _places(view)
    found = [node for node in view.nodes if place[node.id] == group]
    if not found:
        raise UnknownNode(f"the graph has no group {group!r:.80}", hint="its drawing names its groups")
    kept = {node.id for node in found[:MOST_MEMBERS]}
    edges = tuple(edge for edge in view.edges if edge.source in kept and edge.target in kept)
    return msgspec.structs.replace(
        view, nodes=tuple(found[:MOST_MEMBERS]), edges=edges, truncated=len(found) > MOST_MEMBERS
    )


def _places(view: GraphView) -> dict[str, str]:
    level = _levels(view.nodes, view.edges)
    return {node.id: f"{MARK}{level[node.id]}:{node.kind}:{_what(node)}" for node in view.nodes}


def _what(node: GraphNode) -> str:
    """What it does: siblings of a fan-out differ in a number or in what stands in brackets."""
    return node.detail or node.label.partition("[")[0].rstrip("0123456789 _-#.")


def _levels(nodes: tuple[GraphNode, ...], edges: tuple[GraphEdge, ...]) -> dict[str, int]:
    """How far each node is from the start, by its longest way; loops are not gone along."""
    onward: dict[str, list[str]] = {}
    missing = {node.id: 0 for node in nodes}
    for edge in edges:
        if not edge.loop:
            onward.setdefault(edge.source, []).append(edge.target)
            missing[edge.target] += 1
    level = {node.id: 0 for node in nodes}
    ready = [node for node, count in missing.items() if not count]
    while ready:
        node = ready.pop()
        for target in onward.get(node, ()):
            level[target] = max(level[target], level[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return level


def _group(name: str, nodes: list[GraphNode]) -> GraphNode:
    from holdfast.documents.graph_view import GraphNode, most_urgent

    states = dict(Counter(node.state for node in nodes))
    return GraphNode(
        id=name,
        label=f"{_what(nodes[0]) or nodes[0].kind} ({len(nodes):,})",
        kind=nodes[0].kind,
        state=most_urgent(states),
        attempts=sum(node.attempts for node in nodes),
        count=len(nodes),
        states=states,
    )
