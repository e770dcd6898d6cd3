"""`holdfast checkpoints`: time travel through a state graph's run, step by step or to one of them.

Only what is stored is read, so that no code is needed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.failures import note
from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import Cell, on_terminal, one_line, print_facts, print_heading, print_json, print_table, say
from holdfast.documents.checkpoints import steps_of

if TYPE_CHECKING:
    from holdfast.graph_documents import Checkpoint, RecordedIO, WorkItem

LISTED: Final = 50
NAMES_SHOWN: Final = 6
VALUE_WIDTH: Final = 2000
ITEMS_SHOWN: Final = 50


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--step", type=click.IntRange(0), metavar="N", help="Only the checkpoint after this step, with its state."
)
@click.option("--label", metavar="TEXT", help="Only the latest checkpoint with this label, with its state.")
@click.option("--all", "every", is_flag=True, help=f"List every step, not the last {LISTED}.")
@common_options
@pass_options
@asynchronous
async def checkpoints(options: Options, run: str, step: int | None, label: str | None, every: bool) -> None:
    """List the checkpoints of a state graph's run, or show one.

    After every step: when it was, which nodes ran, the labels they set, and which fields changed. Step 0 is what the
    run began with. `holdfast fork RUN --step N` goes on from one of them in a new run.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        if step is not None or label is not None:
            found = await engine.get(row.id).checkpoint(step=step, label=label)
            steps = []
        else:
            found = None
            steps = await steps_of(engine, row)
    if found is not None:
        print_json(found.document()) if options.as_json else _print_checkpoint(found)
    elif options.as_json:
        print_json({"run": row.id, "workflow": row.workflow, "status": row.status, "checkpoints": steps})
    else:
        print_steps(steps, every)


def print_steps(steps: Sequence[dict[str, Any]], every: bool, option: str = "--all") -> None:
    """The table of steps; of a long run the last ones, and which option shows the others."""
    left = 0 if every else max(0, len(steps) - LISTED)
    if left:
        say(f"{left:,} earlier steps: {option} shows every one")
    rows = []
    for each in steps[left:]:
        began = not each["ran"]
        nodes = shown_nodes(each["ran"]) if not began else Cell("(it began)", "skipped")
        time = f"{each['at']:%H:%M:%S}" if on_terminal() else f"{each['at']:%Y-%m-%dT%H:%M:%SZ}"
        labels = Cell(", ".join(each["labels"]), "ok")
        calls = f"{each['calls']:,}" if each["calls"] else ""
        rows.append([str(each["step"]), time, nodes, labels, _listed(each["changed"]), calls])
    headers = ["STEP", "AT (UTC)", "RAN", "LABEL", "CHANGED", "CALLS"]
    for index in (5, 3):  # most graphs have few of these
        if not any(row[index] for row in rows):
            headers, rows = headers[:index] + headers[index + 1 :], [row[:index] + row[index + 1 :] for row in rows]
    print_table(headers, rows, whole=("STEP", "AT (UTC)", "LABEL"))


def shown_nodes(addresses: Sequence[str]) -> str:
    """`search, verify`; a fan-out by its number: `fetch (200 items)`."""
    from holdfast.core.state_items import node_of

    counted = Counter(node_of(address) for address in addresses)
    return _listed([name if count == 1 else f"{name} ({count:,} items)" for name, count in counted.items()])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


# -- one checkpoint


def _print_checkpoint(found: Checkpoint[Any]) -> None:
    document = found.document()
    facts = [("run", found.run_id), ("step", str(found.step_id)), ("at", f"{found.timestamp:%Y-%m-%d %H:%M:%S} UTC")]
    if found.labels:
        facts.append(("label", Cell(", ".join(found.labels), "ok")))
    facts += [("state digest", found.state_digest), ("key", found.idempotency_key)]
    print_facts(facts)
    print_heading("state")
    print_facts([(name, _text(value)) for name, value in document["state"].items()] or [("", "no field has a value")])
    print_heading("next")
    if found.frontier:
        _print_items(found.frontier)
    else:
        say("nothing: the run ended with this step")
    _print_calls(found.recorded_ios)


def _print_items(items: Sequence[WorkItem[Any]]) -> None:
    rows = [
        [item.node_id, item.order_key, ", ".join(dict.fromkeys(name for name, _ in item.parents)) or "the start"]
        for item in items[:ITEMS_SHOWN]
    ]
    print_table(["NODE", "ORDER KEY", "REACHED FROM"], rows, whole=("NODE", "ORDER KEY"))
    if len(items) > ITEMS_SHOWN:
        note(f"and {len(items) - ITEMS_SHOWN:,} more: --json has all")


def _print_calls(calls: Sequence[RecordedIO]) -> None:
    if not calls:
        return
    print_heading("recorded calls")
    rows = []
    for call in calls[:ITEMS_SHOWN]:
        answer = Cell(call.error, "failed") if call.error is not None else _text(call.response)
        if call.kind == "interrupt" and call.hash is None:
            answer = Cell("nobody has answered yet", "blocked")
        rows.append([call.node_id, str(call.call), call.name, _text(call.request), answer, f"{call.duration_ms:.1f}"])
    headers = ["ITEM", "CALL", "NAME", "REQUEST", "RESPONSE", "MS"]
    print_table(headers, rows, whole=("ITEM", "NAME"), cut=("REQUEST", "RESPONSE"))
    if len(calls) > ITEMS_SHOWN:
        note(f"and {len(calls) - ITEMS_SHOWN:,} more: --json has all")


def _text(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), VALUE_WIDTH)


__all__ = ["checkpoints", "print_steps", "shown_nodes", "steps_of"]
