"""When the store is asked for what has become due: when something has, and as often as it is polled (K11)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.rows import GATE_DUE, GATE_OPEN, GATE_PAUSED, READY, Work
from holdfast.runtime.delayed import Delayed
from holdfast.store.memory import MemoryStore
from tests.support.stores import VirtualClock

POLL_SECONDS = 10.0


class Counted(MemoryStore):
    """Counts how often it is asked, and knows of something that another process has delayed."""

    asked = 0
    due_elsewhere: int | None = None

    async def promote(self, queues: Sequence[str]) -> int | None:
        self.asked += 1
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
        async def promote(self, queues: Sequence[str]) -> int | None:
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
