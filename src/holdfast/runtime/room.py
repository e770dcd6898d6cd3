"""Slots that a completion offers for what it makes ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.operations import Offer

if TYPE_CHECKING:
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.worker import Worker


class Room(msgspec.Struct, eq=False):
    """A chain's own slot, and free ones that a completion reserves meanwhile: two must not offer the same one."""

    worker: Worker
    taken: int = 0
    own: int = 1  # 0: the chain was long, and others wait for its slot
    running: Attempt | None = None

    def offer(self) -> Offer | None:
        worker = self.worker
        if self.taken:  # a transactional action that lost a race makes its offer again
            self.give_back()
        if not worker.hands_over:
            return None
        # Two completions must not offer the same free slot, or the bound on concurrency would not hold.
        # None is lent where the completion may be refused, and only comes when it is time for it.
        self.taken = 0 if self.running is not None and self.running.ahead else worker.lend()
        room = self.own + self.taken
        return Offer(worker=worker.id, room=room, queues=worker.queues) if room > 0 else None

    def give_back(self) -> None:
        if self.taken:
            self.worker.take_back(self.taken)
            self.taken = 0
