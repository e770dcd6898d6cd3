"""The graph of a flow for people: drawn before any run, or with the states of a run that follows it.

A run of a flow has a row for each address that was reached, so of one node there may be many: passes of a loop,
elements of a spread. A drawing has one place for a node, and says there what a person must know of first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, USAGE, Failure
from holdfast.cli.output import print_json, shown_state
from holdfast.cli.show_nodes import MOST_URGENT

if TYPE_CHECKING:
    from holdfast.core.flow_graph import FlowGraph
    from holdfast.core.rows import Run, Work
    from holdfast.engine import Engine


async def print_flow_run(engine: Engine, row: Run, style: str) -> None:
    """The graph that this run follows, whatever the code has become since, with its states."""
    from holdfast.core.queries import AllWork

    graph = await engine.definitions.flow_graph(engine.store, row)
    if graph is None:
        raise Failure(
            f"the graph that run {row.id} of {row.workflow} follows is not in this database",
            hint=f"`holdfast show {row.id}` shows the nodes that it has reached",
            code=FAILED,
        )
    states = _states(await engine.store.rows(AllWork(row.id)), plain=style in ("json", "mermaid"))
    print_flow_graph(graph, style, {"workflow": row.workflow, "run": row.id}, states)


def print_flow_graph(
    graph: FlowGraph, style: str, about: Mapping[str, Any], states: Mapping[str, str] | None = None
) -> None:
    """The graph as lines, as a Mermaid flowchart or as JSON."""
    if style == "svg":
        raise Failure(
            "a flow is not drawn as svg", hint="use --format mermaid, or ascii for a terminal, or json", code=USAGE
        )
    if style == "json":
        print_json({**about, "signature": graph.signature, "nodes": _documents(graph, states)})
    elif style == "mermaid":
        click.echo(graph.mermaid(states), nl=False)
    else:
        click.echo(graph.ascii(states), nl=False)


def _documents(graph: FlowGraph, states: Mapping[str, str] | None) -> list[dict[str, Any]]:
    return [
        {
            "id": node.id,
            "kind": node.category or node.kind,
            "line": node.line,
            "label": node.label,
            "call": node.call,
            "loops": node.loops,
            "next": [
                {"node": edge.target, "when": edge.when or None, "next_pass": edge.back is not None}
                for edge in graph.leaving(node.id)
            ],
            "on_error": node.on_error,
            "state": None if states is None else states.get(node.id, "pending").split()[0],
        }
        for node in graph.nodes
    ]


def _states(work: Iterable[Work], *, plain: bool) -> dict[str, str]:
    """For each node that was reached the most urgent of its states, and how many of its addresses have it."""
    from holdfast.core.flow_addresses import parse_address

    latest = {item.node: item for item in work}  # of several attempts the last
    by_node: dict[str, list[Work]] = {}
    for item in latest.values():
        by_node.setdefault(parse_address(item.node).node, []).append(item)
    states = {}
    for node, items in by_node.items():
        counted = Counter(item.status for item in items)
        urgent = next((state for state in MOST_URGENT if state in counted), items[0].status)
        word = urgent if plain else shown_state(urgent)
        if len(items) > 1:
            states[node] = f"{word} {counted[urgent]:,} of {len(items):,}"
        elif urgent == "blocked" and items[0].kind != "child":
            states[node] = f"{word} {items[0].completed:,} of {items[0].required:,}"
        else:
            states[node] = word
    return states


__all__ = ["print_flow_graph", "print_flow_run"]
