"""Our own cells: one workload of one model on one database, each in a process of its own.

As a program, `python -m benchmarks.own_cells NAME URL SIZES` (sizes as JSON) measures one and prints its values as one
line of JSON; the runner starts it so to be able to stop it, and so that no cell inherits the memory of another.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks import deciders, graphs, timers, waiting
from benchmarks.crowd import measure_crowd
from benchmarks.fan_out import measure_w3
from benchmarks.flows import measure_w1_flow, measure_w2_flows, measure_w3_flow, measure_w7_flow
from benchmarks.functions import (
    measure_w1_function,
    measure_w2_functions,
    measure_w3_function,
    measure_w7_function,
)
from benchmarks.killed import measure_killed
from benchmarks.latency import measure_w4_elsewhere, measure_w4_here
from benchmarks.limits import batched_steps_per_second, computing_ms, one_commit_ms
from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.sizes import Sizes
from benchmarks.startup import bare_python_seconds, first_result, import_ms
from benchmarks.throughput import Cost, measure_w1, measure_w2, measure_w7
from holdfast.runtime.garbage import collect_less_often

# Measured as in a worker's process, whose garbage collector `holdfast worker` sets; the peers' programs do the same
# (benchmarks/peers/telling.py). The others are measured as in an application's.
CROWDS = ("W2", "W3", "W5", "W6", "deciders")

Values = dict[str, float]
Measuring = Callable[[str, Sizes], Values]


@dataclass(frozen=True, slots=True)
class OwnCell:
    """`measuring` gives values by the names of benchmarks/measures.py."""

    name: str
    workload: str
    measuring: Measuring


OWN_CELLS: dict[str, OwnCell] = {}


def cell(workload: str) -> Callable[[Measuring], Measuring]:
    """Make a function a cell of a workload, under its own name."""

    def noted(measuring: Measuring) -> Measuring:
        OWN_CELLS[measuring.__name__] = OwnCell(measuring.__name__, workload, measuring)
        return measuring

    return noted


def _a_step(cost: Cost, measure: str) -> Values:
    return {measure: cost.wall_ms, f"{measure}_CPU": cost.cpu_ms}


def _a_second(cost: Cost, measure: str) -> Values:
    return {measure: cost.steps_per_second, f"{measure}_CPU": cost.cpu_ms}


def _latency(measure: str, measuring: Coroutine[Any, Any, tuple[float, float]]) -> Values:
    middle, late = asyncio.run(measuring)
    return {f"{measure}_P50": middle, f"{measure}_P99": late}


@cell("limit")
def limits(url: str, sizes: Sizes) -> Values:
    return {
        "ONE_COMMIT": asyncio.run(one_commit_ms(url, sizes.commits)),
        "BATCHED": asyncio.run(batched_steps_per_second(url, sizes.batches)),
        "COMPUTING": computing_ms(),
    }


@cell("W1")
def w1_dag(url: str, sizes: Sizes) -> Values:
    return _a_step(asyncio.run(measure_w1(url, steps=sizes.w1_steps)), "W1")


@cell("W1")
def w1_function(url: str, sizes: Sizes) -> Values:
    return _a_step(asyncio.run(measure_w1_function(url, steps=sizes.w1_steps)), "W1_FUNCTION")


@cell("W1")
def w1_flow(url: str, sizes: Sizes) -> Values:
    return _a_step(asyncio.run(measure_w1_flow(url, steps=sizes.w1_steps)), "W1_FLOW")


@cell("W2")
def w2_dag(url: str, sizes: Sizes) -> Values:
    return _a_second(asyncio.run(measure_w2(url, runs=sizes.w2_runs)), "W2")


@cell("W2")
def w2_functions(url: str, sizes: Sizes) -> Values:
    return _a_second(asyncio.run(measure_w2_functions(url, runs=sizes.w2_runs)), "W2_FUNCTIONS")


@cell("W2")
def w2_flows(url: str, sizes: Sizes) -> Values:
    return _a_second(asyncio.run(measure_w2_flows(url, runs=sizes.w2_runs)), "W2_FLOWS")


@cell("W2")
def w2_graphs(url: str, sizes: Sizes) -> Values:
    return _a_second(asyncio.run(graphs.measure_many(url, runs=sizes.w2_runs)), "W2_GRAPHS")


@cell("W3")
def w3_dag(url: str, sizes: Sizes) -> Values:
    few, many = asyncio.run(measure_w3(url, few=sizes.w3_few, many=sizes.w3_many))
    return {"W3_FEW": few, "W3_MANY": many}


@cell("W3")
def w3_function(url: str, sizes: Sizes) -> Values:
    few, many = asyncio.run(measure_w3_function(url, few=sizes.w3_few, many=sizes.w3_many))
    return {"W3_FUNCTION_FEW": few, "W3_FUNCTION_MANY": many}


@cell("W3")
def w3_flow(url: str, sizes: Sizes) -> Values:
    few, many = asyncio.run(measure_w3_flow(url, few=sizes.w3_few, many=sizes.w3_many))
    return {"W3_FLOW_FEW": few, "W3_FLOW_MANY": many}


@cell("W3")
def w3_graph(url: str, sizes: Sizes) -> Values:
    few, many = asyncio.run(graphs.measure_spread(url, few=sizes.w3_few, many=sizes.w3_many))
    return {"W3_GRAPH_FEW": few, "W3_GRAPH_MANY": many}


@cell("W4")
def w4_action_here(url: str, sizes: Sizes) -> Values:
    return _latency("W4_HERE", measure_w4_here(url, "action", sizes.w4_samples))


@cell("W4")
def w4_action_elsewhere(url: str, sizes: Sizes) -> Values:
    return _latency("W4_OTHER", measure_w4_elsewhere(url, "action", sizes.w4_samples))


@cell("W4")
def w4_function_here(url: str, sizes: Sizes) -> Values:
    return _latency("W4_FUNCTION_HERE", measure_w4_here(url, "function", sizes.w4_samples))


@cell("W4")
def w4_function_elsewhere(url: str, sizes: Sizes) -> Values:
    return _latency("W4_FUNCTION_OTHER", measure_w4_elsewhere(url, "function", sizes.w4_samples))


@cell("W4")
def w4_dag_here(url: str, sizes: Sizes) -> Values:
    return _latency("W4_DAG_HERE", measure_w4_here(url, "dag", sizes.w4_samples))


@cell("W4")
def w4_dag_elsewhere(url: str, sizes: Sizes) -> Values:
    return _latency("W4_DAG_OTHER", measure_w4_elsewhere(url, "dag", sizes.w4_samples))


@cell("W4")
def w4_flow_here(url: str, sizes: Sizes) -> Values:
    return _latency("W4_FLOW_HERE", measure_w4_here(url, "flow", sizes.w4_samples))


@cell("W4")
def w4_flow_elsewhere(url: str, sizes: Sizes) -> Values:
    return _latency("W4_FLOW_OTHER", measure_w4_elsewhere(url, "flow", sizes.w4_samples))


@cell("W4")
def w4_graph_here(url: str, sizes: Sizes) -> Values:
    return _latency("W4_GRAPH_HERE", measure_w4_here(url, "graph", sizes.w4_samples))


@cell("W4")
def w4_graph_elsewhere(url: str, sizes: Sizes) -> Values:
    return _latency("W4_GRAPH_OTHER", measure_w4_elsewhere(url, "graph", sizes.w4_samples))


@cell("W5")
def w5_functions(url: str, sizes: Sizes) -> Values:
    return {"W5": asyncio.run(waiting.measure_w5(url, waiting.waits_for_go, runs=sizes.waiting_runs))}


@cell("W5")
def w5_flows(url: str, sizes: Sizes) -> Values:
    return {"W5_FLOWS": asyncio.run(waiting.measure_w5(url, waiting.flow_waits_for_go, runs=sizes.waiting_runs))}


@cell("W5")
def w5_graphs(url: str, sizes: Sizes) -> Values:
    return {"W5_GRAPHS": asyncio.run(graphs.measure_questions(url, runs=sizes.waiting_runs))}


@cell("W6")
def w6_functions(url: str, sizes: Sizes) -> Values:
    return _latency("W6", waiting.measure_w6(url, waiting.start_function, runs=sizes.waiting_runs))


@cell("W6")
def w6_flows(url: str, sizes: Sizes) -> Values:
    return _latency("W6_FLOWS", waiting.measure_w6(url, waiting.start_flow, runs=sizes.waiting_runs))


@cell("W6")
def w6_functions_steadily(url: str, sizes: Sizes) -> Values:
    return _latency("W6_STEADY", waiting.measure_w6_steadily(url, waiting.start_function, runs=sizes.steady_runs))


@cell("W6")
def w6_flows_steadily(url: str, sizes: Sizes) -> Values:
    return _latency("W6_FLOWS_STEADY", waiting.measure_w6_steadily(url, waiting.start_flow, runs=sizes.steady_runs))


@cell("W6")
def w6_dags(url: str, sizes: Sizes) -> Values:
    return _latency("W6_DAGS", waiting.measure_w6(url, waiting.start_dag, runs=sizes.waiting_runs))


@cell("W6")
def w6_graphs(url: str, sizes: Sizes) -> Values:
    return _latency("W6_GRAPHS", waiting.measure_w6(url, waiting.start_graph, runs=sizes.waiting_runs))


@cell("W6")
def w6_deciders(url: str, sizes: Sizes) -> Values:
    return _latency("W6_DECIDERS", timers.measure_timers(url, runs=sizes.waiting_runs))


@cell("W7")
def w7_dag(url: str, sizes: Sizes) -> Values:
    a_step, growth, last = asyncio.run(measure_w7(url, short=sizes.w7_short, long=sizes.w7_long))
    return {"W7_STEP": a_step, "W7_GROWTH": growth, "W7_LAST": last}


@cell("W7")
def w7_function(url: str, sizes: Sizes) -> Values:
    a_step, last = asyncio.run(measure_w7_function(url, steps=sizes.w7_long))
    return {"W7_FUNCTION": a_step, "W7_FUNCTION_LAST": last}


@cell("W7")
def w7_flow(url: str, sizes: Sizes) -> Values:
    a_step, last = asyncio.run(measure_w7_flow(url, steps=sizes.w7_long))
    return {"W7_FLOW": a_step, "W7_FLOW_LAST": last}


@cell("W7")
def w7_graph(url: str, sizes: Sizes) -> Values:
    a_step, last = asyncio.run(graphs.measure_long(url, steps=sizes.w7_long))
    return {"W7_GRAPH": a_step, "W7_GRAPH_LAST": last}


@cell("W7")
def w7_killed_function(url: str, sizes: Sizes) -> Values:
    return _recovery(url, sizes, "function")


@cell("W7")
def w7_killed_flow(url: str, sizes: Sizes) -> Values:
    return _recovery(url, sizes, "flow")


@cell("W7")
def w7_killed_dag(url: str, sizes: Sizes) -> Values:
    return _recovery(url, sizes, "dag")


@cell("W7")
def w7_killed_graph(url: str, sizes: Sizes) -> Values:
    return _recovery(url, sizes, "graph")


def _recovery(url: str, sizes: Sizes, model: str) -> Values:
    found = measure_killed(url, model, steps=sizes.w7_long)
    measure = f"W7_{model.upper()}"
    return {f"{measure}_RESTART": found.seconds_to_first_new_step, f"{measure}_MEMORY": found.peak_megabytes}


@cell("W8")
def w8_chain(url: str, sizes: Sizes) -> Values:
    return _a_step(asyncio.run(graphs.measure_chain(url, length=sizes.w1_steps)), "W8_CHAIN")


@cell("W8")
def w8_wide(url: str, sizes: Sizes) -> Values:
    return {"W8_WIDE": asyncio.run(graphs.measure_wide(url, width=sizes.w1_steps))}


@cell("W8")
def w8_stored(url: str, sizes: Sizes) -> Values:
    return {"W8_STORED": asyncio.run(graphs.measure_stored(url, steps=sizes.graph_steps))}


@cell("W9")
def w9(url: str, sizes: Sizes) -> Values:
    seconds, megabytes = first_result(url)
    return {
        "W9_IMPORT": import_ms(SQLITE if url.startswith("sqlite") else POSTGRES),
        "W9_FIRST": seconds,
        "W9_MEMORY": megabytes,
        "W9_PYTHON": bare_python_seconds(),
    }


@cell("crowd")
def crowd(url: str, sizes: Sizes) -> Values:
    found = measure_crowd(url, runs=sizes.crowd)
    return {
        "CROWD_START": found.start_seconds,
        "CROWD_MEMORY": found.megabytes,
        "CROWD_EVENT": found.event_ms,
    }


@cell("crowd")
def crowd_weight(url: str, sizes: Sizes) -> Values:
    return {"CROWD_WEIGHT": waiting.measure_weight(url, runs=sizes.weighed)}


@cell("deciders")
def execute_alone(url: str, sizes: Sizes) -> Values:
    before = asyncio.run(one_commit_ms(url, sizes.commits))
    alone = asyncio.run(
        deciders.measure_execute_alone(url, inputs=min(300, sizes.inputs), warm_up=min(100, sizes.inputs))
    )
    after = asyncio.run(one_commit_ms(url, sizes.commits))
    return {
        "EXECUTE_ALONE": alone.wall_ms,
        "EXECUTE_TO_COMMIT": alone.wall_ms / ((before + after) / 2),
        "EXECUTE_CPU": alone.cpu_ms,
    }


@cell("deciders")
def execute_by_many(url: str, sizes: Sizes) -> Values:
    known, fresh = asyncio.run(deciders.measure_execute(url, inputs=sizes.inputs))
    return {
        "EXECUTE": known.steps_per_second,
        "EXECUTE_64_CPU": known.cpu_ms,
        "EXECUTE_FRESH": fresh.steps_per_second,
    }


@cell("deciders")
def effects(url: str, sizes: Sizes) -> Values:
    return _a_second(asyncio.run(deciders.measure_effects(url, inputs=sizes.inputs // 2)), "EFFECTS")


@cell("deciders")
def inbox(url: str, sizes: Sizes) -> Values:
    queued, drained = asyncio.run(deciders.measure_inbox(url, inputs=sizes.inputs))
    return {"ENQUEUE": queued.steps_per_second, "DRAIN": drained.steps_per_second}


@cell("deciders")
def long_streams(url: str, sizes: Sizes) -> Values:
    grown = asyncio.run(deciders.measure_long(url, long=sizes.stream, inputs=min(200, sizes.inputs)))
    return {
        "LONG_STREAM": grown.remembered,
        "LONG_REBUILT": grown.rebuilt,
        "LONG_FIRST": grown.from_snapshot,
        "REBUILD": grown.rebuild_seconds,
    }


@cell("deciders")
def projection(url: str, sizes: Sizes) -> Values:
    cost = asyncio.run(deciders.measure_projection(url, events=sizes.stream // 2))
    return {"PROJECTION": cost.steps_per_second}


WORKLOADS = tuple(dict.fromkeys(each.workload for each in OWN_CELLS.values() if each.workload != "limit"))

if __name__ == "__main__":
    name, url, sizes = sys.argv[1:]
    if OWN_CELLS[name].workload in CROWDS:
        collect_less_often()
    values = OWN_CELLS[name].measuring(url, msgspec.json.decode(sizes.encode(), type=Sizes))
    print(msgspec.json.encode({"values": values}).decode())
