"""A graph as a node of another one: what it is given, and what comes back.

Unless its author says otherwise, it is given the fields that both states have, and gives back how it changed them: the
value of a field, what was added to the end of a list, by how much a number grew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.authoring.state_fields import Field
from holdfast.authoring.state_nodes import GraphNode, Subgraph
from holdfast.core.authors_line import authors_line
from holdfast.core.codec import DEFAULT_LIMIT_BYTES
from holdfast.core.errors import GraphError
from holdfast.core.state_outcomes import Fields

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

__all__ = ["check_subgraph", "subgraph_delta", "subgraph_input"]


def check_subgraph(graph: StateGraph[Any], node: GraphNode) -> None:
    """GraphError unless the two states go together, and the other graph is in order."""
    part = _part(node)
    owner = _owner(graph, node)
    if part.graph.registry is not graph.registry:
        raise GraphError(
            f"{owner} is the graph {part.graph.name!r} of another registry, where no worker of this one finds it",
            hint="give both graphs the same registry=",
        )
    common = _common(graph, part)
    ours, theirs = graph.state_type.name, part.graph.state_type.name
    for option, function in (("input", part.input), ("output", part.output)):
        if function is None and not common:
            raise GraphError(
                f"{owner} has the state {theirs}, which shares no field with {ours}",
                hint=f"say how they go together: {option}=lambda state: {{…}}",
            )
    if part.output is None:
        _check_changes_known(graph, owner, common)
    part.graph.check()


def subgraph_input(
    graph: StateGraph[Any], node: GraphNode, fields: Fields, limit: int = DEFAULT_LIMIT_BYTES
) -> dict[str, Any]:
    """The fields that the other graph's run is started with."""
    part = _part(node)
    ours, theirs = graph.state_type, part.graph.state_type
    if part.input is None:
        return {name: ours.fields[name].decode(fields[name]) for name in _common(graph, part) if name in fields}
    given = _called(part.input, ours.decode(fields), f"input of {_owner(graph, node)}")
    if theirs.is_state(given):
        return {name: getattr(given, name) for name in theirs.fields}
    if not isinstance(given, Mapping):
        raise GraphError(
            f"input of {_owner(graph, node)} returned a {type(given).__name__}, for a {theirs.name}",
            hint="return a dict of its fields",
        )
    return dict(given)


def subgraph_delta(
    graph: StateGraph[Any],
    node: GraphNode,
    before: Fields,
    after: Fields,
    limit: int = DEFAULT_LIMIT_BYTES,
) -> dict[str, bytes]:
    """What a run of the other graph changed in ours: from the state that ours had to the state that it ended with."""
    part, owner = _part(node), _owner(graph, node)
    ours, theirs = graph.state_type, part.graph.state_type
    if part.output is not None:
        delta = _called(part.output, theirs.decode(after), f"output of {owner}")
        if delta is not None and not isinstance(delta, Mapping):
            raise GraphError(
                f"output of {owner} returned a {type(delta).__name__}",
                hint=f"return a dict of the fields of {ours.name} that change, or None",
            )
        return ours.encode_part(delta or {}, f"the output of {owner}", limit)
    begun = theirs.encode_whole(subgraph_input(graph, node, before, limit), f"the input of {owner}", limit)
    changes = {}
    for name in _common(graph, part):
        if name in after and after[name] != begun.get(name):
            changes[name] = _change(ours.fields[name], theirs.fields[name], begun.get(name), after[name], owner, limit)
    return changes


def _change(ours: Field, theirs: Field, before: bytes | None, after: bytes, owner: str, limit: int) -> bytes:
    how = "value" if ours.law is None or before is None else ours.law.change
    if how == "difference":
        return ours.encode(
            theirs.decode(after) - theirs.decode(before or b"0"), f"{ours.where}, changed by {owner},", limit
        )
    if how == "tail":
        tail = _tail(before or b"", after)
        if tail is None:
            raise GraphError(
                f"{owner} changed what {ours.where} held already, and what it added cannot be told",
                hint="only add to that field in the subgraph, or say what comes back: output=lambda state: {…}",
            )
        after = tail
    if ours.annotation == theirs.annotation:
        return after
    return ours.encode(theirs.decode(after), f"{ours.where}, changed by {owner},", limit)


def _tail(before: bytes, after: bytes) -> bytes | None:
    """What a list or a text got at its end, as JSON."""
    if len(before) <= 2:  # nothing was in it
        return after
    if before.startswith(b"["):
        return b"[" + after[len(before) :] if after.startswith(before[:-1] + b",") else None
    return b'"' + after[len(before) - 1 :] if after.startswith(before[:-1]) else None


def _check_changes_known(graph: StateGraph[Any], owner: str, common: list[str]) -> None:
    fix = 'say what comes back: output=lambda state: {"notes": state["notes"]}'
    if graph.reduce is not None:
        raise GraphError(f"{owner} is in a graph with reduce=, so that its changes cannot be told", hint=fix)
    for name in common:
        law = graph.state_type.fields[name].law
        if law is not None and law.change is None:
            raise GraphError(
                f"{owner} shares the field {name!r}, whose reducer {law.name} is not one whose changes are known",
                hint=fix,
            )


def _called(function: Callable[[Any], Any], state: object, where: str) -> Any:
    try:
        return function(state)
    except Exception as error:
        raise GraphError(
            f"{where} raised {type(error).__name__}: {error}{authors_line(error)}", hint="repair that function"
        ) from error


def _common(graph: StateGraph[Any], part: Subgraph) -> list[str]:
    theirs = part.graph.state_type.fields
    return [name for name in graph.state_type.fields if name in theirs]


def _owner(graph: StateGraph[Any], node: GraphNode) -> str:
    return f"subgraph {node.name!r} of graph {graph.name!r}"


def _part(node: GraphNode) -> Subgraph:
    if node.subgraph is None:
        raise GraphError(f"node {node.name!r} is a function and no subgraph", hint="declare it with graph.subgraph(…)")
    return node.subgraph
