"""`holdfast send` and `holdfast broadcast`: events from a shell, for one run or for whoever waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, Failure, note
from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, load_app, opened, pass_options
from holdfast.cli.output import print_json, say
from holdfast.cli.start import ArgumentCommand

if TYPE_CHECKING:
    from holdfast.authoring.events import Event
    from holdfast.core.rows import Run
    from holdfast.engine import Engine


def _event_arguments(command: Any) -> Any:
    command = click.option(
        "--id", "identity", metavar="TEXT", help="Send it once under this id, however often it is sent."
    )(command)
    command = click.argument("word", metavar="[PAYLOAD]", required=False)(command)
    return click.argument("name", metavar="EVENT")(command)


@click.command(cls=ArgumentCommand, context_settings={"ignore_unknown_options": True})
@_event_arguments
@click.option("--to", "target", required=True, metavar="RUN", help="The run that is to get it.")
@common_options
@pass_options
def send(options: Options, name: str, word: str | None, identity: str | None, target: str) -> None:
    """Send an event to a run.

    PAYLOAD is JSON, or text if it is no JSON; without it the event carries null. With --app the event's definition
    is known, and a payload that is not of its type is refused here. If the run does not wait for the event, it is kept
    until it does.
    """
    event, payload = _read(options, name, word)
    _send(options, event, payload, identity, target)


@asynchronous
async def _send(options: Options, event: Event[Any], payload: Any, identity: str | None, target: str) -> None:
    from holdfast.core.function_operations import Delivered, TargetEnded, TargetNotFound

    async with opened(options) as engine:
        row = await find_run(engine, target)
        if row.model not in ("function", "flow"):
            raise Failure(
                f"run {row.id} of {row.workflow} takes no events: it is no function and no flow",
                hint="only a run of an @hf.workflow or @hf.flow waits for events"
                if row.model != "decider"
                else f"it is an instance of a decider: `holdfast execute {row.workflow}` gives it an input",
                code=FAILED,
            )
        made = engine.system.ids.new() if identity is None else identity
        sent = await engine.send(event, payload, to=row.id, id=made)
        if isinstance(sent, TargetEnded | TargetNotFound):
            status = sent.status if isinstance(sent, TargetEnded) else "gone"
            raise Failure(
                f"event {event.name} was not sent: run {row.id} of {row.workflow} is {status} and takes none",
                hint="`holdfast broadcast` brings an event to whoever waits for it",
                code=FAILED,
            )
        delivered = isinstance(sent, Delivered)
        if not delivered and not options.as_json:
            await _note_what_it_waits_for(engine, row, event.name)
    _report(options, event.name, made, [row.id] if delivered else [], f"until run {row.id} waits for it")


@click.command(cls=ArgumentCommand, context_settings={"ignore_unknown_options": True})
@_event_arguments
@click.option("--all", "to_all", is_flag=True, help="To all who wait for it, instead of the one who waited longest.")
@common_options
@pass_options
def broadcast(options: Options, name: str, word: str | None, identity: str | None, to_all: bool) -> None:
    """Send an event to whoever waits for it.

    It goes to the run that has waited longest; if none does, it is kept until one does. PAYLOAD is as for
    `holdfast send`.
    """
    event, payload = _read(options, name, word)
    _broadcast(options, event, payload, identity, to_all)


@asynchronous
async def _broadcast(options: Options, event: Event[Any], payload: Any, identity: str | None, to_all: bool) -> None:
    from holdfast.core.function_operations import Delivered

    async with opened(options) as engine:
        made = engine.system.ids.new() if identity is None else identity
        sent = await engine.broadcast(event, payload, to_all=to_all, id=made)
    reached = list(sent.runs or (sent.run_id,)) if isinstance(sent, Delivered) else []
    _report(options, event.name, made, reached, "until somebody waits for it")


def _read(options: Options, name: str, word: str | None) -> tuple[Event[Any], Any]:
    """The event and its payload, refused before the database is opened if they do not fit."""
    from holdfast.authoring.events import as_event
    from holdfast.authoring.registry import default_registry
    from holdfast.cli.arguments import parse_word
    from holdfast.core.codec import UNTYPED

    load_app(options)
    event = as_event("holdfast send", name, default_registry)
    if event.place is None:
        _note_unknown(options, name, sorted(default_registry.events))
    annotation = Any if event.type is UNTYPED else event.type
    payload = None if word is None else parse_word(word, annotation, "PAYLOAD")
    event.check(payload)
    return event, payload


def _note_unknown(options: Options, name: str, known: list[str]) -> None:
    """A plain name is fine, and so is a typing error for those who wait for something else."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    if near:
        note(f"no imported module defines event {name!r}: did you mean {near[0]}?")
    elif not options.modules():
        note(f"the type of event {name} is not known here, so its payload was not checked: --app MODULE checks it")


async def _note_what_it_waits_for(engine: Engine, row: Run, name: str) -> None:
    from holdfast.explain.situation import Awaited

    waits = [Awaited.of(wait).event for wait in await engine.get(row.id).waits()]
    events = sorted({event for event in waits if event})
    if events and name not in events:
        note(f"run {row.id} waits for {', '.join(events)} now, not for {name}")


def _report(options: Options, event: str, identity: str, reached: list[str], kept: str) -> None:
    outcome = "delivered" if reached else "queued"
    if options.as_json:
        print_json({"event": event, "id": identity, "outcome": outcome, "runs": reached})
    elif reached:
        runs = f"run {reached[0]}" if len(reached) == 1 else f"{len(reached):,} runs"
        say(f"event {event} was delivered to {runs}", "ok")
    else:
        say(f"event {event} is kept {kept}")


__all__ = ["broadcast", "send"]
