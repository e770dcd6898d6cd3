"""W1, W2, W3 and W7 for flows: the same steps as those of the DAGs and functions, compiled."""

from __future__ import annotations

import asyncio
import time

import holdfast as hf
from benchmarks.throughput import Cost, long_runs, seconds_of, working_engine
from holdfast.authoring.registry import Registry

COMPILED = Registry()
_STEP_TIMES: list[float] = []


@hf.action(registry=COMPILED)
async def add_one(number: int) -> int:
    return number + 1


@hf.flow(registry=COMPILED)
async def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one(number)
    return number


@hf.action(registry=COMPILED)
async def add_one_and_note_the_time(number: int) -> int:
    _STEP_TIMES.append(time.perf_counter())
    return number + 1


@hf.flow(registry=COMPILED)
async def timed_chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one_and_note_the_time(number)
    return number


@hf.flow(registry=COMPILED)
async def three_steps(number: int) -> int:
    first = await add_one(number)
    second = await add_one(first)
    return await add_one(second)


@hf.flow(registry=COMPILED)
async def spread(width: int) -> int:
    return sum(await asyncio.gather(*[add_one(number) for number in range(width)]))


async def measure_w1_flow(url: str, *, steps: int = 100, warm_up: int = 3) -> Cost:
    """One run alone: a loop, whose passes are released as it goes."""
    async with working_engine(url, COMPILED) as engine:
        for _ in range(warm_up):
            await engine.run(chain, steps)
        with Cost.of(steps) as cost:
            await engine.run(chain, steps)
    return cost


async def measure_w2_flows(url: str, *, runs: int = 2000) -> Cost:
    """All runs submitted at once, until the last of them has its result."""
    async with working_engine(url, COMPILED) as engine:
        await _many(engine, max(1, runs // 4))
        return await _many(engine, runs)


async def _many(engine: hf.Engine, runs: int) -> Cost:
    with Cost.of(3 * runs) as cost:
        handles = await asyncio.gather(*(engine.start(three_steps, number) for number in range(runs)))
        await asyncio.gather(*(handle.result() for handle in handles))
    return cost


async def measure_w3_flow(url: str, *, few: int = 1000, many: int = 10_000) -> tuple[float, float]:
    """Seconds for the smaller spread and for the larger one, on an engine that has done this before."""
    async with working_engine(url, COMPILED) as engine:
        await engine.run(spread, few)
        return await seconds_of(engine, spread, few), await seconds_of(engine, spread, many)


async def measure_w7_flow(url: str, *, steps: int = 10_000) -> tuple[float, float]:
    """Milliseconds a step of one long run, and its last 500 steps to its first 500."""
    async with working_engine(url, COMPILED) as engine:
        await engine.run(chain, 100)
        return await long_runs(lambda: engine.run(timed_chain, steps), steps, _STEP_TIMES)
