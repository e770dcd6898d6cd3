"""W5 and W6: many runs that wait for an event each, and many that sleep; and what one of them weighs meanwhile.

As a program: `python -m benchmarks.waiting URL RUNS` says how many kilobytes each of them takes in its process.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypedDict

import psutil

import holdfast as hf
from benchmarks.throughput import working_engine
from holdfast.authoring.registry import Registry

WAITING = Registry()
STEADILY_SECONDS = 0.01  # from one start to the next, in the mean; also in the peers' programs
go = hf.event("go", int, registry=WAITING)
_LATE_MS: list[float] = []
StartSleeper = Callable[[hf.Engine, float], Awaitable[hf.Handle[Any]]]


@hf.workflow(registry=WAITING)
async def waits_for_go() -> int:
    return (await hf.wait_for(go)).value


@hf.flow(registry=WAITING)
async def flow_waits_for_go() -> int:
    told = await hf.wait_for(go)
    return told.value


@hf.action(registry=WAITING)
async def note_how_late(due_seconds: float) -> None:
    _LATE_MS.append((time.time() - due_seconds) * 1000)


@hf.workflow(registry=WAITING)
async def sleeps(seconds: float) -> None:
    due = hf.now().timestamp() + seconds
    await hf.sleep(seconds=seconds)
    await note_how_late(due)


@hf.flow(registry=WAITING)
async def flow_sleeps(seconds: float, due: float) -> None:
    await hf.sleep(seconds=seconds)
    await note_how_late(due)


class Later(hf.Dag, registry=WAITING):
    due: float

    @hf.step
    async def note_how_late(self) -> None:
        _LATE_MS.append((time.time() - self.due) * 1000)


class Due(TypedDict):
    due: float


@cache
def later_graph() -> hf.StateGraph[Due]:
    """Made when it is needed: who measures functions does not load graphs."""
    graph = hf.StateGraph(Due, name="later", registry=WAITING)

    @graph.node
    async def note(state: Due) -> None:
        _LATE_MS.append((time.time() - state["due"]) * 1000)

    graph.start_at("note")
    graph.finish("note")
    return graph


def start_function(engine: hf.Engine, seconds: float) -> Awaitable[hf.Handle[None]]:
    return engine.start(sleeps, seconds)


def start_flow(engine: hf.Engine, seconds: float) -> Awaitable[hf.Handle[None]]:
    """A flow cannot ask for the time: it is told, and what its start takes is counted as late."""
    return engine.start(flow_sleeps, seconds, time.time() + seconds)


def start_dag(engine: hf.Engine, seconds: float) -> Awaitable[hf.Handle[None]]:
    """A DAG does not sleep, but may be started for a later time."""
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    return engine.start(Later(due=due.timestamp()), at=due)


def start_graph(engine: hf.Engine, seconds: float) -> Awaitable[hf.Handle[Any]]:
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    return engine.start(later_graph(), {"due": due.timestamp()}, at=due)


async def wait_until_all_wait(engine: hf.Engine, runs: int) -> None:
    """Until this many runs are suspended and nothing moves any more."""
    while (await engine.stats()).store.runs.get("suspended", 0) < runs:  # noqa: ASYNC110 - nobody would set an Event
        await asyncio.sleep(0.02)


async def measure_w5(url: str, waits: Callable[[], Awaitable[int]], *, runs: int = 1000) -> float:
    """Seconds from the first send to the last result."""
    async with working_engine(url, WAITING) as engine:
        await _send_to_all(engine, waits, max(1, runs // 10))
        return await _send_to_all(engine, waits, runs)


async def _send_to_all(engine: hf.Engine, waits: Callable[[], Awaitable[int]], runs: int) -> float:
    handles = await asyncio.gather(*(engine.start(waits) for _ in range(runs)))
    await wait_until_all_wait(engine, runs)
    started = time.perf_counter()
    await asyncio.gather(*(engine.send(go, number, to=handle) for number, handle in enumerate(handles)))
    results = await asyncio.gather(*(handle.result() for handle in handles))
    seconds = time.perf_counter() - started
    assert results == list(range(runs))
    return seconds


async def measure_w6(url: str, start: StartSleeper, *, runs: int = 1000, seconds: float = 1.0) -> tuple[float, float]:
    """How late the sleepers go on, from the moment that was due for each: median and 99th percentile in milliseconds.

    They are started one after another: a thousand that are due at the same moment would measure throughput.
    """
    async with working_engine(url, WAITING) as engine:
        few = [await start(engine, 0.01) for _ in range(max(1, runs // 10))]
        await asyncio.gather(*(handle.result() for handle in few))
        _LATE_MS.clear()
        handles = [await start(engine, seconds) for _ in range(runs)]
        await asyncio.gather(*(handle.result() for handle in handles))
    return statistics.median(_LATE_MS), statistics.quantiles(_LATE_MS, n=100)[98]


async def measure_w6_steadily(url: str, start: StartSleeper, *, runs: int) -> tuple[float, float]:
    """The same at a given rate, which is the same for all engines: one that starts slowly has an easier W6."""
    async with working_engine(url, WAITING) as engine:
        few = [await start(engine, 0.01) for _ in range(max(1, runs // 10))]
        await asyncio.gather(*(handle.result() for handle in few))
        _LATE_MS.clear()
        moment, handles, draw = time.perf_counter(), [], random.Random(runs)
        for _ in range(runs):
            moment += draw.uniform(0, 2 * STEADILY_SECONDS)  # or each would go on in the moment of another's start
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            handles.append(await start(engine, 1.0))
        await asyncio.gather(*(handle.result() for handle in handles))
    return statistics.median(_LATE_MS), statistics.quantiles(_LATE_MS, n=100)[98]


def measure_weight(url: str, *, runs: int = 8000) -> float:
    """Kilobytes of memory for each function that waits in a process, which is a fresh one."""
    command = [sys.executable, "-m", "benchmarks.waiting", url, str(runs)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


async def kilobytes_for_each(url: str, runs: int) -> float:
    # By default the oldest would leave, and all of them after a minute: those would weigh nothing here.
    async with working_engine(url, WAITING, resident_functions=10 * runs, resident_seconds=3600) as engine:
        await _start_waiting(engine, runs // 2)  # so that pools and caches have the size that they keep
        gc.collect()
        before = psutil.Process().memory_info().rss
        await _start_waiting(engine, runs)
        await wait_until_all_wait(engine, runs + runs // 2)
        gc.collect()
        return float(psutil.Process().memory_info().rss - before) / runs / 1000


async def _start_waiting(engine: hf.Engine, runs: int) -> None:
    for _ in range(0, runs, 100):  # all at once would leave behind the memory of very many starts
        await asyncio.gather(*(engine.start(waits_for_go) for _ in range(100)))


if __name__ == "__main__":
    print(asyncio.run(kilobytes_for_each(sys.argv[1], int(sys.argv[2]))))
