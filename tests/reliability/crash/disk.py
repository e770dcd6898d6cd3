"""A disk that is watched: every write and sync of SQLite in their order, and the files that a power cut could leave.

What was synced is there. Of what was written since then, anything may be: all of it, nothing, a part of the writes in
any order, and of one write only its first sectors.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import apsw

from holdfast.store.sqlite import SqliteStore

SECTOR_BYTES = 512
WAL_PAGES = 24  # far fewer than in real life, so that a short scenario has checkpoints
Policy = Literal["kept", "dropped", "torn", "shuffled"]
POLICIES: tuple[Policy, ...] = ("kept", "dropped", "torn", "shuffled")


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that was done to a file."""

    kind: Literal["write", "truncate", "sync", "delete"]
    file: str
    offset: int = 0
    data: bytes = b""
    durable: bool = False
    """Of a delete: the directory was synced, too."""


@dataclass(slots=True)
class Disk:
    """The deeds of one life, and what the files held before it."""

    before: dict[str, bytes] = field(default_factory=dict)
    deeds: list[Deed] = field(default_factory=list)

    def image(self, length: int, policy: Policy, chance: random.Random) -> dict[str, bytes]:
        """The files after a power cut that came after so many deeds."""
        deeds = self.deeds[:length]
        files: dict[str, bytearray] = {}
        for name in {*self.before, *(deed.file for deed in deeds)}:
            own = [deed for deed in deeds if deed.file == name]
            synced = max(
                (place + 1 for place, deed in enumerate(own) if deed.kind == "sync" or deed.durable), default=0
            )
            exists = name in self.before
            content = bytearray(self.before.get(name, b""))
            for deed in [*own[:synced], *_survivors(own[synced:], policy, chance)]:
                exists = deed.kind != "delete"
                _apply(deed, content)
            if exists:
                files[name] = content
        return {name: bytes(content) for name, content in files.items()}


def _survivors(unsynced: Sequence[Deed], policy: Policy, chance: random.Random) -> Iterator[Deed]:
    match policy:
        case "kept":
            yield from unsynced
        case "dropped":
            return
        case "torn":
            last = chance.randint(0, len(unsynced))
            yield from unsynced[:last]
            yield from (_torn(deed, chance) for deed in unsynced[last : last + 1])
        case "shuffled":
            kept = [
                _torn(deed, chance) if chance.random() < 0.2 else deed for deed in unsynced if chance.random() < 0.5
            ]
            chance.shuffle(kept)
            yield from kept


def _torn(deed: Deed, chance: random.Random) -> Deed:
    sectors = (len(deed.data) + SECTOR_BYTES - 1) // SECTOR_BYTES
    if deed.kind != "write" or sectors < 2:
        return deed
    return Deed("write", deed.file, deed.offset, deed.data[: SECTOR_BYTES * chance.randrange(1, sectors)])


def _apply(deed: Deed, content: bytearray) -> None:
    if deed.kind == "write":
        if len(content) < deed.offset:
            content.extend(bytes(deed.offset - len(content)))
        content[deed.offset : deed.offset + len(deed.data)] = deed.data
    elif deed.kind == "truncate":
        del content[deed.offset :]
    elif deed.kind == "delete":
        content.clear()


# -- SQLite on this disk


class WatchedDisk(apsw.VFS):
    """The system's own file system, with a record of what is done to it."""

    def __init__(self) -> None:
        self.name = "watched"
        self.disk = Disk()
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        shown = Path(name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")).name
        return WatchedFile(self.disk, shown, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.disk.deeds.append(Deed("delete", Path(filename).name, durable=bool(syncdir)))


@cache
def watched_disk() -> WatchedDisk:
    """One for the whole process: SQLite keeps a pointer to it, so it must never be collected."""
    return WatchedDisk()


class WatchedFile(apsw.VFSFile):
    def __init__(self, disk: Disk, shown: str, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._shown = shown
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.deeds.append(Deed("write", self._shown, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._disk.deeds.append(Deed("truncate", self._shown, size))

    def xSync(self, flags: int) -> None:
        self._disk.deeds.append(Deed("sync", self._shown))


class Rows:
    """What a statement gave: as much of a cursor of the standard library as the store uses."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def fetchall(self) -> list[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


class Connection:
    """A connection of apsw that looks like one of the standard library, as far as the store can see."""

    row_factory: Any = None

    def __init__(self, path: Path, vfs: str) -> None:
        self._db = apsw.Connection(str(path), vfs=vfs)

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def cursor(self) -> Connection:
        return self

    def execute(self, sql: str, args: Sequence[Any] = ()) -> Rows:
        before = self._db.total_changes()
        with _translated():
            rows = self._db.execute(sql, tuple(args)).fetchall()
        return Rows(rows, self._db.total_changes() - before)

    def executemany(self, sql: str, many: Iterable[Sequence[Any]]) -> Rows:
        before = self._db.total_changes()
        with _translated():
            for args in many:
                self._db.execute(sql, tuple(args)).fetchall()
        return Rows([], self._db.total_changes() - before)

    def close(self) -> None:
        self._db.close()


class _translated:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, apsw.ConstraintError):
            translated = sqlite3.IntegrityError(str(error))
            translated.sqlite_errorcode = getattr(error, "extendedresult", sqlite3.SQLITE_CONSTRAINT)
            raise translated from error
        if isinstance(error, apsw.Error):
            raise sqlite3.OperationalError(str(error)) from error


class StoreOnWatchedDisk(SqliteStore):
    """The real store; what it writes is recorded."""

    def __init__(self, path: Path, vfs: WatchedDisk, **fields: Any) -> None:
        super().__init__(path, **fields)
        self._vfs = vfs

    def _connect(self) -> Any:
        return Connection(self.path, self._vfs.name)

    def _configure(self, db: Any) -> None:
        super()._configure(db)
        db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
