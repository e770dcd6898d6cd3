"""W1, W2 and W7: what a step costs in one run, in many runs at once, and in a very long run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import holdfast as hf
from benchmarks.chains import chain_of
from holdfast.authoring.registry import Registry

EDGE = 500  # steps at either end of a long run whose cost is compared
LONG_RUNS = 3


@dataclass(slots=True)
class Cost:
    """What a step cost: the time that went by, and the part of it that this process was computing.

    The second says more on a machine that others use: it does not count what they do meanwhile, nor waits for a disk.
    """

    steps: int
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    @classmethod
    def of(cls, steps: int) -> Self:
        """Measures a `with` block in which this many steps are done."""
        return cls(steps)

    def __enter__(self) -> Self:
        self.wall_seconds, self.cpu_seconds = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall_seconds += time.perf_counter()
        self.cpu_seconds += time.process_time()

    @property
    def wall_ms(self) -> float:
        return self.wall_seconds / self.steps * 1000

    @property
    def cpu_ms(self) -> float:
        return self.cpu_seconds / self.steps * 1000

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.wall_seconds


@asynccontextmanager
async def working_engine(url: str, registry: Registry, **settings: Any) -> AsyncIterator[hf.Engine]:
    """An engine with one worker in this process, at its defaults but for what is given."""
    async with hf.Engine(url, registry=registry, **settings) as engine, engine.worker():
        yield engine


async def one_run(engine: hf.Engine, dag: type[hf.Dag]) -> Cost:
    """W1: one run alone."""
    with Cost.of(len(dag.compiled_dag().nodes)) as cost:
        await engine.run(dag())
    return cost


async def many_runs(engine: hf.Engine, dag: type[hf.Dag], runs: int) -> Cost:
    """W2: all runs submitted at once, until the last of them has its result."""
    with Cost.of(runs * len(dag.compiled_dag().nodes)) as cost:
        handles = await asyncio.gather(*(engine.start(dag()) for _ in range(runs)))
        await asyncio.gather(*(handle.result() for handle in handles))
    return cost


async def seconds_of(engine: hf.Engine, workflow: Callable[[int], Awaitable[int]], given: int) -> float:
    """From the start of one run to its result."""
    started = time.perf_counter()
    await engine.run(workflow, given)
    return time.perf_counter() - started


def last_to_first(times: list[float]) -> float:
    """What one of the last steps of a long run took, to one of the first, from the moments at which they were done.

    Medians: after every two thousand pages SQLite copies its log into the file, and the end in which that happens to
    fall is a tenth dearer. What only some steps cost is in the mean: a step of a long run to one of a tenth.
    """
    edge = min(EDGE, len(times) // 4)
    return _median_gap(times[-edge:]) / _median_gap(times[:edge])


async def long_runs(run_one: Callable[[], Awaitable[object]], steps: int, times: list[float]) -> tuple[float, float]:
    """W7: milliseconds a step, and the last 500 steps to the first 500: of several runs of this many, the medians.

    Of one run it says little: on a disk that others use, any 500 steps may be a sixth dearer than the 500 before.
    """
    costs, ratios = [], []
    for _ in range(LONG_RUNS):
        times.clear()
        with Cost.of(steps) as cost:
            await run_one()
        costs.append(cost.wall_ms)
        ratios.append(last_to_first(times))
    return statistics.median(costs), statistics.median(ratios)


def _median_gap(times: list[float]) -> float:
    return statistics.median(after - before for before, after in pairwise(times))


async def measure_w1(url: str, *, steps: int = 100, warm_up: int = 3) -> Cost:
    """Warm: the server caches plans and Python its bytecode in the first runs."""
    registry = Registry()
    dag = chain_of(steps, registry)
    async with working_engine(url, registry) as engine:
        for _ in range(warm_up):
            await engine.run(dag())
        return await one_run(engine, dag)


async def measure_w2(url: str, *, runs: int = 2000, steps: int = 3) -> Cost:
    registry = Registry()
    dag = chain_of(steps, registry)
    async with working_engine(url, registry) as engine:
        await many_runs(engine, dag, max(1, runs // 4))
        return await many_runs(engine, dag, runs)


async def measure_w7(url: str, *, short: int = 1000, long: int = 10_000) -> tuple[float, float, float]:
    """Milliseconds a step in the long run; that to a step of the short one; its last 500 steps to its first 500.

    The long run goes first and the short one after it, so that a store that slows down as it fills would look worse.
    """
    registry = Registry()
    times: list[float] = []
    small = chain_of(short, registry)
    large = chain_of(long, registry, on_step=lambda number: times.append(time.perf_counter()))
    async with working_engine(url, registry) as engine:
        await engine.run(small())
        a_step, last = await long_runs(lambda: engine.run(large()), long, times)
        growth = a_step / (await one_run(engine, small)).wall_ms
    return a_step, growth, last
