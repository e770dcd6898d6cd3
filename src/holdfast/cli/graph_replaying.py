"""`holdfast replay` of a state graph's run: what the nodes give on what was recorded, and where that differs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.failures import FAILED, OK, USAGE, Failure, note
from holdfast.cli.options import Options
from holdfast.cli.output import Cell, one_line, print_facts, print_heading, print_json, say

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine
    from holdfast.graph_replay import Difference, ReplayReport

DIFFERENCES_SHOWN: Final = 10
NAMES_SHOWN: Final = 5
VALUE_WIDTH: Final = 1000


async def replay_graph(options: Options, engine: Engine, row: Run, mode: str) -> int:
    """Replay, and say what came of it; the exit code."""
    from holdfast.core.errors import ReplayMismatch
    from holdfast.graph_replay import replay

    if engine.definitions.state_graph(row.workflow) is None:
        raise Failure(
            f"graph {row.workflow} of run {row.id} is not known here",
            hint="say --app with the module that defines it",
            code=USAGE,
        )
    try:
        report: ReplayReport[Any] | None = await replay(engine, row, mode)
        difference = None
    except ReplayMismatch as mismatch:
        report, difference = None, getattr(mismatch, "difference", None)
        if difference is None:
            raise
    differences: list[Any] = [difference] if report is None else list(report.differences)
    if options.as_json:
        print_json(_document(row, mode, report, differences))
    else:
        _print(row, mode, report, differences)
    return FAILED if differences else OK


def _document(row: Run, mode: str, report: ReplayReport[Any] | None, differences: list[Any]) -> dict[str, Any]:
    """Of a strict replay that found a difference, nothing is known but that."""
    return {
        "run": row.id,
        "workflow": row.workflow,
        "ok": not differences,
        "mode": mode,
        "steps": None if report is None else report.steps,
        "nodes": None if report is None else report.nodes,
        "calls": None if report is None else report.calls,
        "reused": [] if report is None else list(report.reused),
        "state_digest": None if report is None else report.state_digest,
        "differences": [
            {
                "step": each.step,
                "node": each.node,
                "what": each.what,
                "call": each.call,
                "recorded": _plain(each.recorded),
                "found": _plain(each.found),
            }
            for each in differences
        ],
    }


def _plain(value: Any) -> Any:
    import msgspec

    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):  # what a node or the world gave may be anything
        return repr(value)


def _print(row: Run, mode: str, report: ReplayReport[Any] | None, differences: list[Difference]) -> None:
    name = f"run {row.id} of {row.workflow}"
    if report is not None and not differences:
        again = "1 node was" if report.nodes == 1 else f"{report.nodes:,} nodes were"
        calls = "1 call" if report.calls == 1 else f"{report.calls:,} calls"
        answered = "made again" if mode == "live" else "answered from the record"
        steps = "1 step" if report.steps == 1 else f"{report.steps:,} steps"
        say(f"{name} replays as it was recorded: {steps}, {again} run again, {calls} {answered}", "ok")
    else:
        more = "" if mode == "strict" else f", in {len(differences):,} place{'' if len(differences) == 1 else 's'}"
        said = "the world answers otherwise now" if mode == "live" else "does not replay"
        say(f"{name} {said}{more}" if mode != "live" else f"{name}: {said}{more}", "error")
        for each in differences[:DIFFERENCES_SHOWN]:
            _print_difference(each)
        if len(differences) > DIFFERENCES_SHOWN:
            say(f"\nand {len(differences) - DIFFERENCES_SHOWN:,} more: --json has all")
    if report is not None and report.reused:
        names = ", ".join(report.reused[:NAMES_SHOWN])
        left = len(report.reused) - NAMES_SHOWN
        note(
            f"not run again, their stored results were taken: {names}{f' and {left:,} more' if left > 0 else ''} "
            "(subgraphs, and nodes that require idempotency and recorded nothing)"
        )


def _print_difference(difference: Difference) -> None:
    print_heading(f"step {difference.step}, {difference.node}: {difference.what}")
    print_facts(
        [
            ("recorded", Cell(_text(difference.recorded), "failed")),
            ("now", Cell(_text(difference.found), "completed")),
        ]
    )


def _text(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False, default=str)
    return one_line(shown, VALUE_WIDTH)


__all__ = ["replay_graph"]
