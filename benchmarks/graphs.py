"""W8: state graphs. A chain of nodes, a step of many nodes at once, and what a long run with a large state stores."""

from __future__ import annotations

import asyncio
import hashlib
import operator
import statistics
import time
from typing import Annotated, Any, TypedDict

import holdfast as hf
from benchmarks.stored import stored_bytes
from benchmarks.throughput import Cost, working_engine
from holdfast.authoring.registry import Registry

# Of 100 bytes, each another one: what can be packed to nothing would flatter whoever stores it again and again.
MESSAGES = [(2 * hashlib.sha256(str(number).encode()).hexdigest())[:100] for number in range(1000)]


class Count(TypedDict):
    n: int


class Log(TypedDict):
    log: Annotated[list[int], operator.add]


class Talk(TypedDict):
    n: int
    messages: Annotated[list[str], operator.add]


def chain_graph(length: int, registry: Registry) -> hf.StateGraph[Count]:
    """Nodes that follow each other, each of which adds one."""
    graph = hf.StateGraph(Count, name="chain", registry=registry)
    for number in range(length):

        @graph.node(name=f"s{number}")
        async def add_one(state: Count) -> dict[str, Any]:
            return {"n": state["n"] + 1}

        if number:
            graph.edge(f"s{number - 1}", f"s{number}")
    graph.start_at("s0")
    graph.finish(f"s{length - 1}")
    return graph


def wide_graph(width: int, registry: Registry) -> hf.StateGraph[Log]:
    """One node, then this many at once, then one that waits for them all: three steps."""
    graph = hf.StateGraph(Log, name="wide", registry=registry, max_concurrent=width)

    @graph.node
    async def begin(state: Log) -> None:
        return None

    @graph.node
    async def end(state: Log) -> None:
        return None

    for number in range(width):

        @graph.node(name=f"w{number}")
        async def give(state: Log, number: int = number) -> dict[str, Any]:
            return {"log": [number]}

        graph.edge("begin", f"w{number}")
        graph.edge(f"w{number}", "end")
    graph.start_at("begin")
    graph.finish("end")
    return graph


def talk_graph(steps: int, registry: Registry) -> hf.StateGraph[Talk]:
    """One node that leads to itself, and adds a short message to many."""
    graph = hf.StateGraph(Talk, name="talk", registry=registry)

    @graph.node
    async def say(state: Talk) -> dict[str, Any]:
        return {"n": state["n"] + 1, "messages": [f"message {state['n']}"]}

    graph.start_at("say")
    graph.edge("say", "say", when=lambda state: state["n"] < steps)
    graph.finish("say")
    return graph


async def measure_chain(url: str, *, length: int = 100, warm_up: int = 2, runs: int = 5) -> Cost:
    """A step of one run alone: the median of several runs."""
    registry = Registry()
    graph = chain_graph(length, registry)
    costs: list[Cost] = []
    async with working_engine(url, registry) as engine:
        for number in range(warm_up + runs):
            with Cost.of(length) as cost:
                final = await engine.run(graph, {"n": 0})
            assert final["n"] == length
            if number >= warm_up:
                costs.append(cost)
    return sorted(costs, key=lambda cost: cost.wall_ms)[len(costs) // 2]


async def measure_wide(url: str, *, width: int = 100, warm_up: int = 2, runs: int = 5) -> float:
    """Milliseconds of a run of three steps, of which one is this wide."""
    registry = Registry()
    graph = wide_graph(width, registry)
    taken: list[float] = []
    async with working_engine(url, registry) as engine:
        for number in range(warm_up + runs):
            started = time.perf_counter()
            final = await engine.run(graph, {"log": []})
            assert len(final["log"]) == width
            if number >= warm_up:
                taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


async def measure_stored(url: str, *, steps: int = 1000) -> float:
    """Megabytes that a long run with a large state leaves behind, of everything that is stored."""
    registry = Registry()
    graph = talk_graph(steps, registry)
    async with working_engine(url, registry) as engine:
        before = await asyncio.to_thread(stored_bytes, url)
        final = await engine.run(graph, {"n": 0, "messages": MESSAGES})
        assert len(final["messages"]) == len(MESSAGES) + steps
    return (await asyncio.to_thread(stored_bytes, url) - before) / 1e6
