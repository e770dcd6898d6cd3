"""The timers of one run: deadlines in the run's own time, found by address, the earliest first."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.runtime.run_loop import RunLoop

MICROSECONDS: Final = 1_000_000
NEVER_US: Final = 2**62  # asyncio accepts an infinite delay; a database column needs a number


class RunTimer(asyncio.TimerHandle):
    """A callback for a time of the run."""

    __slots__ = ("address", "due_us")

    def __init__(
        self,
        address: str,
        due_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: RunLoop,
        context: Context | None,
    ) -> None:
        super().__init__(due_us / MICROSECONDS, callback, args, loop, context)
        self.address = address
        self.due_us = due_us


class RunTimers:
    """Timers that neither fired nor were cancelled."""

    __slots__ = ("_by_address", "heap", "_made")

    def __init__(self) -> None:
        self._by_address: dict[str, RunTimer] = {}
        self.heap: list[tuple[int, int, RunTimer]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._by_address)

    def add(self, timer: RunTimer) -> None:
        self._made += 1  # of two with the same deadline the one made first is first
        self._by_address[timer.address] = timer
        heapq.heappush(self.heap, (timer.due_us, self._made, timer))

    def take(self, address: str) -> RunTimer | None:
        """Remove and return the timer at this address, if it still waits."""
        timer = self._by_address.pop(address, None)
        # What was removed stays in the heap until it surfaces. A step inside a timeout leaves one behind each
        # time, so the heap is rebuilt before the dead outnumber the living.
        if len(self.heap) > 2 * len(self._by_address) + 64:
            self.heap = [item for item in self.heap if self._waits(item[2])]
            heapq.heapify(self.heap)
        return timer

    def earliest(self) -> RunTimer | None:
        while self.heap:
            timer = self.heap[0][2]
            if self._waits(timer):
                return timer
            heapq.heappop(self.heap)
        return None

    def _waits(self, timer: RunTimer) -> bool:
        return self._by_address.get(timer.address) is timer


NO_TIMERS: Final = RunTimers()  # of all runs without one; never written to


def microseconds(seconds: float) -> int:
    """Return a delay in the unit of the run's clock; an endless one is a date that never comes."""
    if math.isnan(seconds):
        raise ValueError("a delay of NaN seconds has no end; pass a number")
    if seconds > NEVER_US / MICROSECONDS:
        return NEVER_US
    return round(max(seconds, -NEVER_US / MICROSECONDS) * MICROSECONDS)
