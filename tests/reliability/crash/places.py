"""Where lives are lived: a SQLite file or a PostgreSQL database, made anew for each point, read without our code."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg

from tests.reliability.crash.oracle import Broken, Row, Rows
from tests.support.stores import Site

T = TypeVar("T")
OURS = {
    "sqlite": (
        "CREATE TABLE bookings (amount INTEGER)",
        "CREATE TABLE projected (place INTEGER PRIMARY KEY AUTOINCREMENT, shop TEXT, sequence INTEGER)",
    ),
    "postgresql": (
        "CREATE TABLE bookings (amount bigint)",
        "CREATE TABLE projected (place bigserial PRIMARY KEY, shop text, sequence bigint)",
    ),
}
"""Tables of the user's own: what transactional actions and projections write to."""
GONE_WITH_THE_POWER = ("-shm",)


class Place(Protocol):
    """A database on which one life follows another."""

    kind: str

    @property
    def url(self) -> str: ...

    def renew(self, *, blank: bool) -> None:
        """Begin with nothing but tables, or not even those."""

    def rows(self) -> Rows: ...


class SqlitePlace:
    """A file. Who dies leaves its files as they are at that instant; those who come later go on with a copy of them."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        self._template = folder / "template"
        self._template.mkdir(parents=True)
        asyncio.run(_prepare(Site("sqlite", f"sqlite:///{self._template / 'app.db'}")))
        for leftover in self._template.glob("app.db-*"):
            leftover.unlink()
        self.home = folder / "0"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def path(self) -> Path:
        return self.home / "app.db"

    def renew(self, *, blank: bool) -> None:
        self._move()
        if not blank:
            shutil.copyfile(self._template / "app.db", self.path)

    def leave(self) -> None:
        """A process has died just now: what it wrote is there, and nothing else will be."""
        left = self.home
        self._move()
        for file in left.iterdir():
            if not file.name.endswith(GONE_WITH_THE_POWER):
                shutil.copyfile(file, self.home / file.name)
        self.behind = left

    def put(self, files: dict[str, bytes]) -> None:
        """These files are what is left."""
        self._move()
        for name, content in files.items():
            (self.home / name).write_bytes(content)

    def rows(self) -> Rows:
        """Read from a copy: opening the files themselves would already recover them."""
        looked_at = self.folder / "looked-at"
        shutil.rmtree(looked_at, ignore_errors=True)
        looked_at.mkdir()
        for file in self.home.glob("app.db*"):
            if "-worker-" not in file.name and not file.name.endswith(GONE_WITH_THE_POWER):
                shutil.copyfile(file, looked_at / file.name)
        db = sqlite3.connect(looked_at / "app.db")
        try:
            verdict = db.execute("PRAGMA integrity_check").fetchone()[0]
            if verdict != "ok":
                raise Broken(f"G10: the file is damaged: {verdict}")
            db.row_factory = sqlite3.Row
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return Rows({name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")] for name in names})
        finally:
            db.close()

    def _move(self) -> None:
        if self._number > 1:
            shutil.rmtree(self.folder / str(self._number - 1), ignore_errors=True)
        self._number += 1
        self.home = self.folder / str(self._number)
        self.home.mkdir()


class PostgresPlace:
    """A database on a server, and one without tables for those who make them."""

    kind = "postgresql"

    def __init__(self, url: str, blank_url: str) -> None:
        self._full_url, self._blank_url = url, blank_url
        self.url = url
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None
        asyncio.run(_prepare(Site("postgresql", url)))
        emptied = [name for name in self._run(_tables) if name != "holdfast_migrations"]
        self._empty = "; ".join(f"DELETE FROM {name}" for name in emptied)

    def renew(self, *, blank: bool) -> None:
        url = self._blank_url if blank else self._full_url
        if url != self.url:
            self._forget()
            self.url = url
        statement = "DROP SCHEMA public CASCADE; CREATE SCHEMA public" if blank else self._empty
        self._run(lambda connection: connection.execute(statement))

    def rows(self) -> Rows:
        """All tables at one moment: a statement of the dead may just be coming to its end."""

        async def read(connection: Any) -> dict[str, list[Row]]:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                names = await _tables(connection)
                return {name: [dict(row) for row in await connection.fetch(f"SELECT * FROM {name}")] for name in names}

        return Rows(self._run(read))

    def close(self) -> None:
        self._forget()
        self._loop.close()

    def _forget(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # the server may have been stopped
                self._loop.run_until_complete(connection.close(timeout=5))

    def _run(self, ask: Callable[[Any], Awaitable[T]]) -> T:
        async def run() -> T:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self.url)
            return await ask(self._connection)

        try:
            return self._loop.run_until_complete(run())
        except (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, OSError):
            self._forget()  # the server was stopped under it
            return self._loop.run_until_complete(run())


async def _tables(connection: Any) -> list[str]:
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename")
    return [row[0] for row in rows]


async def _prepare(site: Site) -> None:
    async with site.opened():
        pass
    if site.kind == "sqlite":
        db = sqlite3.connect(site.path)
        for statement in OURS["sqlite"]:
            db.execute(statement)
        db.close()
        return
    connection = await asyncpg.connect(site.url)
    await connection.execute("; ".join(OURS["postgresql"]))
    await connection.close()
