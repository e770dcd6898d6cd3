"""`holdfast replay` and `holdfast query`: what is recorded of a run, gone through with the code of this process.

Nothing is started and nothing is written: actions are not entered, and what the code asks for beyond its history is
looked at and dropped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, OK, USAGE, Failure
from holdfast.cli.finding import find_run
from holdfast.cli.graph_replaying import replay_graph
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import one_line, print_json, printable, say

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine
    from holdfast.runtime.function_run import LiveFunction

VALUE_WIDTH = 300


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("name", metavar="NAME")
@common_options
@pass_options
@asynchronous
async def query(options: Options, run: str, name: str) -> None:
    """Print what a run exposes under a name (hf.expose).

    Its history is replayed here with its code, so --app must name the module that defines it.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        if row.model != "function":
            told = f"run {row.id} of {row.workflow} is no function"
            raise Failure(told, hint="only workflows expose anything", code=USAGE)
        _require_code(engine, row)
        value = await engine.get(row.id).query(name)
    if options.as_json:
        print_json({"run": row.id, "name": name, "value": value})
    else:
        click.echo(printable(value) if isinstance(value, str) else _text(value))


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--mode",
    type=click.Choice(("strict", "lenient", "live")),
    default="strict",
    help="Of a state graph: stop at the first difference, or tell all, or make the recorded calls again and compare.",
)
@common_options
@pass_options
@asynchronous
async def replay(options: Options, run: str, mode: str) -> int:
    """Check a run's record against the code; exit code 1 if they differ.

    The code that --app names is run through all that is recorded, without starting or changing anything. Also for a
    run that has ended, or failed because its code and its history differed.

    Of a state graph every node runs again, and its calls are answered from the record: nothing outside is touched,
    unless --mode live makes the calls anew to see where the world answers differently now.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        if row.model == "graph":
            return await replay_graph(options, engine, row, mode)
        if mode != "strict":
            raise Failure(f"--mode {mode} is for state graphs", hint="leave it out", code=USAGE)
        _require_code(engine, row)
        difference, then = await _replayed(engine, row)
    count = row.entries - row.base
    if options.as_json:
        print_json(
            {"run": row.id, "workflow": row.workflow, "ok": not difference, "entries": count, "difference": difference}
        )
    elif difference:
        say(f"run {row.id} of {row.workflow} does not replay: {difference}", "error")
    else:
        entries = "1 entry" if count == 1 else f"{count:,} entries"
        say(f"run {row.id} of {row.workflow} replays as it was recorded ({entries}); {then}", "ok")
    return FAILED if difference else OK


def _require_code(engine: Engine, row: Run) -> None:
    from holdfast.authoring.functions import Workflow

    if row.model != "function":
        raise Failure(
            f"run {row.id} of {row.workflow} is neither a function nor a state graph, so that there is nothing to "
            "replay",
            hint=f"`holdfast verify {row.id}` checks the record of a DAG"
            if row.model == "dag"
            else f"`holdfast show {row.id}` shows what it did",
            code=USAGE,
        )
    if not isinstance(engine.definitions.thing(row.workflow), Workflow):
        raise Failure(
            f"workflow {row.workflow} of run {row.id} is not known here",
            hint="say --app with the module that defines it",
            code=USAGE,
        )


async def _replayed(engine: Engine, row: Run) -> tuple[str, str]:
    """The first difference, or nothing and what the code does after the last entry."""
    from holdfast.core.errors import HoldfastError
    from holdfast.runtime.function_driver import replayed

    try:
        limit = engine.settings.payload_limit_bytes
        function = await replayed(engine.store, engine.definitions, engine.codecs, row, limit_bytes=limit)
    except HoldfastError as error:
        return error.message, ""
    except Exception as error:  # the workflow's own code, with a history that it was not written for
        return f"{type(error).__name__}: {error}", ""
    try:
        return _ended(engine, row, function) if row.ended else _open(function)
    finally:
        function.evict()


def _open(function: LiveFunction) -> tuple[str, str]:
    if function.loop.done:
        return "", "it ends then"
    waiting = [pending.name for pending in function.loop.pending.values()]
    stuck = function.loop.stuck()
    return (stuck, "") if stuck is not None else ("", f"it goes on with {', '.join(waiting) or 'a timer'}")


def _ended(engine: Engine, row: Run, function: LiveFunction) -> tuple[str, str]:
    """A run that has ended: whether the code ends in the same way. What an operator cut short cannot be compared."""
    if row.status == "cancelled":
        return "", "it was cancelled then"
    if row.status == "failed":
        return _failed(engine, row, function)
    if not function.loop.done:
        return "the run completed, and this code goes on where that ended", ""
    ended = function.ended()
    if ended.error is not None:
        return f"the run completed, and this code ends with {type(ended.error).__name__}: {ended.error}", ""
    then, now = _result(engine, row.result), _result(engine, ended.result)
    if then != now:
        return f"the run completed with {_text(then)}, and this code ends with {_text(now)}", ""
    return "", "it ends with the same result"


def _failed(engine: Engine, row: Run, function: LiveFunction) -> tuple[str, str]:
    """It may have failed because of the code it had then: that this code goes on is what was hoped for."""
    goes_on = f"`holdfast retry {row.id}` goes on from there"
    if not function.loop.done:
        stuck = function.loop.stuck()
        return ("", goes_on) if stuck is None else (stuck, "")
    ended = function.ended()
    if ended.error is None:
        return "", f"this code ends well, and {goes_on}"
    return "", f"it ends with {type(ended.error).__name__}: {one_line(str(ended.error), VALUE_WIDTH)}"


def _result(engine: Engine, stored: bytes | None) -> Any:
    from holdfast.core.codec import unlabelled

    if stored is None:
        return None
    result = unlabelled(stored)
    return engine.codecs.decode(result.data, where="a result", codec=result.codec)


def _text(value: Any) -> str:
    from msgspec import to_builtins

    return one_line(json.dumps(to_builtins(value), ensure_ascii=False, default=str), VALUE_WIDTH)


__all__ = ["query", "replay"]
