"""`holdfast dead`: work that could not be run and events that nobody could take, to be looked at and dealt with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, Failure
from holdfast.cli.finding import find_run
from holdfast.cli.operate import report_change
from holdfast.cli.options import Options, asynchronous, common_options, opened, operator, pass_options
from holdfast.cli.output import Cell, print_json, print_table, say
from holdfast.cli.times import moment_of

if TYPE_CHECKING:
    from holdfast.dead_letters import DeadLetter
    from holdfast.engine import Engine


@click.group()
@common_options
def dead() -> None:
    """List dead letters, run them again, or close them.

    A dead letter is work that no worker could run: its worker died in it again and again, its action is not
    known to anyone, or its input cannot be read. Or it is an event that nobody could take: it was not of the type
    that is waited for, or its run ended first. It waits here until somebody decides.
    """


@dead.command("list")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many to list.")
@common_options
@pass_options
@asynchronous
async def list_dead(options: Options, limit: int) -> None:
    """List dead letters, oldest first."""
    async with opened(options) as engine:
        found = await engine.dead(limit)
        names = await _names(engine, found)
        items = [_shown(letter, names) for letter in found]
    if options.as_json:
        print_json({"dead": items})
    elif not items:
        say("there are no dead letters", "ok")
    else:
        print_table(
            ["RUN OR EVENT", "NODE", "WORKFLOW", "ATTEMPT", "DIED (UTC)", "ERROR"],
            [
                [
                    item["run"] if item["kind"] == "work" else item["id"],
                    item["node"] if item["kind"] == "work" else "",
                    item["workflow"] or f"event {item['node']}",
                    str(item["attempt"] or ""),
                    f"{item['died_at']:%Y-%m-%d %H:%M:%S}" if item["died_at"] else "",
                    Cell(item["error"] or "", "dead"),
                ]
                for item in items
            ],
            whole=("RUN OR EVENT", "NODE"),
        )


async def _names(engine: Engine, letters: list[DeadLetter]) -> dict[tuple[str, str], str]:
    """What people call the nodes: those of a built DAG have ids of their own."""
    from holdfast.core.errors import HoldfastError
    from holdfast.core.rows import Work

    found = [letter for letter in letters if isinstance(letter, Work)]
    names: dict[tuple[str, str], str] = {}
    for row in await engine.store.runs(list({work.run for work in found})):
        try:
            graph = await engine.definitions.load(engine.store, row)
        except HoldfastError:  # one damaged graph must not hide the dead letters of others
            continue
        for work in found:
            if work.run == row.id and graph is not None and work.node in graph.by_id:
                names[work.run, work.node] = graph.by_id[work.node].name
    return names


def _shown(letter: DeadLetter, names: dict[tuple[str, str], str]) -> dict[str, Any]:
    from holdfast.core.codec import decode_error
    from holdfast.core.rows import Event

    if isinstance(letter, Event):
        return {
            "kind": "event",
            "run": letter.target,
            "node": letter.name,
            "id": letter.id,
            "workflow": None,
            "attempt": None,
            "died_at": moment_of(letter.at),
            "error": letter.reason,
        }
    work = letter
    return {
        "kind": "work",
        "run": work.run,
        "node": names.get((work.run, work.node), work.node),
        "id": work.node,
        "workflow": work.workflow,
        "attempt": work.attempt,
        "died_at": moment_of(work.finished),
        "error": None if work.error is None else decode_error(work.error).message,
    }


@dead.command("replay")
@click.argument("run", metavar="RUN_OR_EVENT")
@click.argument("node", metavar="[NODE]", required=False)
@common_options
@pass_options
@asynchronous
async def replay_dead(options: Options, run: str, node: str | None) -> None:
    """Give a dead node of a run a new attempt, or bring a dead event (its id alone) to whoever waits for it."""
    async with opened(options) as engine:
        if node is None:
            replayed = await engine.replay_dead(run, by=operator())
            return _report_event(options, run, replayed, "is on its way to whoever waits for it")
        row = await find_run(engine, run)
        if not await engine.replay_dead(row.id, node, by=operator()):
            raise _no_dead_letter(row.id, node)
        await report_change(options, engine, row.id, True, f"node {node} of run {row.id} gets a new attempt", (node,))


@dead.command("discard")
@click.argument("run", metavar="RUN_OR_EVENT")
@click.argument("node", metavar="[NODE]", required=False)
@common_options
@pass_options
@asynchronous
async def discard_dead(options: Options, run: str, node: str | None) -> None:
    """Close a dead letter for good: the run of a dead node fails, a dead event (its id alone) is gone."""
    async with opened(options) as engine:
        if node is None:
            return _report_event(options, run, await engine.discard_dead(run, by=operator()), "is discarded")
        row = await find_run(engine, run)
        if not await engine.discard_dead(row.id, node, by=operator()):
            raise _no_dead_letter(row.id, node)
        said = f"the dead letter of node {node} of run {row.id} is discarded"
        await report_change(options, engine, row.id, True, said, (node,))


def _report_event(options: Options, event: str, changed: bool, became: str) -> None:
    if not changed:
        raise Failure(
            f"event {event} is no dead letter",
            hint="`holdfast dead list` lists those that there are; for a node, give its run and its name",
            code=FAILED,
        )
    if options.as_json:
        print_json({"event": event, "changed": True})
    else:
        say(f"event {event} {became}", "ok")


def _no_dead_letter(run: str, node: str) -> Failure:
    return Failure(
        f"node {node} of run {run} is no dead letter",
        hint="`holdfast dead list` lists those that there are",
        code=FAILED,
    )
