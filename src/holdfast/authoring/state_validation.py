"""What can be wrong with a state graph, found before anything of it runs."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from types import CodeType
from typing import TYPE_CHECKING, Any

from holdfast.authoring.state_subgraphs import check_subgraph
from holdfast.core.errors import GraphError
from holdfast.core.graph import known_names

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph
    from holdfast.authoring.state_nodes import GraphNode

__all__ = ["check_graph", "unknown_node"]


def check_graph(graph: StateGraph[Any]) -> None:
    """GraphError for the first thing that is wrong."""
    _ = graph.state_type  # its annotations can be read by now
    if not graph.nodes:
        raise GraphError(f"graph {graph.name!r} has no nodes", hint="decorate a function with @graph.node")
    _check_names(graph)
    if not graph.entries:
        raise GraphError(
            f"graph {graph.name!r} has no node to begin with",
            hint=f"write graph.start_at({next(iter(graph.nodes))!r})",
        )
    if not graph.finish_nodes and not any(map(_may_go_anywhere, graph.nodes.values())):
        raise GraphError(
            f"graph {graph.name!r} has no node at which it may finish, so that no run of it could end",
            hint=f"write graph.finish({_last(graph)!r})",
        )
    _check_reachable(graph)
    _check_ends(graph)
    for node in graph.nodes.values():
        if node.subgraph is not None:
            check_subgraph(graph, node)


def unknown_node(graph: StateGraph[Any], name: str, where: str) -> GraphError:
    """The refusal of a node that the graph lacks."""
    return GraphError(
        f"{where} names the node {name!r}, which graph {graph.name!r} does not have",
        hint=f"declare it with @graph.node, or correct the name: {known_names(name, graph.nodes)}",
    )


def _check_names(graph: StateGraph[Any]) -> None:
    for edge in graph.edges:
        for name in (edge.source, edge.target):
            _check_name(graph, name, f"the edge from {edge.source!r} to {edge.target!r}")
    for name in graph.entries:
        _check_name(graph, name, "start_at")
    for name in graph.finish_nodes:
        _check_name(graph, name, "finish")
    for node in graph.nodes.values():
        for name in node.goes_to or ():
            _check_name(graph, name, f"goes_to of node {node.name!r}")


def _check_name(graph: StateGraph[Any], name: str, where: str) -> None:
    if name not in graph.nodes:
        raise unknown_node(graph, name, where)


ROUTES = frozenset({"Goto", "Many", "Send", "Stop"})


def _may_go_anywhere(node: GraphNode) -> bool:
    """Whether the node's code names a route and does not declare its targets: then nobody knows where it goes."""
    if node.goes_to is not None or node.fn is None:
        return False
    code = getattr(inspect.unwrap(node.fn), "__code__", None)
    return code is None or bool(_names_in(code) & ROUTES)


def _names_in(code: CodeType) -> set[str]:
    names = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _check_reachable(graph: StateGraph[Any]) -> None:
    anywhere = list(graph.nodes)
    onward: dict[str, list[str]] = {
        name: anywhere[:] if _may_go_anywhere(node) else [*(node.goes_to or ())] for name, node in graph.nodes.items()
    }
    for edge in graph.edges:
        onward[edge.source].append(edge.target)
    reached: set[str] = set()
    todo = [*graph.entries]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo.extend(onward[name])
    lost = [name for name in graph.nodes if name not in reached]
    if lost:
        raise GraphError(
            f"no way leads from the start of graph {graph.name!r} to {_listed(lost)}",
            hint=f"add an edge to {lost[0]!r}; or, if a node goes there with hf.Goto, hf.Many or hf.Send, say so on "
            f'it: @graph.node(goes_to=["{lost[0]}"])',
        )


def _check_ends(graph: StateGraph[Any]) -> None:
    leading_on = {edge.source for edge in graph.edges}
    for name, node in graph.nodes.items():
        by_itself = node.goes_to is not None or _may_go_anywhere(node)
        if name not in leading_on and name not in graph.finish_nodes and not by_itself:
            raise GraphError(
                f"node {name!r} of graph {graph.name!r} leads nowhere: no edge leaves it, and it is not in finish",
                hint=f"write graph.finish({name!r}), add an edge, or declare where it goes by itself: goes_to=[…], and "
                "goes_to=() for a node that returns hf.Stop",
            )


def _last(graph: StateGraph[Any]) -> str:
    leading_on = {edge.source for edge in graph.edges}
    names = list(graph.nodes)[::-1]
    return next((name for name in names if name not in leading_on), names[0])


def _listed(names: Collection[str]) -> str:
    return f"node{'' if len(names) == 1 else 's'} {', '.join(map(repr, names))}"
