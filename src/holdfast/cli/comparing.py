"""`holdfast diff`: where two runs of a state graph part, and in which fields."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.failures import FAILED, OK, note
from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import Cell, one_line, print_facts, print_heading, print_json, say

if TYPE_CHECKING:
    from holdfast.graph_diff import RunDiff, StepDifference

STEPS_SHOWN: Final = 5
VALUE_WIDTH: Final = 500


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@click.option("--all", "every", is_flag=True, help=f"Show every step that differs, not the first {STEPS_SHOWN}.")
@common_options
@pass_options
@asynchronous
async def diff(options: Options, first: str, second: str, every: bool) -> int:
    """Compare two runs of a state graph, state by state; exit code 1 if they differ.

    A fork with the run that it was taken from, or two runs of one input. Steps that only one of them has kept (from
    before the fork, or pruned) are left out. No code is needed.
    """
    async with opened(options) as engine:
        ours, theirs = await find_run(engine, first), await find_run(engine, second)
        found = await engine.diff(ours.id, theirs.id)
    if options.as_json:
        print_json(found.document())
        return OK if found.same else FAILED
    if ours.workflow != theirs.workflow:
        note(f"run {ours.id} is of {ours.workflow}, and run {theirs.id} of {theirs.workflow}")
    _print(found, every)
    return OK if found.same else FAILED


def _print(found: RunDiff, every: bool) -> None:
    compared = "1 step was" if found.compared == 1 else f"{found.compared:,} steps were"
    if found.same:
        say(f"the runs are the same: {compared} compared", "ok")
        return
    differing = "1 step differs" if found.differing == 1 else f"{found.differing:,} steps differ"
    say(f"the runs differ first after step {found.first_step}: {compared} compared, {differing}", "warning")
    print_facts([("first", found.first), ("second", found.second)])
    shown = found.differences if every else found.differences[:STEPS_SHOWN]
    for difference in shown:
        _print_step(difference)
    left = found.differing - len(shown)
    if left > 0:
        say(f"\nand {left:,} more: --all shows those that are kept in the report")


def _print_step(difference: StepDifference) -> None:
    if difference.only is not None:
        other = "second" if difference.only == "first" else "first"
        print_heading(f"step {difference.step}")
        say(f"only the {difference.only} run has taken it; the {other} has ended or waits before it")
        return
    print_heading(f"step {difference.step}")
    facts: list[tuple[str, str]] = []
    for name, (first, second) in difference.fields.items():
        facts += [(name, Cell(f"- {_text(first)}", "failed")), ("", Cell(f"+ {_text(second)}", "completed"))]
    if difference.frontier is not None:
        first, second = (", ".join(nodes) or "nothing: it ends" for nodes in difference.frontier)
        facts += [("next", Cell(f"- {first}", "failed")), ("", Cell(f"+ {second}", "completed"))]
    print_facts(facts)


def _text(value: Any) -> str:
    from holdfast.graph_diff import MISSING

    if value is MISSING:
        return "no value"
    return one_line(json.dumps(value, ensure_ascii=False, default=str), VALUE_WIDTH)


__all__ = ["diff"]
