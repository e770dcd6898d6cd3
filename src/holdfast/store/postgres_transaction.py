"""The locked path on PostgreSQL, inside a transaction that someone else begins and commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core import failpoints
from holdfast.core.queries import Attempts, StreamAfter, WaitsOf
from holdfast.core.rows import INPUTS, RUNS, SNAPSHOTS, STREAM, VALUES, WAITS, WORK, Table, Work
from holdfast.core.view import Changes, Query
from holdfast.store.contract import Conflict, Need
from holdfast.store.postgres_connections import LOCK_TIMEOUT_MILLISECONDS, translate
from holdfast.store.postgres_flush import deletes_fit
from holdfast.store.questions import query_arguments

if TYPE_CHECKING:
    from holdfast.store.postgres import PostgresStore


# Tables whose rows are read by key in one statement.
_BY_KEYS: tuple[tuple[Table[Any], str], ...] = (
    (RUNS, "get_runs"),
    (WORK, "get_work"),
    (INPUTS, "inputs_by_keys"),
    (SNAPSHOTS, "get_snapshots"),
    (VALUES, "get_inbox"),
)
_KEYED = frozenset(table for table, _ in _BY_KEYS)
# Questions that are asked of many runs at once. Known by their type itself: `isinstance` takes ten times as long with
# classes of this kind, and a batch has hundreds of needs.
_TOGETHER = frozenset({WaitsOf, Attempts, StreamAfter})


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

    async def lock_runs(self, ids: Sequence[str]) -> frozenset[str]:
        await self._limit_waiting()
        asked = self._store._clock.monotonic()
        rows = await self._fetch("lock_runs", sorted(ids))
        if rows:
            self._store._learn_time(rows[-1][0], asked)
        self.now = self._store.now()
        return frozenset(row[1] for row in rows)

    async def _limit_waiting(self) -> None:
        if not self._waiting_is_limited:  # no session settings of ours there
            self._waiting_is_limited = True
            await self._connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MILLISECONDS}")

    async def load(self, needs: Sequence[Need]) -> list[list[Any]]:
        """What a batch asks for with every operation takes one statement each, whatever its number."""
        by_key = [need for need in needs if isinstance(need, tuple)]
        found: dict[Need, list[Any]] = {}
        for table, statement in _BY_KEYS:
            keys = sorted({key for of, key in by_key if of is table})
            for row in await self._fetch(statement, *_columns(keys)) if keys else ():
                made = table.row(*row.values())
                found[(table, table.key(made))] = [made]
        found |= await self._load_together([need for need in needs if type(need) in _TOGETHER])
        answers: list[list[Any]] = []
        for need in needs:
            if need in found:
                answers.append(found[need])
            elif isinstance(need, tuple) and need[0] in _KEYED:
                answers.append([])
            else:
                answers.append(await self._load_one(need))
        return answers

    async def _load_together(self, needs: Sequence[Any]) -> dict[Need, list[Any]]:
        """What runs wait for, attempts of some of their nodes, and events of instances."""
        answers: dict[Need, list[Any]] = {need: [] for need in needs}
        runs = sorted({need.run for need in needs if type(need) is WaitsOf})
        for row in await self._fetch("waits_of_runs", runs) if runs else ():
            wait = WAITS.row(*row.values())
            answers[WaitsOf(wait.run)].append(wait)
        attempts = [need for need in needs if type(need) is Attempts]
        nodes = sorted({(need.run, node) for need in attempts for node in need.nodes})
        rows: dict[tuple[str, str], list[Work]] = {}
        for row in await self._fetch("attempts_of_runs", *_columns(nodes)) if nodes else ():
            work = WORK.row(*row.values())
            rows.setdefault((work.run, work.node), []).append(work)
        for need in attempts:
            answers[need] = [work for node in sorted(need.nodes) for work in rows.get((need.run, node), ())]
        first: dict[str, StreamAfter] = {}
        for stream in needs:
            if type(stream) is StreamAfter and first.setdefault(stream.run, stream) != stream:
                answers[stream] = await self._load_one(stream)  # a second question about one instance
        asked = sorted((stream.run, stream.after, stream.limit) for stream in first.values())
        for row in await self._fetch("streams_after", *_columns(asked)) if asked else ():
            fact = STREAM.row(*row.values())
            answers[first[fact.run]].append(fact)
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
        together = deletes_fit(changes)
        for table, deleted in changes.deletes.items() if not together else ():
            keys = [list(column) for column in zip(*(table.key(row) for row in deleted), strict=True)]
            answer = await self._connection.execute(self._sql[f"delete_{table.name}"], *keys)
            if int(answer.split()[-1]) != len(deleted):
                raise Conflict(f"a row of {table.name} was consumed by someone else")
        if failpoints.armed:
            await failpoints.reach("flush.between")
        with translate():  # a caller's own connection is in nobody's `use`
            missed = await self._store.write_guarded(self._connection, changes, deletes=together)
        if missed:
            raise Conflict(f"run {min(missed)} changed meanwhile")

    async def _fetch(self, name: str, *args: Any, lock: bool = False) -> list[Any]:
        self._store.round_trips += 1
        # A claim does not lock the run, only the item it takes: items are locked as they are read.
        sql = self._sql[name] + (" FOR NO KEY UPDATE" if lock else "")
        rows: list[Any] = await self._connection.fetch(sql, *args)
        return rows


def _columns(keys: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*keys, strict=True)]


def postgres_arguments(query: Query) -> tuple[Any, ...]:
    return query_arguments(query, list)


class PostgresTx:
    """`hf.Tx` on PostgreSQL: the caller's statements join the transaction that records its result."""

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    @property
    def is_open(self) -> bool:
        return bool(self.raw.is_in_transaction())

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
