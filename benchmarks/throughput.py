"""W1, W2 and W7: what a step costs in one run, in many runs at once, and in a very long run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import holdfast as hf
from benchmarks.chains import chain_of
from holdfast.authoring.registry import Registry

EDGE = 500  # steps at either end of a long run whose cost is compared


@asynccontextmanager
async def working_engine(url: str, registry: Registry) -> AsyncIterator[hf.Engine]:
    """An engine with one worker in this process, at its defaults."""
    async with hf.Engine(url, registry=registry) as engine, engine.worker():
        yield engine


async def one_run_ms_a_step(engine: hf.Engine, dag: type[hf.Dag]) -> float:
    """W1: one run alone."""
    started = time.perf_counter()
    await engine.run(dag())
    return (time.perf_counter() - started) / len(dag.compiled_dag().nodes) * 1000


async def many_runs_steps_per_second(engine: hf.Engine, dag: type[hf.Dag], runs: int) -> float:
    """W2: all runs submitted at once, until the last of them has its result."""
    started = time.perf_counter()
    handles = await asyncio.gather(*(engine.start(dag()) for _ in range(runs)))
    await asyncio.gather(*(handle.result() for handle in handles))
    return runs * len(dag.compiled_dag().nodes) / (time.perf_counter() - started)


async def measure_w1(url: str, *, steps: int = 100, warm_up: int = 3) -> float:
    """Milliseconds a step. Warm: the server caches plans and Python its bytecode in the first runs."""
    registry = Registry()
    dag = chain_of(steps, registry)
    async with working_engine(url, registry) as engine:
        for _ in range(warm_up):
            await engine.run(dag())
        return await one_run_ms_a_step(engine, dag)


async def measure_w2(url: str, *, runs: int = 2000, steps: int = 3) -> float:
    """Steps per second."""
    registry = Registry()
    dag = chain_of(steps, registry)
    async with working_engine(url, registry) as engine:
        await many_runs_steps_per_second(engine, dag, max(1, runs // 4))
        return await many_runs_steps_per_second(engine, dag, runs)


async def measure_w7(url: str, *, short: int = 1000, long: int = 10_000) -> tuple[float, float, float]:
    """Milliseconds a step in the long run; that to a step of the short one; its last 500 steps to its first 500.

    The long run goes first and the short one after it, so that a store that slows down as it fills would look worse.
    """
    registry = Registry()
    times: list[float] = []
    small = chain_of(short, registry)
    large = chain_of(long, registry, on_step=lambda: times.append(time.perf_counter()))
    async with working_engine(url, registry) as engine:
        await engine.run(small())
        a_step = await one_run_ms_a_step(engine, large)
        growth = a_step / await one_run_ms_a_step(engine, small)
    edge = min(EDGE, len(times) // 4)
    return a_step, growth, (times[-1] - times[-edge]) / (times[edge - 1] - times[0])
