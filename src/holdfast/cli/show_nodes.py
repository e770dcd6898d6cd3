"""The nodes of a run as lines of a terminal: the graph from its entry points on, with the state of each node.

Siblings of a fan-out are one line with a count by state, and those of them that gave up have lines of their own: of
ten thousand nodes a person wants to see the three that failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.failures import note
from holdfast.cli.output import Cell, print_heading, print_table, shown_state
from holdfast.cli.times import shown_seconds

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.graph import Graph
    from holdfast.documents.run import NodeShown, RunShown

MARKS: Final = {
    "completed": "[+]",
    "skipped": "[-]",
    "leased": "[>]",
    "failed": "[!]",
    "timed_out": "[!]",
    "dead": "[!]",
    "lost": "[!]",
    "cancelled": "[x]",
}
WAITING: Final = "[ ]"
GAVE_UP: Final = frozenset({"failed", "timed_out", "dead", "lost"})
# The state that a group is marked with is the one that a person must know of first.
MOST_URGENT: Final = ("dead", "failed", "timed_out", "lost", "leased", "ready", "blocked", "pending", "cancelled")
PARENTS_SHOWN: Final = 4
APART: Final = 5
MEMBER: Final = "↳ "


def print_nodes(
    shown: RunShown, graph: Graph | None, every_node: bool, calls: Sequence[NodeShown] | None = None
) -> None:
    """The table of nodes; fan-outs in one line each unless every node is asked for. Or of a function's calls."""
    nodes = shown.nodes if calls is None else calls
    rows = node_rows(nodes, graph, every_node)
    title = "nodes" if calls is None else "calls in the work table"
    print_heading(f"{title} ({len(nodes):,})" if len(nodes) > len(rows) else title)
    last = "DOES" if shown.model == "flow" else "AFTER"
    headers = ["", "NODE" if calls is None else "CALL", "STATE", "ATTEMPTS", "TOOK", last]
    if not any(row[-1] for row in rows):  # a single node, or code that was not imported
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    print_table(headers, rows, whole=("NODE", "CALL", "ATTEMPTS", "TOOK"))
    if graph is None and calls is None and last == "AFTER" and shown.status not in ("completed", "cancelled"):
        note(f"nodes that nothing has reached are in the code of {shown.workflow}: --app MODULE shows them too")


def node_rows(
    nodes: Sequence[NodeShown], graph: Graph | None, every_node: bool, now: datetime | None = None
) -> list[list[str]]:
    """A line for each node or fan-out: mark, name, state, attempts, how long it took (with `now`: takes), parents."""
    groups = _groups(nodes, None if every_node else graph, every_node)
    label = {node.name: _label(group) for group in groups for node in group}
    rows: list[list[str]] = []
    for group in groups:
        rows.append(_line(group[0], label, now=now) if len(group) == 1 else _collapsed(group, label))
        apart = [node for node in group if node.state in GAVE_UP] if len(group) > 1 else []
        rows += [_line(node, {}, before=MEMBER) for node in apart[:APART]]
        if len(apart) > APART:
            rows.append(["", f"{MEMBER}and {len(apart) - APART:,} more", "", "", "", ""])
    return rows


def _groups(nodes: Sequence[NodeShown], graph: Graph | None, every_node: bool) -> list[list[NodeShown]]:
    """Nodes that are shown in one line, in the order in which they can run."""
    from holdfast.core.dag_drawing import alike

    first: dict[str, str] = {}
    for group in [] if graph is None else alike(graph):
        first.update((node.id, group[0].id) for node in group)
    groups: dict[str, list[NodeShown]] = {}
    for node in nodes:
        groups.setdefault(first.get(node.id, node.id if every_node else _spread(node)), []).append(node)
    return list(groups.values())


def _spread(node: NodeShown) -> str:
    """Elements of one spread of a flow, `charge[0]` and `charge[1]`, are shown in one line."""
    return node.id.partition("[")[0] if node.does else node.id


def _label(group: Sequence[NodeShown]) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name} … {group[-1].name}"


def _line(node: NodeShown, label: Mapping[str, str], before: str = "", now: datetime | None = None) -> list[str]:
    last = node.attempts[-1] if node.attempts else None
    took = ""
    # A skipped node ends when somebody skips it, which says nothing about how long it ran.
    if last is not None and last.started_at and last.finished_at and node.state != "skipped":
        took = shown_seconds(max(0.0, (last.finished_at - last.started_at).total_seconds()))
    elif last is not None and last.started_at and node.state == "leased" and now is not None:
        took = shown_seconds(max(0.0, (now - last.started_at).total_seconds()))
    state = shown_state(node.state)
    return [
        Cell(MARKS.get(node.state, WAITING), node.state),
        before + node.name,
        Cell(f"{state} ({node.detail})" if node.detail else state, node.state),
        str(sum(each.started_at is not None for each in node.attempts) or ""),
        took,
        _after(node, label),
    ]


def _collapsed(group: Sequence[NodeShown], label: Mapping[str, str]) -> list[str]:
    counted = Counter(node.state for node in group)
    urgent = next((state for state in MOST_URGENT if state in counted), group[0].state)
    states = ", ".join(f"{count:,} {shown_state(state)}" for state, count in counted.most_common())
    attempts = sum(each.started_at is not None for node in group for each in node.attempts)
    return [
        Cell(MARKS.get(urgent, WAITING), urgent),
        _label(group),
        Cell(states, urgent),
        f"{attempts:,}" if attempts else "",
        "",
        _after(group[0], label),
    ]


def _after(node: NodeShown, label: Mapping[str, str]) -> str:
    if node.does:
        return node.does
    if not label:
        return ""
    names = list(dict.fromkeys(label.get(name, name) for name in node.after))
    more = len(names) - PARENTS_SHOWN
    return ", ".join(names[:PARENTS_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
