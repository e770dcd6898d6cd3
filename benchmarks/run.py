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
from benchmarks.crowd import measure_crowd
from benchmarks.databases import Databases
from benchmarks.deciders import (
    measure_effects,
    measure_execute,
    measure_execute_alone,
    measure_inbox,
    measure_long,
    measure_projection,
)
from benchmarks.fan_out import measure_w3
from benchmarks.figures import Figure, Measure
from benchmarks.flows import measure_w1_flow, measure_w2_flows, measure_w3_flow
from benchmarks.functions import measure_w1_function, measure_w2_functions, measure_w7_function
from benchmarks.graphs import measure_chain, measure_stored, measure_wide
from benchmarks.killed import measure_killed
from benchmarks.latency import measure_w4_elsewhere, measure_w4_here
from benchmarks.limits import batched_steps_per_second, one_commit_ms
from benchmarks.peers import of_langgraph
from benchmarks.startup import bare_python_seconds, first_result, import_ms
from benchmarks.table import rendered
from benchmarks.throughput import measure_w1, measure_w2, measure_w7
from benchmarks.waiting import measure_w5, measure_w6, measure_weight

WORKLOADS = ("W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "crowd", "deciders")
PEERS = ("langgraph",)
LIMITS = {"one_commit": m.ONE_COMMIT, "batched": m.BATCHED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done in a round."""

    commits: int
    batches: int
    w2_runs: int
    w4_samples: int
    waiting_runs: int
    w7_short: int
    w7_long: int
    crowd: int
    inputs: int
    stream: int
    graph_steps: int


FULL = Sizes(
    commits=1000,
    batches=100,
    w2_runs=2000,
    w4_samples=300,
    waiting_runs=1000,
    w7_short=1000,
    w7_long=10_000,
    crowd=100_000,
    inputs=8000,
    stream=100_000,
    graph_steps=1000,
)
QUICK = Sizes(
    commits=200,
    batches=20,
    w2_runs=500,
    w4_samples=50,
    waiting_runs=200,
    w7_short=200,
    w7_long=2000,
    crowd=5000,
    inputs=1000,
    stream=10_000,
    graph_steps=200,
)


def measure_round(
    databases: Databases, chosen: set[str], sizes: Sizes, peers: set[str]
) -> Iterator[tuple[Measure, float]]:
    """One sample of every measure on one store."""
    url = databases.fresh_url
    commit_ms = asyncio.run(one_commit_ms(url(), sizes.commits))
    yield m.ONE_COMMIT, commit_ms
    yield m.BATCHED, asyncio.run(batched_steps_per_second(url(), sizes.batches))
    if "W1" in chosen:
        for measure, cpu, measured_by in (
            (m.W1, m.W1_CPU, measure_w1),
            (m.W1_FUNCTION, m.W1_FUNCTION_CPU, measure_w1_function),
            (m.W1_FLOW, m.W1_FLOW_CPU, measure_w1_flow),
        ):
            cost = asyncio.run(measured_by(url()))
            yield measure, cost.wall_ms
            yield cpu, cost.cpu_ms
    if "W2" in chosen:
        for measure, cpu, measured_in in (
            (m.W2, m.W2_CPU, measure_w2),
            (m.W2_FUNCTIONS, m.W2_FUNCTIONS_CPU, measure_w2_functions),
            (m.W2_FLOWS, m.W2_FLOWS_CPU, measure_w2_flows),
        ):
            cost = asyncio.run(measured_in(url(), runs=sizes.w2_runs))
            yield measure, cost.steps_per_second
            yield cpu, cost.cpu_ms
    if "W3" in chosen:
        few, many = asyncio.run(measure_w3(url()))
        yield m.W3_FEW, few
        yield m.W3_MANY, many
        few, many = asyncio.run(measure_w3_flow(url()))
        yield m.W3_FLOW_FEW, few
        yield m.W3_FLOW_MANY, many
    if "W4" in chosen:
        middle, late = asyncio.run(measure_w4_here(url(), sizes.w4_samples))
        yield m.W4_HERE_P50, middle
        yield m.W4_HERE_P99, late
        middle, late = asyncio.run(measure_w4_elsewhere(url(), sizes.w4_samples))
        yield m.W4_OTHER_P50, middle
        yield m.W4_OTHER_P99, late
    if "W5" in chosen:
        yield m.W5, asyncio.run(measure_w5(url(), runs=sizes.waiting_runs))
    if "W6" in chosen:
        middle, late = asyncio.run(measure_w6(url(), runs=sizes.waiting_runs))
        yield m.W6_P50, middle
        yield m.W6_P99, late
    if "W7" in chosen:
        a_step, growth, last = asyncio.run(measure_w7(url(), short=sizes.w7_short, long=sizes.w7_long))
        yield m.W7_STEP, a_step
        yield m.W7_GROWTH, growth
        yield m.W7_LAST, last
        a_step, last = asyncio.run(measure_w7_function(url(), steps=sizes.w7_long))
        yield m.W7_FUNCTION, a_step
        yield m.W7_FUNCTION_LAST, last
        recovery = measure_killed(url(), steps=sizes.w7_long)
        yield m.W7_RESTART, recovery.seconds_to_first_new_step
        yield m.W7_MEMORY, recovery.peak_megabytes
    if "W8" in chosen:
        yield from measure_graphs(url, sizes, beside_langgraph="langgraph" in peers)
    if "crowd" in chosen:
        crowd = measure_crowd(url(), runs=sizes.crowd)
        yield m.CROWD_START, crowd.start_seconds
        yield m.CROWD_MEMORY, crowd.megabytes
        yield m.CROWD_EVENT, crowd.event_ms
        yield m.CROWD_WEIGHT, measure_weight(url())
    if "deciders" in chosen:
        yield from measure_deciders(url, commit_ms, sizes)
    if "W9" in chosen:
        yield m.W9_IMPORT, import_ms(databases.store)
        seconds, megabytes = first_result(url())
        yield m.W9_FIRST, seconds
        yield m.W9_MEMORY, megabytes
        yield m.W9_PYTHON, bare_python_seconds()


def measure_deciders(url: Callable[[], str], commit_ms: float, sizes: Sizes) -> Iterator[tuple[Measure, float]]:
    """What an input of a decider costs, and what follows from it."""
    alone = asyncio.run(measure_execute_alone(url()))
    commit_ms_now = asyncio.run(one_commit_ms(url(), sizes.commits))
    yield m.EXECUTE_ALONE, alone.wall_ms
    yield m.EXECUTE_TO_COMMIT, alone.wall_ms / ((commit_ms + commit_ms_now) / 2)
    yield m.EXECUTE_CPU, alone.cpu_ms
    known, fresh = asyncio.run(measure_execute(url(), inputs=sizes.inputs))
    yield m.EXECUTE, known.steps_per_second
    yield m.EXECUTE_64_CPU, known.cpu_ms
    yield m.EXECUTE_FRESH, fresh.steps_per_second
    effects = asyncio.run(measure_effects(url(), inputs=sizes.inputs // 2))
    yield m.EFFECTS, effects.steps_per_second
    yield m.EFFECTS_CPU, effects.cpu_ms
    queued, drained = asyncio.run(measure_inbox(url(), inputs=sizes.inputs))
    yield m.ENQUEUE, queued.steps_per_second
    yield m.DRAIN, drained.steps_per_second
    grown = asyncio.run(measure_long(url(), long=sizes.stream))
    yield m.LONG_STREAM, grown.remembered
    yield m.LONG_REBUILT, grown.rebuilt
    yield m.LONG_FIRST, grown.from_snapshot
    yield m.REBUILD, grown.rebuild_seconds
    yield m.PROJECTION, asyncio.run(measure_projection(url(), events=sizes.stream // 2)).steps_per_second


def measure_graphs(url: Callable[[], str], sizes: Sizes, *, beside_langgraph: bool) -> Iterator[tuple[Measure, float]]:
    """State graphs; beside the same graphs of LangGraph, one after the other."""
    chain = asyncio.run(measure_chain(url()))
    yield m.W8_CHAIN, chain.wall_ms
    yield m.W8_CHAIN_CPU, chain.cpu_ms
    if beside_langgraph:
        for durability, measure, ratio in (
            ("async", m.LANGGRAPH_CHAIN, m.TO_LANGGRAPH_CHAIN),
            ("sync", m.LANGGRAPH_CHAIN_SYNC, m.TO_LANGGRAPH_CHAIN_SYNC),
        ):
            theirs = of_langgraph.measure(url(), "chain", durability, 100)
            yield measure, theirs
            yield ratio, theirs / chain.wall_ms
    wide = asyncio.run(measure_wide(url()))
    yield m.W8_WIDE, wide
    if beside_langgraph:
        for durability, measure, ratio in (
            ("async", m.LANGGRAPH_WIDE, m.TO_LANGGRAPH_WIDE),
            ("sync", m.LANGGRAPH_WIDE_SYNC, m.TO_LANGGRAPH_WIDE_SYNC),
        ):
            theirs = of_langgraph.measure(url(), "wide", durability, 100)
            yield measure, theirs
            yield ratio, theirs / wide
    stored = asyncio.run(measure_stored(url(), steps=sizes.graph_steps))
    yield m.W8_STORED, stored
    if beside_langgraph:
        theirs = of_langgraph.measure_stored(url(), steps=sizes.graph_steps)
        yield m.LANGGRAPH_STORED, theirs
        yield m.TO_LANGGRAPH_STORED, theirs / stored


def figures_of(store: str, samples: dict[Measure, list[float]]) -> list[Figure]:
    """Samples beside the limits of the same rounds."""
    made = []
    for measure, values in samples.items():
        limits = samples[LIMITS[measure.limit]] if measure.limit is not None else []
        made.append(Figure(measure=measure, store=store, samples=tuple(values), limits=tuple(limits)))
    return made


def measured(
    stores: list[str],
    chosen: set[str],
    rounds: int,
    sizes: Sizes,
    delay_ms: float,
    peers: set[str],
    say: Callable[[str], None],
) -> list[Figure]:
    """All figures of all stores."""
    figures: list[Figure] = []
    for store in stores:
        samples: dict[Measure, list[float]] = defaultdict(list)
        with Databases(store, commit_delay_ms=delay_ms if store == m.POSTGRES else 0.0) as databases:
            for number in range(1, rounds + 1):
                started = time.perf_counter()
                for measure, value in measure_round(databases, chosen, sizes, peers):
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
    parser.add_argument(
        "--peers", action="append", choices=PEERS, help="measure these too, where we have the same workload for them"
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
        set(arguments.peers or ()),
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
