"""A state graph for people: drawn before any run, or with the way that a run of it has taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.failures import USAGE, Failure
from holdfast.cli.output import print_json, shown_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.authoring.state_graphs import StateGraph
    from holdfast.core.rows import Run
    from holdfast.engine import Engine
    from holdfast.graph_path import Path

STEPS_SHOWN: Final = 20


async def print_state_run(engine: Engine, row: Run, style: str) -> None:
    """The graph of this run's code, with the states of its nodes and the edges that were taken."""
    from holdfast.cli.checkpoints import shown_nodes
    from holdfast.documents.checkpoints import steps_of
    from holdfast.graph_path import path_of

    code = engine.definitions.state_graph(row.workflow)
    if code is None:
        raise Failure(
            f"the edges of graph {row.workflow} are in its code, which is not known here",
            hint=f"say --app with the module that defines it; `holdfast checkpoints {row.id}` shows which nodes ran",
            code=USAGE,
        )
    path = await path_of(engine.store, row, code)
    print_state_graph(code.graph, style, {"workflow": row.workflow, "run": row.id}, path)
    if style == "ascii":
        steps = [step for step in await steps_of(engine, row) if step["ran"]]
        left = len(steps) - STEPS_SHOWN
        click.echo("\npath:" + (f" (the last {STEPS_SHOWN} of {len(steps):,} steps)" if left > 0 else ""))
        for step in steps[max(0, left) :]:
            click.echo(f"{step['step']:>4}  {shown_nodes(step['ran'])}")


def print_state_graph(graph: StateGraph[Any], style: str, about: Mapping[str, Any], path: Path | None = None) -> None:
    """The graph as lines, as a Mermaid flowchart or as JSON; with the taken path if there is one."""
    if style == "svg":
        raise Failure(
            "a state graph is not drawn as svg",
            hint="use --format mermaid, or ascii for a terminal, or json",
            code=USAGE,
        )
    graph.check()
    nodes = {} if path is None else path.nodes
    if style == "json":
        print_json(_document(graph, about, path))
    elif style == "mermaid":
        states = {name: node.shown for name, node in nodes.items()}
        click.echo(graph.mermaid(states=states, taken=() if path is None else path.taken), nl=False)
    else:
        states = {name: node.shown.replace(node.state, shown_state(node.state)) for name, node in nodes.items()}
        click.echo(graph.ascii(states=states), nl=False)


def _document(graph: StateGraph[Any], about: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    """The graph's own document, with what the run has made of each node and each edge."""
    document = graph.document()
    for node in document["nodes"]:
        on_path = None if path is None else path.nodes.get(node["name"])
        node["state"] = None if path is None else "pending" if on_path is None else on_path.state
        node["steps"] = None if path is None else 0 if on_path is None else on_path.steps
    taken = dict(path.taken) if path is not None else {}
    for edge in document["edges"]:
        edge["taken"] = None if path is None else taken.get((edge["from"], edge["to"]), 0)
    return {
        **about,
        "signature": graph.signature,
        "state": document["state"],
        "nodes": document["nodes"],
        "edges": document["edges"],
        "start": document["start"],
        "finish": document["finish"],
        "options": document["options"],
        "taken": None
        if path is None
        else [{"from": a or None, "to": b or None, "times": n} for (a, b), n in sorted(taken.items())],
    }


__all__ = ["print_state_graph", "print_state_run"]
