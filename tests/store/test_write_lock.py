"""The lock of SQLite's one writer goes round: who waits is not passed by, and who stands still holds nobody up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runtime.system import RealClock, sleep
from holdfast.store.sqlite_locks import PATIENCE_SECONDS, WriteLock

DEADLINE_SECONDS = 60.0


class TurnedClock:
    """A clock that goes on by what is slept."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_us(self) -> int:
        return int(self.seconds * 1e6)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[tuple[WriteLock, WriteLock]]:
    made = WriteLock(f"{tmp_path}/app.db-holdfast-lock"), WriteLock(f"{tmp_path}/app.db-holdfast-lock")
    yield made
    for lock in made:
        lock.close()


def test_g9_whoever_waits_for_the_lock_is_next(locks: tuple[WriteLock, WriteLock]) -> None:
    """A process that commits without a pause wants it again in the moment in which it gives it back: it has to wait."""
    busy, waiting = locks
    clock = TurnedClock()
    assert busy.try_lock()
    tries: list[bool] = []

    def while_it_waits(seconds: float) -> None:
        clock.sleep(seconds)
        busy.unlock()
        tries.append(busy.try_lock())

    assert waiting.lock(30.0, clock, while_it_waits)
    assert tries == [False]
    assert not busy.try_lock()
    waiting.unlock()
    assert busy.try_lock()


def test_g9_somebody_who_waits_and_stands_still_holds_nobody_up_for_long(locks: tuple[WriteLock, WriteLock]) -> None:
    """It was stopped, perhaps for a debugger: the lock itself is free, and is taken without the turn after a while."""
    stopped, other = locks
    assert stopped._turn.try_lock()
    clock = TurnedClock()
    assert not other.try_lock()
    assert other.lock(30.0, clock, clock.sleep)
    assert PATIENCE_SECONDS <= clock.seconds < 2 * PATIENCE_SECONDS


def test_the_turn_is_given_back_by_who_gives_up(locks: tuple[WriteLock, WriteLock]) -> None:
    holder, impatient = locks
    assert holder.try_lock()
    clock = TurnedClock()
    assert not impatient.lock(1.0, clock, clock.sleep)
    assert clock.seconds >= 1.0
    holder.unlock()
    assert holder.try_lock()


def test_g9_two_who_never_pause_both_get_their_share(tmp_path: Path) -> None:
    """Threads with locks of their own stand for processes: each takes the lock again when it has given it back."""
    taken: Counter[int] = Counter()
    inside: list[int] = []
    enough = threading.Event()

    def commit_without_pause(number: int) -> None:
        lock = WriteLock(f"{tmp_path}/app.db-holdfast-lock")
        while not enough.is_set():
            if not lock.try_lock():
                assert lock.lock(DEADLINE_SECONDS, RealClock(), sleep)
            inside.append(number)
            assert inside == [number]
            taken[number] += 1
            inside.remove(number)
            lock.unlock()
            if min(taken[0], taken[1]) >= 50:
                enough.set()
        lock.close()

    threads = [threading.Thread(target=commit_without_pause, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    assert enough.wait(DEADLINE_SECONDS)
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert not inside
