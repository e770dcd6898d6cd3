"""When a worker has been asked to stop once, and when twice.

A terminal tells a whole group of processes of a Ctrl-C, and a launcher or a supervisor hands on what it got, so one
wish often arrives as two signals. A person who is impatient takes longer than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ONE_WISH_SECONDS: Final = 0.1


class StopRequests:
    """Counts wishes, and not signals. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: float | None = None
        self.wishes = 0

    def asked(self) -> bool:
        """A signal came; False if it belongs to the wish that was counted last."""
        now = self._clock()
        if self._last is not None and now - self._last < ONE_WISH_SECONDS:
            return False
        self._last = now
        self.wishes += 1
        return True


__all__ = ["ONE_WISH_SECONDS", "StopRequests"]
