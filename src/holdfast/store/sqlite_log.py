"""Room in SQLite's write-ahead log, made before it is needed.

A commit that makes the log longer also has to record its new length, which on common file systems doubles what the sync
takes. SQLite writes over the log again and again once it has reached its size, but begins with an empty one whenever
the file is opened. So a process that commits often writes zeros behind the end of the log, several commits' worth at a
time.

Why that is safe: it happens inside a write transaction, so nobody else adds to the log or begins it anew meanwhile, and
only behind the end of the file. SQLite stops reading a log at the first frame that does not carry the log's own random
number, and zeros do not: to it they are like what an earlier use of the log left there. The log has no locks on it that
closing a second descriptor could drop.
"""

from __future__ import annotations

import os
import sys

FIRST_LOOK_COMMITS, LOOK_AGAIN_COMMITS = 32, 16  # who commits a few times only does not pay for room
LEAST_BYTES, MOST_BYTES = 1 << 20, 9 << 20  # a log of 2,000 pages, after which SQLite begins it anew, and a little more
_ZEROS = bytes(1 << 18)


class LogRoom:
    """Keeps the log of one SQLite file ahead of its commits."""

    __slots__ = ("_commits_to_go", "_made", "_path")

    def __init__(self, database: str) -> None:
        self._path = f"{database}-wal"
        self._commits_to_go = FIRST_LOOK_COMMITS if hasattr(os, "fdatasync") else sys.maxsize
        self._made = 0

    def make(self) -> None:
        """Look from time to time whether the room is used up, and make more; to be called in a write transaction."""
        self._commits_to_go -= 1
        if self._commits_to_go > 0:
            return
        self._commits_to_go = LOOK_AGAIN_COMMITS
        try:
            if os.stat(self._path).st_size > self._made:
                self._lengthen()
        except OSError:  # no space, or not a log that we may write to: it was an optimisation
            self._commits_to_go = sys.maxsize

    def _lengthen(self) -> None:
        file = os.open(self._path, os.O_RDWR)
        try:
            size = at = os.fstat(file).st_size
            self._made = min(max(LEAST_BYTES, 4 * size), MOST_BYTES)
            if self._made <= size:
                self._commits_to_go = sys.maxsize  # it has reached its size and will be written over from now on
                return
            try:
                while at < self._made:
                    at += os.pwrite(file, _ZEROS[: self._made - at], at)
                os.fdatasync(file)
            except OSError:
                os.ftruncate(file, size)  # what is left of a disk that is nearly full is not for room
                raise
        finally:
            os.close(file)
