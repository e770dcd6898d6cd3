"""Where lives are lived: a SQLite file or a PostgreSQL database, made afresh for each point and read without our code."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from tests.reliability.crash.oracle import Broken, Row, Rows
from tests.support.stores import Site

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

    def __init__(self, url: str, make_blank: Callable[[], str]) -> None:
        self._url = self.url = url
        self._make_blank = make_blank
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None
        asyncio.run(_prepare(Site("postgresql", url)))
        tables = self._ask(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
        )
        self._tables = sorted(row["table_name"] for row in tables)
        emptied = [name for name in self._tables if name != "holdfast_migrations"]
        self._empty = "; ".join(f"DELETE FROM {name}" for name in emptied)

    def renew(self, *, blank: bool) -> None:
        if blank:
            self._forget()
            self.url = self._make_blank()
        else:
            if self.url != self._url:
                self._forget()
            self.url = self._url
            self._run("execute", self._empty)

    def rows(self) -> Rows:
        if self.url == self._url:
            names = self._tables
        else:
            names = [
                row["table_name"]
                for row in self._ask(
                    "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
                )
            ]
        return Rows({name: self._ask(f"SELECT * FROM {name}") for name in names})

    def close(self) -> None:
        self._forget()
        self._loop.close()

    def _forget(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # the server may have been stopped
                self._loop.run_until_complete(connection.close(timeout=5))

    def _ask(self, sql: str) -> list[Row]:
        return [dict(row) for row in self._run("fetch", sql)]

    def _run(self, method: str, sql: str) -> Any:
        async def run() -> Any:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self.url)
            return await getattr(self._connection, method)(sql)

        try:
            return self._loop.run_until_complete(run())
        except (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, OSError):
            self._connection = None  # the server was stopped under it
            return self._loop.run_until_complete(run())


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
