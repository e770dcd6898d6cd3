"""Drawings of a graph: Mermaid for pages, lines of text for a terminal. `dag_svg.py` has pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a graph draws itself with this module
    from holdfast.core.graph import Graph, Node

__all__ = ["COLOURS", "NOT_REACHED", "alike", "ascii_lines", "levels_of", "mermaid", "printable"]

COLOURS = {
    "blocked": "fill:#eceff1,stroke:#90a4ae",
    "ready": "fill:#fff8e1,stroke:#ffb300",
    "leased": "fill:#e3f2fd,stroke:#1e88e5",
    "completed": "fill:#e8f5e9,stroke:#43a047",
    "failed": "fill:#ffebee,stroke:#e53935",
    "timed_out": "fill:#ffebee,stroke:#fb8c00",
    "lost": "fill:#fbe9e7,stroke:#8d6e63",
    "cancelled": "fill:#f5f5f5,stroke:#616161",
    "skipped": "fill:#f3e5f5,stroke:#8e24aa",
    "dead": "fill:#424242,stroke:#000000,color:#ffffff",
}

# Three siblings are read faster as three lines than as a range.
FEWEST_COLLAPSED = 4
PARENTS_SHOWN = 8
NOT_REACHED = "not reached"


def mermaid(graph: Graph, states: Mapping[str, str]) -> str:
    """A flowchart with every node and every edge; a node in `states` shows its status, in that status's colour."""
    number = {node.id: f"n{position}" for position, node in enumerate(graph.nodes)}
    lines = ["graph TD"]
    for node in graph.nodes:
        state = states.get(node.id)
        label = _escaped(node.name) if state is None else f"{_escaped(node.name)}<br/>{_escaped(state)}"
        style = f":::{state.split()[0]}" if state and state.split()[0] in COLOURS else ""
        lines.append(f'    {number[node.id]}["{label}"]{style}')
    lines += [f"    {number[parent]} --> {number[node.id]}" for node in graph.nodes for parent in node.depends_on]
    used = {state.split()[0] for state in states.values() if state}
    lines += [f"    classDef {state} {look}" for state, look in COLOURS.items() if state in used]
    return "\n".join(lines) + "\n"


def ascii_lines(graph: Graph, states: Mapping[str, str] | None) -> str:
    """One line for each node, level by level: its level, its name, its status, and what it waits for.

    Nodes on one level can run at the same time. Siblings with the same parents, children and job are
    one line, so that a fan-out of thousands is readable.
    """
    levels = levels_of(graph)
    groups = alike(graph)
    label = {node.id: _label(group) for group in groups for node in group}
    width = len(str(max(levels.values())))
    # Sorting is stable: within a level, the order is that of the definition.
    groups.sort(key=lambda group: levels[group[0].id])
    lines = []
    for group in groups:
        shown = [
            f"{levels[group[0].id]:>{width}}  {label[group[0].id]}",
            _status(group, states),
            _parents(group, label),
        ]
        lines.append(" ".join(part for part in shown if part))
    return "\n".join(lines) + "\n"


def levels_of(graph: Graph) -> dict[str, int]:
    """For every node how many stand on the longest way to it, itself included."""
    levels: dict[str, int] = {}
    for node_id in graph.topological_order:
        levels[node_id] = 1 + max((levels[parent] for parent in graph.by_id[node_id].depends_on), default=0)
    return levels


def alike(graph: Graph) -> list[list[Node]]:
    """All nodes in definition order, where siblings with the same parents, children and job are one group."""
    found: dict[object, list[Node]] = {}
    for node in graph.nodes:
        # A method is code of its own, so only nodes of one job are alike.
        key = node.id if node.job is None else (node.job, frozenset(node.depends_on), graph.successors(node.id))
        found.setdefault(key, []).append(node)
    groups = []
    for group in found.values():
        groups += [group] if len(group) >= FEWEST_COLLAPSED else [[node] for node in group]
    position = {node.id: number for number, node in enumerate(graph.nodes)}
    groups.sort(key=lambda group: position[group[0].id])
    return groups


def _label(group: Sequence[Node]) -> str:
    first = printable(group[0].name)
    return first if len(group) == 1 else f"{first} … {printable(group[-1].name)}"


def _status(group: Sequence[Node], states: Mapping[str, str] | None) -> str:
    if len(group) == 1:
        state = None if states is None else states.get(group[0].id)
        return f"({printable(state)})" if state else ""
    if states is None:
        return f"({len(group):,} nodes)"
    counted = Counter((states.get(node.id) or NOT_REACHED).partition(" (")[0] for node in group)
    return f"({len(group):,} nodes: {', '.join(f'{count:,} {state}' for state, count in counted.items())})"


def _parents(group: Sequence[Node], label: Mapping[str, str]) -> str:
    names = list(dict.fromkeys(label[parent] for parent in group[0].depends_on))
    if not names:
        return ""
    more = len(names) - PARENTS_SHOWN
    return f"<- {', '.join(names[:PARENTS_SHOWN])}" + (f" and {more:,} more" if more > 0 else "")


def printable(text: str) -> str:
    """The text in one line that cannot move a terminal's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _escaped(label: str) -> str:
    """A label that cannot end its own quotes, start markup or break its line."""
    safe = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(safe.splitlines())
