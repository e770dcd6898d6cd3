"""Hints to other processes, coalesced and outside the transactions they are about."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from holdfast.coordinator import Commit
from holdfast.core.errors import StoreError
from holdfast.core.function_operations import ENTRY_KINDS, TURN, ContinueAs, TakeTurn
from holdfast.core.rows import HISTORY
from holdfast.core.rows import STREAM as STREAM_TABLE
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.engine")

# Between two hints: short while there is little to tell, and longer the more there is.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.001, 0.016
LITTLE = 2
LAST_WORDS_SECONDS = 0.5
WORK, ENDED, STREAM = "work", "ended", "stream"
_DRIVERS_OWN = (TakeTurn, ContinueAs)


class Announcer:
    """Tells others that there is work, that a run has ended or was told something. Losing a hint costs them a poll.

    New events of streams are told only while somebody may read them: where `tells_streams` says so.
    """

    def __init__(self, store: Store, tells_streams: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self._tells_streams = tells_streams
        self._pending: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self._told = 0  # how often since the last hint

    def on_commit(self, commit: Commit) -> bool:
        """Whether a hint leaves at the next turn of the loop; of many in a row, most go with a later one."""
        if WORK not in self._pending and commit.has_ready_work():
            self._pending.add(WORK)
        if ENDED not in self._pending and (commit.ended_runs() or _tells_a_driver(commit)):
            self._pending.add(ENDED)
        if STREAM_TABLE in commit.changes.inserts and self._tells_streams():
            self._pending.add(STREAM)
        if not self._pending:
            return False
        self._told += 1
        if self._sender is not None and not self._sender.done():
            return False
        self._sender = asyncio.get_running_loop().create_task(self._send(), name="holdfast-announcer")
        return True

    async def _send(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while self._pending:
            channels, self._pending, self._told = frozenset(self._pending), set(), 0
            try:
                await self._store.announce(channels)
            except StoreError as error:
                log.debug("an announcement was lost: %s", error)
            await asyncio.sleep(pause)
            pause = FIRST_PAUSE_SECONDS if self._told <= LITTLE else min(pause * 2, LAST_PAUSE_SECONDS)

    async def close(self) -> None:
        if self._sender is not None:
            # A program that cancels a run and ends at once has something to tell.
            await asyncio.wait([self._sender], timeout=LAST_WORDS_SECONDS)
            self._sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sender


def _tells_a_driver(commit: Commit) -> bool:
    """Whether a function that another process may be driving was told something: its turn stays as it is then."""
    entries = commit.changes.inserts.get(HISTORY)
    told = None if entries is None else {row.run for row in entries if row.kind in ENTRY_KINDS}
    if not told:
        return False
    told -= {operation.run for operation, _ in commit.pairs if isinstance(operation, _DRIVERS_OWN)}
    return bool(told - {work.run for work in commit.work if work.kind == TURN})
