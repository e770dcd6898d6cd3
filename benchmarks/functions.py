"""W1, W2, W3 and W7 for functions: the same steps as those of the DAGs, written as code."""

from __future__ import annotations

import asyncio
import time

import holdfast as hf
from benchmarks.throughput import Cost, long_runs, seconds_of, working_engine
from holdfast.authoring.registry import Registry

CHAINS = Registry()
_STEP_TIMES: list[float] = []


@hf.action(registry=CHAINS)
async def add_one(number: int) -> int:
    return number + 1


@hf.action(registry=CHAINS)
async def add_one_and_note_the_time(number: int) -> int:
    _STEP_TIMES.append(time.perf_counter())
    return number + 1


@hf.workflow(registry=CHAINS)
async def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one(number)
    return number


@hf.workflow(registry=CHAINS)
async def spread(width: int) -> int:
    return sum(await asyncio.gather(*(add_one(number) for number in range(width))))


@hf.workflow(registry=CHAINS)
async def timed_chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one_and_note_the_time(number)
    return number


async def one_function(engine: hf.Engine, steps: int) -> Cost:
    """W1: one run alone."""
    with Cost.of(steps) as cost:
        await engine.run(chain, steps)
    return cost


async def many_functions(engine: hf.Engine, runs: int, steps: int) -> Cost:
    """W2: all runs submitted at once, until the last of them has its result."""
    with Cost.of(runs * steps) as cost:
        handles = await asyncio.gather(*(engine.start(chain, steps) for _ in range(runs)))
        await asyncio.gather(*(handle.result() for handle in handles))
    return cost


async def measure_w1_function(url: str, *, steps: int = 100, warm_up: int = 3) -> Cost:
    async with working_engine(url, CHAINS) as engine:
        for _ in range(warm_up):
            await engine.run(chain, steps)
        return await one_function(engine, steps)


async def measure_w2_functions(url: str, *, runs: int = 2000, steps: int = 3) -> Cost:
    async with working_engine(url, CHAINS) as engine:
        await many_functions(engine, max(1, runs // 4), steps)
        return await many_functions(engine, runs, steps)


async def measure_w3_function(url: str, *, few: int = 1000, many: int = 10_000) -> tuple[float, float]:
    """Seconds for the smaller spread and for the larger one, on an engine that has done this before."""
    async with working_engine(url, CHAINS) as engine:
        await engine.run(spread, few)
        return await seconds_of(engine, spread, few), await seconds_of(engine, spread, many)


async def measure_w7_function(url: str, *, steps: int = 10_000) -> tuple[float, float]:
    """Milliseconds a step of one long run, and its last 500 steps to its first 500."""
    async with working_engine(url, CHAINS) as engine:
        await engine.run(chain, 100)
        return await long_runs(lambda: engine.run(timed_chain, steps), steps, _STEP_TIMES)
