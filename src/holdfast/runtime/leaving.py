"""Slots that are about to be free: what ran in them has ended, and its completion is being written.

They are claimed for meanwhile, so that the store does both at once where it can. User code never runs in more slots
than a worker has: whoever leaves has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.batches import Submitted
from holdfast.core.operations import CompleteWork
from holdfast.runtime.attempt import Attempt
from holdfast.runtime.own_leases import Item


class Leaving:
    """The items of one worker whose completions are under way and hand nothing over: at most as many as it has slots.

    Of a function that has returned, calls may still be running; `has_calls` knows of them.
    """

    def __init__(self, running: Mapping[Item, Attempt], most: int, has_calls: Callable[[str], bool]) -> None:
        self._running = running
        self._most = most  # completions may be held up for long, by whoever has locked their runs
        self._has_calls = has_calls
        self._items: set[Item] = set()

    def __len__(self) -> int:
        return len(self._items)

    def note(self, batch: Sequence[Submitted]) -> bool:
        """Take what is about to be flushed; whether any of our slots will be free by it."""
        before = len(self._items)
        for each in batch:
            operation = each.operation
            if type(operation) is CompleteWork and each.error is None and not each.result.handed:
                item = (operation.run, operation.node, operation.attempt)
                if item in self._running and len(self._items) < self._most and not self._has_calls(operation.run):
                    self._items.add(item)
        return len(self._items) > before

    def has_left(self, item: Item) -> bool:
        """Its slot counts no more as one to be free; whether it did, and so may have been claimed for."""
        if item not in self._items:
            return False
        self._items.remove(item)
        return True
