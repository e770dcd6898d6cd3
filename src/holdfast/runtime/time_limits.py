"""Time limits of very many short blocks, for the price of one timer.

`asyncio.timeout` makes a timer for every block and takes it back when the block ends: 13 µs, and nearly every attempt
is over long before its time. Here the blocks are listed with their ends, and one timer looks at the list when the first
of them is due. It may find that block gone, and then waits for the next.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

_NEVER: Final = float("inf")


class TimeLimits:
    """Gives blocks that are cut short with TimeoutError, as `asyncio.timeout` does. For the tasks of one event loop."""

    __slots__ = ("_timer", "ends", "looks_at")

    def __init__(self) -> None:
        self.ends: dict[_Limit, float] = {}
        self.looks_at = _NEVER
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, seconds: float | None) -> _Limit:
        return _Limit(self, seconds)

    def look_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.looks_at, self._timer = when, loop.call_at(when, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self.looks_at, self._timer = _NEVER, None
        now = loop.time()
        for limit in [limit for limit, end in self.ends.items() if end <= now]:
            del self.ends[limit]
            limit.expire()
        if self.ends:
            self.look_at(loop, min(self.ends.values()))


class _Limit:
    """One block."""

    __slots__ = ("_cancelling", "_expired", "_limits", "_seconds", "_task")

    def __init__(self, limits: TimeLimits, seconds: float | None) -> None:
        self._limits = limits
        self._seconds = seconds
        self._expired = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit is for code that runs in a task")
        self._task: asyncio.Task[object] | None = task
        self._cancelling = task.cancelling()
        if self._seconds is not None:
            loop, limits = task.get_loop(), self._limits
            end = limits.ends[self] = loop.time() + self._seconds
            if end < limits.looks_at:
                limits.look_at(loop, end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.ends.pop(self, None)
        task, self._task = self._task, None
        # A cancel that others asked for meanwhile stays one.
        ours = self._expired and task is not None and task.uncancel() <= self._cancelling
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def expired(self) -> bool:
        """Whether its time was up before it ended."""
        return self._expired

    def expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()
