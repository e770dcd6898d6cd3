"""When delayed work becomes due: known for what this process committed, asked for what others did.

Letting it in, claiming it, and with some of it one commit more, takes as long as a few commits. So that it is not late
by that, it is let in ahead of its time by about as much, and whoever has claimed it waits for the rest (decision 0033).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.core import ahead, failpoints
from holdfast.core.rows import GATE_DUE, Work
from holdfast.core.seams import Clock
from holdfast.store.contract import Store

SOON_US = 10_000
COMMITS_AHEAD = 4  # to let it in, to claim it, the commit of what is known before, and the one that is under way
WAKING_US = 2_000  # a timer of the event loop may be a millisecond late, and there are others to be served


class Delayed:
    """Lets work in when its time has come, and asks the store about it no more often than it must."""

    def __init__(self, store: Store, clock: Clock, poll_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._next_due: int | None = None
        self._ask_again_at = 0.0  # by the monotonic clock: another process may have delayed something for less long
        self._commit_us = 0.0  # what a commit takes, lately
        self.is_crowded = False  # there is work to do that waits for a slot: none is for what is not due
        self.is_over = False  # the worker stops: what is not due is for others

    @property
    def ahead_us(self) -> int:
        """How much ahead of its time work is let in. Nothing where commits take no time, as with a clock of tests."""
        if self.is_crowded or not self._commit_us:
            return 0
        return min(ahead.MOST_AHEAD_US, WAKING_US + int(COMMITS_AHEAD * self._commit_us))

    def note_commit(self, seconds: float) -> None:
        self._commit_us += (seconds * 1e6 - self._commit_us) / 16

    async def let_in(self, queues: Sequence[str]) -> None:
        """Open the gates of what is due, if anything can be: something that is known, or a poll has come."""
        now, ahead_us = self._clock.monotonic(), self.ahead_us
        if now < self._ask_again_at and (self._next_due is None or self._next_due > self._store.now() + ahead_us):
            return
        self._ask_again_at = now + self._poll_seconds
        self._next_due = None  # what is committed here while the store is asked is noted meanwhile
        due = await self._store.promote(queues, ahead_us)
        if failpoints.armed:
            await failpoints.reach("due.let_in")
        if due is not None:
            self._expect(due)

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
        return min(at_most, max(0.001, (self._next_due - self.ahead_us - self._store.now()) / 1e6))

    async def until(self, due: int) -> bool:
        """Wait for the time of what was let in ahead of it; False if it is not to be begun here any more.

        Whatever clocks do meanwhile, also if they stand still: twice, and no longer than it can be ahead.
        """
        waited = False
        for _ in range(2):
            if (left := min(self._store.time_left(due), ahead.MOST_AHEAD_US)) <= 0:
                break
            await asyncio.sleep(left / 1e6)
            waited = True
        return not (waited and self.is_over)
