"""How far a stream may be read on PostgreSQL: up to a position below which nothing can appear any more (I36).

Theory of operation. Positions come from a sequence, so they are given before their transactions commit, and a lower
one may become visible after a higher one. A reader that went by what it sees would pass over it for ever.

Every writer has its transaction id before it takes a position. The *horizon* reads the sequence's last value P and
then takes a transaction id X of its own: whoever holds a position up to P has an id below X. Once some later snapshot
says that all transactions below X have ended, every position up to P is committed or will never be: P is settled.

A snapshot's own upper end would not do for X: it lies just above the last transaction that has *ended*, and a writer
that is still busy may be at or above it. So X is a real id. It is taken only when there are new positions, so a
quiet database spends none.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Mark(NamedTuple):
    """A last position, and the transaction id that all who took it or a lower one are below."""

    position: int
    below: int
    seen: float  # seconds of this process's monotonic clock


class Horizon:
    """The settled position that this process knows, and the marks that it waits for."""

    LIMIT = 1000  # marks that are kept: each is worth one more step of the bound while an older transaction is open

    def __init__(self) -> None:
        self.settled = 0
        self._marks: deque[Mark] = deque()

    @property
    def newest(self) -> int:
        """The highest position that is known here, settled or not."""
        return self._marks[-1].position if self._marks else self.settled

    @property
    def waiting(self) -> Mark | None:
        """The mark that has waited longest, if there is one."""
        return self._marks[0] if self._marks else None

    def note(self, position: int, below: int, now: float) -> None:
        """The sequence had come to `position`, and `below` is an id that was taken afterwards."""
        if position <= self.newest:
            return
        if len(self._marks) == self.LIMIT:
            self._marks.pop()  # the new mark covers it, only later
        self._marks.append(Mark(position, below, now))

    def settle(self, oldest_running: int) -> int:
        """All transactions below `oldest_running` have ended: the bound from now on."""
        while self._marks and self._marks[0].below <= oldest_running:
            self.settled = self._marks.popleft().position
        return self.settled
