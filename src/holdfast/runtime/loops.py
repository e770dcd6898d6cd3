"""Loops that go on for as long as their worker lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.core.errors import StoreError
from holdfast.core.seams import Clock
from holdfast.runtime import telemetry as t

if TYPE_CHECKING:
    from holdfast.runtime.worker import Worker

log = logging.getLogger("holdfast.worker")

BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)


async def keep_going(
    name: str, loop: Callable[[], Awaitable[None]], worker: Worker, clock: Clock, metrics: t.Metrics
) -> None:
    """A loop that survives whatever happens in it (I8: nothing poisonous ever stops a worker)."""
    failures = 0
    while True:
        before = clock.monotonic()
        try:
            await loop()
            return
        except StoreError as error:
            if clock.monotonic() - before > 10.0:
                failures = 0
            if failures == 0:
                log.warning("worker %s: %s; trying again", worker.id, error, extra={"worker": worker.id})
            metrics.count(t.RECONNECTS)
        except Exception:
            log.exception("the loop %r of worker %s failed; going on", name, worker.id, extra={"worker": worker.id})
        await asyncio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
        failures += 1
