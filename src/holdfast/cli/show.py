"""`holdfast show`: all that is known about one run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import (
    Cell,
    on_terminal,
    one_line,
    paragraph,
    print_facts,
    print_heading,
    print_json,
    print_table,
    say,
)
from holdfast.cli.show_function import print_children, print_function, print_waits, runs_on
from holdfast.cli.show_graph import print_graph_run
from holdfast.cli.show_instance import print_instance, state_facts
from holdfast.cli.show_nodes import print_nodes
from holdfast.cli.times import shown_moment, shown_seconds
from holdfast.documents.history_words import about, who

if TYPE_CHECKING:
    from holdfast.documents.run import AttemptShown, RunShown

RESULT_WIDTH: Final = 2000
ERRORS_SHOWN: Final = 20
HISTORY_SHOWN: Final = 50


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--nodes", "every_node", is_flag=True, help="Show every node of a fan-out, and every error.")
@click.option(
    "--history", "whole_history", is_flag=True, help=f"Show all of its history, not the last {HISTORY_SHOWN}."
)
@click.option("--traceback", is_flag=True, help="Show the traceback of each node's last error.")
@click.option("--mermaid", is_flag=True, help="Of an instance of a decider: only its state machine, as Mermaid.")
@click.option("--watch", "live", is_flag=True, help="Show it live until it ends, as `holdfast watch RUN`.")
@common_options
@pass_options
@asynchronous
async def show(
    options: Options, run: str, every_node: bool, whole_history: bool, traceback: bool, mermaid: bool, live: bool
) -> int | None:
    """Show a run: status, graph or waits, errors, history.

    Of a function: what it waits for, which runs it has started, and what its history holds. Of a DAG: its nodes in the
    order in which they can run, a fan-out in one line. Of a flow: the nodes that it has reached, those of loops and
    spreads with their address. Of a state graph: its steps with what they changed, the items of the step under way, and
    what they ask people (--nodes for all). Of an instance of a decider: its state (with --app), its last events
    (--history for all), pending effects (--nodes for all) and timers, its inbox and what was observed.
    """
    from holdfast.cli.machines import print_machine_of
    from holdfast.documents.run import gather

    if live:
        from holdfast.cli.watch import watched

        return await watched(options, run)
    async with opened(options) as engine:
        row = await find_run(engine, run)
        if mermaid:
            await print_machine_of(engine, row, "mermaid")
            return None
        shown, graph = await gather(engine, row, every_node=every_node, whole_history=whole_history)
    if options.as_json:
        print_json(shown)
        return None
    _print_run(shown)
    if shown.instance is not None:
        print_instance(shown.instance, traceback)
        _print_history(shown, whole_history)
        return None
    if shown.model == "function":
        print_function(shown, every_node)
    elif shown.graph is not None:
        print_children(shown, every_node)
        print_graph_run(shown, shown.graph, every_node)
    else:
        print_waits(shown, [])
        print_children(shown, every_node)
        print_nodes(shown, graph, every_node)
    _print_errors(shown, every_node)
    if traceback:
        _print_tracebacks(shown, every_node)
    _print_history(shown, whole_history)
    return None


def _print_run(shown: RunShown) -> None:
    now = datetime.now(UTC)
    facts = [("run", shown.run), ("workflow", shown.workflow), ("status", Cell(shown.status, shown.status))]
    if shown.model in ("function", "flow", "graph"):
        facts.insert(2, ("model", shown.model))
    if shown.instance is not None:
        facts[1] = ("instance", f"{shown.workflow}/{shown.key}")
        facts += state_facts(shown.instance.state, shown.instance.sequence)
        facts.append(("events", f"{shown.instance.sequence:,}"))
    if shown.reason:
        facts.append(("reason", one_line(shown.reason)))
    worker = runs_on(shown)
    if worker is not None:
        facts.append(("runs on", f"worker {worker}"))
    if shown.parent is not None:
        facts.append(("parent", f"run {shown.parent}"))
    if shown.key is not None and shown.instance is None:
        facts.append(("key", shown.key))
    facts.append(("queue", shown.queue + (f", priority {shown.priority}" if shown.priority else "")))
    if shown.tags:
        facts.append(("tags", " ".join(f"{name}={value}" for name, value in shown.tags.items())))
    facts.append(("created", shown_moment(shown.created_at, now)))
    if shown.due_at is not None and shown.started_at is None:
        facts.append(("due", shown_moment(shown.due_at, now)))
    if shown.started_at is not None and shown.instance is None:  # which starts with what creates it
        facts.append(("started", shown_moment(shown.started_at, now)))
    if shown.finished_at is not None:
        took = shown_seconds((shown.finished_at - shown.created_at).total_seconds())
        facts.append(("finished", f"{shown_moment(shown.finished_at, now)}, took {took}"))
    if shown.input is not None:
        facts.append(("input", _input(shown)))
    if shown.result is not None:
        facts.append(("result", _text(shown.result)))
    print_facts(facts)


def _input(shown: RunShown) -> str:
    """A call is stored as [[positional], {keyword}] and shown as it would be written."""
    match shown.input:
        case [list() as args, dict() as kwargs]:
            words = [_text(value) for value in args] + [f"{name}={_text(value)}" for name, value in kwargs.items()]
            return ", ".join(words)
        case other:
            return _text(other)


def _text(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), RESULT_WIDTH)


def _print_errors(shown: RunShown, every_node: bool) -> None:
    facts = []
    for node in shown.nodes:
        for each in node.attempts:
            what = _what_went_wrong(each)
            if what is not None:
                facts.append((f"{node.name}, attempt {each.attempt}", Cell(what, each.state)))
    if not facts:
        return
    print_heading("errors")
    left = 0 if every_node else len(facts) - ERRORS_SHOWN
    print_facts(facts if left <= 0 else facts[:ERRORS_SHOWN])
    if left > 0:
        say(f"and {left:,} more: --nodes shows all")


def _what_went_wrong(attempt: AttemptShown) -> str | None:
    if attempt.state == "lost":  # nobody was left to report an error
        return f"lost with its worker {attempt.worker}, so it was repeated"
    return None if attempt.error is None else f"{attempt.error['type']}: {attempt.error['message']}"


def _print_tracebacks(shown: RunShown, every_node: bool) -> None:
    printed = 0
    for node in shown.nodes:
        failed = next((each for each in reversed(node.attempts) if each.error is not None), None)
        if failed is None or failed.error is None:
            continue
        if printed == ERRORS_SHOWN and not every_node:
            say("and more: --nodes shows all")
            return
        printed += 1
        print_heading(f"traceback of {node.name}, attempt {failed.attempt}")
        say(failed.error["traceback"].rstrip() or f"{failed.error['type']}: {failed.error['message']}")


def _print_history(shown: RunShown, whole: bool) -> None:
    if not shown.history:
        return
    print_heading("history")
    left = 0 if whole else len(shown.history) - HISTORY_SHOWN
    if left > 0:
        say(f"{left:,} earlier: --history shows all")
    rows = []
    for entry in shown.history[max(0, left) :]:
        by = who(entry["kind"], entry["data"])
        told = one_line(about(entry["kind"], entry["data"]))
        rows.append([f"{entry['at']:%Y-%m-%d %H:%M:%S}", entry["kind"], f"by {by}" if by else "", told])
    if not on_terminal():
        print_table(["AT (UTC)", "WHAT", "WHO", "ABOUT"], rows)
        return
    for at, *words, told in rows:  # a column would break the ids of other runs
        paragraph(" ".join(filter(None, words)) + (f": {told}" if told else ""), start=f"{at}  ")
