"""What time it is on the server between its answers, whatever its clock and ours do."""

from __future__ import annotations

from collections import deque

ANSWERS = 8  # the best of so many: the two clocks do not drift apart by anything that counts meanwhile


class ServerTime:
    """How far the server's clock is ahead of ours, which counts from somewhere, from what it said and when.

    It read its clock between our question and its answer, so that each answer gives a least and a most. One that was
    long under way says little, and changes little. The most shows that the server's clock was set back or runs slower.
    """

    def __init__(self, offset_us: int) -> None:
        self._offset_us = offset_us  # a guess, until it has answered
        self._leasts: deque[int] = deque(maxlen=ANSWERS)

    def learn(self, server_us: int, *, asked: float, answered: float) -> None:
        least, most = server_us - int(answered * 1e6) - 1, server_us - int(asked * 1e6)
        self._offset_us = min(max(self._offset_us, least), most)
        if self._leasts and max(self._leasts) > most:
            self._leasts.clear()
        self._leasts.append(least)

    def about(self, monotonic: float) -> int:
        """The server's time now, as well as it is known: right but for the time that a question takes."""
        return int(monotonic * 1e6) + self._offset_us

    def at_least(self, monotonic: float) -> int:
        """It is not earlier than this. Of a server that has not answered yet nothing is known: long ago."""
        return int(monotonic * 1e6) + max(self._leasts) if self._leasts else 0
