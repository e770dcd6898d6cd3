"""Drawings of a compiled flow: Mermaid for pages, lines of text for a terminal, and what two versions differ in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.dag_drawing import COLOURS, printable

if TYPE_CHECKING:  # a graph draws itself with this module
    from holdfast.core.flow_graph import FlowGraph, FlowNode

__all__ = ["FlowDifference", "ascii_lines", "difference", "mermaid"]

# Opening and closing of a node's shape, by its kind.
_SHAPES: Final = {
    "action": ("[", "]"),
    "barrier": ("{{", "}}"),
    "conditional": ("{", "}"),
    "input": ("([", "])"),
    "output": ("([", "])"),
    "fn_call": ("[[", "]]"),
}
_INLINE_SHAPE: Final = ("(", ")")


def mermaid(graph: FlowGraph, states: Mapping[str, str]) -> str:
    """A flowchart: boxes are actions, rhombs decide, hexagons gather; dotted edges begin a pass or carry failures."""
    number = {node.id: f"n{position}" for position, node in enumerate(graph.nodes)}
    lines = ["graph TD"]
    for node in graph.nodes:
        opening, closing = _SHAPES.get(node.kind, _INLINE_SHAPE)
        state = states.get(node.id)
        shown = _text(node) if state is None else f"{_text(node)}<br/>{_escaped(state)}"
        style = f":::{state.split()[0]}" if state and state.split()[0] in COLOURS else ""
        lines.append(f'    {number[node.id]}{opening}"{shown}"{closing}{style}')
    for edge in graph.order:
        arrow = "-.->" if edge.back is not None else "-->"
        word = "next pass" if edge.back is not None and not edge.when else edge.when
        label = f"|{word}|" if word in ("then", "else", "next pass") else ""
        lines.append(f"    {number[edge.source]} {arrow}{label} {number[edge.target]}")
    lines += [
        f"    {number[node.id]} -.->|error| {number[node.on_error]}"
        for node in graph.nodes
        if node.on_error is not None and node.is_frontier
    ]
    used = {state.split()[0] for state in states.values() if state}
    lines += [f"    classDef {state} {look}" for state, look in COLOURS.items() if state in used]
    return "\n".join(lines) + "\n"


def _text(node: FlowNode) -> str:
    return _escaped(node.id if node.kind in ("input", "output") else f"{node.id}: {node.label}")


def _escaped(label: str) -> str:
    """A label that cannot end its own quotes, start markup or break its line."""
    safe = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(safe.splitlines())


def ascii_lines(graph: FlowGraph, states: Mapping[str, str] | None) -> str:
    """One line for each node in the order of the source: its line, its name, what it does, and where control goes."""
    width = max(len(node.id) + 2 * len(node.loops) for node in graph.nodes)
    lines = []
    for node in graph.nodes:
        name = "  " * len(node.loops) + node.id
        state = (states or {}).get(node.id)
        parts = [
            f"{node.line:>4}  {printable(name):<{width}}",
            f"{node.category or node.kind:<11}",
            f"({printable(state)})" if state else "",
            printable(node.label),
            _ways(graph, node),
        ]
        lines.append(" ".join(part for part in parts if part).rstrip())
    return "\n".join(lines) + "\n"


def _ways(graph: FlowGraph, node: FlowNode) -> str:
    ways = []
    for edge in graph.leaving(node.id):
        word = f"{edge.when}: " if edge.when in ("then", "else") else ""
        ways.append(f"{word}{edge.target}{' (next pass)' if edge.back is not None else ''}")
    if node.on_error is not None and node.is_frontier:
        ways.append(f"error: {node.on_error}")
    return f"-> {', '.join(ways)}" if ways else ""


@dataclass(frozen=True, slots=True)
class FlowDifference:
    """What a later version of a flow has that an earlier one had not, by the ids of nodes."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    rewired: tuple[str, ...]
    """Nodes that do the same, but that control leaves another way."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.rewired)

    def __str__(self) -> str:
        kinds = (("+", self.added), ("-", self.removed), ("~", self.changed), (">", self.rewired))
        lines = [f"{sign} {name}" for sign, names in kinds for name in names]
        return "\n".join(lines) if lines else "no difference"


def difference(earlier: FlowGraph, later: FlowGraph) -> FlowDifference:
    """What changed between two versions of a flow; moving code to other lines changes nothing."""
    old, new = earlier.by_id, later.by_id
    both = [node.id for node in later.nodes if node.id in old]
    changed = tuple(name for name in both if _essence(old[name]) != _essence(new[name]))
    rewired = tuple(
        name
        for name in both
        if name not in changed
        and (set(earlier.leaving(name)) != set(later.leaving(name)) or old[name].on_error != new[name].on_error)
    )
    return FlowDifference(
        added=tuple(node.id for node in later.nodes if node.id not in old),
        removed=tuple(node.id for node in earlier.nodes if node.id not in new),
        changed=changed,
        rewired=rewired,
    )


def _essence(node: FlowNode) -> FlowNode:
    return msgspec.structs.replace(node, line=0, on_error=None)
