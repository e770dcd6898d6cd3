"""More runs, wider ones, longer ones, larger payloads."""

from __future__ import annotations

import asyncio
import time

import holdfast as hf
from benchmarks.chains import chain_of
from benchmarks.fan_out import WIDE, seconds_for
from benchmarks.functions import CHAINS, chain, many_functions
from benchmarks.memory import peak_megabytes
from benchmarks.throughput import Cost, many_runs, working_engine
from benchmarks.waiting import kilobytes_for_each
from holdfast.authoring.registry import Registry

Values = dict[str, float]
PAYLOADS = Registry()


@hf.action(registry=PAYLOADS)
async def pass_on(text: str) -> str:
    return text


@hf.workflow(registry=PAYLOADS)
async def carry(text: str, steps: int) -> int:
    for _ in range(steps):
        text = await pass_on(text)
    return len(text)


async def of_runs(url: str, runs: int, part: int = 1) -> Values:
    """Steps a second of so many runs of three steps, all submitted at once; as DAGs and as functions."""
    registry = Registry()
    dag = chain_of(3, registry)
    async with working_engine(url, registry) as engine:
        await many_runs(engine, dag, max(1, 100 // part))
        dags = await many_runs(engine, dag, runs)
    async with working_engine(url, CHAINS) as engine:
        await many_functions(engine, max(1, 100 // part), 3)
        functions = await many_functions(engine, runs, 3)
    return {
        "DAGs, steps/s": dags.steps_per_second,
        "functions, steps/s": functions.steps_per_second,
        "peak, MB": peak_megabytes(),
    }


async def of_width(url: str, width: int, part: int = 1) -> Values:
    """One DAG of so many parallel steps and one that waits for them all, from the builder to the result."""
    async with working_engine(url, WIDE) as engine:
        await seconds_for(engine, max(1, 100 // part))
        seconds = await seconds_for(engine, width)
    return {"seconds": seconds, "µs a step": seconds / width * 1e6, "peak, MB": peak_megabytes()}


async def of_history(url: str, steps: int, part: int = 1) -> Values:
    """One function of so many steps."""
    async with working_engine(url, CHAINS) as engine:
        await engine.run(chain, max(1, 100 // part))
        with Cost.of(steps) as cost:
            await engine.run(chain, steps)
    return {"ms a step": cost.wall_ms, "processor, ms a step": cost.cpu_ms, "peak, MB": peak_megabytes()}


async def of_payload(url: str, size: int, part: int = 1) -> Values:
    """A function whose steps take and give so many bytes."""
    steps = max(2, 50 // part)
    async with working_engine(url, PAYLOADS) as engine:
        await engine.run(carry, "x" * size, 5)
        started = time.perf_counter()
        assert await engine.run(carry, "x" * size, steps) == size
        seconds = time.perf_counter() - started
    return {"ms a step": seconds / steps * 1000, "MB/s": size * steps / seconds / 1e6}


def resident(url: str, runs: int, part: int = 1) -> Values:
    """Kilobytes for each function that waits in the process."""
    return {"kB a run": asyncio.run(kilobytes_for_each(url, runs))}
