"""Starts that came in a crowd, and wait for a slot of this process.

A run that is started while a slot is free is leased to it by the commit that creates it. Otherwise it is written as
ready and claimed by another commit, which is a tenth more work for each run, at a time when there is more work than can
be done. So in a crowd a start waits for a slot, and what is under way goes first.

It waits for nothing else. Slots may be taken for hours: when nothing is committed for a moment, whoever waits is let in
without a slot, and so are more and more of them when no slot becomes free. And work that is stored already is not
overtaken: the worker lets nobody in while it knows of some.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from holdfast.coordinator import CROWD, Coordinator
from holdfast.core.operations import Offer
from holdfast.runtime.waiting import behind_others

if TYPE_CHECKING:
    from holdfast.runtime.worker import Worker

LOOK_SECONDS = 0.02
PATIENCE = 10  # looks without a free slot after which some are let in without one
FIRST_PARTY = 200  # how many, and at each further look twice as many


class Lobby:
    """Whoever wants to start a run where a worker has no free slot, in the order of arrival."""

    def __init__(self, worker: Worker, coordinator: Coordinator) -> None:
        self._worker = worker
        self._coordinator = coordinator
        self._waiting: deque[asyncio.Future[Offer | None]] = deque()
        self._watch: asyncio.Task[None] | None = None
        self._looks = 0  # since somebody was let in with a slot
        self.is_busy = False  # whether anything was committed lately

    def __len__(self) -> int:
        return len(self._waiting)

    async def slot(self) -> Offer | None:
        """A slot for a run that is about to be started, to be given back with `Worker.accept`, or None without one."""
        if not self._waiting:
            offer = self._worker.reserve()
            if offer is not None or self._coordinator.load < CROWD:
                return offer
        if not self._worker.accepting:
            return None
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Offer | None] = loop.create_future()
        self._waiting.append(place)
        if self._watch is None:
            self._watch = loop.create_task(self._look(), name="holdfast-lobby")
        try:
            return await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.result() is not None:
                self._worker.accept(())
            raise

    def admit(self) -> None:
        """Let in as many as there are free slots."""
        while self._waiting:
            if self._waiting[0].done():  # its caller has given up
                self._waiting.popleft()
                continue
            offer = self._worker.reserve()
            if offer is None:
                return
            self._looks = 0
            self._waiting.popleft().set_result(offer)

    def close(self) -> None:
        """Let everybody in, without a slot: the worker takes nothing more."""
        self._admit_some(len(self._waiting))
        if self._watch is not None:
            self._watch.cancel()

    def _admit_some(self, most: int) -> None:
        for _ in range(min(most, len(self._waiting))):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)

    async def _look(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(LOOK_SECONDS)
                self.is_busy, self._looks = False, self._looks + 1
                await behind_others()  # whatever is under way comes to its next commit meanwhile
                if not self.is_busy and self._coordinator.load == 0 and self._worker.free == 0:
                    self._admit_some(len(self._waiting))
                elif self._looks >= PATIENCE:
                    self._admit_some(FIRST_PARTY << min(self._looks - PATIENCE, 20))
        finally:
            self._watch = None
