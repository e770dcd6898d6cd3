"""An event loop for several simulated processes: virtual time, and dice that say who goes on next.

Theory of operation. Everything that runs belongs to a *lane*, which stands for a process: a context variable says
which, so tasks, timers and callbacks inherit it from whoever made them. Within a lane callbacks run in the order in
which they were made, as asyncio promises; between lanes the dice decide. A lane can be frozen (its callbacks wait, as
those of a stopped process do) or dead (they are dropped, as those of a killed one are: no `finally` of it runs).

When no lane has anything to do, time jumps to the next timer. Nothing ever waits, and the same dice give the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Literal
from weakref import WeakSet

MOST_IN_A_ROW = 6  # callbacks of one lane before the dice are asked again


class Stalled(Exception):
    """Nobody has anything to do, and nobody waits for a time."""


class Lane:
    """A simulated process, as the loop sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: Literal["alive", "frozen", "dead"] = "alive"
        self.queue: deque[asyncio.Handle] = deque()
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.is_busy = False  # the loop has it on its list of those who may go on
        self.context: Context = copy_context()
        self.context.run(_LANE.set, self)

    def __repr__(self) -> str:
        return f"<lane {self.name}, {self.state}>"


_LANE: ContextVar[Lane] = ContextVar("lane")
_NOWHERE = Lane("outside")


def current_lane() -> Lane:
    """The lane of whoever asks."""
    return _LANE.get(_NOWHERE)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs lanes, one callback at a time. Belongs to one thread, and to one seed."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self._now = 0.0
        self._busy: list[Lane] = []  # lanes that have something to do and may do it
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0  # timers of one moment keep their order
        self._kept: list[asyncio.Task[Any]] = []
        self._lanes: dict[str, Lane] = {}
        self._over = False
        self.callbacks = 0

    # -- time

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    # -- callbacks

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _enqueue(self, handle: asyncio.Handle) -> None:
        lane = handle._context.get(_LANE, _NOWHERE)  # type: ignore[attr-defined]
        if lane.state == "dead" or self._over:
            return
        lane.queue.append(handle)
        self._join(lane)

    def _run_once(self) -> None:
        busy = self._busy
        if not busy:
            self._jump()
            return
        lane = busy[int(self._dice.random() * len(busy)) if len(busy) > 1 else 0]
        for _ in range(1 + int(self._dice.random() * MOST_IN_A_ROW)):
            handle = lane.queue.popleft()
            if not handle._cancelled:  # type: ignore[attr-defined]
                self.callbacks += 1
                handle._run()
            if lane.state != "alive":
                return  # it was frozen or killed by what it did
            if not lane.queue:
                self._leave(lane)
                return

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
        if not timers:
            raise Stalled("no lane has anything to do, and nobody waits for a time")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:  # type: ignore[attr-defined]
                self._enqueue(handle)

    # -- lanes

    def spawn(self, lane: Lane, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task in that lane."""
        return lane.context.copy().run(self.create_task, coroutine)

    def freeze(self, lane: Lane) -> None:
        """Let nothing of this lane run until it is thawed."""
        if lane.state == "alive":
            lane.state = "frozen"
            self._leave(lane)

    def thaw(self, lane: Lane) -> None:
        if lane.state == "frozen":
            lane.state = "alive"
            self._join(lane)

    def kill(self, lane: Lane) -> None:
        """Let nothing of this lane ever run again."""
        lane.state = "dead"
        self._leave(lane)
        # Whoever is suspended in there must not be collected before the end: that would run its `finally` blocks.
        self._kept += lane.tasks
        lane.queue.clear()

    def _join(self, lane: Lane) -> None:
        if not lane.is_busy and lane.queue and lane.state == "alive":
            lane.is_busy = True
            self._busy.append(lane)

    def _leave(self, lane: Lane) -> None:
        if lane.is_busy:
            lane.is_busy = False
            self._busy.remove(lane)

    # -- what asyncio asks of a loop

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        lane = current_lane() if context is None else context.get(_LANE, _NOWHERE)
        lane.tasks.add(task)
        self._lanes.setdefault(lane.name, lane)
        return task

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """What a killed lane leaves behind is dropped as it is."""
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None: ...

    def _process_events(self, event_list: Any) -> None: ...

    def abandon(self) -> None:
        """End the simulation: whatever is suspended is closed, and what it still wants to do then never happens."""
        left = [*self._kept, *(task for lane in self._lanes.values() for task in list(lane.tasks))]
        with self.as_the_end():
            for task in left:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()  # type: ignore[union-attr]
        self._timers.clear()
        self._busy.clear()
        self._kept.clear()
        self._lanes.clear()
        self.close()

    @contextlib.contextmanager
    def as_the_end(self) -> Iterator[None]:
        """Inside, tasks can be made and nothing runs: for `finally` blocks, which would else find another loop."""
        self._over = True
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)
