"""Waiting for runs: one poller for all waiters of a process, no connection and no thread for any of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from holdfast.coordinator import Commit
from holdfast.core.errors import StoreError, StoreUnavailable, UnknownWorkflow
from holdfast.core.rows import RUNS, Run
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.engine")

FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.05, 0.25  # hints come sooner where the store gives them
# Thousands may be waited for, and asking for all of them takes long: so many times as long is waited before the next
# poll, and before the next hint is followed. For a few, one slow answer says nothing about the next.
REST_BEFORE_POLL, REST_BEFORE_HINT, LONGEST_REST_SECONDS = 20, 4, 2.0
QUICK_SECONDS, FEW = 0.002, 50
POLLS_FOR_EXISTENCE: Final = 8  # the others ask for runs that have settled only: of thousands, most have not
_UNLIMITED: Final = contextlib.nullcontext()

T = TypeVar("T")


def limited(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    """Raises TimeoutError when the time is up."""
    return _UNLIMITED if seconds is None else asyncio.timeout(seconds)


class Watch:
    """Tells waiters when a run reaches a state; commits of this process tell at once, others are polled for."""

    def __init__(self, store: Store, peek: Callable[[str], Run | None]) -> None:
        self._store = store
        self._peek = peek  # the run as this process last committed or read it, if it remembers
        # What they want, where they are told, and who they are in the order in which they came.
        self._waiting: dict[str, list[tuple[Callable[[Run], bool], asyncio.Future[Run], int]]] = {}
        self._came = 0
        self._for_others = 0  # who waits for something else than that a run has settled
        self._hint = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poller: asyncio.Task[None] | None = None
        self._unknown: set[str] = set()  # runs to look for: one statement for all who ask at the same moment
        self._looker: asyncio.Task[frozenset[str] | None] | None = None

    def on_commit(self, commit: Commit) -> None:
        if waiting := self._waiting:
            for before, run in commit.changes.updates.get(RUNS, ()):
                if run.status != before.status and run.id in waiting:  # most steps change no status
                    self._tell(run)
            for run in commit.changes.inserts.get(RUNS, ()):
                if run.id in waiting:
                    self._tell(run)

    def hint(self) -> None:
        self._hint.set()

    def _tell(self, run: Run, last: int | None = None) -> None:
        """Tell those who want to know. Of a row that was read only up to the last who had come before that was asked:
        whoever comes later may have changed the run since."""
        waiters = self._waiting.get(run.id)
        if not waiters:
            return
        told = 0
        for wanted, future, number in waiters:
            if future.done():
                told += 1
            elif (last is None or number <= last) and wanted(run):
                future.set_result(run)
                told += 1
        if told == len(waiters):
            del self._waiting[run.id]
        elif told:  # not so with most steps
            self._waiting[run.id] = [waiter for waiter in waiters if not waiter[1].done()]

    async def wait(
        self, run: str, wanted: Callable[[Run], bool], timeout: float | None, *, settled: bool = False
    ) -> Run:
        """The run's row once its status is as wanted; TimeoutError when the time is up.

        `settled` says that only runs that have ended or are paused can be as wanted: others are not asked for then.
        """
        if (loop := self._loop) is None:  # always the same
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Run] = loop.create_future()
        self._came += 1
        self._waiting.setdefault(run, []).append((wanted, future, self._came))
        self._for_others += not settled
        try:
            async with limited(timeout):
                known = self._peek(run)
                if known is None or wanted(known):
                    found = await self._look_for(run)  # after registering: a commit in between is not missed
                    if found is not None and run not in found and not future.done():
                        raise _no_such_run(run)
                if not future.done() and self._store.shared and (self._poller is None or self._poller.done()):
                    self._poller = loop.create_task(self._poll(), name="holdfast-watch")
                return await future
        finally:
            self._for_others -= not settled
            future.cancel()
            if run in self._waiting:  # not if it was the last one to be told
                waiters = [waiter for waiter in self._waiting[run] if waiter[1] is not future]
                if waiters:
                    self._waiting[run] = waiters
                else:
                    del self._waiting[run]

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What has still to be read of a run that was waited for: a lost connection ends that wait neither."""
        while True:
            try:
                return await ask()
            except StoreUnavailable as error:
                log.debug("reading a result failed: %s", error)
            await asyncio.sleep(LAST_POLL_SECONDS)

    async def _look_for(self, run: str) -> frozenset[str] | None:
        """The runs that there are, of those that were looked for with this one; None if the store did not answer."""
        self._unknown.add(run)
        if self._looker is None:
            self._looker = asyncio.get_running_loop().create_task(self._look(), name="holdfast-look")
        return await asyncio.shield(self._looker)  # others wait for it too

    async def _look(self) -> frozenset[str] | None:
        asked, self._unknown, self._looker, last = sorted(self._unknown), set(), None, self._came
        try:
            rows = await self._store.runs(asked)
        except StoreUnavailable as error:  # as while polling: a lost connection ends no wait
            log.debug("looking for results failed: %s", error)
            return None
        for row in rows:
            self._tell(row, last)
        return frozenset(row.id for row in rows)

    async def _poll(self) -> None:
        pause, now = FIRST_POLL_SECONDS, asyncio.get_running_loop().time
        polls, last, seen = 0, 0, None
        while self._waiting:
            hinted = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):  # not wait_for, which swallows a cancel on Python 3.11
                    await self._hint.wait()
                pause, hinted = FIRST_POLL_SECONDS, True
            self._hint.clear()
            began = now()
            polls += 1
            whether_there = polls % POLLS_FOR_EXISTENCE == 0
            settled = not whether_there and not self._for_others
            asked: list[str] = []
            try:
                before, seen = seen, await self._store.foreign_writes()
                # What this process writes, it tells. If nobody else has, then there is news only for those who came
                # since: the row that they found remembered may have been out of date. A commit of this process whose
                # answer was lost told nobody; the poll for existence, which asks after all, finds what it wrote.
                quiet = settled and not hinted and seen is not None and seen == before
                asked = self._came_after(last) if quiet else list(self._waiting)
                last = self._came
                rows = await self._store.runs(asked, settled=settled) if asked else []
                for row in rows:
                    self._tell(row, last)
                for run in set(asked).difference(row.id for row in rows) if whether_there else ():
                    self._fail(run, _no_such_run(run))  # pruned while it was waited for
            except StoreError as error:
                log.debug("polling for results failed: %s", error)
                seen = None  # what there was to tell has still to be asked for
            spent = now() - began
            pause = max(min(pause * 1.5, LAST_POLL_SECONDS), min(spent * REST_BEFORE_POLL, LONGEST_REST_SECONDS))
            if spent > QUICK_SECONDS and len(asked) > FEW:
                await asyncio.sleep(min(spent * REST_BEFORE_HINT, LONGEST_REST_SECONDS))

    def _came_after(self, last: int) -> list[str]:
        return [run for run, waiters in self._waiting.items() if waiters[-1][2] > last]

    def _fail(self, run: str, error: Exception) -> None:
        for _, future, _ in self._waiting.pop(run, ()):
            if not future.done():
                future.set_exception(error)

    async def close(self, error: Exception) -> None:
        if self._poller is not None:
            self._poller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._poller
        for waiters in self._waiting.values():
            for _, future, _ in waiters:
                if not future.done():
                    future.set_exception(error)
        self._waiting.clear()


def _no_such_run(run: str) -> UnknownWorkflow:
    return UnknownWorkflow(
        f"there is no run {run}, so no result will ever come",
        hint="`holdfast runs` lists the runs of this database; with tx=, commit before you wait",
    )
