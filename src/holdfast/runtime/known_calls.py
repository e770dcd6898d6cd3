"""Which record answers which call of a node that runs again.

A call is recorded under its number: how many the node had begun by then. A node that runs again is answered at once, so
branches of it that run side by side ask in another order than when every call took its time. A call is therefore
answered by the record of its number if that is what it asks for, and else by the first one that is, and that nobody has
asked for yet. Calls of the node's own task, or thread, come one after the other: if no branch has made any, another
order is changed code and not chance.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.core.rows import Recorded


class Moved(NamedTuple):
    """A call that was answered by the record of another number, and the record of its own number, if there is one."""

    number: int
    asked: Recorded
    recorded: Recorded | None


class KnownCalls:
    """The records of an attempt, each given to one call of the node that runs again."""

    def __init__(self, rows: Mapping[int, Recorded]) -> None:
        self.left = {number: rows[number] for number in sorted(rows)}  # that nobody has asked for yet
        self.made = 0
        self.in_branches = False  # whether calls came from more than the node's own task or thread
        self._moved: Moved | None = None
        self._numbers = set(rows)
        self._own = {_caller()}
        self._lock = threading.Lock()  # a plain def may ask from several threads

    @property
    def moved(self) -> Moved | None:
        """The first call that came in another order, where nothing but the code can be the reason."""
        return None if self.in_branches else self._moved

    def begins(self) -> None:
        """The node is called by whoever calls this."""
        if self._numbers:
            self._own.add(_caller())

    def count(self) -> int:
        """The number of the call that is made now."""
        with self._lock:
            self.made += 1
            if self._numbers and _caller() not in self._own:
                self.in_branches = True
            return self.made

    def find(self, number: int, name: str, request_hash: str) -> Recorded | None:
        """The record that answers this call, for it alone."""
        with self._lock:
            at_number = self.left.get(number)
            if at_number is not None and _is(at_number, name, request_hash):
                return self.left.pop(number)
            found = next((row for row in self.left.values() if _is(row, name, request_hash)), None)
            if found is not None:
                del self.left[found.call]
                self._moved = self._moved or Moved(number, found, at_number)
            return found

    def nearest(self, number: int, name: str) -> Recorded | None:
        """What a call that no record answers was most likely recorded as: to be shown beside it, and used up."""
        with self._lock:
            found = self.left.get(number)
            if found is None or found.name != name:
                found = next((row for row in self.left.values() if row.name == name), found)
            return None if found is None else self.left.pop(found.call)

    def is_free(self, number: int) -> bool:
        return number not in self._numbers

    def new_number(self, number: int) -> int:
        """A number for a call that is made for the first time: this one, if no record has it."""
        with self._lock:
            if number in self._numbers:
                number = max(self._numbers) + 1
            if self._numbers:
                self._numbers.add(number)
            return number


def _is(row: Recorded, name: str, request_hash: str) -> bool:
    return row.name == name and row.request_hash == request_hash


def _caller() -> object:
    """The task, or in a thread without a loop the thread, that asks."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.get_ident()
