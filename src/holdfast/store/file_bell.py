"""A bell for the processes that share a file: who has something to tell writes a byte, and the others wake at once.

Where the system can tell of a write (Linux: inotify), nobody has to look every millisecond. Where it cannot, `listen`
says so, and those who wait look from time to time. A ring says nothing but "look": losing one costs a poll (K11).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress

_IN_MODIFY = 0x2
_EVENTS_BYTES = 4096


class FileBell:
    """Rings by writing to a small file, and listens to who writes to it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ear: int | None = None
        self._writer: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def ring(self, said: bytes = b"!") -> None:
        """Wake everybody who listens, ourselves too. What is said stands at the beginning of the file."""
        with suppress(OSError):
            if self._writer is None:
                self._writer = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.pwrite(self._writer, said, 0)

    def listen(self, heard: Callable[[], object]) -> bool:
        """Call `heard` on this loop after each ring, of several at once only once. False where that is not possible."""
        if not sys.platform.startswith("linux"):
            return False
        try:
            import ctypes  # of use to this alone

            system = ctypes.CDLL(None, use_errno=True)
            ear = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (ImportError, OSError, AttributeError):
            return False
        if ear < 0:
            return False
        self.ring()  # the file must exist to be watched
        if system.inotify_add_watch(ear, os.fsencode(self._path), _IN_MODIFY) < 0:
            os.close(ear)
            return False

        def woken() -> None:
            with suppress(BlockingIOError):
                os.read(ear, _EVENTS_BYTES)
            heard()

        self._ear, self._loop = ear, asyncio.get_running_loop()
        self._loop.add_reader(ear, woken)
        return True

    def close(self) -> None:
        if self._ear is not None and self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._ear)
            os.close(self._ear)
        if self._writer is not None:
            os.close(self._writer)
        self._ear = self._writer = self._loop = None
