"""`holdfast execute`: give an instance of a decider an input from a shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from holdfast.cli.failures import USAGE, Failure
from holdfast.cli.options import Options, asynchronous, common_options, load_app, opened, pass_options
from holdfast.cli.output import print_json, say
from holdfast.cli.start import note_missing_worker

if TYPE_CHECKING:
    from holdfast.authoring.decider_code import RoutedInput
    from holdfast.authoring.deciders import Decider
    from holdfast.core.decider_operations import Executed
    from holdfast.core.rows import Run
    from holdfast.documents.instance import EventShown
    from holdfast.engine import Engine

STDIN: Final = "-"
AROUND: Final = 20
MOST_EVENTS: Final = 1000
EXAMPLE: Final = '{"type": "Pay", "order_id": "17"}'


@click.command()
@click.argument("target", metavar="DECIDER|MODULE:CLASS")
@click.argument("words", metavar="INPUT")
@click.option("--command-id", metavar="TEXT", help="Apply it once under this id, however often it is given.")
@click.option("--enqueue", is_flag=True, help="Put it into the instance's inbox, for a worker to apply in turn.")
@common_options
@pass_options
def execute(options: Options, target: str, words: str, command_id: str | None, enqueue: bool) -> None:
    """Give an instance of a decider an input.

    INPUT is JSON with "type", the name of the input's class, and its fields: '{"type": "Pay", "order_id": "17"}'.
    With - it is read from stdin. Which instance it is for is in the input; the first one creates it. The decider's
    code decides right here, so it has to be imported: name MODULE:CLASS, or DECIDER with --app.
    """
    from holdfast.authoring.decider_code import bound_decider
    from holdfast.cli.deciders import decider_class

    load_app(options)
    decider = decider_class(target)
    given = read_input(sys.stdin.read() if words == STDIN else words)
    # Before the database is opened: a wrong input must not create one.
    bound_decider(decider).route_mapping(given)
    _execute(options, decider, given, command_id, enqueue)


def read_input(text: str, what: str = "the input", example: str = EXAMPLE) -> dict[str, Any]:
    """The object that a text holds; a Failure that shows where it stops being JSON."""
    try:
        given = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        start = max(0, error.pos - AROUND)
        before, after = text[start : error.pos], text[error.pos : error.pos + AROUND]
        raise Failure(
            f"{what} is no JSON: {error.msg}, at line {error.lineno}, column {error.colno}: "
            f"{'…' if start else ''}{before}>>>{after}",
            hint=f"write it in single quotes for the shell: '{example}'",
            code=USAGE,
        ) from None
    except ValueError as error:
        raise Failure(f"{what} is no JSON: {error}", hint="write null, or leave the field out", code=USAGE) from None
    if not isinstance(given, dict):
        raise Failure(
            f"{what} is a {type(given).__name__}, and not an object",
            hint='write {"type": …} and the fields of that input' if example is EXAMPLE else f"write {example}",
            code=USAGE,
        )
    return given


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is Python's, not JSON's")


@asynchronous
async def _execute(
    options: Options,
    decider: type[Decider[Any, Any, Any, Any]],
    given: Mapping[str, Any],
    command_id: str | None,
    enqueue: bool,
) -> None:
    from holdfast.deciding import code_for, enqueue_routed, execute_routed
    from holdfast.runtime.instances import run_of_instance

    async with opened(options, create=True) as engine:
        code = code_for(engine, decider)
        routed = code.route_mapping(given)
        if enqueue:
            done = await enqueue_routed(engine, code, routed, command_id)
        else:
            done = await execute_routed(engine, code, routed, command_id)
        (row,) = await engine.store.runs([await run_of_instance(engine.store, code, routed.key)])
        events = await _new_events(engine, row, done)
        if done.verdict in ("applied", "queued"):
            await note_missing_worker(engine, row, decider.__module__)
    _report(options, routed, row, done, events, command_id or routed.command)


async def _new_events(engine: Engine, row: Run, done: Executed) -> list[EventShown]:
    """What the input added to the stream: the last event of the answer, and those before it of the same cause."""
    from holdfast.core.queries import StreamAfter
    from holdfast.documents.instance import event_shown

    if done.verdict != "applied":
        return []
    facts = await engine.store.rows(StreamAfter(row.id, max(0, done.sequence - MOST_EVENTS), MOST_EVENTS))
    facts = [fact for fact in facts if fact.sequence <= done.sequence]
    return [event_shown(engine, fact) for fact in facts if fact.cause == facts[-1].cause]


def _report(
    options: Options, routed: RoutedInput, row: Run, done: Executed, events: list[EventShown], command_id: str | None
) -> None:
    if options.as_json:
        print_json(
            {
                "run": row.id,
                "workflow": row.workflow,
                "workflow_id": routed.key,
                "input": routed.type,
                "outcome": done.verdict,
                "command_id": command_id,
                "differs": done.differs,
                "status": done.run_status,
                "sequence": done.sequence,
                "events": events,
            }
        )
        return
    name = f"{row.workflow}/{routed.key}"
    if done.verdict == "queued":
        say(f"{routed.type} is in the inbox of {name}; a worker applies it", "ok")
    elif done.verdict == "duplicate":
        say(_duplicate(name, routed, done, command_id), "warning")
    elif done.verdict == "ignored":
        say(f"{name} has ended ({row.status}) and ignored {routed.type}", "warning")
    else:
        ended = ", and has ended" if row.ended else ""
        say(f"{name} applied {routed.type}{ended}", "ok")
        from holdfast.cli.show_instance import print_events

        print_events(events)


def _duplicate(name: str, routed: RoutedInput, done: Executed, command_id: str | None) -> str:
    if command_id is None:
        return f"{name} was given an equal {routed.type} not long ago, so nothing happened"
    if done.differs:
        return (
            f"{name} was given another input under command id {command_id} before, so this {routed.type} was not "
            "applied: nothing happened"
        )
    return f"{name} was given this {routed.type} before under command id {command_id}, so nothing happened"


__all__ = ["execute"]
