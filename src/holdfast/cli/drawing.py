"""`holdfast graph`: a drawing of something that can be started, of a run with its states, or of a decider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, USAGE, Failure
from holdfast.cli.finding import find_run
from holdfast.cli.flow_graphs import print_flow_graph, print_flow_run
from holdfast.cli.options import Options, asynchronous, common_options, load_app, opened, pass_options
from holdfast.cli.output import print_json, shown_state
from holdfast.cli.state_drawings import print_state_graph, print_state_run

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph
    from holdfast.core.flow_graph import FlowGraph
    from holdfast.core.graph import Graph
    from holdfast.engine import Engine

FORMATS = ("ascii", "mermaid", "svg", "dot", "json")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", metavar="MODULE:THING|DECIDER|RUN")
@click.argument("words", nargs=-1, metavar="ARGS...")
@click.option("--format", "style", type=click.Choice(FORMATS), default="ascii", show_default=True, help="How.")
@click.option("--observed", is_flag=True, help="Of a decider: what instances were seen to do, with counts.")
@common_options
@pass_options
def graph(options: Options, target: str, words: tuple[str, ...], style: str, observed: bool) -> None:
    """Draw a graph, or that of a run with its states.

    THING is a flow, a state graph, a Dag class, an action, or a template, which takes its ARGS as `holdfast start`
    does. Or a decider, whose state machine is drawn as its definition() declares it; without that, or its code, as it
    was observed. A run of a state graph is drawn with the edges that it has taken, and needs the code (--app).

    \b
    ascii    a line for each node, level by level, with what it waits for;
             siblings of a fan-out are one line
    mermaid  a flowchart for a page
    svg      a picture: holdfast graph RUN --format svg > run.svg
    dot      of a decider, for Graphviz
    json     nodes, dependencies and states
    """
    if options.as_json:
        style = "json"
    load_app(options)
    if _is_decider(target):
        if words:
            raise Failure(f"{words[0]!r} is one word too many after a decider", hint="give it alone", code=USAGE)
        _of_decider(options, target, style, observed)
    elif _is_thing(target):
        from holdfast.authoring.startable import is_state_graph
        from holdfast.core.flow_graph import FlowGraph
        from holdfast.core.graph import Graph

        _refuse_dot(style, observed)
        name, drawn = _of_thing(target, words)
        about = {"workflow": name, "run": None}
        if isinstance(drawn, Graph):
            _print(drawn, style, about, None)
        elif is_state_graph(drawn):
            print_state_graph(drawn, style, about)
        elif isinstance(drawn, FlowGraph):
            print_flow_graph(drawn, style, about)
    elif words:
        raise Failure(f"{words[0]!r} is one word too many after a run", hint="give the run alone", code=USAGE)
    else:
        _of_run(options, target, style, observed)


def _refuse_dot(style: str, observed: bool) -> None:
    if style == "dot" or observed:
        raise Failure(
            f"{'--observed' if observed else '--format dot'} is for deciders",
            hint="a graph is drawn as ascii, mermaid, svg or json",
            code=USAGE,
        )


def _is_decider(target: str) -> bool:
    from holdfast.authoring.registry import default_registry
    from holdfast.cli.deciders import is_decider
    from holdfast.cli.loading import load_modules

    module, colon, name = target.partition(":")
    if colon and "/" not in module:
        return is_decider(getattr(load_modules([module])[0], name, None))
    return is_decider(default_registry.workflows.get(target))


def _of_decider(options: Options, target: str, style: str, observed: bool) -> None:
    from holdfast.cli.deciders import decider_class
    from holdfast.cli.machines import check_format, print_machine
    from holdfast.documents.machines import declared_machine

    check_format(style)
    machine = None if observed else declared_machine(decider_class(target))
    if machine is not None:  # which needs no database
        print_machine(machine, style)
        return
    _of_observed(options, decider_class(target).__holdfast__.names, style, not observed)


@asynchronous
async def _of_observed(options: Options, names: tuple[str, ...], style: str, undeclared: bool) -> None:
    from holdfast.cli.machines import note_undeclared, nothing_observed, print_machine
    from holdfast.documents.machines import observed_machine

    async with opened(options) as engine:
        machine = await observed_machine(engine, names)
    if machine is None:
        raise nothing_observed(names[0], undeclared=undeclared)
    if undeclared:
        note_undeclared(names[0])
    print_machine(machine, style)


def _is_thing(target: str) -> bool:
    from holdfast.authoring.registry import default_registry

    module, colon, _ = target.partition(":")
    # A run's key may hold a colon; it comes after WORKFLOW/.
    return bool(colon and "/" not in module) or target in default_registry.known_workflows()


def _of_thing(target: str, words: tuple[str, ...]) -> tuple[str, Graph | FlowGraph | StateGraph[Any]]:
    from holdfast.authoring.actions import Action
    from holdfast.authoring.dags import Dag
    from holdfast.authoring.flows import Flow
    from holdfast.authoring.functions import Workflow
    from holdfast.authoring.registry import default_registry
    from holdfast.authoring.startable import graph_of_action, resolve_start
    from holdfast.authoring.state_graphs import StateGraph
    from holdfast.cli.arguments import bind, find_startable

    startable = find_startable(target, default_registry)
    if isinstance(startable, Workflow):
        raise Failure(
            f"{startable.name} is a function, which has no graph: its code decides as it runs",
            hint="`holdfast show RUN` shows what a run of it has done",
            code=USAGE,
        )
    # Neither fields nor arguments change the graph of these.
    if isinstance(startable, StateGraph):
        return startable.name, startable
    if isinstance(startable, Flow):
        return startable.name, startable.graph
    if isinstance(startable, type) and issubclass(startable, Dag):
        return startable.__holdfast__.name, startable.compiled_dag()
    if isinstance(startable, Action):
        return startable.name, graph_of_action(startable)
    spec = resolve_start(bind(startable, words), (), default_registry)
    if spec.graph is None:
        raise Failure(f"{spec.workflow} has no graph", hint="name a Dag, an action or a template", code=USAGE)
    return spec.workflow, spec.graph


@asynchronous
async def _of_run(options: Options, target: str, style: str, observed: bool) -> None:
    async with opened(options) as engine:
        if await _draw_machine(engine, target, style, observed):
            return
        row = await find_run(engine, target)
        _refuse_dot(style, observed)
        if row.model == "function":
            raise Failure(
                f"run {row.id} of {row.workflow} is a function, which has no graph",
                hint=f"`holdfast show {row.id}` shows what it has done and what it waits for",
                code=FAILED,
            )
        if row.model == "flow":
            await print_flow_run(engine, row, style)
            return
        if row.model == "graph":
            await print_state_run(engine, row, style)
            return
        handle = engine.get(row.id)
        drawn = await handle.dag()
        states = await handle.nodes_with_state()
    about = {"workflow": row.workflow, "run": row.id}
    if style in ("mermaid", "svg"):  # which colour by the stored word
        _print(drawn, style, about, {each.id: each.state for each in states})
        return
    shown = {
        each.id: f"{_word(each.state, style)} ({each.detail})" if each.detail else _word(each.state, style)
        for each in states
    }
    _print(drawn, style, about, shown)


async def _draw_machine(engine: Engine, target: str, style: str, observed: bool) -> bool:
    """Whether the target is an instance, or a decider whose code is not here but whose instances were observed."""
    from holdfast.cli.machines import check_format, nothing_observed, print_machine, print_machine_of
    from holdfast.core.decider_operations import DECIDER
    from holdfast.documents.machines import observed_machine
    from holdfast.store.contract import FindRuns

    if await engine.store.find(FindRuns(workflow=target, model=DECIDER, limit=1)):
        check_format(style)
        machine = await observed_machine(engine, (target,))
        if machine is None:
            raise nothing_observed(target)
        print_machine(machine, style)
        return True
    row = await find_run(engine, target)
    if row.model != DECIDER:
        return False
    check_format(style)
    await print_machine_of(engine, row, style, observed=observed)
    return True


def _word(state: str, style: str) -> str:
    return state if style == "json" else shown_state(state)


def _print(drawn: Graph, style: str, about: Mapping[str, Any], states: Mapping[str, str] | None) -> None:
    if style == "json":
        print_json({**about, "signature": drawn.signature, "nodes": _documents(drawn, states)})
    elif style == "mermaid":
        click.echo(drawn.mermaid(states), nl=False)
    elif style == "svg":
        click.echo(drawn.svg(states), nl=False)
    else:
        click.echo(drawn.ascii(states), nl=False)


def _documents(drawn: Graph, states: Mapping[str, str] | None) -> list[dict[str, Any]]:
    return [
        {
            "id": node.id,
            "name": node.name,
            "job": node.job,
            "method": node.method,
            "after": [drawn.by_id[parent].name for parent in node.depends_on],
            "state": None if states is None else states.get(node.id, "pending").partition(" (")[0],
        }
        for node in (drawn.by_id[each] for each in drawn.topological_order)
    ]
