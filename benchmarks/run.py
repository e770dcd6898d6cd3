"""Run the workloads in rounds and report: `python -m benchmarks`.

In each round every workload is measured once, beside the limits of the bare database and, with --peers, beside other
engines, each on a fresh database in a process of its own. Ratios are taken within a round, and medians over rounds.
Absolute figures move with the machine: quote the ratios.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.circumstances import circumstances, load
from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.own_cells import WORKLOADS
from benchmarks.peers.adapters import PEERS
from benchmarks.rounds import Kept, Plan, run
from benchmarks.sizes import FULL, QUICK
from benchmarks.slow_disk import why_not
from benchmarks.table import rendered, rendered_failures, rendered_notes


def conditions(plan: Plan) -> dict[str, object]:
    """What has to be known to compare two reports."""
    return circumstances() | {
        "rounds": plan.rounds,
        "quick": plan.sizes is QUICK,
        "commit_delay_ms": plan.delay_ms,
    }


def report_of(plan: Plan, about: dict[str, object], kept: Kept, *, complete: bool) -> dict[str, Any]:
    figures = kept.figures()
    return {
        "conditions": about | {"load_now": load(), "complete": complete},
        "peers": {name: PEERS[name].version for name in plan.peers},
        "figures": [figure.as_json(figures) for figure in figures],
        "failures": [asdict(failure) for failure in kept.failures],
    }


def write(path: Path, report: dict[str, Any]) -> None:
    """Whole or not at all: whoever stops us between two cells finds the report of the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def plan_of(words: list[str] | None) -> tuple[Plan, Path | None]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all workloads on both stores, which is the default")
    parser.add_argument("--store", action="append", choices=[SQLITE, POSTGRES], help="default: both")
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="default: all of them")
    parser.add_argument("--rounds", type=int, default=3, help="samples of each figure (default 3)")
    parser.add_argument("--quick", action="store_true", help="one tiny round, to see that everything runs")
    parser.add_argument("--json", type=Path, help="write every sample to this file, after each cell")
    parser.add_argument(
        "--commit-delay", type=float, default=0.0, metavar="MS", help="each sync of the disk takes this much longer"
    )
    parser.add_argument("--cell-seconds", type=float, default=300.0, help="longest time for one cell (default 300)")
    parser.add_argument("--peers", default="", metavar="A,B,…", help=f"measure these too: {','.join(PEERS)}")
    parser.add_argument("--here", action="store_true", help="our own cells in this process, without a time limit")
    given = parser.parse_args(words)
    peers = [name for name in given.peers.split(",") if name]
    if unknown := set(peers) - set(PEERS):
        parser.error(f"no peer is called {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    if given.all and (given.store or given.only):
        parser.error("--all is everything; leave out --store and --only, or leave out --all")
    if given.commit_delay > 0 and (reason := why_not()) is not None:
        parser.error(f"--commit-delay: {reason}")
    if given.commit_delay > 0 and given.here:
        parser.error("--commit-delay slows the processes of cells down; leave out --here")
    plan = Plan(
        stores=given.store or [SQLITE, POSTGRES],
        workloads=[name for name in WORKLOADS if name in (given.only or WORKLOADS)],
        peers=peers,
        rounds=1 if given.quick else given.rounds,
        sizes=QUICK if given.quick else FULL,
        delay_ms=given.commit_delay,
        cell_seconds=given.cell_seconds,
        here=given.here,
    )
    return plan, given.json


def main(words: list[str] | None = None) -> None:
    plan, path = plan_of(words)
    about = conditions(plan)

    def save(kept: Kept) -> None:
        if path is not None:
            write(path, report_of(plan, about, kept, complete=False))

    kept = run(plan, lambda line: print(line, file=sys.stderr, flush=True), save)
    figures = kept.figures()
    print(" ".join(f"{name}={value}" for name, value in about.items()))
    for text in (rendered(figures), rendered_notes(figures), rendered_failures(kept.failures)):
        if text:
            print(text)
    if path is not None:
        write(path, report_of(plan, about, kept, complete=True))


if __name__ == "__main__":
    main()
