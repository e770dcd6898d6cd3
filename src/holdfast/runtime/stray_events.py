"""Events that have nobody: those whose run has ended are brought to others, those whose time has passed go.

The process that ended a run sees to its events at once; the caretakers of all workers find what it left behind.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.coordinator import Commit, Coordinator
from holdfast.core.errors import StoreError
from holdfast.core.function_operations import DropEvent, RedeliverEvent
from holdfast.core.operations import Operation
from holdfast.core.queries import StrayEvents
from holdfast.core.rows import EVENTS, ORPHANED, Event
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.events")

AT_ONCE = 200


class StrayEventKeeper:
    """Sees to events that nobody else would."""

    def __init__(self, store: Store, coordinator: Coordinator) -> None:
        self._store = store
        self._coordinator = coordinator
        self._looking: asyncio.Task[None] | None = None

    def on_commit(self, commit: Commit) -> None:
        """A run of this process has ended and left events for others."""
        events = commit.changes.inserts.get(EVENTS)
        if events and self._looking is None and any(event.status == ORPHANED for event in events):
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="holdfast-stray-events")

    @property
    def busy(self) -> bool:
        return self._looking is not None

    async def _look(self) -> None:
        try:
            await self.see_to_all()
        except StoreError as error:
            log.info("events of ended runs are left for a caretaker: %s", error)
        except Exception:
            log.exception("events of ended runs could not be brought to others")
        finally:
            self._looking = None

    async def close(self) -> None:
        """Finish what was begun."""
        if self._looking is not None:
            await asyncio.wait([self._looking])

    async def see_to_all(self) -> None:
        """Bring on what belongs to nobody, drop what has expired. Two processes may do it at the same time."""
        while True:
            stray: list[Event] = await self._store.rows(StrayEvents(self._store.now(), AT_ONCE))
            answers = await self._coordinator.submit_batch([self._fate(event) for event in stray])
            for event, answer in zip(stray, answers, strict=True):
                if isinstance(answer, StoreError):
                    raise answer
                if isinstance(answer, Exception):  # one must not hold up the others (I8)
                    log.error("event %s of name %s was left alone: %s", event.id, event.name, answer)
            if len(stray) < AT_ONCE or any(isinstance(answer, Exception) for answer in answers):
                return

    def _fate(self, event: Event) -> Operation:
        if event.expires is not None and event.expires <= self._store.now():
            return DropEvent(event=event.id, expired=True)
        return RedeliverEvent(event=event.id, name=event.name, run=event.target)
