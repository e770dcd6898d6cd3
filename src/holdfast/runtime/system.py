"""The real clock, ids, randomness and threads: what `holdfast.core.seams` leaves open, filled in.

A `System` is the one value through which an engine meets the outside world. The simulation passes another one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from holdfast.core.errors import EngineClosed
from holdfast.core.ids import uuid7
from holdfast.core.seams import Clock, Ids, Randomness, StatementExecutor
from holdfast.runtime.threads import Errand, start_thread

T = TypeVar("T")

# The 74 free bits of a UUIDv7: a counter first, so that ids of one millisecond keep their order, then chance.
_COUNTER_BITS: Final = 21
_FRACTION: Final = 2.0**-53
_CHANCE_BITS: Final = 53  # as many as one random float holds
_COUNTER_END: Final = 1 << _COUNTER_BITS
# Starting in the lower half leaves room for a million ids before the next millisecond has to be borrowed.
_COUNTER_START_END: Final = _COUNTER_END // 2

sleep: Final = time.sleep


class TimeLimit(Protocol):
    """What `asyncio.timeout` gives: a block that is cut short, with TimeoutError, when its time is up."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...

    def expired(self) -> bool: ...


Within = Callable[[float | None], TimeLimit]
"""A block that may take no longer than this many seconds: of the machine's time, or of a clock that a test turns."""


class RealClock:
    """The machine's clock. Right enough to show people; leases and timers follow the database's."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)  # asked for several times with every step

    def now_us(self) -> int:
        return time.time_ns() // 1000


_BYTES, _DRAWS = 7, 64  # so many numbers for one system call
_drawn: list[float] = []  # and not given out yet
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # or a fork would go on with the same numbers


class SystemRandomness:
    """Randomness from the operating system: `random.seed` in user code and a fork leave it alone."""

    __slots__ = ()

    def random(self) -> float:
        """From 0 to below 1, as `random.SystemRandom` gives it, whose module is large and else of no use here."""
        try:
            return _drawn.pop()
        except IndexError:
            chance = os.urandom(_BYTES * _DRAWS)
            fresh = [
                (int.from_bytes(chance[at : at + _BYTES]) >> 3) * _FRACTION for at in range(0, len(chance), _BYTES)
            ]
            number = fresh.pop()  # before others have them: another thread may be quicker
            _drawn.extend(fresh)
            return number


class RealIds:
    """UUIDv7s that sort in the order they were made, within a process, from any of its threads.

    A clock that is set back does not break the order: the last millisecond is then used on.
    """

    __slots__ = ("_clock", "_counter", "_lock", "_milliseconds", "_randomness")

    def __init__(self, clock: Clock, randomness: Randomness) -> None:
        self._clock = clock
        self._randomness = randomness
        self._lock = threading.Lock()
        self._milliseconds = 0
        self._counter = 0

    def new(self) -> str:
        draw = self._randomness.random
        chance = int(draw() * (1 << _CHANCE_BITS))
        with self._lock:
            milliseconds = self._clock.now_us() // 1000
            if milliseconds > self._milliseconds:
                self._milliseconds = milliseconds
                self._counter = int(draw() * _COUNTER_START_END)
            else:
                self._counter += 1
                if self._counter == _COUNTER_END:
                    self._milliseconds += 1
                    self._counter = 0
            milliseconds, counter = self._milliseconds, self._counter
        return uuid7(milliseconds, counter << _CHANCE_BITS | chance)


class InlineExecutor:
    """Runs a statement on the spot: the fastest, while the disk is."""

    __slots__ = ()

    async def run(self, call: Callable[[], T]) -> T:
        return call()

    def close(self) -> None:
        """There is nothing to close."""


class ThreadExecutor:
    """Runs statements one after another on one thread of its own, started at the first of them.

    A statement can't be interrupted. A caller that is cancelled therefore gets its CancelledError only when the
    statement has ended: before that, a rollback would meet a connection that is still in use.
    """

    # A queue of our own takes about 63 µs there and back; concurrent.futures, which does more, takes 73.

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._statements: Final[SimpleQueue[Errand | None]] = SimpleQueue()
        self._started = False
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns or raises; EngineClosed after `close`."""
        if self._closed:
            raise EngineClosed(f"the thread {self._name} is closed and runs no statement any more")
        if not self._started:
            start_thread(self._name, self._statements)
            self._started = True
        errand = Errand(call, asyncio.get_running_loop())
        self._statements.put(errand)
        try:
            await errand.back
        except asyncio.CancelledError as cancelled:
            await errand.wait_until_over()
            raise cancelled from errand.error
        result: T = errand.outcome()
        return result

    def close(self) -> None:
        """Take nothing more. What was handed over is still done, then the thread ends."""
        if not self._closed:
            self._closed = True
            self._statements.put(None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)  # nobody compares or shows a world
class System:
    """Everything an engine takes from the outside world."""

    clock: Clock
    ids: Ids
    randomness: Randomness
    make_inline: Callable[[], StatementExecutor]
    make_threaded: Callable[[str], StatementExecutor]
    sleep: Callable[[float], None]
    within: Within = asyncio.timeout


def real_system() -> System:
    """The world as it is."""
    clock, randomness = RealClock(), SystemRandomness()
    return System(
        clock=clock,
        ids=RealIds(clock, randomness),
        randomness=randomness,
        make_inline=InlineExecutor,
        make_threaded=ThreadExecutor,
        sleep=sleep,
    )
