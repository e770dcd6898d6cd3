"""A state graph's run as lines of a terminal: its steps, the items of the step under way, and what they ask people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.checkpoints import print_steps
from holdfast.cli.graph_questions import answering
from holdfast.cli.output import Cell, one_line, paragraph, print_heading, print_table, say, shown_state
from holdfast.cli.show_nodes import GAVE_UP, MARKS, MOST_URGENT, WAITING
from holdfast.cli.times import shown_distance, shown_seconds

if TYPE_CHECKING:
    from holdfast.documents.run import NodeShown, RunShown
    from holdfast.documents.state_graph import GraphShown, ItemShown

PAYLOAD_WIDTH: Final = 500
APART: Final = 10
ASKS: Final = "asks a person"
# A skipped item ends when somebody skips it; what waits has only ended an earlier attempt.
NO_DURATION: Final = ("skipped", "blocked", "ready", "queued")


def print_graph_run(shown: RunShown, graph: GraphShown, every: bool) -> None:
    """Everything about the run but its facts, errors and history."""
    print_heading(f"steps ({graph.step:,} finished)")
    print_steps(graph.steps, every, "--nodes")
    ended = shown.status in ("completed", "cancelled")
    if graph.frontier and not ended:
        _print_frontier(shown, graph, every)
    if graph.questions:
        print_heading("questions to people")
        now = datetime.now(UTC)
        for question in graph.questions:
            paragraph(f"{question.item} asks, {shown_distance(question.since, now)}: {_text(question.payload)}")
            say(f"    {answering(shown.run, question.item)}", "running")


def _print_frontier(shown: RunShown, graph: GraphShown, every: bool) -> None:
    rows = frontier_rows(shown, graph, every)
    count = len(graph.frontier)
    waits = f", {graph.waiting:,} of them not let in yet" if graph.waiting else ""
    print_heading(f"frontier: step {graph.step + 1}, {count:,} item{'' if count == 1 else 's'}{waits}")
    print_table(["", "ITEM", "STATE", "ATTEMPTS", "TOOK", "REACHED FROM"], rows, whole=("ITEM", "ATTEMPTS", "TOOK"))


def frontier_rows(shown: RunShown, graph: GraphShown, every: bool, now: datetime | None = None) -> list[list[str]]:
    """A line for each item of the step under way, or for all that one node was sent; with `now`, times grow."""
    asking = {question.item for question in graph.questions}
    by_address = {node.id: node for node in shown.nodes}
    rows: list[list[str]] = []
    for group in _groups(graph.frontier, every):
        if len(group) == 1:
            rows.append(_line(group[0], by_address.get(group[0].item), asking, now=now))
            continue
        rows.append(_collapsed(group))
        apart = [item for item in group if item.state in GAVE_UP or item.item in asking]
        rows += [_line(item, by_address.get(item.item), asking, "↳ ") for item in apart[:APART]]
        if len(apart) > APART:
            rows.append(["", f"↳ and {len(apart) - APART:,} more", "", "", "", ""])
    return rows


def _groups(items: Sequence[ItemShown], every: bool) -> list[list[ItemShown]]:
    """Items that one node was sent are one line; of those a person wants to see the ones that failed."""
    groups: dict[str, list[ItemShown]] = {}
    for item in items:
        groups.setdefault(item.item if every else item.node, []).append(item)
    return list(groups.values())


def _line(
    item: ItemShown, node: NodeShown | None, asking: set[str], before: str = "", now: datetime | None = None
) -> list[str]:
    state = ASKS if item.item in asking else shown_state(item.state)
    detail = f" ({node.detail})" if node is not None and node.detail and item.item not in asking else ""
    last = node.attempts[-1] if node is not None and node.attempts else None
    took = ""
    if last is not None and last.started_at and last.finished_at and item.state not in NO_DURATION:
        took = shown_seconds(max(0.0, (last.finished_at - last.started_at).total_seconds()))
    elif last is not None and last.started_at and item.state == "leased" and now is not None:
        took = shown_seconds(max(0.0, (now - last.started_at).total_seconds()))
    return [
        Cell(MARKS.get(item.state, WAITING), item.state),
        before + item.item,
        Cell(state + detail, item.state),
        str(item.attempt or ""),
        took,
        ", ".join(item.after) or "the start",
    ]


def _collapsed(group: Sequence[ItemShown]) -> list[str]:
    counted = Counter(item.state for item in group)
    urgent = next((state for state in (*MOST_URGENT, "queued") if state in counted), group[0].state)
    states = ", ".join(f"{count:,} {shown_state(state)}" for state, count in counted.most_common())
    attempts = sum(item.attempt for item in group)
    return [
        Cell(MARKS.get(urgent, WAITING), urgent),
        f"{group[0].node} ({len(group):,} items)",
        Cell(states, urgent),
        f"{attempts:,}" if attempts else "",
        "",
        ", ".join(group[0].after) or "the start",
    ]


def _text(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), PAYLOAD_WIDTH)


__all__ = ["frontier_rows", "print_graph_run"]
