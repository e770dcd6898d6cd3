"""How a worker settles an instance's timers and inbox. Effects run as actions do; what follows is the machine's.

There is no user code to run outside a decision here: the whole of the work is one operation. So what can go wrong is
the author's `decide` or `evolve`, which raise inside it, and then nothing was written (I16).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import decode_error, encode_error
from holdfast.core.codec_label import labelled
from holdfast.core.decider_operations import INPUT_EVENT, DrainInbox, RefuseInput
from holdfast.core.errors import StoreError
from holdfast.core.operations import CompleteWork, FailWork, KillWork, Offer, Operation, Settled
from holdfast.core.queries import QueuedEvents
from holdfast.core.rows import TIMER, Event, Work
from holdfast.models.decider import code_of
from holdfast.models.decider_code import DeciderCode
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.folds import submit
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.worker")

INBOX_BATCH = 100
REASON_LIMIT = 500


class InstanceWork:
    """Fires timers and empties inboxes."""

    def __init__(
        self, *, store: Store, coordinator: Coordinator, definitions: RegistryDefinitions, observe: str
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._observe = observe

    async def settle(self, work: Work, offer: Callable[[], Offer | None]) -> Settled:
        code = code_of(self._definitions, work.workflow)
        if work.kind == TIMER:
            if failpoints.armed:
                await failpoints.reach("timer.before")
            return await self._fire(work, code, offer)
        if failpoints.armed:
            await failpoints.reach("inbox.before")
        return await self._drain(work, offer)

    async def _fire(self, work: Work, code: DeciderCode, offer: Callable[[], Offer | None]) -> Settled:
        payload = work.payload or b""
        try:
            code.decode_input(payload, work.codec)
        except Exception as error:
            log.error(
                "timer %s of run %s cannot be read and becomes a dead letter: %s", work.node, work.run, told_of(error)
            )
            return await self._submit(KillWork(**_lease(work), error=encode_error(error)))
        fired = CompleteWork(**_lease(work), result=labelled(payload, work.codec), offer=offer())
        try:
            return await self._submit(fired)
        except StoreError:
            raise
        except Exception as error:
            log.warning("timer %s of run %s failed: %s", work.node, work.run, told_of(error))
            retry = code.retry
            return await self._submit(
                FailWork(
                    **_lease(work),
                    error=encode_error(error, earlier=work.error),
                    retryable=retry.allows(error),
                    attempts=retry.attempts,
                    base_seconds=retry.base,
                    cap_seconds=retry.cap,
                )
            )

    async def _drain(self, work: Work, offer: Callable[[], Offer | None]) -> Settled:
        limit = INBOX_BATCH
        while True:
            try:
                done = await self._submit(DrainInbox(**_lease(work), limit=limit, observe=self._observe, offer=offer()))
                return Settled(verdict=done.verdict, run_status=done.run_status, handed=done.handed)
            except StoreError:
                raise
            except Exception as error:
                if limit > 1:  # one of them cannot be decided: those before it can
                    limit //= 2
                    continue
                oldest: list[Event] = await self._store.rows(QueuedEvents(INPUT_EVENT, work.run, 1))
                log.warning("an input in the inbox of run %s cannot be decided: %s", work.run, told_of(error))
                refused = oldest[0].id if oldest else ""
                told = decode_error(encode_error(error))  # not the error itself, whose text may not be storable
                reason = f"{told.type}: {told.message}".replace("\0", "\\0")[:REASON_LIMIT]
                return await self._submit(RefuseInput(**_lease(work), event=refused, reason=reason))

    async def _submit(self, operation: Operation) -> Settled:
        """Its answer; what an inbox answers has the same fields."""
        settled: Settled = await submit(
            operation, coordinator=self._coordinator, store=self._store, definitions=self._definitions
        )
        return settled


def _lease(work: Work) -> dict[str, Any]:
    return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}


def told_of(error: Exception) -> str:
    """An author's error as a log can carry it: its text may be anything, or raise."""
    record = decode_error(encode_error(error))
    return f"{record.type}: {record.message}"
