"""What the code of an attempt is said to have used (I32): close to the truth, without asking the system each time."""

from __future__ import annotations

import types
from collections.abc import Generator

import pytest

from holdfast.runtime.outcome import FRESH_SECONDS, MOMENT_SECONDS, Meter, ThreadClock, metered


class Times:
    """A wall clock, and what the thread has used by it; how often each was asked."""

    def __init__(self) -> None:
        self.wall = self.used = 100.0
        self.asked = 0

    def processor(self) -> float:
        self.asked += 1
        return self.used

    def clock(self) -> ThreadClock:
        return ThreadClock(lambda: self.wall, self.processor)

    def compute(self, seconds: float) -> None:
        self.wall += seconds
        self.used += seconds

    def wait(self, seconds: float) -> None:
        self.wall += seconds


@types.coroutine
def pause() -> Generator[None, None, None]:
    yield


def test_i32_code_that_computes_for_long_is_said_to_have_used_all_of_it() -> None:
    times, meter = Times(), Meter()

    async def compute() -> str:
        times.compute(0.25)
        return "done"

    with pytest.raises(StopIteration) as stopped:
        metered(meter, compute(), times.clock()).send(None)
    assert stopped.value.value == "done"
    assert meter.cpu_seconds == pytest.approx(0.25)


def test_i32_code_that_holds_up_the_loop_without_computing_is_not_said_to_have_computed() -> None:
    """As `time.sleep` in an `async def` does: at most what the thread used shortly before is counted."""
    times, meter = Times(), Meter()
    clock = times.clock()
    clock.begin()
    times.compute(FRESH_SECONDS / 2)  # by somebody else

    async def hold_up() -> None:
        times.wait(3.0)

    with pytest.raises(StopIteration):
        metered(meter, hold_up(), clock).send(None)
    assert meter.cpu_seconds <= FRESH_SECONDS


def test_i32_what_others_do_while_the_code_waits_is_not_counted_as_its_own() -> None:
    times, meter = Times(), Meter()

    async def compute_twice() -> None:
        times.compute(0.01)
        await pause()
        times.compute(0.02)

    running = metered(meter, compute_twice(), times.clock())
    running.send(None)
    times.compute(5.0)  # others, in the same thread
    with pytest.raises(StopIteration):
        running.send(None)
    assert meter.cpu_seconds == pytest.approx(0.03)


def test_i32_code_that_fails_is_counted_as_well() -> None:
    times, meter = Times(), Meter()

    async def compute_and_fail() -> None:
        times.compute(0.5)
        raise LookupError

    with pytest.raises(LookupError):
        metered(meter, compute_and_fail(), times.clock()).send(None)
    assert meter.cpu_seconds == pytest.approx(0.5)


def test_a_crowd_of_short_steps_asks_the_system_once_in_a_while() -> None:
    """A thousand steps of 20 µs are told what they took, and the system was asked twenty times and not two thousand."""
    times, meter = Times(), Meter()
    clock, step = times.clock(), MOMENT_SECONDS / 5

    async def short() -> None:
        times.compute(step)

    for _ in range(1000):
        with pytest.raises(StopIteration):
            metered(meter, short(), clock).send(None)
    assert meter.cpu_seconds == pytest.approx(1000 * step)
    assert times.asked <= 1000 * step / FRESH_SECONDS + 1
