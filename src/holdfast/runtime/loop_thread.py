"""An event loop in a thread of its own, for programs that have none: what the blocking front stands on.

Any thread may call, also one whose own event loop is running (a notebook's). The loop's own thread may not: it
would wait for itself. What can go wrong, and what happens then:
- Ctrl-C while a caller waits: the wait ends, and what it waited for is cancelled on the loop;
- the loop is stopped while callers wait: they get EngineClosed, none of them waits for ever;
- code on the loop raises SystemExit or KeyboardInterrupt: that would end the loop and leave everybody
  waiting, so it is logged and the loop goes on;
- the process forks: threads do not survive that, so a call in the child is refused instead of hanging.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from holdfast.core.errors import EngineClosed, UsageError

T = TypeVar("T")

log = logging.getLogger("holdfast.engine")


class LoopThread:
    """Runs coroutines for callers that block. `start` begins it, `stop` ends it; both may be repeated."""

    def __init__(self, name: str = "holdfast-loop") -> None:
        self._name: Final = name
        self._lock: Final = threading.Lock()
        self._waiting: Final[set[concurrent.futures.Future[Any]]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    @property
    def running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        """Start the thread and its loop; nothing happens if it runs already."""
        with self._lock:
            if self._loop is not None:
                return
            self._loop = asyncio.new_event_loop()
            self._process = os.getpid()
            # A daemon: a program that forgets to close must still be able to end.
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises, once it has ended on the loop."""
        try:
            future = self._submit(coroutine)
        except BaseException:
            coroutine.close()  # or Python would warn later that it was never awaited
            raise
        try:
            return _result_of(future)
        except concurrent.futures.CancelledError:
            raise EngineClosed("the engine was closed while this call was waiting", hint=_OPEN) from None
        finally:
            # On Ctrl-C it is still under way; nobody will ask for its result any more.
            future.cancel()
            with self._lock:
                self._waiting.discard(future)

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if threading.current_thread() is self._thread:
            raise UsageError(
                "the blocking engine was called on its own event loop, where it would wait for itself for ever",
                hint="call it from a plain def action, which runs in a thread, or from outside of actions",
            )
        with self._lock:
            if self._loop is None:
                raise EngineClosed("the engine is not open", hint=_OPEN)
            if self._process != os.getpid():
                raise UsageError(
                    f"the engine was opened in process {self._process} and is used in its fork {os.getpid()}, "
                    "where its thread does not exist",
                    hint="open the engine after the fork, in each process that uses it",
                )
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._waiting.add(future)
            return future

    def entered(self, context: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """The asynchronous context as a plain one: entered and left on the loop."""
        return self._entered(context)

    @contextmanager
    def _entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        value = self.run(_entering(context))
        try:
            yield value
        finally:
            # The exception stays here: a KeyboardInterrupt thrown into the loop would end the loop.
            if self.running:
                self.run(_leaving(context))

    def stop(self) -> None:
        """Cancel what is left on the loop and end the thread. May be repeated, and called by several threads."""
        if threading.current_thread() is self._thread:
            raise UsageError(
                "the blocking engine was closed on its own event loop",
                hint="close it in the thread that opened it, by leaving its `with` block",
            )
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None or self._process != os.getpid():
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        with self._lock:
            left = list(self._waiting)
        for future in left:
            future.cancel()


_OPEN: Final = "use it inside `with engine:`"
_LOOK_SECONDS: Final = 1.0


def _result_of(future: concurrent.futures.Future[T]) -> T:
    """Its result, waited for in slices: a signal in the moment before a lock is waited for does not end that wait."""
    while True:
        try:
            return future.result(_LOOK_SECONDS)
        except TimeoutError:
            if future.done():  # the time was not up: it raised this itself, or has just ended
                return future.result()


async def _entering(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _leaving(context: AbstractAsyncContextManager[Any]) -> None:
    await context.__aexit__(None, None, None)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """The thread's life: the loop until it is stopped, then everything that is left on it."""
    asyncio.set_event_loop(loop)
    try:
        _run(loop.run_forever)
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            _run(lambda: loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True)))
        _run(lambda: loop.run_until_complete(loop.shutdown_asyncgens()))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _run(serve: Any) -> None:
    while True:
        try:
            serve()
            return
        except (SystemExit, KeyboardInterrupt) as error:
            log.error("code on the engine's event loop raised %r, which ends no program from there; going on", error)
