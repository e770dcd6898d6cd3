"""A clock that stands still until a test turns it, and that turns from one due time to the next.

Theory of operation. Everything durable that waits for a time is in one of two places: a row with a due time (a parked
function, a retry, a run that starts later), or a time limit inside this process (a deadline of a function that is
driven while an action of it runs, the timeout of an action). `advance` looks at both, moves to the earliest, lets
everything happen that is due there, and looks again: in order of time, and no second is waited for.

What runs is waited for in real time, because nobody can tell code that works from code that waits for something else.
An action that takes longer than the clock's patience is left running, and time goes on around it, as it would outside.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.authoring.durations import instant, span_us
from holdfast.core.errors import UsageError
from holdfast.core.rows import Work
from holdfast.settling import commits_of, look, refuse_inside_a_run

if TYPE_CHECKING:
    from holdfast.engine import Engine

SECOND = 1_000_000


class VirtualClock:
    """The time of an engine in memory. It stands still except in `advance`."""

    def __init__(self, start_us: int, *, patience_seconds: float = 1.0) -> None:
        self._now_us = start_us
        self._patience_seconds = patience_seconds
        self._limits: set[VirtualTimeLimit] = set()
        self._engine: Engine | None = None
        self._advancing = False
        self._left_running: set[tuple[str, str, int, int]] = set()

    def __repr__(self) -> str:
        return f"<VirtualClock at {self.now().isoformat()}>"

    def now(self) -> datetime:
        """The time it is there, aware and in UTC."""
        return instant(self._now_us)

    async def advance(
        self,
        span: timedelta | float | None = None,
        /,
        *,
        weeks: float | None = None,
        days: float | None = None,
        hours: float | None = None,
        minutes: float | None = None,
        seconds: float | None = None,
    ) -> None:
        """Let this much time pass: everything that becomes due on the way runs, in order of time, before this returns.

        `advance(days=2)`, `advance(timedelta(…))`, or `advance(5)` for seconds. No second of it is waited for; code
        of actions that takes real time is waited for, up to the patience that `engine_in_memory` was given.
        """
        passing = span_us("clock.advance", span, weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        refuse_inside_a_run("clock.advance()")
        engine = self._engine
        if engine is None:
            raise UsageError(
                "this clock belongs to no open engine, so nothing can become due", hint="advance it inside the block"
            )
        if self._advancing:
            raise UsageError(
                "the clock is being advanced already, and time cannot pass twice at once", hint="await one call first"
            )
        self._advancing = True
        self._left_running.clear()
        try:
            await self._pass_to(engine, self._now_us + passing)
        finally:
            self._advancing = False

    async def _pass_to(self, engine: Engine, target_us: int) -> None:
        await self._settle(engine)
        await self._look_after(engine)
        while (due := await self._next_due(engine)) is not None and due <= target_us:
            await self._turn(engine, due)
            await self._settle(engine)
        await self._turn(engine, target_us)
        await self._look_after(engine)
        await self._settle(engine)

    async def _next_due(self, engine: Engine) -> int | None:
        """The next time at which something happens."""
        queues = sorted({queue for worker in engine.local_workers for queue in worker.queues})
        stored = await engine.store.promote(queues)
        times = [limit.until_us for limit in self._limits if limit.until_us > self._now_us]
        return min([*times, *([] if stored is None else [stored])], default=None)

    async def _turn(self, engine: Engine, to_us: int) -> None:
        self._now_us = max(self._now_us, to_us)
        for limit in sorted(self._limits, key=lambda each: each.until_us):
            if limit.until_us <= self._now_us:
                limit.run_out()
                self._left_running.clear()  # whose limit it was goes on now, and is waited for again
        for worker in engine.local_workers:
            await worker.notice_time()  # first of all: a lease must not look as if it had run out

    async def _look_after(self, engine: Engine) -> None:
        """What workers do from time to time has to be seen to by hand: their own loops follow the real time."""
        for worker in engine.local_workers:
            await worker.look_after_others()

    async def _settle(self, engine: Engine) -> None:
        """Let all that is due happen. What takes longer than the patience is left running from then on."""
        with commits_of(engine) as committed:
            while True:
                committed.clear()
                moving = await look(engine)
                running = [work for work in moving.running if _identity(work) not in self._left_running]
                if not (running or moving.ready or moving.events or moving.projections):
                    return
                try:
                    async with asyncio.timeout(self._patience_seconds):
                        await committed.wait()
                except TimeoutError:
                    self._left_running.update(map(_identity, running))
                    if not running:
                        return  # ready, and nobody takes it: every slot is taken by what was left running

    # -- for the engine

    def belongs_to(self, engine: Engine | None) -> None:
        self._engine = engine

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._now_us / SECOND

    def within(self, seconds: float | None) -> VirtualTimeLimit:
        """A block that may take no longer than this much of the clock's time."""
        return VirtualTimeLimit(self, None if seconds is None else self._now_us + int(seconds * SECOND))

    def add_limit(self, limit: VirtualTimeLimit) -> None:
        self._limits.add(limit)
        if limit.until_us <= self._now_us:
            limit.run_out()

    def remove_limit(self, limit: VirtualTimeLimit) -> None:
        self._limits.discard(limit)


class VirtualTimeLimit:
    """Like `asyncio.timeout`, but for a clock that somebody turns."""

    def __init__(self, clock: VirtualClock, until_us: int | None) -> None:
        self._clock = clock
        self._timeout = asyncio.timeout(None)
        self._has_end = until_us is not None
        self.until_us = until_us or 0

    async def __aenter__(self) -> VirtualTimeLimit:
        await self._timeout.__aenter__()
        if self._has_end:
            self._clock.add_limit(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.remove_limit(self)
        await self._timeout.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        return self._timeout.expired()

    def run_out(self) -> None:
        self._clock.remove_limit(self)
        self._timeout.reschedule(asyncio.get_running_loop().time())


def _identity(work: Work) -> tuple[str, str, int, int]:
    return (work.run, work.node, work.attempt, work.token)
