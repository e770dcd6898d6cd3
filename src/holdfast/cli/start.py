"""`holdfast start`: start a run from a shell, and wait for its result if asked."""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.failures import FAILED, OK, USAGE, Failure, note
from holdfast.cli.options import Options, asynchronous, common_options, load_app, opened, pass_options
from holdfast.cli.output import is_terminal, print_json, printable, progress
from holdfast.cli.times import read_future

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine
    from holdfast.handle import Handle


LOOK_SECONDS: Final = 0.25


def parse_tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Tags given as NAME=VALUE."""
    tags: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not written as NAME=VALUE", ctx, param)
        tags[name] = text
    return tags


class ArgumentCommand(click.Command):
    """Takes what it does not know for an argument, so that -3 is a number, but not what looks like a long option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        for word in args[: args.index("--") if "--" in args else None]:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
                guess = f"Did you mean {near[0]}?" if near else "An argument that begins so stands after `--`."
                raise click.UsageError(f"There is no option {name!r}. {guess}", ctx)
        return super().parse_args(ctx, args)


@click.command(cls=ArgumentCommand, context_settings={"ignore_unknown_options": True})
@click.argument("target", metavar="MODULE:THING")
@click.argument("words", nargs=-1, metavar="ARGS...")
@click.option("--key", metavar="TEXT", help="Start once under this key; the same key and input is the same run.")
@click.option("--queue", metavar="NAME", help="The queue whose workers run it.")
@click.option("--priority", type=int, default=0, help="Higher runs first.", show_default=True)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=parse_tags, help="Tag it (repeatable).")
@click.option(
    "--at", callback=read_future, metavar="TIME", help="Not before this time: 2031-05-01T12:00:00Z or +2h30m."
)
@click.option("--paused", is_flag=True, help="Start it paused; `holdfast resume` lets it go.")
@click.option("--restart", is_flag=True, help="If the key's run has ended, start a new one under the key.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result; exit code 1 if the run fails.")
@common_options
@pass_options
def start(options: Options, /, target: str, words: tuple[str, ...], wait: bool, restart: bool, **given: Any) -> int:
    """Start a run and print its id.

    THING is a workflow, a flow, a state graph, an action, a Dag class or a template of MODULE (or its bare name, with
    --app). A Dag takes FIELD=VALUE; a state graph takes its state as one JSON object (- reads it from stdin), or
    FIELD=VALUE too. All others take ARGS in the order of their parameters. An argument is JSON if it parses as JSON and
    its parameter is not a str; otherwise it is text.
    """
    if restart and given["key"] is None:
        raise Failure("--restart is for a key, and there is none", hint="give --key as well", code=USAGE)
    load_app(options)
    # Before the database is opened: a wrong argument must not create one.
    call = _resolved(target, words)
    given["if_exists"] = "restart" if restart else "same"
    return _start(options, target, call, wait, given)


def _resolved(target: str, words: tuple[str, ...]) -> tuple[Any, tuple[Any, ...]]:
    from holdfast.authoring.registry import default_registry
    from holdfast.authoring.startable import resolve_start
    from holdfast.cli.arguments import bind_call, find_startable

    startable, args = bind_call(find_startable(target, default_registry), words)
    resolve_start(startable, args, default_registry)
    return startable, args


@asynchronous
async def _start(
    options: Options, target: str, call: tuple[Any, tuple[Any, ...]], wait: bool, given: dict[str, Any]
) -> int:
    module, colon, _ = target.partition(":")
    if not colon:
        module = " ".join(options.modules())
    async with opened(options, create=True) as engine:
        handle: Handle[Any] = await engine.start(call[0], *call[1], **given)
        (row,) = await engine.store.runs([handle.id])
        if not row.ended:
            await note_missing_worker(engine, row, module)
        if not wait:
            print_started(options, row)
            return OK
        if not row.ended:
            note(f"waiting for run {row.id} of {row.workflow}; Ctrl-C leaves it running")
        try:
            return await _wait(options, engine, handle)
        except asyncio.CancelledError:  # which is how Ctrl-C arrives here
            note(f"run {row.id} goes on: `holdfast show {row.id}` shows how, `holdfast cancel {row.id}` stops it")
            raise


def print_started(options: Options, row: Run, **more: Any) -> None:
    """The id of a new run, alone on its line; `more` is for JSON."""
    if options.as_json:
        print_json({"run": row.id, "workflow": row.workflow, "key": row.key, "status": row.status, **more})
        return
    click.echo(row.id)
    if is_terminal(sys.stderr):
        note(f"run of {row.workflow} is {row.status}; `holdfast show {row.id}` shows how it goes")


async def note_missing_worker(engine: Engine, row: Run, module: str) -> None:
    """A run that nobody will run is the first thing a newcomer meets: say it at once, not after a while."""
    from holdfast.core.queries import OpenWork

    now = engine.store.now()
    live = [worker for worker in await engine.workers() if worker.lease_until >= now]
    for work in await engine.store.rows(OpenWork(row.id)):
        if not any(worker.knows(work) for worker in live):
            queue = "" if work.queue == "default" else f" --queue {work.queue}"
            note(f"no live worker runs {row.workflow} on queue {work.queue!r}: holdfast worker {module}{queue}")
            return


async def _wait(options: Options, engine: Engine, handle: Handle[Any]) -> int:
    from msgspec import to_builtins

    from holdfast.core.codec import decode_error, unlabelled
    from holdfast.core.errors import RunError

    failure: RunError | None = None
    try:
        await _watched(engine, handle)
    except RunError as error:
        failure = error
    (row,) = await engine.store.runs([handle.id])
    result = None
    if row.result is not None:
        stored = unlabelled(row.result)
        decoded = engine.codecs.decode(stored.data, where=f"the result of {row.workflow}", codec=stored.codec)
        result = to_builtins(decoded)  # shown as JSON, whatever it was written with
    if options.as_json:
        document = {"run": row.id, "workflow": row.workflow, "key": row.key, "status": row.status, "result": result}
        if row.error is not None:
            record = decode_error(row.error)
            document["error"] = {"type": record.type, "message": record.message}
        document["reason"] = row.reason
        print_json(document)
        return OK if failure is None else FAILED
    if failure is not None:
        raise Failure(_with_cause(failure.message, row), hint=failure.hint, code=FAILED) from failure
    if result is not None:
        click.echo(printable(result) if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
    else:
        note(f"run {row.id} of {row.workflow} has completed; it has no result")
    return OK


async def _watched(engine: Engine, handle: Handle[Any]) -> None:
    """Wait for the end; a person at a terminal sees how far it is: nodes of a graph, entries of a function."""
    (row,) = await engine.store.runs([handle.id])
    graph = await handle.load_graph()
    total = 1 if graph is None else len(graph)
    ended = asyncio.ensure_future(handle.result())
    try:
        if row.model == "function":
            with progress("recorded", None) as bar:
                await _look_on(engine, handle, ended, lambda row: bar.advance_to(row.entries))
        elif row.model == "graph":
            with progress("steps", None) as bar:
                await _look_on(engine, handle, ended, lambda row: bar.advance_to(row.base))
        elif total > 1:
            with progress("nodes", total) as bar:
                await _look_on(engine, handle, ended, lambda row: bar.advance_to(total - row.remaining))
                if ended.exception() is None:
                    bar.advance_to(total)
        await ended
    finally:
        ended.cancel()


async def _look_on(
    engine: Engine, handle: Handle[Any], ended: asyncio.Future[Any], show: Callable[[Run], None]
) -> None:
    noted: set[str] = set()
    while not ended.done():
        for row in await engine.store.runs([handle.id]):
            show(row)
            if row.status == "suspended" and row.model == "graph":
                await _note_questions(handle, noted)
            elif row.status == "suspended":
                await _note_events(handle, noted)
        await asyncio.wait([ended], timeout=LOOK_SECONDS)


async def _note_events(handle: Handle[Any], noted: set[str]) -> None:
    """Whoever waits for a run that waits for an event waits for somebody to send it."""
    from holdfast.explain.situation import Awaited
    from holdfast.explain.words import command

    for wait in await handle.waits():
        event = Awaited.of(wait).event
        if event and event not in noted:
            noted.add(event)
            note(f"it waits for event {event}: {command('send', event, 'PAYLOAD', '--to', handle.id)}")


async def _note_questions(handle: Handle[Any], noted: set[str]) -> None:
    """Whoever waits for a run that asks a person may be the one who is asked."""
    from holdfast.cli.graph_questions import answering

    for question in await handle.interrupts():
        if question.node not in noted:
            noted.add(question.node)
            payload = json.dumps(question.payload, ensure_ascii=False, default=str)
            note(f"{question.node} asks a person: {payload}: {answering(handle.id, question.node)}")


def _with_cause(message: str, row: Run) -> str:
    from holdfast.core.codec import decode_error

    message = message.replace("is paused: paused by", "is paused by")
    if row.error is None:
        return message
    record = decode_error(row.error)
    cause = f"{record.type}: {record.message}"
    return message if record.message in message else f"{message}: {cause}"


__all__ = ["ArgumentCommand", "note_missing_worker", "parse_tags", "print_started", "start"]
