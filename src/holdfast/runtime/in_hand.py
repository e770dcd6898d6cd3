"""Items that were claimed a moment before their time, so that they go on when it comes and not a claim later.

A slot is kept for each, but only as long as nobody else needs one: then they go back, and wait in the store (I3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.coordinator import Commit
from holdfast.core.function_operations import TURN
from holdfast.core.rows import HISTORY, Work
from holdfast.runtime.own_leases import Item
from holdfast.runtime.waiting import either


class InHand:
    """The items of one worker that wait for their moment."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._woken: dict[Item, asyncio.Event] = {}
        self._turns: dict[str, asyncio.Event] = {}  # the same events, by the run of a function

    async def hold(self, work: Work) -> bool:
        """Wait until an item is due, or until something has come for its function. False: it has to go back."""
        item = (work.run, work.node, work.attempt)
        woken = self._woken[item] = asyncio.Event()
        if work.kind == TURN:
            self._turns[work.run] = woken
        try:
            while (early := work.due - self._now()) > 0 and not woken.is_set():
                await either(woken, early / 1e6)
        finally:
            self._turns.pop(work.run, None)
            is_kept = self._woken.pop(item, None) is not None
        return is_kept

    def let_go(self) -> None:
        """Somebody else needs a slot."""
        held, self._woken = self._woken, {}
        for woken in held.values():
            woken.set()

    def on_commit(self, commit: Commit) -> None:
        """What came for a function that waits is let in at once, as it would be by a claim."""
        if self._turns:
            for row in commit.changes.inserts.get(HISTORY, ()):
                if (woken := self._turns.get(row.run)) is not None:
                    woken.set()
