"""The workloads for DBOS, in its environment. Steps and workflows as its guide writes them."""

from __future__ import annotations

import sys
import time

# DBOS needs a newer SQLite than many distributions link into Python: the wheel pysqlite3-binary brings one.
if sys.argv[1].startswith("sqlite"):
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2

import asyncio

from dbos import DBOS
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

LATE_MS: list[float] = []
BEGUN: list[int] = []


@DBOS.step()
async def add_one(number: int) -> int:
    return number + 1


@DBOS.step()
def add_one_here(number: int) -> int:
    return number + 1


@DBOS.step()
async def note_how_late(due_seconds: float) -> None:
    LATE_MS.append((time.time() - due_seconds) * 1000)


@DBOS.workflow()
async def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one(number)
    return number


@DBOS.workflow()
def chain_here(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = add_one_here(number)
    return number


@DBOS.workflow()
async def spread(width: int) -> int:
    return sum(await asyncio.gather(*[add_one(number) for number in range(width)]))


@DBOS.workflow()
async def waits(number: int) -> int:
    BEGUN.append(number)
    return await DBOS.recv_async("go", timeout_seconds=600)


@DBOS.workflow()
async def sleeps(seconds: float) -> None:
    due = time.time() + seconds
    await DBOS.sleep_async(seconds)
    await note_how_late(due)


async def w1(steps: int) -> None:
    """Both of its interfaces; the better one counts."""
    await chain(steps)
    started = time.perf_counter()
    await chain(steps)
    awaited = seconds_since(started)

    def here() -> float:
        chain_here(steps)
        began = time.perf_counter()
        chain_here(steps)
        return seconds_since(began)

    tell(step_ms=min(awaited, await asyncio.to_thread(here)) / steps * 1000)


async def many(runs: int) -> float:
    started = time.perf_counter()
    handles = await asyncio.gather(*(DBOS.start_workflow_async(chain, 3) for _ in range(runs)))
    await asyncio.gather(*(handle.get_result() for handle in handles))
    return seconds_since(started)


async def w2(runs: int) -> None:
    await many(max(1, runs // WARM_UP_PART))
    tell(steps_per_second=3 * runs / await many(runs))


async def w3(width: int) -> None:
    await spread(max(1, width // WARM_UP_PART))
    started = time.perf_counter()
    await spread(width)
    tell(seconds=seconds_since(started))


async def w4(samples: int) -> None:
    taken = []
    for number in range(samples + 5):
        started = time.perf_counter()
        handle = await DBOS.start_workflow_async(chain, 1)
        await handle.get_result()
        if number >= 5:
            taken.append(seconds_since(started) * 1000)
        await asyncio.sleep(0.002)
    tell_latencies(taken)


async def w5(runs: int) -> None:
    handles = await asyncio.gather(*(DBOS.start_workflow_async(waits, number) for number in range(runs)))
    while len(BEGUN) < runs:  # noqa: ASYNC110 - nobody would set an Event
        await asyncio.sleep(0.05)
    await asyncio.sleep(2 + runs / 200)  # until the last of them waits too; not measured
    started = time.perf_counter()
    await asyncio.gather(*(DBOS.send_async(handle.workflow_id, number, "go") for number, handle in enumerate(handles)))
    results = await asyncio.gather(*(handle.get_result() for handle in handles))
    seconds = seconds_since(started)
    if results != list(range(runs)):
        raise SystemExit("not every workflow got its message")
    tell(seconds=seconds)


async def w6(runs: int) -> None:
    handles = [await DBOS.start_workflow_async(sleeps, 1.0) for _ in range(runs)]
    await asyncio.gather(*(handle.get_result() for handle in handles))
    at_once = latencies(LATE_MS)
    LATE_MS.clear()
    handles = await steadily(runs, lambda: DBOS.start_workflow_async(sleeps, 1.0))
    await asyncio.gather(*(handle.get_result() for handle in handles))
    tell(**at_once, **latencies(LATE_MS, "steady_"))


async def first(_: int) -> None:
    await chain(1)
    greet_and_idle()


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W6": w6, "first": first}


async def main() -> None:
    url, workload, count = arguments()
    refuse(workload, WORKLOADS)
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})
    DBOS.launch()
    await WORKLOADS[workload](count)
    DBOS.destroy(workflow_completion_timeout_sec=0)


if __name__ == "__main__":
    asyncio.run(main())
