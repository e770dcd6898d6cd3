"""Operating-system locks beside a SQLite file.

SQLite up to 3.51.2 can corrupt a WAL database when two connections write or checkpoint at the same
instant, so every write transaction of every process also holds `<file>-holdfast-lock`, which processes take
in turn: who waits for it holds `<file>-holdfast-turn`. And a worker holds `<file>-worker-<id>` for as long as
it lives: whoever can lock that file has proved it dead.

`flock` locks belong to an open file, not to a process, so two engines in one process exclude each
other as two processes do. They vanish with the process, whatever killed it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.core.seams import Clock

try:
    import fcntl

    _posix: Any = fcntl
except ImportError:  # pragma: no cover - not a POSIX system: leases alone decide, one process at a time
    _posix = None

PROVABLE = _posix is not None

LONGEST_ID = 100
PATIENCE_SECONDS = 0.2  # for who has the turn: perhaps it stands still
SHORTEST_PAUSE, PAUSE, LONGEST_PAUSE = 0.0001, 0.0002, 0.005


class FileLock:
    """An exclusive lock on a small file that is created when needed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    def open(self) -> None:
        if self._fd is not None:
            return
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StoreUnavailable(
                f"the lock file {self.path} cannot be opened: {error.strerror}",
                hint="let this user write the folder of the database and the files beside it",
            ) from error

    def try_lock(self) -> bool:
        """Take the lock if it is free."""
        self.open()
        if _posix is None:
            return True
        try:
            _posix.flock(self._fd, _posix.LOCK_EX | _posix.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        if _posix is not None and self._fd is not None:
            _posix.flock(self._fd, _posix.LOCK_UN)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class WriteLock:
    """The lock of the one writer, which goes round.

    A process that commits without a pause takes it again in the very moment in which it gives it back. Somebody who
    only looks from time to time whether it is free could wait for half a minute, be told that the store is not there,
    and do again what it had done. So who waits takes the turn, and nobody else takes the lock meanwhile.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = FileLock(path)
        self._turn = FileLock(f"{path.removesuffix('-lock')}-turn")

    def try_lock(self) -> bool:
        """Take the lock if it is free and nobody waits for it."""
        self._lock.open()
        if not self._turn.try_lock():
            return False
        try:
            return self._lock.try_lock()
        finally:
            self._turn.unlock()

    def lock(self, timeout_seconds: float, clock: Clock, sleep: Callable[[float], None]) -> bool:
        """Take the lock, waiting for it. False when the time is up. Blocks: only for the writer thread."""
        began = clock.monotonic()
        pause = PAUSE
        has_turn = False
        try:
            while True:
                has_turn = has_turn or self._turn.try_lock()
                waited = clock.monotonic() - began
                if (has_turn or waited > PATIENCE_SECONDS) and self._lock.try_lock():
                    return True
                if waited > timeout_seconds:
                    return False
                sleep(SHORTEST_PAUSE if has_turn else pause)  # nobody gets on while who has the turn sleeps
                pause = min(pause * 1.5, LONGEST_PAUSE)
        finally:
            if has_turn:
                self._turn.unlock()

    def unlock(self) -> None:
        self._lock.unlock()

    def close(self) -> None:
        self._lock.close()
        self._turn.close()


class WorkerLocks:
    """The proof of life of workers: one locked file each."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._mine: dict[str, FileLock] = {}

    def _path(self, worker: str) -> str:
        return f"{self._database}-worker-{worker}"

    def hold(self, worker: str) -> bool:
        """Lock the worker's file for the rest of its life. False where that proves nothing."""
        lock = FileLock(self._path(worker))
        if not PROVABLE or not lock.try_lock():
            return False
        self._mine[worker] = lock
        return True

    def release(self, worker: str) -> None:
        lock = self._mine.pop(worker, None)
        if lock is not None:
            _remove(lock.path)
            lock.close()

    def is_dead(self, worker: str) -> bool:
        """True only if the file is there and nobody holds it."""
        if not PROVABLE or worker in self._mine or not _is_plain(worker) or not os.path.exists(self._path(worker)):
            return False
        probe = FileLock(self._path(worker))
        try:
            return probe.try_lock()
        finally:
            probe.close()

    def forget(self, worker: str) -> None:
        """Remove the file of a worker that is gone."""
        if worker not in self._mine and _is_plain(worker):
            _remove(self._path(worker))

    def abandon(self) -> None:
        for lock in self._mine.values():
            lock.close()
        self._mine.clear()


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _is_plain(worker: str) -> bool:
    """Whether an id can be part of a file's name: it comes from a row that anybody may have written."""
    return len(worker) <= LONGEST_ID and worker.isascii() and worker.replace("-", "").isalnum()
