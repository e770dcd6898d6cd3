"""The watchdog names the line of a run that keeps the event loop to itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.runtime.run_calls import RESULT
from holdfast.runtime.run_loop import Entry, RunLoop
from holdfast.runtime.run_watchdog import LOOKS_BEFORE_SLEEP, RunWatchdog, SlowTurn
from tests.functions.programs import act
from tests.functions.schedules import STARTED_US


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_turn_over_the_limit_is_reported_once_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """It can't be interrupted, but whoever reads the log can change the line."""
    clock = Clock()
    watchdog = RunWatchdog(clock=clock)
    looks: list[list[SlowTurn]] = []

    async def main() -> None:
        clock.now += 0.1
        looks.append(watchdog.look())
        clock.now += 0.2
        looks.append(watchdog.look())  # this line
        looks.append(watchdog.look())
        await act("a")
        looks.append(watchdog.look())

    loop = RunLoop("r-slow", now_us=STARTED_US, watchdog=watchdog)
    loop.begin(main)
    clock.now += 10
    assert watchdog.look() == []  # it waits, and that is no fault
    loop.deliver(Entry("#1", RESULT, "a", "()"))
    assert [len(found) for found in looks] == [0, 1, 0, 0]
    [slow] = looks[1]
    assert (slow.run_id, round(slow.seconds, 3)) == ("r-slow", 0.3)
    assert slow.line == f"{__file__}:{main.__code__.co_firstlineno + 4} in main"
    assert "run r-slow has held the event loop for 0.30 s at" in caplog.text
    assert "move the work into an action" in caplog.text
    loop.evict()


def test_the_thread_sees_a_blocked_turn_and_ends_when_told() -> None:
    """The real thread with the real clock: the function blocks until it has been named."""
    found: list[SlowTurn] = []
    named = threading.Event()

    def report(slow: SlowTurn) -> None:
        found.append(slow)
        named.set()

    watchdog = RunWatchdog(limit_seconds=0.01, look_every_seconds=0.005, report=report)
    watchdog.start()
    watchdog.start()

    async def main() -> None:
        assert named.wait(60)

    loop = RunLoop("r-blocked", now_us=STARTED_US, watchdog=watchdog)
    loop.begin(main)
    watchdog.stop()
    assert loop.outcome().error is None
    assert [slow.run_id for slow in found] == ["r-blocked"]
    assert f"{__file__}:{main.__code__.co_firstlineno + 1} in main" == found[0].line
    loop.evict()


def test_an_idle_process_is_left_alone_and_watched_again_when_a_run_has_a_turn() -> None:
    """A thread that wakes twenty times a second for nothing costs batteries."""
    asleep, named = threading.Event(), threading.Event()

    class Observed(RunWatchdog):
        def _sleep_until_a_turn_begins(self, seen: int) -> None:
            asleep.set()
            super()._sleep_until_a_turn_begins(seen)

    watchdog = Observed(limit_seconds=0.01, look_every_seconds=0.001, report=lambda _: named.set())
    watchdog.start()
    assert asleep.wait(60), f"not asleep after {LOOKS_BEFORE_SLEEP} looks"

    async def main() -> Any:
        return named.wait(60)

    loop = RunLoop("r", now_us=STARTED_US, watchdog=watchdog)
    loop.begin(main)
    assert loop.outcome().value is True
    loop.evict()
    watchdog.stop()
