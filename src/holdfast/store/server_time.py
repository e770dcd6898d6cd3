"""What time it is on the server, at the least: between its answers, and whatever its clock and ours do."""

from __future__ import annotations

from collections import deque

ANSWERS = 8  # the best of so many: the two clocks do not drift apart by anything that counts meanwhile


class ServerTime:
    """How far the server's clock is ahead of ours, which counts from somewhere, from what it said and when.

    It read its clock between our question and its answer, so that each answer gives a least and a most. The most of
    the leasts is nearest to the truth; where it is above the most of the last answer, the server's clock was set back.
    """

    def __init__(self) -> None:
        self._leasts: deque[int] = deque(maxlen=ANSWERS)

    def learn(self, server_us: int, *, asked: float, answered: float) -> None:
        if self._leasts and max(self._leasts) > server_us - int(asked * 1e6):
            self._leasts.clear()
        self._leasts.append(server_us - int(answered * 1e6) - 1)  # a microsecond, as both are cut off

    def at_least(self, monotonic: float) -> int:
        """The server's time now. Of one that has not answered yet nothing is known: long ago."""
        return int(monotonic * 1e6) + max(self._leasts) if self._leasts else 0
