"""What an operator asks of one run: cancel, pause, resume, retry, reattempt, skip.

Asking for what is already so is fine, and says so. Asking for what cannot be is exit code 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.failures import FAILED, USAGE, Failure, note
from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, opened, operator, pass_options
from holdfast.cli.output import print_json, say

if TYPE_CHECKING:
    from holdfast.core.rows import Run
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
                hint="nothing of it runs any more"
                if status == "failed"
                else "a run that has completed never changes again",
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
@click.option("--answer", metavar="JSON", help="Answer the node that asks a person: JSON, or a text that is no JSON.")
@click.option("--node", metavar="ITEM", help="Which node is answered, if several of them ask.")
@common_options
@pass_options
@asynchronous
async def resume(options: Options, run: str, answer: str | None, node: str | None) -> None:
    """Let a paused run go on, or answer one that asks a person.

    If a failure paused it, what failed gets a new attempt. With --answer, a node of a state graph that waits for a
    person (`ctx.interrupt`) goes on with the answer; `holdfast show RUN` shows what it asks.
    """
    if answer is None and node is not None:
        raise Failure("--node says who is answered, and there is no answer", hint="give --answer as well", code=USAGE)
    async with opened(options) as engine:
        row = await find_run(engine, run)
        if answer is not None:
            await _answer(options, engine, row, answer, node)
            return
        if row.model == "graph" and row.status == "suspended":
            asking = [question.node for question in await engine.get(row.id).interrupts()]
            raise Failure(
                f"run {row.id} of {row.workflow} is not paused: {', '.join(asking)} waits for a person's answer",
                hint=f"holdfast resume {row.id} --answer JSON",
                code=FAILED,
            )
        changed = await engine.get(row.id).resume(by=operator())
        status = await engine.get(row.id).status()
        if not changed and row.ended:
            hint = f"`holdfast retry {row.id}` goes on with a failed run" if status == "failed" else "start a new run"
            raise Failure(f"run {row.id} of {row.workflow} was not resumed: it is {status}", hint=hint, code=FAILED)
        said = f"run {row.id} goes on" if changed else f"run {row.id} was not paused: it is {status}"
        await report_change(options, engine, row.id, changed, said)


async def _answer(options: Options, engine: Engine, row: Run, answer: str, node: str | None) -> None:
    from holdfast.cli.graph_questions import read_answer

    handle = engine.get(row.id)
    asked = node
    if asked is None and row.model == "graph":
        asked = next((question.node for question in await handle.interrupts()), None)
    changed = await handle.resume_with(read_answer(answer), node=node, by=operator())
    status = await handle.status()
    goes_on = f"run {row.id} has its answer for {asked}" + (", and stays paused" if status == "paused" else "")
    said = goes_on if changed else f"run {row.id} was given this answer before, and asks nobody now"
    await report_change(options, engine, row.id, changed, said, (asked,) if changed and asked is not None else ())


async def _stays_paused(engine: Engine, run: str) -> str:
    """I11: only a resume ends a pause that somebody asked for, and who asks for something else must know it."""
    if await engine.get(run).status() != "paused":
        return ""
    return f"; it stays paused until `holdfast resume {run}`"


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
        again = listed(nodes, NAMES_SHOWN) or "the merge of its last step"
        stays = await _stays_paused(engine, row.id)
        said = f"run {row.id} {'has new attempts' if stays else 'goes on'}; again: {again}{stays}"
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
        said = f"node {node} of run {row.id} gets a new attempt{await _stays_paused(engine, row.id)}"
        await report_change(options, engine, row.id, True, said, (node,))


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
        said = f"node {node} of run {row.id} is skipped{await _stays_paused(engine, row.id)}"
        await report_change(options, engine, row.id, True, said, (node,))
        (now,) = await engine.store.runs([row.id])
        if now.signature is None and now.definition is None and not now.ended:
            note(f"what follows is in the code of {row.workflow}: a worker that has it goes on within a minute")
