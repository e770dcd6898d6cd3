"""When delayed work becomes due: known for what this process committed, asked for what others did.

A claim takes its time, several milliseconds where the disk is slow: what waits for a moment would go on that much after
it. So a worker with plenty of room lets an item in and claims it a little before its time, as long as that has taken
lately, together with what is due soon after, and holds it until its moment (`in_hand.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core import failpoints
from holdfast.core.rows import GATE_DUE, Work
from holdfast.core.seams import Clock
from holdfast.store.contract import Store

SOON_US = 10_000
SLOWEST_SECONDS = 0.025  # of a claim that counts: what is slower has another reason than the disk
REMEMBERED = 8  # claims that the usual time of one is made of
TOGETHER_US = 30_000  # at most: a claim for each would hold up the commits that follow them


class Delayed:
    """Lets work in when its time has come, and asks the store about it no more often than it must."""

    def __init__(self, store: Store, clock: Clock, poll_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._usual_us = 0  # from asking what is due to having claimed it
        self._next_due: int | None = None
        self._ask_again_at = 0.0  # by the monotonic clock: another process may have delayed something for less long

    async def let_in(self, queues: Sequence[str], *, early: bool = False) -> None:
        """Open the gates of what is due, if anything can be: something that is known, or a poll has come.

        With `early` also of what is due in a moment.
        """
        now, ahead = self._clock.monotonic(), self._ahead_us * early
        if now < self._ask_again_at and (self._next_due is None or self._next_due > self._store.now() + ahead):
            return
        self._ask_again_at = now + self._poll_seconds
        self._next_due = None  # what is committed here while the store is asked is noted meanwhile
        due = await self._store.promote(queues, ahead + min(3 * ahead, TOGETHER_US))
        if failpoints.armed:
            await failpoints.reach("due.let_in")
        if due is not None:
            self._expect(due)

    @property
    def _ahead_us(self) -> int:
        return 2 * self._usual_us  # some claims take longer

    def learn(self, seconds: float) -> None:
        """Take how long it took to let in and claim."""
        if seconds < SLOWEST_SECONDS:
            self._usual_us += int((seconds * 1e6 - self._usual_us) / REMEMBERED)

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

    def seconds_until(self, at_most: float, *, early: bool = False) -> float:
        """How long to wait until the next one can be let in, but not longer than this."""
        if self._next_due is None:
            return at_most
        moment = self._next_due - self._ahead_us * early
        return min(at_most, max(0.001, (moment - self._store.now()) / 1e6))
