"""The locked path on SQLite, inside the write transaction that the store begins and commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.seams import StatementExecutor
from holdfast.core.view import Changes
from holdfast.store.contract import Need
from holdfast.store.sqlite_schema import translate
from holdfast.store.sqlite_write import load_rows, write_changes

if TYPE_CHECKING:
    from holdfast.store.sqlite import SqliteStore


class SqliteTransaction:
    """The write lock is held; rows are read and written as asked."""

    def __init__(self, store: SqliteStore, executor: StatementExecutor) -> None:
        self._store = store
        self._run = executor.run
        self.now = store.now()
        self.user = SqliteTx(store.db, executor)

    async def lock_topics(self, names: Sequence[str]) -> None:
        """The one writer has every lock already."""

    async def lock_runs(self, ids: Sequence[str]) -> frozenset[str]:
        """The one writer has every lock already."""
        return frozenset(ids)

    async def load(self, needs: Sequence[Need]) -> list[list[Any]]:
        db, sql = self._store.db, self._store._sql
        with translate(self._store.path):
            return await self._run(lambda: [load_rows(db, sql, need) for need in needs])

    async def write(self, changes: Changes) -> None:
        with translate(self._store.path):
            await self._run(lambda: write_changes(self._store.db, self._store._sql, changes))


class SqliteTx:
    """`hf.Tx` on SQLite: the caller's statements join the transaction that records its result."""

    def __init__(self, db: sqlite3.Connection, executor: StatementExecutor) -> None:
        self.raw = db
        self._run = executor.run

    @property
    def is_open(self) -> bool:
        return self.raw.in_transaction

    def _execute(self, sql: str, args: tuple[object, ...]) -> sqlite3.Cursor:
        cursor = self.raw.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, args)

    async def execute(self, sql: str, *args: object) -> int:
        return await self._run(lambda: max(0, self._execute(sql, args).rowcount))

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        return await self._run(lambda: self._execute(sql, args).fetchall())

    async def fetchrow(self, sql: str, *args: object) -> Any:
        return await self._run(lambda: self._execute(sql, args).fetchone())

    async def fetchval(self, sql: str, *args: object) -> Any:
        row = await self.fetchrow(sql, *args)
        return None if row is None else row[0]
