"""The workloads for Absurd, in its environment: its asynchronous client and worker, the schema that its tool brings."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from absurd_sdk import AsyncAbsurd
from telling import (
    WARM_UP_PART,
    arguments,
    greet_and_idle,
    latencies,
    refuse,
    seconds_since,
    steadily,
    tell,
    tell_latencies,
)

# Its example of a busy worker; one task at a time is its default, which would measure its polls.
CONCURRENCY = 100
LATE_MS: list[float] = []
STEP_TIMES: list[float] = []


async def one() -> int:
    return 1


async def note_the_time() -> None:
    STEP_TIMES.append(time.perf_counter())


def register(app: AsyncAbsurd) -> None:
    @app.register_task(name="chain")
    async def chain(params: Any, ctx: Any) -> int:
        number = 0
        for place in range(params["steps"]):
            number += await ctx.step(f"s{place}", one)
        return number

    @app.register_task(name="timed")
    async def timed(params: Any, ctx: Any) -> None:
        for place in range(params["steps"]):
            await ctx.step(f"s{place}", note_the_time)

    @app.register_task(name="waits")
    async def waits(params: Any, ctx: Any) -> Any:
        return await ctx.await_event(f"go:{params['number']}")

    @app.register_task(name="sleeps")
    async def sleeps(params: Any, ctx: Any) -> None:
        async def due_at() -> float:
            return time.time() + 1.0

        async def note() -> None:
            LATE_MS.append((time.time() - due) * 1000)

        due = await ctx.step("due", due_at)
        await ctx.sleep_until("sleep", due)
        await ctx.step("note", note)


async def run(app: AsyncAbsurd, name: str, params: dict[str, Any]) -> None:
    task = (await app.spawn(name, params))["task_id"]
    await done(app, task)


async def done(app: AsyncAbsurd, task: str) -> Any:
    """Asked every 2 ms: its own wait begins with 50 ms, which would be all that is measured."""
    while True:
        found = await app.fetch_task_result(task)
        if found is not None and found.state in ("completed", "failed", "cancelled"):
            if found.state != "completed":
                raise SystemExit(f"task {task} is {found.state}")
            return found.result
        await asyncio.sleep(0.002)


async def w1(app: AsyncAbsurd, steps: int) -> None:
    """The time between its first and its last step, so that the wait for a poll is not counted."""
    await run(app, "timed", {"steps": steps + 1})
    STEP_TIMES.clear()
    await run(app, "timed", {"steps": steps + 1})
    tell(step_ms=(STEP_TIMES[-1] - STEP_TIMES[0]) / steps * 1000)


async def many(app: AsyncAbsurd, runs: int, steps: int = 3) -> float:
    started = time.perf_counter()
    tasks = [(await app.spawn("chain", {"steps": steps}))["task_id"] for _ in range(runs)]
    for task in tasks:
        await done(app, task)
    return seconds_since(started)


async def w2(app: AsyncAbsurd, runs: int) -> None:
    await many(app, max(1, runs // WARM_UP_PART))
    tell(steps_per_second=3 * runs / await many(app, runs))


async def w3(app: AsyncAbsurd, width: int) -> None:
    """As so many tasks, waited for by the one who made them: a task of its own has no parallel steps."""
    await many(app, max(1, width // WARM_UP_PART), steps=1)
    tell(seconds=await many(app, width, steps=1))


async def w4(app: AsyncAbsurd, samples: int) -> None:
    taken = []
    for _ in range(samples):
        started = time.perf_counter()
        await run(app, "chain", {"steps": 1})
        taken.append(seconds_since(started) * 1000)
    tell_latencies(taken)


async def w5(app: AsyncAbsurd, runs: int) -> None:
    tasks = [(await app.spawn("waits", {"number": number}))["task_id"] for number in range(runs)]
    for task in tasks:  # until they all wait; not measured
        while (found := await app.fetch_task_result(task)) is None or found.state != "sleeping":  # noqa: ASYNC110 - nobody would set an Event
            await asyncio.sleep(0.02)
    started = time.perf_counter()
    for number in range(runs):
        await app.emit_event(f"go:{number}", number)
    results = [await done(app, task) for task in tasks]
    seconds = seconds_since(started)
    if results != list(range(runs)):
        raise SystemExit("not every task got its event")
    tell(seconds=seconds)


async def w6(app: AsyncAbsurd, runs: int) -> None:
    for task in [await app.spawn("sleeps", {}) for _ in range(runs)]:
        await done(app, task["task_id"])
    at_once = latencies(LATE_MS)
    LATE_MS.clear()
    for task in await steadily(runs, lambda: app.spawn("sleeps", {})):
        await done(app, task["task_id"])
    tell(**at_once, **latencies(LATE_MS, "steady_"))


async def first(app: AsyncAbsurd, _: int) -> None:
    await run(app, "chain", {"steps": 1})
    greet_and_idle()


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W6": w6, "first": first}


async def main() -> None:
    url, workload, count = arguments()
    refuse(workload, WORKLOADS)
    control = Path(sys.executable).with_name("absurdctl")
    surroundings = os.environ | {"PGDATABASE": url}
    subprocess.run([control, "init"], env=surroundings, check=True, capture_output=True)  # noqa: ASYNC221
    client, worker = AsyncAbsurd(url), AsyncAbsurd(url)
    for app in (client, worker):
        register(app)
    await client.create_queue("default")
    working = asyncio.create_task(worker.start_worker(concurrency=CONCURRENCY))
    await WORKLOADS[workload](client, count)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working


if __name__ == "__main__":
    asyncio.run(main())
