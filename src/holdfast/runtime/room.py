"""Slots that a completion offers for what it makes ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.operations import Offer

if TYPE_CHECKING:
    from holdfast.runtime.worker import Worker


class Room:
    """A chain's own slot, and free ones that a completion reserves meanwhile: two must not offer the same one."""

    __slots__ = ("_taken", "_worker", "own")

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._taken = 0
        self.own = 1  # 0: the chain was long, and others wait for its slot

    def offer(self) -> Offer | None:
        worker = self._worker
        if self._taken:  # a transactional action that lost a race makes its offer again
            self.give_back()
        if not worker.hands_over:
            return None
        # Two completions must not offer the same free slot, or the bound on concurrency would not hold.
        self._taken = worker.lend()
        room = self.own + self._taken
        return Offer(worker=worker.id, room=room, queues=worker.queues) if room > 0 else None

    def give_back(self) -> None:
        if self._taken:
            self._worker.take_back(self._taken)
            self._taken = 0
