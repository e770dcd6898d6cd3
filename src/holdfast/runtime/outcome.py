"""What an attempt leaves behind for people (I32): where it ran, how long, how much, and what it said.

No node reads it, and nothing is decided by it.
"""

from __future__ import annotations

import reprlib
import time
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import msgspec

REPR_LIMIT_BYTES = 1024
_MANY = 50
MOMENT_SECONDS = 0.0001  # so short a stretch of code is taken to have computed all the while
FRESH_SECONDS = 0.001  # after that, what a thread had used when it was asked is out of date

# Of these Python's own repr is short and plain.
_AS_THEY_ARE = frozenset({bool, float, type(None)})
_LARGE = 10**REPR_LIMIT_BYTES

_short = reprlib.Repr()
_short.maxlevel = 4
_short.maxstring = _short.maxlong = _short.maxother = REPR_LIMIT_BYTES
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = _short.maxdeque = _MANY


class _Outcome(msgspec.Struct, gc=False):
    worker: str
    wall_seconds: float
    cpu_seconds: float
    bytes_in: int
    bytes_out: int
    returned: str | msgspec.UnsetType = msgspec.UNSET
    notes: list[str] | msgspec.UnsetType = msgspec.UNSET


_encode = msgspec.json.Encoder().encode


class Meter(msgspec.Struct, eq=False, gc=False):
    """The processor time that user code itself used, and what it returned."""

    cpu_seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    returned: str | None = None

    def call(self, function: Callable[[], Any]) -> Any:
        """Call it, in whichever thread this is."""
        began = time.thread_time()
        try:
            return function()
        finally:
            self.cpu_seconds += time.thread_time() - began

    def saw(self, value: Any) -> None:
        """Note what came back, shortened; a repr that raises is the user's and no failure."""
        kind = type(value)
        if kind in _AS_THEY_ARE or (kind is int and -_LARGE < value < _LARGE):
            self.returned = repr(value)
            return
        try:
            text = _short.repr(value)
        except Exception as error:
            text = f"<repr raised {type(error).__name__}>"
        self.returned = cut(text)

    def outcome(self, worker: str, wall_seconds: float, notes: list[str]) -> bytes:
        wall, cpu = int(wall_seconds * 1e6) / 1e6, int(self.cpu_seconds * 1e6) / 1e6  # `round` takes four times as long
        outcome = _Outcome(worker, wall, cpu, self.bytes_in, self.bytes_out)
        if self.returned is not None:
            outcome.returned = self.returned
        if notes:
            outcome.notes = [note.encode("utf-8", "backslashreplace").decode() for note in notes]
        return _encode(outcome)


class ThreadClock:
    """How long stretches of code on one thread computed, at the price of looks at the wall clock.

    To ask the system what a thread has used takes as long as ten such looks, and longer than most stretches between two
    pauses of a coroutine. So who ran for a moment is taken to have computed all the while. Who ran for longer can have
    used no more than the thread has since it was last asked, which is hardly ever longer ago than FRESH_SECONDS before
    he began: as much may be counted too much, and never more than went by.
    """

    __slots__ = ("_asked_at", "_processor", "_used", "_wall")

    def __init__(
        self, wall: Callable[[], float] = time.perf_counter, processor: Callable[[], float] = time.thread_time
    ) -> None:
        self._wall = wall
        self._processor = processor
        self._asked_at = float("-inf")
        self._used = 0.0

    def begin(self) -> float:
        """The beginning of a stretch, to be told at its end."""
        began = self._wall()
        if began - self._asked_at > FRESH_SECONDS:
            self._asked_at, self._used = began, self._processor()
        return began

    def used_since(self, began: float) -> float:
        """What this thread has used since a stretch began."""
        took = self._wall() - began
        return took if took < MOMENT_SECONDS else min(took, self._processor() - self._used)


@types.coroutine
def metered(meter: Meter, awaitable: Awaitable[Any], clock: ThreadClock) -> Generator[Any, Any, Any]:
    """Await it, and count the time that it runs: only that between its own pauses, not what others do meanwhile."""
    inner = awaitable.__await__()
    thrown: BaseException | None = None
    while True:
        began = clock.begin()
        try:
            pause = inner.send(None) if thrown is None else inner.throw(thrown)
        except StopIteration as done:
            return done.value
        finally:
            meter.cpu_seconds += clock.used_since(began)
        thrown = None
        try:
            yield pause
        except GeneratorExit:
            inner.close()
            raise
        except BaseException as error:
            thrown = error


def cut(text: str) -> str:
    """At most a kilobyte of it, in a form that every store can hold."""
    data = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")
    if len(data) <= REPR_LIMIT_BYTES:
        return data.decode()
    return data[: REPR_LIMIT_BYTES - 3].decode("utf-8", "ignore") + "…"
