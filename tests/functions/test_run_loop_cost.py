"""What a step of a durable function costs, before any store: order and quiet must stay cheap."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.runtime.run_calls import RESULT
from holdfast.runtime.run_loop import Entry, RunLoop
from holdfast.runtime.run_watchdog import RunWatchdog
from tests.functions.programs import act
from tests.functions.schedules import STARTED_US

STEPS = 4_000
WIDTH = 4_000
RUNS = 1_000
# A shared machine is slow for everyone at the same time, so costs are compared with plain asyncio in the same minute.
TIMES_PLAIN_ASYNCIO = 5.0
BYTES_A_RUN = 8_000


async def steps(count: int) -> None:
    for number in range(count):
        await act("a", number)


async def steps_in_timeouts(count: int) -> None:
    for number in range(count):
        async with asyncio.timeout(60):
            await act("a", number)


async def wide(count: int) -> None:
    await asyncio.gather(*[act("a", number) for number in range(count)])


async def plain(count: int) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(count):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


def microseconds(count: int, work: Callable[[], Any]) -> float:
    best = float("inf")  # of the processor's time: other programs run on this machine too
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best / count * 1e6


def live(main: Callable[[int], Any], count: int) -> list[Entry]:
    loop = RunLoop("r-cost", now_us=STARTED_US, watchdog=RunWatchdog())
    loop.begin(lambda: main(count))
    journal = []
    while not loop.done:
        for request in loop.new_requests():
            entry = Entry(request.address, RESULT, request.name, request.digest, None, STARTED_US + len(journal))
            journal.append(entry)
            loop.deliver(entry)
    loop.evict()
    return journal


def replayed(main: Callable[[int], Any], count: int, journal: list[Entry]) -> None:
    loop = RunLoop("r-cost", now_us=STARTED_US)
    loop.begin(lambda: main(count))
    for entry in journal:
        loop.deliver(entry)
    assert loop.done
    loop.evict()


@pytest.mark.timing
def test_a_step_costs_little_more_than_plain_asyncio() -> None:
    """A step's write takes hundreds of microseconds; the order around it must not be noticed."""
    journal = live(steps, STEPS)
    base = microseconds(STEPS, lambda: asyncio.run(plain(STEPS)))
    costs = {
        "live step": microseconds(STEPS, lambda: live(steps, STEPS)),
        "replayed step": microseconds(STEPS, lambda: replayed(steps, STEPS, journal)),
        "step inside a timeout": microseconds(STEPS, lambda: live(steps_in_timeouts, STEPS)),
        "element of a gather": microseconds(WIDTH, lambda: live(wide, WIDTH)),
    }
    print(f"\nplain asyncio: {base:.1f} µs a step")
    for what, cost in costs.items():
        print(f"{what}: {cost:.1f} µs, {cost / base:.1f} times plain asyncio")
    assert costs["live step"] < TIMES_PLAIN_ASYNCIO * base
    assert costs["replayed step"] < TIMES_PLAIN_ASYNCIO * base


@pytest.mark.timing
def test_a_resident_run_is_small_and_quick_to_evict() -> None:
    """Live runs stay in memory, so ten thousand of them must fit."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    loops = [RunLoop(f"r-{number}", now_us=STARTED_US) for number in range(RUNS)]
    for loop in loops:
        loop.begin(lambda: steps(1))
    size = (tracemalloc.get_traced_memory()[0] - before) / RUNS
    tracemalloc.stop()
    began = time.process_time()
    for loop in loops:
        loop.evict()
    evicting = (time.process_time() - began) / RUNS * 1e6
    print(f"\n{size:,.0f} bytes a resident run, {evicting:.1f} µs to evict one")
    assert size < BYTES_A_RUN
