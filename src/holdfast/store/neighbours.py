"""Hints to the processes of this machine that use the same database, past its server.

The server takes three times as long to pass a notification on as a few bytes in a small file take that the others watch
(`file_bell.py`), and a lone run waits for two of them. Notifications are sent all the same, for other machines and for
whoever could not be reached here; who has heard the bell passes over the one that follows it. What the bell says is
what the last one who rang has written: of several at once the others are told by their notifications (K11).

The file lies in memory, below a directory of this user. Whoever listens holds a shared lock on it, and the last one to
go removes it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable

from holdfast.store.file_bell import FileBell

MEMORY = "/dev/shm"  # noqa: S108 - below it, a directory that nobody else may write to. A file on a disk may make its writer wait for somebody else's sync
MOST_EXPECTED = 256
_LONGEST_BYTES = 128


class Neighbours:
    """What one session says to its neighbours, and hears from them. The server knows sessions by their number."""

    def __init__(self, path: str, lock: int, session: int, heard: Callable[[Iterable[str]], None]) -> None:
        self._path = path
        self._lock = lock
        self._session = session
        self._heard = heard
        self._bell = FileBell(path)
        self._expected: set[tuple[int, str]] = set()  # notifications of what the bell has told

    @classmethod
    def of(cls, database: str, session: int, heard: Callable[[Iterable[str]], None]) -> Neighbours | None:
        """Those of a database, by a name that is the same for all of them; None where the system cannot do it."""
        if not sys.platform.startswith("linux"):
            return None
        try:
            path = os.path.join(_directory_of_this_user(), database)
            neighbours = cls(path, _locked(path), session, heard)
        except OSError:
            return None
        if not neighbours._bell.listen(neighbours._listen):
            neighbours.close()
            return None
        return neighbours

    def ring(self, channels: Iterable[str]) -> None:
        self._bell.ring(f"{self._session} {','.join(channels)}\n".encode())

    def has_told(self, session: int, channel: str) -> bool:
        """Whether this notification says what the bell has said before it."""
        if (session, channel) not in self._expected:
            return False
        self._expected.remove((session, channel))
        return True

    def _listen(self) -> None:
        said = os.pread(self._lock, _LONGEST_BYTES, 0).decode("ascii", "replace")
        session, _, channels = said.partition("\n")[0].partition(" ")
        if not session.isdecimal() or int(session) == self._session:
            return
        if len(self._expected) >= MOST_EXPECTED:  # of sessions that ended before they could send them
            self._expected.clear()
        told = channels.split(",")
        self._expected.update((int(session), channel) for channel in told)
        self._heard(told)

    def close(self) -> None:
        import fcntl

        self._bell.close()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._lock).st_nlink:  # else somebody removed it, and at its path is another by now
                os.unlink(self._path)
        except OSError:
            pass  # others listen
        finally:
            os.close(self._lock)


def _directory_of_this_user() -> str:
    path = os.path.join(MEMORY, f"holdfast-{os.getuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        there = os.lstat(path)
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.getuid() or there.st_mode & 0o077:
            raise OSError(f"{path} is not a directory of this user alone") from None
    return path


def _locked(path: str) -> int:
    """The file, open and locked as by all who listen, and not the one that the last of them is removing."""
    import fcntl

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            if os.fstat(file).st_nlink:
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
