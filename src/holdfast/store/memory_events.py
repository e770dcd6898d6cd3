"""Queued events of the memory store by age: whoever takes the oldest of very many must not go through all of them."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from holdfast.core.queries import QueuedEvents
from holdfast.core.rows import QUEUED_EVENT, Event, Key


class QueuedEventsByAge:
    """A heap for each name and target. What was taken meanwhile stays in it until it comes to the top."""

    def __init__(self) -> None:
        self._heaps: dict[tuple[str, str | None], list[tuple[int, str]]] = {}

    def add(self, event: Event) -> None:
        if event.status == QUEUED_EVENT:
            heapq.heappush(self._heaps.setdefault((event.name, event.target), []), (event.at, event.id))

    def oldest(self, need: QueuedEvents, stored: Mapping[Key, Event]) -> list[Event]:
        """The events that are still queued, oldest first, as many as are asked for."""
        heap = self._heaps.get((need.name, need.target), [])
        found: dict[str, Event] = {}
        while heap and (need.limit is None or len(found) < need.limit):
            at, id = heapq.heappop(heap)
            event = stored.get((id,))
            if event is not None and event.at == at and need.matches(event):
                found[id] = event  # by id: one that was taken back and queued again is in the heap twice
        for event in found.values():
            heapq.heappush(heap, (event.at, event.id))
        if not heap:
            self._heaps.pop((need.name, need.target), None)
        return list(found.values())
