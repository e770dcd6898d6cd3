"""A run that was started on a queue which nobody serves says so in the log, after a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from holdfast.core.errors import StoreError
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.engine")

NO_WORKER_SECONDS = 5.0


class Serving(Protocol):
    @property
    def queues(self) -> tuple[str, ...]: ...


class UnservedQueues:
    """Looks for a worker of a queue some seconds after a run was started on it; once at a time for each queue."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._checks: dict[str, asyncio.TimerHandle] = {}
        self._looking: set[asyncio.Task[None]] = set()

    def expect(self, queue: str, workers: Iterable[Serving]) -> None:
        """A run was started on this queue; `workers` are those of this process."""
        for worker in workers:  # with every start, so as cheap as can be
            if queue in worker.queues:
                return
        if queue in self._checks:
            return
        loop = asyncio.get_running_loop()
        self._checks[queue] = loop.call_later(NO_WORKER_SECONDS, self._look, queue)

    def close(self) -> None:
        for check in self._checks.values():
            check.cancel()
        self._checks.clear()
        for task in self._looking:
            task.cancel()

    def _look(self, queue: str) -> None:
        self._checks.pop(queue, None)
        task = asyncio.get_running_loop().create_task(self._warn_if_unserved(queue))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _warn_if_unserved(self, queue: str) -> None:
        store = self._store()
        now = store.now()
        try:
            live = [worker for worker in await store.workers() if worker.lease_until >= now]
        except StoreError as error:  # the store is away: who starts a run is told so, and this is only a hint
            log.debug("who serves queue %r could not be looked up: %s", queue, error)
            return
        if not any(queue in worker.queues for worker in live):
            log.warning(
                "runs were started on queue %r, but no worker serves it; start one with "
                "`holdfast worker YOUR.MODULE --queue %s` or `engine.worker(queues=[%r])`",
                *(queue, queue, queue),
            )
