"""Plain `def` functions off the event loop: a bounded number of threads, handed one function at a time.

Theory of operation. `Errand` is one function on its way to a thread and back; the thread only runs it and posts a
callback, so every other change happens on the loop and needs no lock. `Slots` counts who may run. `ThreadSlots` puts
the two together.

What can go wrong, and what is done about it:

- A thread can't be killed. When its caller is cancelled the function goes on, and its slot stays taken until it
  returns; otherwise timeouts would quietly start more and more threads.
- The loop may be closed by then. The result is dropped; nobody waits for it.
- The interpreter may exit by then. The threads are daemons, so it does not wait for them.
- A function may raise what means something else to a coroutine (StopIteration, SystemExit, a cancellation). Those
  arrive as RuntimeError, with the original as the cause.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.core.errors import EngineClosed, UsageError

P = ParamSpec("P")
T = TypeVar("T")

# Out of a coroutine, each of these would end a generator, the process or the caller instead of reporting an error.
MISUNDERSTOOD: Final = (StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError)


class Errand:
    """One call on its way to a thread and back. Make it and await `back` on the same event loop."""

    __slots__ = ("_call", "_loop", "_when_over", "abandoned", "back", "error", "over", "value")

    def __init__(
        self,
        call: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        when_over: Callable[[Errand], None] | None = None,
    ) -> None:
        self._call: Callable[[], Any] = call
        self._loop = loop
        self._when_over = when_over
        self.back: asyncio.Future[None] = loop.create_future()
        self.over = False
        self.abandoned = False
        self.value: Any = None
        self.error: BaseException | None = None

    def do(self) -> None:
        """Run the call here and tell the loop. Never raises: the thread has other errands after this one."""
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error
        del self._call  # its arguments may be large, and the loop may be slow to take the result
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._return)

    def _return(self) -> None:
        self.over = True
        if not self.back.done():
            self.back.set_result(None)
        if self._when_over is not None:
            self._when_over(self)

    async def wait_until_over(self) -> None:
        """Return when the call has ended, however often the caller is cancelled meanwhile."""
        while not self.over:
            if self.back.done():
                self.back = self._loop.create_future()
            with suppress(asyncio.CancelledError):
                await self.back

    def outcome(self) -> Any:
        """What the call returned, or raise what it raised."""
        error = self.error
        if error is None:
            return self.value
        try:
            if isinstance(error, MISUNDERSTOOD):
                raise RuntimeError(f"the function raised {error!r}, which is no error a caller could handle") from error
            raise error
        finally:
            # The traceback holds this frame, and the frame would hold the exception: garbage only the collector finds.
            self.error = error = None


def serve(errands: SimpleQueue[Errand | None]) -> None:
    """The life of a thread: errands in order, until None."""
    while True:
        errand = errands.get()
        if errand is None:
            return
        errand.do()
        del errand  # while it waits for the next one, a thread keeps nobody's result alive


def start_thread(name: str, errands: SimpleQueue[Errand | None]) -> threading.Thread:
    """A running daemon thread that serves the queue."""
    thread = threading.Thread(target=serve, args=(errands,), name=name, daemon=True)
    thread.start()
    return thread


class Slots:
    """How many may run at once; who comes first is served first. Belongs to one event loop."""

    def __init__(self, limit: int, owner: str) -> None:
        if type(limit) is not int or limit < 1:
            raise UsageError(f"{owner} was given the limit {limit!r}", hint="pass a whole number of at least 1")
        self.limit: Final = limit
        self.busy = 0
        self.closed = False
        self._owner: Final = owner
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()

    async def take(self) -> None:
        """Return once a slot is the caller's, who must give it back; EngineClosed after `close`."""
        if self.closed:
            raise self._refusal()
        if self.busy < self.limit:
            self.busy += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._waiting.remove(turn)
            elif turn.exception() is None:
                self.give_back()  # the slot and the cancel came in the same moment
            raise

    def give_back(self) -> None:
        """Free one slot, or pass it on to whoever has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.busy -= 1

    def close(self) -> None:
        """Let nobody in any more. Those who wait get EngineClosed; those inside are left alone."""
        self.closed = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(self._refusal())

    def _refusal(self) -> EngineClosed:
        return EngineClosed(f"{self._owner} is closed and runs nothing more")


class ThreadSlots:
    """Runs plain functions in at most `limit` threads, started when first needed and kept. For one event loop."""

    def __init__(
        self, limit: int, name: str = "holdfast-action", when_abandoned: Callable[[int], None] | None = None
    ) -> None:
        """`when_abandoned` is told how many more (1) or fewer (-1) functions are abandoned now."""
        self._slots: Final = Slots(limit, "ThreadSlots")
        self._name: Final = name
        self._when_abandoned: Final = when_abandoned
        self._errands: Final[SimpleQueue[Errand | None]] = SimpleQueue()
        self._threads: Final[list[threading.Thread]] = []
        self._abandoned = 0

    @property
    def limit(self) -> int:
        return self._slots.limit

    @property
    def busy(self) -> int:
        """Functions that are running, abandoned ones included."""
        return self._slots.busy

    @property
    def abandoned(self) -> int:
        """Functions that are still running although their caller was cancelled."""
        return self._abandoned

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns or raises, run in a thread with a copy of the caller's context variables.

        Waits while all slots are busy. Cancelling stops the wait but not the function, which keeps its slot.
        """
        await self._slots.take()
        try:
            call = functools.partial(copy_context().run, function, *args, **kwargs)
            errand = Errand(call, asyncio.get_running_loop(), self._returned)
            if len(self._threads) < self._slots.busy:
                self._threads.append(start_thread(f"{self._name}-{len(self._threads)}", self._errands))
        except BaseException:
            self._slots.give_back()
            raise
        self._errands.put(errand)
        try:
            await errand.back
        except asyncio.CancelledError:
            if not errand.over:
                errand.abandoned = True
                self._count_abandoned(1)
            raise
        result: T = errand.outcome()
        return result

    def close(self, wait_seconds: float = 0.0) -> int:
        """Start nothing more, wait up to that long for what runs, and return how many functions are left behind.

        Those end with the process: their threads are daemons. The wait blocks; their results arrive after it.
        """
        if not self._slots.closed:
            self._slots.close()
            for _ in self._threads:
                self._errands.put(None)
        deadline = time.monotonic() + wait_seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        # Without a wait, an idle thread may not have found the time to end: then the count of functions is exact.
        return min(self._slots.busy, sum(thread.is_alive() for thread in self._threads))

    def _returned(self, errand: Errand) -> None:
        if errand.abandoned:
            self._count_abandoned(-1)
        self._slots.give_back()

    def _count_abandoned(self, by: int) -> None:
        self._abandoned += by
        if self._when_abandoned is not None:
            self._when_abandoned(by)
