"""W4: from start to result of a run of one step on an idle engine, with the worker here and in another process."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

import holdfast as hf
from benchmarks.echoes import ECHOES, RUN_ONE
from holdfast.runtime.garbage import collect_less_often

READY = "working"


async def measure_w4_here(url: str, model: str, samples: int) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds."""
    async with hf.Engine(url, registry=ECHOES) as engine, engine.worker():
        return await _start_to_result(engine, model, samples)


async def measure_w4_elsewhere(url: str, model: str, samples: int) -> tuple[float, float]:
    """The same with the worker in a process of its own: the result has to be noticed from outside."""
    async with hf.Engine(url, registry=ECHOES) as engine:
        worker = subprocess.Popen(  # noqa: ASYNC220 - started before anything is measured
            [sys.executable, "-m", "benchmarks.latency", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert worker.stdout is not None
            worker.stdout.readline()
            return await _start_to_result(engine, model, samples)
        finally:
            worker.terminate()
            worker.communicate()


async def _start_to_result(engine: hf.Engine, model: str, samples: int) -> tuple[float, float]:
    run_one = RUN_ONE[model]
    for _ in range(10):
        await run_one(engine)
    taken = []
    for _ in range(samples):
        started = time.perf_counter()
        await run_one(engine)
        taken.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(0.002)  # idle in between: that is what is measured
    return statistics.median(taken), statistics.quantiles(taken, n=100)[98]


async def serve(url: str) -> None:
    """The other process."""
    collect_less_often()  # as `holdfast worker` does
    async with hf.Engine(url, registry=ECHOES) as engine, engine.worker():
        print(READY, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
