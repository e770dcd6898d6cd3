"""What an operator asks of one run: cancel, pause, resume, retry, reattempt, skip.

Asking for what is already so is fine, and says so. Asking for what cannot be is exit code 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.failures import FAILED, Failure, note
from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, opened, operator, pass_options
from holdfast.cli.output import print_json, say

if TYPE_CHECKING:
    from holdfast.engine import Engine

NAMES_SHOWN: Final = 10


async def report_change(
    options: Options, engine: Engine, run: str, changed: bool, said: str, nodes: tuple[str, ...] = ()
) -> None:
    """Print what became of a run after an operator's request."""
    status = await engine.get(run).status()
    if options.as_json:
        print_json({"run": run, "changed": changed, "status": status, "nodes": list(nodes)})
    else:
        say(said, status)


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--force", is_flag=True, help="Do not let it clean up after itself.")
@common_options
@pass_options
@asynchronous
async def cancel(options: Options, run: str, force: bool) -> None:
    """Stop a run for good; what is running is asked to stop."""
    async with opened(options) as engine:
        row = await find_run(engine, run)
        changed = await engine.get(row.id).cancel(force=force, by=operator())
        status = await engine.get(row.id).status()
        if not changed and status not in ("cancelled", "cancelling"):
            raise Failure(
                f"run {row.id} of {row.workflow} was not cancelled: it is {status}",
                hint="a run that has ended never changes again",
                code=FAILED,
            )
        said = f"run {row.id} is {status}" if changed else f"run {row.id} was {status} already"
        await report_change(options, engine, row.id, changed, said)


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the run's history.")
@common_options
@pass_options
@asynchronous
async def pause(options: Options, run: str, reason: str) -> None:
    """Start nothing more of a run until it is resumed."""
    async with opened(options) as engine:
        row = await find_run(engine, run)
        changed = await engine.get(row.id).pause(by=operator(), reason=reason)
        status = await engine.get(row.id).status()
        if not changed and status != "paused":
            raise Failure(
                f"run {row.id} of {row.workflow} was not paused: it is {status}",
                hint="only a run that has not ended can be paused",
                code=FAILED,
            )
        said = f"run {row.id} is paused; `holdfast resume {row.id}` lets it go on"
        await report_change(options, engine, row.id, changed, said if changed else f"run {row.id} was paused already")


@click.command()
@click.argument("run", metavar="RUN")
@common_options
@pass_options
@asynchronous
async def resume(options: Options, run: str) -> None:
    """Let a paused run go on.

    If a failure paused it, what failed gets a new attempt.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        changed = await engine.get(row.id).resume(by=operator())
        status = await engine.get(row.id).status()
        if not changed and row.ended:
            hint = f"`holdfast retry {row.id}` goes on with a failed run" if status == "failed" else "start a new run"
            raise Failure(f"run {row.id} of {row.workflow} was not resumed: it is {status}", hint=hint, code=FAILED)
        said = f"run {row.id} goes on" if changed else f"run {row.id} was not paused: it is {status}"
        await report_change(options, engine, row.id, changed, said)


@click.command()
@click.argument("run", metavar="RUN")
@common_options
@pass_options
@asynchronous
async def retry(options: Options, run: str) -> None:
    """Give every node that gave up a new attempt."""
    async with opened(options) as engine:
        row = await find_run(engine, run)
        from holdfast.explain.words import listed

        nodes = await engine.get(row.id).retry(by=operator())
        said = f"run {row.id} goes on; again: {listed(nodes, NAMES_SHOWN)}"
        await report_change(options, engine, row.id, True, said, tuple(nodes))


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("node", metavar="NODE")
@common_options
@pass_options
@asynchronous
async def reattempt(options: Options, run: str, node: str) -> None:
    """Give one node that gave up a new attempt."""
    async with opened(options) as engine:
        row = await find_run(engine, run)
        await engine.get(row.id).reattempt(node, by=operator())
        await report_change(options, engine, row.id, True, f"node {node} of run {row.id} gets a new attempt", (node,))


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("node", metavar="NODE")
@common_options
@pass_options
@asynchronous
async def skip(options: Options, run: str, node: str) -> None:
    """Count a node as done without running it.

    What follows a node of a class is in the code: with --app and the module that defines it the run goes on at once,
    without it a worker that has the code goes on within a minute.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        await engine.get(row.id).skip(node, by=operator())
        await report_change(options, engine, row.id, True, f"node {node} of run {row.id} is skipped", (node,))
        (now,) = await engine.store.runs([row.id])
        if now.signature is None and now.definition is None and not now.ended:
            note(f"what follows is in the code of {row.workflow}: a worker that has it goes on within a minute")
