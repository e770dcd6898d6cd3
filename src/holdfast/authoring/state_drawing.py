"""State graphs for people and tools: Mermaid for pages, lines of text for a terminal, JSON for the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.authoring.state_nodes import GraphNode
from holdfast.core.codec_shape import display
from holdfast.core.dag_drawing import COLOURS, printable

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

__all__ = ["DOCUMENT_VERSION", "ascii_lines", "document", "mermaid"]

DOCUMENT_VERSION: Final = 1
_TAKEN: Final = "stroke:#1e88e5,stroke-width:3px"
_START: Final = "start"
_FINISH: Final = "finish"


def mermaid(graph: StateGraph[Any], states: Mapping[str, str], taken: Collection[tuple[str, str]]) -> str:
    """A flowchart. Dotted arrows have a condition, or are ways that a node may choose by itself.

    `taken` has the pairs of nodes that a run went along; from "" for the start, to "" for the end of a branch.
    """
    number = {name: f"n{position}" for position, name in enumerate(graph.nodes)}
    lines = ["graph TD", f"    {_START}(({_START}))"]
    for name, node in graph.nodes.items():
        opening, closing = ("[[", "]]") if node.subgraph is not None else ("[", "]")
        state = states.get(name)
        label = _escaped(name) if state is None else f"{_escaped(name)}<br/>{_escaped(state)}"
        style = f":::{state.split()[0]}" if state and state.split()[0] in COLOURS else ""
        lines.append(f'    {number[name]}{opening}"{label}"{closing}{style}')
    lines.append(f"    {_FINISH}(({_FINISH}))")
    marked = set(taken)
    thick = []
    for position, (source, target, arrow, word) in enumerate(_arrows(graph, marked)):
        ends = (number[source] if source else _START, number[target] if target else _FINISH)
        label = f'|"{_escaped(word)}"|' if word else ""
        lines.append(f"    {ends[0]} {arrow}{label} {ends[1]}")
        if (source, target) in marked:
            thick.append(str(position))
    if thick:
        lines.append(f"    linkStyle {','.join(thick)} {_TAKEN}")
    used = {state.split()[0] for state in states.values() if state}
    lines += [f"    classDef {state} {look}" for state, look in COLOURS.items() if state in used]
    return "\n".join(lines) + "\n"


def _arrows(graph: StateGraph[Any], taken: Collection[tuple[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    """Every way that is declared, and those that a run took although nobody declared them."""
    drawn: set[tuple[str, str]] = set()
    for name in graph.entries:
        drawn.add(("", name))
        yield "", name, "-->", ""
    for edge in graph.edges:
        drawn.add((edge.source, edge.target))
        yield edge.source, edge.target, "-->" if edge.when is None else "-.->", edge.condition
    for name, node in graph.nodes.items():
        for target in node.goes_to or ():
            if (name, target) not in drawn:
                drawn.add((name, target))
                yield name, target, "-.->", "goes to"
    for name in graph.finish_nodes:
        drawn.add((name, ""))
        yield name, "", "-->", ""
    for source, target in sorted(taken):
        if (source, target) not in drawn and {source, target} <= {"", *graph.nodes}:
            yield source, target, "-.->", "went to"


def ascii_lines(graph: StateGraph[Any], states: Mapping[str, str]) -> str:
    """A line for each node in the order of their declaration: its name, its status, and where it leads."""
    lines = []
    for name, node in graph.nodes.items():
        marks = [_START] if name in graph.entries else []
        marks += [f"graph {node.subgraph.graph.name}"] if node.subgraph is not None else []
        marks += [states[name]] if states.get(name) else []
        onward = [
            f"{edge.target} if {edge.condition}" if edge.when is not None else edge.target
            for edge in graph.edges
            if edge.source == name
        ]
        onward += [f"{target} by itself" for target in node.goes_to or ()]
        onward += [_FINISH] if name in graph.finish_nodes else []
        told = f" ({', '.join(marks)})" if marks else ""
        lines.append(printable(f"{name}{told}" + (f" -> {', '.join(onward)}" if onward else "")))
    return "\n".join(lines) + "\n"


def document(graph: StateGraph[Any]) -> dict[str, Any]:
    """The graph in JSON's own types. `options` is how it is run; all the rest is what it is."""
    options = graph.options
    return {
        "version": DOCUMENT_VERSION,
        "name": graph.name,
        "state": {
            "name": graph.state_type.name,
            "kind": graph.state_type.kind,
            "reduce": None if graph.reduce is None else _name_of(graph.reduce),
            "fields": [
                {"name": field.name, "type": display(field.annotation), "reducer": field.reducer}
                for field in graph.state_type.fields.values()
            ],
        },
        "nodes": [_node(node) for node in graph.nodes.values()],
        "edges": [
            {"from": edge.source, "to": edge.target, "index": edge.number, "when": edge.condition or None}
            for edge in graph.edges
        ],
        "start": list(graph.entries),
        "finish": list(graph.finish_nodes),
        "options": {
            "max_concurrent": options.max_concurrent,
            "queue_depth": options.queue_depth,
            "default_timeout": options.default_timeout,
            "max_steps": options.max_steps,
            "backpressure_seconds": options.backpressure_seconds,
            "keep_checkpoints": options.keep_checkpoints,
            "queue": options.queue,
            "policies": {node.name: _policy(node) for node in graph.nodes.values() if node.subgraph is None},
        },
    }


def _node(node: GraphNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "subgraph": None if node.subgraph is None else node.subgraph.graph.name,
        "goes_to": None if node.goes_to is None else list(node.goes_to),
        "label": node.label,
        "recordable": node.effects.recordable,
        "requires_idempotency": node.effects.requires_idempotency,
    }


def _policy(node: GraphNode) -> dict[str, Any]:
    return {"timeout": node.policy.timeout, "retry": node.policy.retry.describe(), "queue": node.queue}


def _name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _escaped(label: str) -> str:
    """A label that cannot end its own quotes, start markup or break its line."""
    safe = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return printable(safe)
