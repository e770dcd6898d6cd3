"""A function as lines of a terminal: what it waits for, the runs it started, and its calls in the work table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from holdfast.cli.output import Cell, print_heading, print_table, say, shown_state
from holdfast.cli.show_nodes import print_nodes
from holdfast.cli.times import shown_moment

if TYPE_CHECKING:
    from holdfast.documents.run import NodeShown, RunShown

TURN: Final = "turn"
CHILDREN_SHOWN: Final = 20


def print_function(shown: RunShown, every_node: bool) -> None:
    """Everything about a function but its facts, its errors and its history."""
    calls = [node for node in shown.nodes if node.id != TURN]
    print_waits(shown, [node for node in calls if node.state in ("ready", "leased")])
    print_children(shown, every_node)
    if calls:
        print_nodes(shown, None, every_node, calls)


def runs_on(shown: RunShown) -> str | None:
    """The worker that runs the function's code now."""
    turn = next((node for node in shown.nodes if shown.model == "function" and node.id == TURN), None)
    return None if turn is None or turn.state != "leased" or not turn.attempts else turn.attempts[-1].worker


def print_waits(shown: RunShown, calls: list[NodeShown]) -> None:
    """What has to come before a run that waits can go on: of a DAG, the runs that its nodes depend on."""
    rows = wait_rows(shown, calls, datetime.now(UTC))
    if rows:
        print_heading("waits for")
        print_table(["WHAT", "SINCE", "ABOUT"], rows, whole=("WHAT",))


def wait_rows(shown: RunShown, calls: Sequence[NodeShown], now: datetime) -> list[list[str]]:
    """A line for each thing that a run waits for: what, since when, and where in its code."""
    rows: list[list[str]] = []
    for wait in shown.waits:
        what = f"event {wait.event}" if wait.event else f"run {wait.run} ({wait.status or 'not in this database'})"
        rows.append([what, shown_moment(wait.since, now), wait.code or f"node {wait.address}"])
    if shown.model == "function" and shown.status == "suspended":
        for node in calls:
            rows.append([f"call {node.name}", "", Cell(_state(node), node.state)])
        if shown.wakes_at is not None:
            rows.append([f"time {shown_moment(shown.wakes_at, now)}", "", ""])
    return rows


def _state(node: NodeShown) -> str:
    return f"{shown_state(node.state)} ({node.detail})" if node.detail else shown_state(node.state)


def print_children(shown: RunShown, every_node: bool) -> None:
    if not shown.children:
        return
    print_heading("children")
    children = shown.children if every_node else shown.children[:CHILDREN_SHOWN]
    rows = [[child.run, child.workflow, Cell(child.status, child.status), child.key or ""] for child in children]
    print_table(["RUN", "WORKFLOW", "STATUS", "KEY"], rows, whole=("RUN",))
    more = len(shown.children) - len(children)
    if more:
        say(f"and {more:,} more: --nodes shows all")
