"""When delayed work becomes due: known for what this process committed, asked for what others did.

A claim takes its time, several milliseconds where the disk is slow: what waits for a moment would go on that much after
it. So an item is let in and claimed as long before as that has taken lately, and its worker waits for the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.core import failpoints
from holdfast.core.rows import GATE_DUE, Work
from holdfast.core.seams import Clock
from holdfast.store.contract import Store

SOON_US = 10_000
MOST_AHEAD_SECONDS = 0.05
REMEMBERED = 8  # claims that the usual time of one is made of


class Delayed:
    """Lets work in when its time has come, and asks the store about it no more often than it must."""

    def __init__(self, store: Store, clock: Clock, poll_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._usual_seconds = 0.0  # from asking what is due to having it
        self._next_due: int | None = None
        self._ask_again_at = 0.0  # by the monotonic clock: another process may have delayed something for less long

    async def let_in(self, queues: Sequence[str]) -> None:
        """Open the gates of what is due, if anything can be: something that is known, or a poll has come."""
        now, ahead = self._clock.monotonic(), self._ahead_us
        if now < self._ask_again_at and (self._next_due is None or self._next_due > self._store.now() + ahead):
            return
        self._ask_again_at = now + self._poll_seconds
        self._next_due = None  # what is committed here while the store is asked is noted meanwhile
        due = await self._store.promote(queues, ahead)
        if failpoints.armed:
            await failpoints.reach("due.let_in")
        if due is not None:
            self._expect(due)

    @property
    def _ahead_us(self) -> int:
        return int(2e6 * self._usual_seconds)  # some take longer than usual

    def learn(self, seconds: float) -> None:
        """Take how long it took to let in and claim."""
        if seconds < MOST_AHEAD_SECONDS / 2:  # else something else was slow
            self._usual_seconds += (seconds - self._usual_seconds) / REMEMBERED

    async def until_due(self, work: Work) -> None:
        """Return when the time of an item has come that was claimed a little before."""
        while (early := work.due - self._store.now()) > 0:
            await asyncio.sleep(early / 1e6)

    def note(self, work: Work) -> bool:
        """Take an item that was committed here; True if it is due before all that was known."""
        return work.gate == GATE_DUE and self._expect(work.due)

    def _expect(self, due: int) -> bool:
        if self._next_due is not None and self._next_due <= due:
            return False
        self._next_due = due
        return True

    def look_again_soon(self) -> None:
        """Something is ready, and was not to be had just now."""
        self._expect(self._store.now() + SOON_US)

    def forget(self) -> None:
        """The clock was turned: ask, whatever is known."""
        self._ask_again_at = 0.0

    def seconds_until(self, at_most: float) -> float:
        """How long to wait for the next one, but not longer than this."""
        if self._next_due is None:
            return at_most
        return min(at_most, max(0.001, (self._next_due - self._ahead_us - self._store.now()) / 1e6))
