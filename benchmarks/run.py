"""Run the workloads in rounds and report: `python -m benchmarks`.

In each round every workload and the limits of the bare database are measured once, on fresh databases, so that a noisy
minute hits both; ratios are taken within a round, and medians over rounds. Absolute figures move with the machine:
quote the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.fan_out import measure_w3
from benchmarks.figures import Figure, Measure
from benchmarks.latency import measure_w4_elsewhere, measure_w4_here
from benchmarks.limits import batched_steps_per_second, one_commit_ms
from benchmarks.startup import bare_python_seconds, first_result, import_ms
from benchmarks.table import rendered
from benchmarks.throughput import measure_w1, measure_w2, measure_w7

WORKLOADS = ("W1", "W2", "W3", "W4", "W7", "W9")
LIMITS = {"one_commit": m.ONE_COMMIT, "batched": m.BATCHED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done in a round."""

    commits: int
    batches: int
    w2_runs: int
    w4_samples: int
    w7_short: int
    w7_long: int


FULL = Sizes(commits=1000, batches=100, w2_runs=2000, w4_samples=300, w7_short=1000, w7_long=10_000)
QUICK = Sizes(commits=200, batches=20, w2_runs=500, w4_samples=50, w7_short=200, w7_long=2000)


def measure_round(databases: Databases, chosen: set[str], sizes: Sizes) -> Iterator[tuple[Measure, float]]:
    """One sample of every measure on one store."""
    url = databases.fresh_url
    yield m.ONE_COMMIT, asyncio.run(one_commit_ms(url(), sizes.commits))
    yield m.BATCHED, asyncio.run(batched_steps_per_second(url(), sizes.batches))
    if "W1" in chosen:
        yield m.W1, asyncio.run(measure_w1(url())).wall_ms
    if "W2" in chosen:
        yield m.W2, asyncio.run(measure_w2(url(), runs=sizes.w2_runs)).steps_per_second
    if "W3" in chosen:
        few, many = asyncio.run(measure_w3(url()))
        yield m.W3_FEW, few
        yield m.W3_MANY, many
    if "W4" in chosen:
        middle, late = asyncio.run(measure_w4_here(url(), sizes.w4_samples))
        yield m.W4_HERE_P50, middle
        yield m.W4_HERE_P99, late
        middle, late = asyncio.run(measure_w4_elsewhere(url(), sizes.w4_samples))
        yield m.W4_OTHER_P50, middle
        yield m.W4_OTHER_P99, late
    if "W7" in chosen:
        a_step, growth, last = asyncio.run(measure_w7(url(), short=sizes.w7_short, long=sizes.w7_long))
        yield m.W7_STEP, a_step
        yield m.W7_GROWTH, growth
        yield m.W7_LAST, last
    if "W9" in chosen:
        yield m.W9_IMPORT, import_ms(databases.store)
        seconds, megabytes = first_result(url())
        yield m.W9_FIRST, seconds
        yield m.W9_MEMORY, megabytes
        yield m.W9_PYTHON, bare_python_seconds()


def figures_of(store: str, samples: dict[Measure, list[float]]) -> list[Figure]:
    """Samples beside the limits of the same rounds."""
    made = []
    for measure, values in samples.items():
        limits = samples[LIMITS[measure.limit]] if measure.limit is not None else []
        made.append(Figure(measure=measure, store=store, samples=tuple(values), limits=tuple(limits)))
    return made


def measured(
    stores: list[str], chosen: set[str], rounds: int, sizes: Sizes, delay_ms: float, say: Callable[[str], None]
) -> list[Figure]:
    """All figures of all stores."""
    figures: list[Figure] = []
    for store in stores:
        samples: dict[Measure, list[float]] = defaultdict(list)
        with Databases(store, commit_delay_ms=delay_ms if store == m.POSTGRES else 0.0) as databases:
            for number in range(1, rounds + 1):
                started = time.perf_counter()
                for measure, value in measure_round(databases, chosen, sizes):
                    samples[measure].append(value)
                say(f"{store}: round {number} of {rounds} took {time.perf_counter() - started:.0f} s")
        figures += figures_of(store, samples)
    return figures


def conditions(arguments: argparse.Namespace) -> dict[str, object]:
    """What has to be known to compare two reports."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "rounds": arguments.rounds,
        "quick": arguments.quick,
        "commit_delay_ms": arguments.commit_delay_ms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--store", action="append", choices=[m.SQLITE, m.POSTGRES], help="default: both")
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="default: all of them")
    parser.add_argument("--rounds", type=int, default=3, help="samples of each figure (default 3)")
    parser.add_argument("--quick", action="store_true", help="one small round, to see that everything runs")
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    parser.add_argument(
        "--commit-delay-ms", type=float, default=0.0, help="PostgreSQL ends each transaction this much later"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    about = conditions(arguments)
    figures = measured(
        arguments.store or [m.SQLITE, m.POSTGRES],
        set(arguments.only or WORKLOADS),
        arguments.rounds,
        QUICK if arguments.quick else FULL,
        arguments.commit_delay_ms,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(" ".join(f"{name}={value}" for name, value in about.items()))
    print(rendered(figures))
    if arguments.json is not None:
        report = {"conditions": about, "figures": [figure.as_json() for figure in figures]}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
