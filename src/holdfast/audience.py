"""Who is told of commits: heralds before the callers, observers after them, spectators when this process would wait."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from holdfast.batches import Commit, Submitted, deliver

log = logging.getLogger("holdfast.coordinator")

Observer = Callable[[Commit], None]
Herald = Callable[[Commit], bool]  # whether it has something to send, and a task that does so


class Audience:
    """Tells the callers and everybody else of every commit once, each list in the order of the commits."""

    def __init__(self) -> None:
        self.heralds: list[Herald] = []  # hints to other processes are on their way while the callers here go on
        self.observers: list[Observer] = []
        self.spectators: list[Observer] = []  # what counts and logs, which no operation depends on
        self.untold: list[Commit] = []  # spectators have not heard of these
        self._owed: deque[tuple[list[Submitted], Commit]] = deque()  # nobody has heard of these, but the heralds

    def herald(self, commit: Commit) -> bool:
        """Whether a hint is about to leave, if its task is let run."""
        leaves = False
        for observer in self.heralds:
            try:
                leaves = observer(commit) or leaves
            except Exception:
                log.exception("an observer of commits raised")
        return leaves

    def owe(self, batch: list[Submitted], commit: Commit) -> None:
        """Whoever tells of a later commit tells of this one first."""
        self._owed.append((batch, commit))

    def tell(self, *, another_follows: bool = False) -> None:
        """Tell what is owed. Spectators hear of it now, or if another commit follows at once, while that is written."""
        while self._owed:
            batch, commit = self._owed.popleft()
            deliver(batch)
            _tell(self.observers, commit)
            self.untold.append(commit)
        if not another_follows:
            self.catch_up()

    def catch_up(self) -> None:
        untold, self.untold = self.untold, []
        for commit in untold:
            _tell(self.spectators, commit)


def _tell(observers: list[Observer], commit: Commit) -> None:
    for observer in observers:
        try:
            observer(commit)
        except Exception:
            log.exception("an observer of commits raised")
