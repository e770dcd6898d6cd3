"""More workers: processes that share the runs of one database, and very many that want the same run.

As a program: `python -m benchmarks.scaling.workers URL` is one worker process; it says when it works.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack, ExitStack

import holdfast as hf
from benchmarks.chains import chain_of
from benchmarks.fan_out import WIDE, fan_out_of
from holdfast.authoring.registry import Registry

Values = dict[str, float]
SHARED = Registry()
Three = chain_of(3, SHARED, name="Three")
READY = "working"
PATIENCE_SECONDS = 120  # a run that has not ended by then is lost


def of_processes(url: str, processes: int, part: int = 1) -> Values:
    """Steps a second of many runs, worked on by so many processes; the caller is one more and does no work."""
    with ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.scaling.workers", url]
        for _ in range(processes):
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(_end, worker)
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != READY:
                raise RuntimeError("a worker process did not begin; run benchmarks.scaling.workers by hand")
        return asyncio.run(_submitted(url, max(1, 3000 // part)))


def _end(worker: subprocess.Popen[str]) -> None:
    worker.communicate("")
    worker.wait()


async def _submitted(url: str, runs: int) -> Values:
    async with hf.Engine(url, registry=SHARED) as engine:
        await _all_ended(engine, max(1, runs // 30))
        seconds = await _all_ended(engine, runs)
    return {"steps/s": 3 * runs / seconds}


async def _all_ended(engine: hf.Engine, runs: int) -> float:
    started = time.perf_counter()
    handles = await asyncio.gather(*(engine.start(Three()) for _ in range(runs)))
    await asyncio.gather(*(handle.result() for handle in handles))
    return time.perf_counter() - started


async def of_hot_run(url: str, workers: int, part: int = 1) -> Values:
    """One wide run that so many workers want at once: each with an engine and connections of its own, in one process.

    What is shown is what they cost each other, not what more machines would bring: they share one Python. Each takes
    few items at a time, as it would if there were work for a while.
    """
    width = max(2, 2000 // part)
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(hf.Engine(url, registry=WIDE)) for _ in range(workers)]
        paths: list[bool] = []
        for engine in engines:
            engine.coordinator.observers.append(lambda commit: paths.append(commit.locked))
            await stack.enter_async_context(engine.worker(concurrency=max(4, 128 // workers)))
        await engines[0].run(fan_out_of(max(1, width // 20)))
        paths.clear()
        started = time.perf_counter()
        await engines[0].run(fan_out_of(width))
        seconds = time.perf_counter() - started
    return {
        "steps/s": width / seconds,
        "commits": float(len(paths)),
        "of which decided again under locks": float(sum(paths)),
    }


async def of_load(url: str, percent: int, part: int = 1) -> Values:
    """Runs that arrive by the clock, so many percent of what the engine can do: how long each takes; all must end."""
    seconds, enough = 3.0 / part, max(20, 2000 // part)
    async with hf.Engine(url, registry=SHARED) as engine, engine.worker():
        await _all_ended(engine, max(1, enough // 10))
        capacity = enough / await _all_ended(engine, enough)
        gap = 100 / percent / capacity
        taken: list[float] = []

        async def one(due: float) -> None:
            handle = await engine.start(Three())
            await handle.result()
            taken.append((time.perf_counter() - due) * 1000)

        began = time.perf_counter()
        offered = max(2, round(seconds / gap))
        tasks = []
        for number in range(offered):
            # Late arrivals are made up for: a caller outside would not slow down either.
            ahead = began + number * gap - time.perf_counter()
            if ahead > 0.001 or number % 50 == 0:
                await asyncio.sleep(max(0.0, ahead))
            tasks.append(asyncio.create_task(one(began + number * gap)))
        arrived = time.perf_counter() - began
        done, _ = await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
        ended = time.perf_counter() - began
        for task in done:
            task.result()
    return {
        "offered, runs/s": offered / arrived,
        "capacity, runs/s": capacity,
        "p50, ms": statistics.median(taken),
        "p99, ms": statistics.quantiles(taken, n=100)[98],
        "after the last arrival, s": ended - arrived,
        "lost": float(offered - len(done)),
    }


async def serve(url: str) -> None:
    async with hf.Engine(url, registry=SHARED) as engine, engine.worker():
        print(READY, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
