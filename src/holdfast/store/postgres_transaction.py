"""The locked path on PostgreSQL, inside a transaction that someone else begins and commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core import failpoints
from holdfast.core.rows import RUNS, WORK, Table
from holdfast.core.view import Changes, Query, defined
from holdfast.store.contract import Conflict, Need
from holdfast.store.postgres_connections import LOCK_TIMEOUT_MILLISECONDS, translate
from holdfast.store.questions import query_arguments

if TYPE_CHECKING:
    from holdfast.store.postgres import PostgresStore


class PostgresTransaction:
    """Locks in order, reads in later statements, writes with the same guard as the fast path."""

    def __init__(self, store: PostgresStore, connection: Any, *, limit_waiting: bool) -> None:
        self._store = store
        self._connection = connection
        self._waiting_is_limited = not limit_waiting
        self._sql = store._sql
        self.now = store.now()
        self.user = PostgresTx(connection)

    async def lock_topics(self, names: Sequence[str]) -> None:
        await self._limit_waiting()
        await self._store.ensure_topics(names)
        await self._fetch("lock_topics", sorted(names))

    async def lock_runs(self, ids: Sequence[str]) -> None:
        await self._limit_waiting()
        rows = await self._fetch("lock_runs", sorted(ids))
        if rows:
            self._store._learn_time(rows[-1][0])
        self.now = self._store.now()

    async def _limit_waiting(self) -> None:
        if not self._waiting_is_limited:  # no session settings of ours there
            self._waiting_is_limited = True
            await self._connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MILLISECONDS}")

    async def load(self, needs: Sequence[Need]) -> list[list[Any]]:
        """Runs and work items by key take one statement each, whatever their number."""
        run_ids = sorted({need[1][0] for need in needs if not isinstance(need, Query) and need[0] is RUNS})
        work_keys = sorted({need[1] for need in needs if not isinstance(need, Query) and need[0] is WORK})
        found: dict[tuple[Table[Any], Any], Any] = {}
        if run_ids:
            for row in await self._fetch("get_runs", run_ids):
                run = RUNS.row(*row.values())
                found[(RUNS, (run.id,))] = run
        if work_keys:
            for row in await self._fetch("get_work", *(list(column) for column in zip(*work_keys, strict=True))):
                work = WORK.row(*row.values())
                found[(WORK, WORK.key(work))] = work
        answers: list[list[Any]] = []
        for need in needs:
            if not isinstance(need, Query) and need[0] in (RUNS, WORK):
                row = found.get(need)
                answers.append([] if row is None else [row])
            else:
                answers.append(await self._load_one(need))
        return answers

    async def _load_one(self, need: Need) -> list[Any]:
        if isinstance(need, Query):
            table = need.table
            args = postgres_arguments(need)
            rows = await self._fetch(type(need).__name__, *args, lock=table is WORK)
        else:
            table, key = need
            rows = await self._fetch(f"get_{table.name}", *key)
        return [table.row(*row.values()) for row in rows]

    async def write(self, changes: Changes) -> None:
        if failpoints.armed:
            await failpoints.reach("flush.before")
        for table, deleted in changes.deletes.items():
            keys = [list(column) for column in zip(*(table.key(row) for row in deleted), strict=True)]
            answer = await self._connection.execute(self._sql[f"delete_{table.name}"], *keys)
            if int(answer.split()[-1]) != len(deleted):
                raise Conflict(f"a row of {table.name} was consumed by someone else")
        if redefined := changes.redefined():
            columns = [
                list(column) for column in zip(*(defined(new) + WORK.key(new) for new in redefined), strict=True)
            ]
            await self._connection.execute(self._sql["redefine_work"], *columns)
        if failpoints.armed:
            await failpoints.reach("flush.between")
        with translate():  # a caller's own connection is in nobody's `use`
            missed = await self._store.write_guarded(self._connection, changes)
        if missed:
            raise Conflict(f"run {min(missed)} changed meanwhile")

    async def _fetch(self, name: str, *args: Any, lock: bool = False) -> list[Any]:
        self._store.round_trips += 1
        # A claim does not lock the run, only the item it takes: items are locked as they are read.
        sql = self._sql[name] + (" FOR NO KEY UPDATE" if lock else "")
        rows: list[Any] = await self._connection.fetch(sql, *args)
        return rows


def postgres_arguments(query: Query) -> tuple[Any, ...]:
    return query_arguments(query, list)


class PostgresTx:
    """`hf.Tx` on PostgreSQL: the caller's statements join the transaction that records its result."""

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    async def execute(self, sql: str, *args: object) -> int:
        status = str(await self.raw.execute(sql, *args)).split()
        return int(status[-1]) if status and status[-1].isdigit() else 0

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        rows: list[Any] = await self.raw.fetch(sql, *args)
        return rows

    async def fetchrow(self, sql: str, *args: object) -> Any:
        return await self.raw.fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: object) -> Any:
        return await self.raw.fetchval(sql, *args)
