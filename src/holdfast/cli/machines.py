"""The state machine of a decider: as its author declares it, or as instances were seen to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, USAGE, Failure, note
from holdfast.cli.output import Cell, print_heading, print_json, print_table, say
from holdfast.documents.machines import declared_machine, observed_machine

if TYPE_CHECKING:
    from holdfast.authoring.state_machine import StateMachine
    from holdfast.core.rows import Run
    from holdfast.engine import Engine

FORMATS = ("ascii", "mermaid", "dot", "json")


def check_format(style: str) -> None:
    if style not in FORMATS:
        raise Failure(
            f"a state machine is not drawn as {style}",
            hint=f"--format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; Graphviz makes pictures of dot",
            code=USAGE,
        )


def nothing_observed(name: str, *, undeclared: bool = False) -> Failure:
    """`undeclared`: the code is here and has no definition(), so that observing is not the only way."""
    observe = 'observe them with Engine(observe_inputs="type"), or HOLDFAST_OBSERVE_INPUTS=type'
    return Failure(
        f"{f'{name} has no definition(), and ' if undeclared else ''}no inputs of {name} were observed, so there are "
        "no transitions to draw",
        hint=f"write definition() to declare them, or {observe}" if undeclared else observe,
        code=FAILED,
    )


def note_undeclared(name: str) -> None:
    """Said where what was asked for is what the author declares, and that is nothing."""
    note(f"{name} has no definition(), which declares its states and transitions: this is what was observed")


async def print_machine_of(engine: Engine, row: Run, style: str, *, observed: bool = False) -> None:
    """The machine of an instance's decider: declared if the code is here and declares one, else observed."""
    from holdfast.core.decider_operations import DECIDER

    if row.model != DECIDER:
        raise Failure(
            f"run {row.id} of {row.workflow} is no instance of a decider, and has no state machine",
            hint=f"`holdfast graph {row.id} --format mermaid` draws the graph of a DAG",
            code=USAGE,
        )
    code = engine.definitions.decider(row.workflow)
    machine = None if code is None or observed else declared_machine(code.definition.cls)
    names = (row.workflow,) if code is None else code.definition.cls.__holdfast__.names
    if machine is None:
        machine = await observed_machine(engine, names)
    undeclared = code is not None and not observed and declared_machine(code.definition.cls) is None
    if machine is None:
        raise nothing_observed(row.workflow, undeclared=undeclared)
    if undeclared:
        note_undeclared(row.workflow)
    status = None
    if code is not None and style == "ascii":
        from holdfast.documents.instance import state_of

        status = (await state_of(engine, row)).status
    print_machine(machine, style, status)


def print_machine(machine: StateMachine, style: str, status: str | None = None) -> None:
    """The machine as text, Mermaid, DOT or JSON; `status` is where an instance stands."""
    check_format(style)
    if style == "mermaid":
        click.echo(machine.mermaid(), nl=False)
    elif style == "dot":
        click.echo(machine.dot(), nl=False)
    elif style == "json":
        print_json(_document(machine))
    else:
        _print_table(machine, status)


def _document(machine: StateMachine) -> dict[str, Any]:
    definition = machine.definition
    return {
        "workflow": machine.name,
        "states": definition.states,
        "initial": definition.initial,
        "terminals": definition.terminals,
        "transitions": [
            {
                "from": one.from_status,
                "input": one.input,
                "to": one.to_status,
                "effects": one.effects,
                "timers": one.timers,
                "count": machine.counts.get((one.from_status, str(one.input), one.to_status)),
            }
            for one in definition.transitions
        ],
    }


def _print_table(machine: StateMachine, status: str | None) -> None:
    definition = machine.definition
    print_heading(f"{machine.name}{', as it was observed' if machine.counts else ''}", first=True)
    rows = []
    for one in definition.transitions:
        count = machine.counts.get((one.from_status, str(one.input), one.to_status))
        rows.append(
            [
                _state(one.from_status or "(new)", machine, status),
                str(one.input),
                _state(one.to_status, machine, status),
                ", ".join(map(str, one.effects)),
                ", ".join(map(str, one.timers)),
                "" if count is None else f"{count:,}",
            ]
        )
    headers = ["FROM", "INPUT", "TO", "EFFECTS", "TIMERS", "SEEN"]
    kept = [index for index in range(len(headers)) if index < 3 or any(row[index] for row in rows)]
    print_table([headers[index] for index in kept], [[row[index] for index in kept] for row in rows])
    if definition.initial is not None:
        say(
            f"begins as {definition.initial}"
            + (f", ends as {', '.join(definition.terminals)}" * bool(definition.terminals))
        )
    if status is not None:
        say(f"now {status}", "running")
        if status not in definition.states:
            note(f"{status} is no state of this machine")


def _state(name: str, machine: StateMachine, status: str | None) -> str:
    if name == status:
        return Cell(f"> {name}", "running")
    return Cell(name, "completed") if name in machine.definition.terminals else name
