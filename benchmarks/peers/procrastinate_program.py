"""The workloads for Procrastinate, in its environment.

It is a queue: a chain is jobs of which each defers the next before it ends, and what follows from a job is noticed by a
job that runs, in the worker's process, and not by who deferred it. It keeps no results, so none are waited for; that
makes its figures a little better than those of engines that do.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import suppress
from itertools import pairwise

from procrastinate import App, PsycopgConnector
from telling import WARM_UP_PART, arguments, greet_and_idle, refuse, seconds_since, tell, tell_latencies

CONCURRENCY = 100  # asynchronous jobs that do nothing; one at a time is its default
app = App(connector=PsycopgConnector())


class Ended:
    """Counts jobs that were the last of their chain."""

    def __init__(self) -> None:
        self.missing = 0
        self.all = asyncio.Event()

    def expect(self, number: int) -> None:
        self.missing = number
        self.all.clear()

    def one(self) -> None:
        self.missing -= 1
        if self.missing == 0:
            self.all.set()


ENDED = Ended()
LATE_MS: list[float] = []
STEP_TIMES: list[float] = []


@app.task(name="link")
async def link(left: int) -> None:
    STEP_TIMES.append(time.perf_counter())
    if left > 1:
        await link.defer_async(left=left - 1)
    else:
        ENDED.one()


@app.task(name="late")
async def late(due: float) -> None:
    LATE_MS.append((time.time() - due) * 1000)
    ENDED.one()


async def run_chains(runs: int, steps: int) -> float:
    ENDED.expect(runs)
    started = time.perf_counter()
    await link.batch_defer_async(*({"left": steps} for _ in range(runs)))
    await ENDED.all.wait()
    return seconds_since(started)


async def w1(steps: int) -> None:
    """Its median step: now and then a notification is missed and its poll of five seconds decides."""
    await run_chains(1, max(1, steps // WARM_UP_PART))
    STEP_TIMES.clear()
    await run_chains(1, steps + 1)
    gaps = [after - before for before, after in pairwise(STEP_TIMES)]
    tell(step_ms=statistics.median(gaps) * 1000, mean_step_ms=statistics.mean(gaps) * 1000)


async def w2(runs: int) -> None:
    await run_chains(max(1, runs // WARM_UP_PART), 3)
    tell(steps_per_second=3 * runs / await run_chains(runs, 3))


async def w3(width: int) -> None:
    await run_chains(max(1, width // WARM_UP_PART), 1)
    tell(seconds=await run_chains(width, 1))


async def w4(samples: int) -> None:
    taken = []
    for number in range(samples + 5):
        seconds = await run_chains(1, 1)
        if number >= 5:
            taken.append(seconds * 1000)
        await asyncio.sleep(0.02)
    tell_latencies(taken)


async def w6(runs: int) -> None:
    ENDED.expect(runs)
    for _ in range(runs):
        await late.configure(schedule_in={"seconds": 1}).defer_async(due=time.time() + 1.0)
    await ENDED.all.wait()
    tell_latencies(LATE_MS)


async def first(_: int) -> None:
    await run_chains(1, 1)
    greet_and_idle()


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W6": w6, "first": first}


async def main() -> None:
    url, workload, count = arguments()
    refuse(workload, WORKLOADS)
    connector = PsycopgConnector(conninfo=url)
    with app.replace_connector(connector):
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            working = asyncio.create_task(
                app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False, delete_jobs="never")
            )
            await asyncio.sleep(0 if workload == "first" else 0.3)
            await WORKLOADS[workload](count)
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


if __name__ == "__main__":
    asyncio.run(main())
