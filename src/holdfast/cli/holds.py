"""`holdfast maintenance` and `holdfast drain`: hold back claims, or new runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.failures import FAILED, USAGE, Failure, note
from holdfast.cli.options import Options, asynchronous, common_options, opened, operator, pass_options
from holdfast.cli.output import print_json, print_table, progress, say
from holdfast.cli.times import shown_moment
from holdfast.core.stored import moment
from holdfast.documents.times import moment_of

if TYPE_CHECKING:
    from holdfast.core.rows import Hold
    from holdfast.engine import Engine

LOOK_SECONDS: Final = 0.25
PAUSED_SHOWN: Final = 10


@click.group()
@common_options
def maintenance() -> None:
    """Hold work back; new runs are still accepted.

    While it is on nothing is claimed: of a workflow, of a queue, or at all. What is running goes on.
    """


def _scope(command: Any) -> Any:
    command = click.option("--queue", metavar="NAME", help="Only this queue.")(command)
    return click.option("--workflow", metavar="NAME", help="Only this workflow.")(command)


@maintenance.command("on")
@_scope
@common_options
@pass_options
def maintenance_on(options: Options, workflow: str | None, queue: str | None) -> None:
    """Claim nothing more; what is running goes on to its end."""
    _switch(options, True, workflow, queue)


@maintenance.command("off")
@_scope
@common_options
@pass_options
def maintenance_off(options: Options, workflow: str | None, queue: str | None) -> None:
    """Claim again."""
    _switch(options, False, workflow, queue)


@asynchronous
async def _switch(options: Options, on: bool, workflow: str | None, queue: str | None) -> None:
    if workflow is not None and queue is not None:
        raise Failure("--workflow and --queue are both given", hint="run the command once for each", code=USAGE)
    async with opened(options) as engine:
        await engine.maintenance(on, workflow=workflow, queue=queue, by=operator())
        holds = await engine.holds()
        if on and workflow is not None and not await _is_known(engine, workflow):
            note(f"no run, no live worker and no imported module has a workflow {workflow!r}: check the name")
    if options.as_json:
        print_json({"holds": [_shown(hold) for hold in holds]})
        return
    what = f"workflow {workflow}" if workflow else f"queue {queue}" if queue else "everything"
    if on:
        say(f"maintenance is on for {what}: nothing of it is claimed", "paused")
    else:
        say(f"maintenance is off for {what}", "ok")
        left = [_described(hold) for hold in holds if hold.scope != "drain"]
        if left:
            note(f"still in maintenance: {', '.join(left)}")


async def _is_known(engine: Engine, workflow: str) -> bool:
    if workflow in engine.definitions.known_workflows() or await engine.find(workflow=workflow, limit=1):
        return True
    return any(workflow in worker.workflows for worker in await engine.workers())


@maintenance.command("status")
@common_options
@pass_options
@asynchronous
async def maintenance_status(options: Options) -> None:
    """Show what is held back or drained."""
    async with opened(options) as engine:
        holds = await engine.holds()
    if options.as_json:
        print_json({"holds": [_shown(hold) for hold in holds]})
    elif not holds:
        say("nothing is held back", "ok")
    else:
        now = datetime.now(UTC)
        rows = []
        for hold in holds:
            mode = "drained" if hold.scope == "drain" else "maintenance"
            rows.append([_described(hold), mode, hold.by, shown_moment(moment(hold.since), now)])
        print_table(["WHAT", "MODE", "BY", "SINCE"], rows)


def _described(hold: Hold) -> str:
    if hold.scope == "all":
        return "everything"
    return f"{'workflow' if hold.scope == 'drain' else hold.scope} {hold.name}"


def _shown(hold: Hold) -> dict[str, Any]:
    return {"scope": hold.scope, "name": hold.name, "by": hold.by, "since": moment_of(hold.since)}


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--off", is_flag=True, help="Accept new runs again.")
@click.option("--wait", is_flag=True, help="Wait until the open runs have ended.")
@common_options
@pass_options
@asynchronous
async def drain(options: Options, name: str, off: bool, wait: bool) -> None:
    """Accept no new runs of workflow NAME while its open runs end."""
    if off and wait:
        raise Failure("--off and --wait are both given", hint="wait while draining, not after it", code=USAGE)
    async with opened(options) as engine:
        left = await engine.drain(name, on=not off, by=operator())
        some = await engine.find(workflow=name, limit=1)
        runs = "instances" if some and some[0].model == "decider" else "runs"
        if not off and not some:
            note(f"this database has no runs of {name!r}: check the name")
        if runs == "instances" and left and wait:
            note(f"an instance ends when an input brings it to its end: inputs for those of {name} are still taken")
        if wait and left:
            left = await _wait_for_end(engine, name, left)
    if options.as_json:
        print_json({"workflow": name, "draining": not off, "open_runs": left})
    elif off:
        say(f"{name} takes new {runs} again", "ok")
    elif left:
        say(f"{name} takes no new {runs}; {left} still open", "paused")
    else:
        say(f"{name} takes no new {runs}, and all of its {runs} have ended", "ok")


async def _wait_for_end(engine: Engine, name: str, first: int) -> int:
    # Nothing new starts, so the number only falls; a retried run may raise it, and the bar goes back with it.
    left = first
    mentioned: set[str] = set()
    with progress(f"draining {name}", first) as bar:
        while left:
            await _mention_paused(engine, name, mentioned)
            await asyncio.sleep(LOOK_SECONDS)
            if not any(hold.scope == "drain" and hold.name == name for hold in await engine.holds()):
                raise Failure(
                    f"{name} takes new runs again: somebody ended the drain, with {left} of its runs still open",
                    hint=f"`holdfast drain {name} --wait` drains it again",
                    code=FAILED,
                )
            left = await engine.open_runs(name)
            bar.advance_to(max(0, first - left))
    return left


async def _mention_paused(engine: Engine, name: str, mentioned: set[str]) -> None:
    """Say once for each run that only a person can end it: waiting would take for ever."""
    for info in await engine.find(workflow=name, status="paused", limit=PAUSED_SHOWN):
        if info.id not in mentioned and len(mentioned) < PAUSED_SHOWN:
            mentioned.add(info.id)
            note(f"run {info.id} is paused and does not end by itself: holdfast resume {info.id}, or holdfast cancel")
