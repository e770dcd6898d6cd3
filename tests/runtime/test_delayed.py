"""When the store is asked for what has become due: when something has, and as often as it is polled (K11)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from holdfast.core.ahead import MOST_AHEAD_US
from holdfast.core.rows import GATE_DUE, GATE_OPEN, GATE_PAUSED, READY, Work
from holdfast.runtime.delayed import COMMITS_AHEAD, WAKING_US, Delayed
from holdfast.runtime.system import RealClock
from holdfast.store.memory import MemoryStore
from tests.support.stores import VirtualClock

POLL_SECONDS = 10.0


class Counted(MemoryStore):
    """Counts how often it is asked, and knows of something that another process has delayed."""

    asked = 0
    due_elsewhere: int | None = None

    async def promote(self, queues: Sequence[str], ahead_us: int = 0) -> int | None:
        self.asked += 1
        self.ahead_us = ahead_us
        return self.due_elsewhere


def made() -> tuple[VirtualClock, Counted, Delayed]:
    clock = VirtualClock()
    store = Counted(clock)
    return clock, store, Delayed(store, clock, POLL_SECONDS)


def due(at: int, gate: int = GATE_DUE) -> Work:
    return Work(run="r", node="n", attempt=1, workflow="w", status=READY, gate=gate, due=at)


async def test_claims_in_a_row_ask_once_for_what_is_due() -> None:
    clock, store, delayed = made()
    for _ in range(5):
        await delayed.let_in(["default"])
    assert store.asked == 1
    clock.advance(POLL_SECONDS)
    await delayed.let_in(["default"])
    assert store.asked == 2


async def test_what_was_committed_here_is_asked_for_when_its_time_has_come() -> None:
    clock, store, delayed = made()
    await delayed.let_in(["default"])
    assert delayed.note(due(store.now() + 2_000_000))
    assert not delayed.note(due(store.now() + 3_000_000))  # nothing to wait shorter for
    assert delayed.seconds_until(POLL_SECONDS) == 2.0
    await delayed.let_in(["default"])
    assert store.asked == 1
    clock.advance(2.0)
    await delayed.let_in(["default"])
    assert store.asked == 2
    assert delayed.seconds_until(POLL_SECONDS) == POLL_SECONDS


async def test_what_others_have_delayed_is_waited_for_once_it_is_known() -> None:
    clock, store, delayed = made()
    store.due_elsewhere = store.now() + 4_000_000
    await delayed.let_in(["default"])
    assert delayed.seconds_until(POLL_SECONDS) == 4.0
    clock.advance(4.0)
    await delayed.let_in(["default"])
    assert store.asked == 2


async def test_only_work_that_waits_for_its_time_is_waited_for() -> None:
    _, store, delayed = made()
    await delayed.let_in(["default"])
    paused = due(store.now() + 1, GATE_PAUSED)
    assert not delayed.note(paused)
    assert not delayed.note(replace(paused, gate=GATE_OPEN))
    assert delayed.seconds_until(POLL_SECONDS) == POLL_SECONDS


async def test_what_is_committed_while_the_store_is_asked_is_not_lost() -> None:
    clock = VirtualClock()

    class Meanwhile(Counted):
        async def promote(self, queues: Sequence[str], ahead_us: int = 0) -> int | None:
            delayed.note(due(self.now() + 1_000_000))
            return self.now() + 5_000_000

    delayed = Delayed(Meanwhile(clock), clock, POLL_SECONDS)
    await delayed.let_in(["default"])
    assert delayed.seconds_until(POLL_SECONDS) == 1.0


async def test_a_clock_that_was_turned_is_no_reason_to_wait_for_the_next_poll() -> None:
    _, store, delayed = made()
    await delayed.let_in(["default"])
    delayed.forget()
    await delayed.let_in(["default"])
    assert store.asked == 2


async def test_work_is_let_in_ahead_of_its_time_by_as_long_as_some_commits_take() -> None:
    clock, store, delayed = made()
    assert delayed.ahead_us == 0
    for _ in range(200):
        delayed.note_commit(0.002)
    assert delayed.ahead_us == pytest.approx(WAKING_US + COMMITS_AHEAD * 2000, rel=0.01)
    await delayed.let_in(["default"])
    delayed.note(due(store.now() + 1_000_000))
    assert delayed.seconds_until(POLL_SECONDS) == pytest.approx(1 - delayed.ahead_us / 1e6)
    clock.advance(1 - delayed.ahead_us / 1e6 + 0.001)
    await delayed.let_in(["default"])
    assert (store.asked, store.ahead_us) == (2, delayed.ahead_us)


async def test_a_disk_that_hangs_lets_nothing_in_long_before_its_time() -> None:
    _, _, delayed = made()
    delayed.note_commit(10.0)
    assert delayed.ahead_us == MOST_AHEAD_US


async def test_g9_what_is_not_due_takes_no_slot_from_what_waits_for_one() -> None:
    _, _, delayed = made()
    delayed.note_commit(10.0)
    delayed.is_crowded = True
    assert delayed.ahead_us == 0


class Slow(Counted):
    """By its clock, which stands still or was set back, there is always some time left."""

    left_us = 1

    def time_left(self, due: int) -> int:
        return self.left_us


async def test_g6_who_has_claimed_ahead_waits_for_the_time_by_the_stores_clock() -> None:
    store = MemoryStore(RealClock())
    at = store.now() + 3_000
    await Delayed(store, RealClock(), POLL_SECONDS).until(at)
    assert store.now() >= at


@pytest.mark.parametrize("left_us", [1, MOST_AHEAD_US, 10**12])
async def test_g9_nobody_waits_for_a_clock_that_does_not_come_to_it(
    left_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def noted(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)
    clock = VirtualClock()
    store = Slow(clock)
    store.left_us = left_us
    await Delayed(store, clock, POLL_SECONDS).until(clock.now_us() + 10**9)
    assert slept == [min(left_us, MOST_AHEAD_US) / 1e6] * 2
