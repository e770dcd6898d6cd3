"""Stores for tests: the same three everywhere, on a clock that the test turns by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from msgspec.structs import replace

from holdfast.core.rows import STREAM, TABLES, Row, Table
from holdfast.core.seams import Clock
from holdfast.core.view import Changes
from holdfast.runtime.system import InlineExecutor, RealClock, ThreadExecutor, sleep
from holdfast.store.contract import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.statements import columns
from tests.support.postgres import Databases

KINDS = ("memory", "sqlite", "postgresql")
SHARED_KINDS = ("sqlite", "postgresql")
EPOCH_US = 1_700_000_000_000_000
SECOND = 1_000_000
SERVER_TIME = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class VirtualClock:
    """A clock that stands still until the test moves it."""

    def __init__(self, start_us: int = EPOCH_US) -> None:
        self._now = start_us

    def now_us(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / SECOND

    def advance(self, seconds: float) -> None:
        self._now += int(seconds * SECOND)


class PostgresOnVirtualTime(PostgresStore):
    """PostgreSQL whose statements read the test's clock where they would ask the server for the time."""

    def __init__(self, dsn: str, *, clock: Clock) -> None:
        super().__init__(dsn, clock=clock)
        if not any(SERVER_TIME in statement for statement in self._sql.values()):
            raise AssertionError("no statement reads the server's clock in these words any more: change SERVER_TIME")

    def now(self) -> int:
        return self._clock.now_us()

    async def _run(self, connection: Any, method: str, sql: str, *args: Any) -> Any:
        statement = sql.replace(SERVER_TIME, f"{self._clock.now_us()}::bigint")
        return await super()._run(connection, method, statement, *args)


@dataclass(frozen=True)
class Site:
    """Where a store lives. Several may be opened at one site, as several processes would; memory has just the one."""

    kind: str
    url: str = ""
    _memory: dict[str, MemoryStore] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return Path(self.url.removeprefix("sqlite:///"))

    def store(self, clock: Clock | None = None) -> Store:
        """A store on this clock, not opened yet; on the real one without."""
        if self.kind == "memory":
            memory = self._memory.setdefault("only", MemoryStore(clock or RealClock()))
            memory._clock = clock or memory._clock
            return memory
        if self.kind == "sqlite":
            return SqliteStore(
                self.path,
                clock=clock or RealClock(),
                inline=InlineExecutor(),
                threaded=ThreadExecutor("test-sqlite"),
                sleep=sleep,
                timeout_seconds=10.0,
            )
        if clock is None:
            return PostgresStore(self.url, clock=RealClock(), timeout_seconds=10.0)
        return PostgresOnVirtualTime(self.url, clock=clock)

    def opened(self, clock: Clock | None = None) -> AbstractAsyncContextManager[Store]:
        """An open store with its tables made."""
        return self._opened(clock)

    @asynccontextmanager
    async def _opened(self, clock: Clock | None) -> AsyncIterator[Store]:
        store = self.store(clock)
        try:
            await store.open()
            await store.migrate()
            yield store
        finally:
            await store.close()


@contextmanager
def site_for(kind: str, databases: Databases | None, folder: Path) -> Iterator[Site]:
    """A site of this kind with nothing in it but the tables."""
    if kind == "memory":
        yield Site(kind)
    elif kind == "sqlite":
        yield Site(kind, f"sqlite:///{folder / 'store.db'}")
    else:
        assert databases is not None
        yield Site(kind, _emptied_database(databases))


_addresses: dict[str, str] = {}
_DELETE_ALL = "; ".join(f"DELETE FROM {table}" for table in (*(table.name for table in TABLES), "workers", "topics"))


def _emptied_database(databases: Databases) -> str:
    """One database for all these tests, emptied for each: ten times quicker than a new one."""
    made: list[str] = []
    name = databases.template("holdfast-stores", made.append)
    url = _addresses[name] = made[0] if made else _addresses[name]

    async def prepare() -> None:
        if made:
            async with Site("postgresql", url).opened():
                pass
        connection = await asyncpg.connect(url)
        await connection.execute(_DELETE_ALL)
        await connection.close()

    asyncio.run(prepare())
    return url


async def every_row(store: Store) -> dict[str, list[Any]]:
    """All that is stored, table by table, in the order of the keys; without positions, which no two stores share."""
    stored = {table.name: sorted(await _rows(store, table), key=table.key) for table in TABLES}
    stored[STREAM.name] = [replace(fact, position=0) for fact in stored[STREAM.name]]
    return stored


async def _rows(store: Store, table: Table[Any]) -> list[Any]:
    if isinstance(store, MemoryStore):
        return list(store.tables[table].values())
    sql = f"SELECT {columns(table.columns)} FROM {table.name}"
    if isinstance(store, SqliteStore):
        return [table.row(*row) for row in store.db.execute(sql)]
    assert isinstance(store, PostgresStore)
    async with store.connections.use() as connection:
        return [table.row(*row.values()) for row in await connection.fetch(sql)]


async def execute(store: Store, sql: str) -> None:
    """A statement behind the store's back; `sql` must suit both dialects."""
    if isinstance(store, SqliteStore):
        store.db.execute(sql)
    else:
        assert isinstance(store, PostgresStore)
        async with store.connections.use() as connection:
            await connection.execute(sql)


async def empty(store: Store) -> None:
    """Delete all that is stored."""
    if isinstance(store, MemoryStore):
        store.__init__(store._clock)  # type: ignore[misc]
        return
    for statement in _DELETE_ALL.split(";"):
        await execute(store, statement)


def change(
    *,
    insert: tuple[Row, ...] = (),
    update: tuple[tuple[Row, Row], ...] = (),
    delete: tuple[Row, ...] = (),
    presumes_no_holds: bool = False,
) -> Changes:
    """What a decision would have written."""
    changes = Changes(presumes_no_holds)
    for row in insert:
        changes.inserts.setdefault(table_of(row), []).append(row)
    for old, new in update:
        changes.updates.setdefault(table_of(old), []).append((old, new))
    for row in delete:
        changes.deletes.setdefault(table_of(row), []).append(row)
    return changes


def table_of(row: Row) -> Table[Any]:
    return next(table for table in TABLES if table.row is type(row))
