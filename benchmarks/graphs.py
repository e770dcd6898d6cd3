"""State graphs. W8: a chain of nodes, a step of many nodes at once, and what a long run with a large state stores.

W2, W3, W5 and W7 as graphs: many short ones, very many branches, questions to people, and a node that leads to itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import operator
import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import holdfast as hf
from benchmarks.stored import stored_bytes
from benchmarks.throughput import Cost, long_runs, working_engine
from benchmarks.waiting import wait_until_all_wait
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


def spread_graph(registry: Registry) -> hf.StateGraph[Log]:
    """One node that sends as many items as the first entry of the log says, each with a number of its own."""
    graph = hf.StateGraph(Log, name="spread", registry=registry, max_concurrent=100_000, queue_depth=100_000)

    @graph.node
    async def begin(state: Log) -> hf.Many:
        return hf.Many([hf.Send("give", {"log": [number]}) for number in range(state["log"][0])])

    @graph.node
    async def give(state: Log) -> dict[str, Any]:
        return {"log": state["log"]}

    @graph.node
    async def end(state: Log) -> None:
        return None

    graph.start_at("begin")
    graph.edge("begin", "give", when=lambda state: False)
    graph.edge("give", "end")
    graph.finish("end")
    return graph


def question_graph(registry: Registry) -> hf.StateGraph[Count]:
    """One node that asks a person for a number."""
    graph = hf.StateGraph(Count, name="question", registry=registry)

    @graph.node
    async def ask(state: Count, ctx: hf.NodeContext) -> dict[str, Any]:
        return {"n": await ctx.interrupt("how many?")}

    graph.start_at("ask")
    graph.finish("ask")
    return graph


def loop_graph(steps: int, registry: Registry, on_step: Callable[[int], None]) -> hf.StateGraph[Count]:
    """One node that leads to itself; `on_step` is called in it with the number of the step."""
    graph = hf.StateGraph(Count, name=f"loop of {steps}", registry=registry, max_steps=steps + 1)

    @graph.node
    async def add_one(state: Count) -> dict[str, Any]:
        on_step(state["n"])
        return {"n": state["n"] + 1}

    graph.start_at("add_one")
    graph.edge("add_one", "add_one", when=lambda state: state["n"] < steps)
    graph.finish("add_one")
    return graph


async def measure_many(url: str, *, runs: int = 2000, steps: int = 3) -> Cost:
    """W2: all runs submitted at once, until the last of them has its result."""
    registry = Registry()
    graph = chain_graph(steps, registry)

    async def many(runs: int) -> Cost:
        with Cost.of(runs * steps) as cost:
            handles = await asyncio.gather(*(engine.start(graph, {"n": 0}) for _ in range(runs)))
            await asyncio.gather(*(handle.result() for handle in handles))
        return cost

    async with working_engine(url, registry) as engine:
        await many(max(1, runs // 4))
        return await many(runs)


async def measure_spread(url: str, *, few: int = 1000, many: int = 10_000) -> tuple[float, float]:
    """W3: seconds for a step of very many items and one that waits for them all; of few and of many."""
    registry = Registry()
    graph = spread_graph(registry)

    async def seconds_of(width: int) -> float:
        started = time.perf_counter()
        final = await engine.run(graph, {"log": [width]})
        seconds = time.perf_counter() - started
        assert len(final["log"]) == width + 1
        return seconds

    async with working_engine(url, registry) as engine:
        await seconds_of(few)
        return await seconds_of(few), await seconds_of(many)


async def measure_questions(url: str, *, runs: int = 1000) -> float:
    """W5: seconds from the first answer to the last result of runs that ask a person each."""
    registry = Registry()
    graph = question_graph(registry)

    async def answered(runs: int) -> float:
        handles = await asyncio.gather(*(engine.start(graph, {"n": 0}) for _ in range(runs)))
        await wait_until_all_wait(engine, runs)
        started = time.perf_counter()
        await asyncio.gather(*(handle.resume_with(number) for number, handle in enumerate(handles)))
        results = await asyncio.gather(*(handle.result() for handle in handles))
        seconds = time.perf_counter() - started
        assert [result["n"] for result in results] == list(range(runs))
        return seconds

    async with working_engine(url, registry) as engine:
        await answered(max(1, runs // 10))
        return await answered(runs)


async def measure_long(url: str, *, steps: int = 10_000) -> tuple[float, float]:
    """W7: milliseconds a step of one long run, and its last 500 steps to its first 500."""
    registry = Registry()
    times: list[float] = []
    short = loop_graph(100, registry, lambda number: None)
    long = loop_graph(steps, registry, lambda number: times.append(time.perf_counter()))
    async with working_engine(url, registry) as engine:
        await engine.run(short, {"n": 0})
        return await long_runs(lambda: engine.run(long, {"n": 0}), steps, times)


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
