"""`holdfast dead`: work that could not be run and events that nobody could take, to be looked at and dealt with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.failures import FAILED, USAGE, Failure
from holdfast.cli.finding import find_run
from holdfast.cli.operate import report_change
from holdfast.cli.options import Options, asynchronous, common_options, opened, operator, pass_options
from holdfast.cli.output import Cell, on_terminal, paragraph, print_json, print_table, say
from holdfast.documents.times import moment_of

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.dead_letters import DeadLetter
    from holdfast.engine import Engine

IS_INPUT: Final = ":input:"  # in the id of an input that was put into an inbox
LONGEST_ID: Final = 40
NODES_NAMED: Final = 3


@click.group()
@common_options
def dead() -> None:
    """List dead letters, run them again, or close them.

    A dead letter is work that no worker could run: its worker died in it again and again, its action is not
    known to anyone, or its input cannot be read. Or it is an event that nobody could take: it was not of the type
    that is waited for, or its run ended first. Of an instance of a decider: an effect or a timer that used up its
    attempts, or an input of its inbox that could not be decided. It waits here until somebody decides.
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
        await _name_instances(engine, items, found)
    if options.as_json:
        print_json({"dead": items})
    elif not items:
        say("there are no dead letters", "ok")
    elif on_terminal() and any(len(item["id"]) > LONGEST_ID for item in items):
        _print_one_by_one(items)
    else:
        print_table(
            ["RUN OR EVENT", "NODE", "WHAT", "ATTEMPT", "DIED (UTC)", "ERROR"],
            [
                [
                    _owner(item) if item["attempt"] is not None else item["id"],
                    item["node"] if item["attempt"] is not None else "",
                    _what(item, alone=item["attempt"] is None),
                    str(item["attempt"] or ""),
                    f"{item['died_at']:%Y-%m-%d %H:%M:%S}" if item["died_at"] else "",
                    Cell(item["error"] or "", "dead"),
                ]
                for item in items
            ],
            whole=("RUN OR EVENT", "NODE"),
        )


def _print_one_by_one(items: list[dict[str, Any]]) -> None:
    """For a terminal, where the id of an event leaves a table no room for its error."""
    from holdfast.explain.words import command

    for item in items:
        died = f"{item['died_at']:%Y-%m-%d %H:%M:%S} UTC" if item["died_at"] else "at an unknown time"
        attempt = f", attempt {item['attempt']}" if item["attempt"] else ""
        say(f"{_what(item)}{attempt}, {died}", "dead")
        paragraph(item["error"] or "no error was kept", start="    ")
        words = (_owner(item), item["node"]) if item["attempt"] is not None else (item["id"],)
        say(f"    {command('dead', 'replay', *words)}")


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


async def _name_instances(engine: Engine, items: list[dict[str, Any]], letters: list[DeadLetter]) -> None:
    """Of what belongs to an instance of a decider: whose it is, and which type of effect or input."""
    from holdfast.core.decider_operations import DECIDER, INPUT_EVENT
    from holdfast.core.rows import Event
    from holdfast.documents.instance import plain, type_of

    owners = {row.id: row for row in await engine.store.runs(list({item["run"] for item in items if item["run"]}))}
    for item, letter in zip(items, letters, strict=True):
        owner = owners.get(item["run"])
        if owner is None or owner.model != DECIDER:
            continue
        item["workflow"], item["key"] = owner.workflow, owner.key
        if not isinstance(letter, Event):
            item["kind"], item["type"] = letter.kind, letter.name[len(letter.workflow) + 1 :]
        elif letter.name == INPUT_EVENT:
            item["kind"], item["type"] = INPUT_EVENT, type_of(plain(engine, letter.payload, letter.codec))


def _owner(item: dict[str, Any]) -> str:
    """The run as commands take it and people remember it."""
    return item["run"] if item["key"] is None else f"{item['workflow']}/{item['key']}"


def _what(item: dict[str, Any], *, alone: bool = True) -> str:
    """What it is; with whose it is where nothing beside it says that."""
    if item["key"] is not None:
        return f"{item['kind']} {item['type']}" + (f" of {_owner(item)}" if alone else "")
    return item["workflow"] or f"event {item['node']}"


def _shown(letter: DeadLetter, names: dict[tuple[str, str], str]) -> dict[str, Any]:
    from holdfast.core.codec import decode_error
    from holdfast.core.rows import Event
    from holdfast.explain.situation import executions

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
            "key": None,
            "type": None,
        }
    work = letter
    return {
        "kind": "work",
        "run": work.run,
        "node": names.get((work.run, work.node), work.node),
        "id": work.node,
        "workflow": work.workflow,
        "attempt": executions(work),
        "died_at": moment_of(work.finished),
        "error": None if work.error is None else decode_error(work.error).message,
        "key": None,
        "type": None,
    }


@dead.command("replay")
@click.argument("run", metavar="RUN_OR_EVENT")
@click.argument("node", metavar="[NODE]", required=False)
@common_options
@pass_options
@asynchronous
async def replay_dead(options: Options, run: str, node: str | None) -> None:
    """Give a dead letter another chance.

    A dead node of a run gets a new attempt; an effect or timer of an instance is tried again with all the attempts that
    its decider allows. A dead event (its id alone) goes to whoever waits for it, a dead input to the end of its
    instance's inbox.
    """
    async with opened(options) as engine:
        if node is None:
            await _refuse_run_alone(engine, run, "replay")
            replayed = await engine.replay_dead(run, by=operator())
            became = "is in the inbox again" if IS_INPUT in run else "is on its way to whoever waits for it"
            return _report_event(options, run, replayed, became)
        row = await find_run(engine, run)
        if not await engine.replay_dead(row.id, node, by=operator()):
            raise _no_dead_letter(row, node)
        again = "gets a new attempt"
        if node.startswith(("effect/", "timer/")) and row.model == "decider":
            from holdfast.explain.situation import budget

            again = f"is tried again ({budget(engine.definitions, row.workflow)})"
        await report_change(options, engine, row.id, True, f"{_node(row, node)} {again}", (node,))


@dead.command("discard")
@click.argument("run", metavar="RUN_OR_EVENT")
@click.argument("node", metavar="[NODE]", required=False)
@common_options
@pass_options
@asynchronous
async def discard_dead(options: Options, run: str, node: str | None) -> None:
    """Close a dead letter for good.

    The run of a dead node fails; an instance of a decider goes on without a dead effect or timer. A dead event or
    input (its id alone) is gone.
    """
    async with opened(options) as engine:
        if node is None:
            await _refuse_run_alone(engine, run, "discard")
            return _report_event(options, run, await engine.discard_dead(run, by=operator()), "is discarded")
        row = await find_run(engine, run)
        if not await engine.discard_dead(row.id, node, by=operator()):
            raise _no_dead_letter(row, node)
        said = f"the dead letter of {_node(row, node)} is discarded"
        await report_change(options, engine, row.id, True, said, (node,))


async def _refuse_run_alone(engine: Engine, text: str, what: str) -> None:
    """A Failure that names the dead letters of a run, for who gives the run and forgets which of them is meant."""
    from holdfast.core.queries import AllWork
    from holdfast.explain.words import command

    try:
        row = await find_run(engine, text)
    except Failure:  # an event, or nothing at all
        return
    nodes = {work.node for work in await engine.store.rows(AllWork(row.id)) if work.status == "dead"}
    if nodes:
        raise Failure(
            f"it is not said which dead letter of {text} is meant",
            hint="; or ".join(command("dead", what, text, node) for node in sorted(nodes)[:NODES_NAMED]),
            code=USAGE,
        )


def _report_event(options: Options, event: str, changed: bool, became: str) -> None:
    if not changed:
        raise Failure(
            f"{'input' if IS_INPUT in event else 'event'} {event} is no dead letter",
            hint="`holdfast dead list` lists those that there are; for a node, give its run and its name",
            code=FAILED,
        )
    if options.as_json:
        print_json({"event": event, "changed": True})
    else:
        say(f"{'input' if IS_INPUT in event else 'event'} {event} {became}", "ok")


def _node(row: Run, node: str) -> str:
    return f"{node} of {row.workflow}/{row.key}" if row.model == "decider" else f"node {node} of run {row.id}"


def _no_dead_letter(row: Run, node: str) -> Failure:
    return Failure(
        f"{_node(row, node)} is no dead letter",
        hint="`holdfast dead list` lists those that there are",
        code=FAILED,
    )
