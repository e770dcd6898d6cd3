"""The PostgreSQL store: any number of worker hosts on one database.

Theory of operation. A flush is one guarded statement in autocommit (`postgres_flush.py`). The locked path
is a transaction: topics, then runs in one sorted statement, then rows in later statements; work items are
locked as they are read, because claims do not lock runs. Claims, heartbeats and sweeps never wait: they
skip what is locked or touch only a worker's own row (K10).

Time is the server's clock. Every flush brings it back with its answer; in between it is counted on with
the process's monotonic clock, so that deciding needs no round trip to ask for the time (K12).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import asyncpg
import msgspec
from msgspec.structs import replace

from holdfast.core import ahead, failpoints
from holdfast.core.errors import StoreUnavailable, UsageError
from holdfast.core.operations import Handed
from holdfast.core.rows import RUNS, WORK, Fact, History, Run, Work
from holdfast.core.seams import Clock
from holdfast.core.stored import stored_names
from holdfast.core.view import Changes, Query
from holdfast.store.contract import (
    ClaimRequest,
    CodeSeen,
    CodeVersion,
    Conflict,
    Finding,
    FindRuns,
    ListRuns,
    OpenWorkType,
    QueueDepth,
    ReadyItem,
    Recall,
    RunMark,
    Seen,
    StoreStats,
    StreamLag,
    StreamType,
    Transaction,
    Transition,
    WorkerRow,
    begun,
    leased,
)
from holdfast.store.listing import Listing
from holdfast.store.neighbours import Neighbours
from holdfast.store.postgres_connections import Connection, Connections, run_statement, translate
from holdfast.store.postgres_flush import deletes_fit, guarded_flush
from holdfast.store.postgres_horizon import Horizon
from holdfast.store.postgres_schema import check_database, migrate_database
from holdfast.store.postgres_transaction import PostgresTransaction, postgres_arguments
from holdfast.store.server_time import ServerTime
from holdfast.store.statements import PRUNED, statements

_WORK_WIDTH = len(WORK.columns)


class PostgresStore:
    """Rows in a PostgreSQL database."""

    kind = "postgresql"
    shared = True
    flushes_overlap = True

    def __init__(self, dsn: str, *, clock: Clock, timeout_seconds: float = 30.0) -> None:
        self.connections = Connections(dsn, timeout_seconds=timeout_seconds)
        self.on_foreign_write: Callable[[], None] = lambda: None
        self._clock = clock
        self._sql = statements("postgres")
        self._listing = Listing("postgres")
        self._server_time = ServerTime(clock.now_us() - int(clock.monotonic() * 1e6))
        self._last_now = 0
        self._sessions: dict[str, Connection] = {}
        self._locked: set[str] = set()  # workers of this process whose session holds their lock
        self._listener: asyncio.Task[None] | None = None
        self._hearers: list[Callable[[str], None]] = []  # one for each engine on this store
        self._ear: Connection | None = None  # the session that listens, while there is one
        self._neighbours: Neighbours | None = None  # who are told without the server
        self._horizon = Horizon()
        self.round_trips = 0  # counted for the test that keeps them few

    # -- opening

    async def open(self) -> None:
        await self.connections.probe()
        async with self.connections.use() as connection:
            await check_database(connection, self.connections.pooled)
            asked = self._clock.monotonic()
            self._learn_time(await self._run(connection, "fetchval", self._sql["now"]), asked)

    async def migrate(self) -> list[str]:
        async with self.connections.use() as connection:
            return await migrate_database(connection, self._sql)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        self._hearers.clear()
        for session in self._sessions.values():
            session.terminate()
        self._sessions.clear()
        await self.connections.close()

    # -- time

    def now(self) -> int:
        self._last_now = max(self._last_now, self._server_time.about(self._clock.monotonic()))
        return self._last_now

    def _learn_time(self, server_us: int, asked: float) -> None:
        self._server_time.learn(server_us, asked=asked, answered=self._clock.monotonic())

    async def _run(self, connection: Connection, method: str, sql: str, *args: Any) -> Any:
        self.round_trips += 1
        return await run_statement(connection, self.connections.pooled, method, sql, *args)

    async def _statement(self, method: str, name: str, *args: Any) -> Any:
        async with self.connections.use() as connection:
            return await self._run(connection, method, self._sql[name], *args)

    # -- transactions

    async def flush(self, changes: Changes) -> frozenset[str]:
        if not deletes_fit(changes):
            raise Conflict("this takes the locked path")
        if failpoints.armed:
            await failpoints.reach("flush.before")
        async with self.connections.use() as connection:
            missed = await self.write_guarded(connection, changes)
        if failpoints.armed:
            await failpoints.reach("flush.after_commit")
        return missed

    async def write_guarded(self, connection: Connection, changes: Changes, *, deletes: bool = True) -> frozenset[str]:
        """The guarded statement; the runs that did not match, in which case nothing was written."""
        sql, args = guarded_flush(changes, deletes=deletes)
        asked = self._clock.monotonic()
        row = await self._run(connection, "fetchrow", sql, *args)
        self._learn_time(row["now"], asked)
        if row["ok"]:
            return frozenset()
        missed = {old.id for old, _ in changes.updates.get(RUNS, ())} - set(row["runs"])
        found = list(row["work"])
        for old, _ in changes.updates.get(WORK, ()):
            if old.run in found:
                found.remove(old.run)
            else:
                missed.add(old.run)
        if not missed:
            raise Conflict("something is held back, or was consumed by someone else")
        return frozenset(missed)

    def transaction(self, *, user: bool = False) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction(user)

    @asynccontextmanager
    async def _transaction(self, user: bool) -> AsyncIterator[Transaction]:
        pool = self.connections.users if user else self.connections.engine
        async with self.connections.use(pool) as connection:
            async with connection.transaction():
                yield PostgresTransaction(self, connection, limit_waiting=user or self.connections.pooled)
                if failpoints.armed:
                    await failpoints.reach("flush.before_commit")
            if failpoints.armed:
                await failpoints.reach("flush.after_commit")

    def join(self, connection: Any) -> Transaction:
        # Outside of a transaction each statement would commit by itself: a run could be half-written.
        in_transaction = getattr(connection, "is_in_transaction", None)
        if in_transaction is None or not in_transaction():
            state = "is no asyncpg connection" if in_transaction is None else "has no open transaction"
            raise UsageError(
                f"tx= was given a {type(connection).__name__} that {state}",
                hint="call it inside `async with connection.transaction():` of an asyncpg connection",
            )
        return PostgresTransaction(self, connection, limit_waiting=False)

    async def ensure_topics(self, names: Sequence[str]) -> None:
        # Its caller holds a connection of the engine's pool: with one more from there, a few callers would deadlock.
        async with self.connections.use(self.connections.topics) as connection:
            await self._run(connection, "execute", self._sql["ensure_topics"], sorted(names))

    # -- reading

    async def rows(self, need: Query) -> list[Any]:
        found = await self._statement("fetch", type(need).__name__, *postgres_arguments(need))
        return [need.table.row(*row.values()) for row in found]

    async def history(self, run: str, after: int = 0) -> list[History]:
        return [History(*row.values()) for row in await self._statement("fetch", "HistoryOf", run, after)]

    async def runs(self, ids: Sequence[str], *, settled: bool = False) -> list[Run]:
        name = "settled_runs" if settled else "get_runs"
        return [Run(*row.values()) for row in await self._statement("fetch", name, list(ids))]

    async def foreign_writes(self) -> int | None:
        return None

    async def find(self, ask: FindRuns) -> list[Run]:
        tags = msgspec.json.encode(dict(ask.tags)).decode() if ask.tags else None
        args = (
            ask.workflow,
            list(ask.status) or None,
            tags,
            ask.since,
            ask.after,
            ask.model,
            ask.key_prefix,
            ask.limit,
        )
        return [Run(*row.values()) for row in await self._statement("fetch", "find", *args)]

    async def list_runs(self, ask: ListRuns) -> list[Run]:
        sql, args = self._listing.page(ask)
        async with self.connections.use() as connection:
            return [Run(*row.values()) for row in await self._run(connection, "fetch", sql, *args)]

    async def count_runs(self, ask: ListRuns, most: int) -> dict[str, int]:
        sql, args = self._listing.counts(ask, most)
        async with self.connections.use() as connection:
            return {row[0]: row[1] for row in await self._run(connection, "fetch", sql, *args)}

    async def marks(self, most: int, *, ended_since: int, most_ended: int, of: Sequence[str] = ()) -> list[RunMark]:
        rows = await self._statement("fetch", "marks", most, ended_since, most_ended, list(of))
        return [RunMark(*row) for row in rows]

    # -- streams

    async def stream_bound(self) -> int:
        horizon = self._horizon
        position, taken, running = await self._statement("fetchrow", "stream_horizon", horizon.newest)
        horizon.settle(running)
        if taken is not None:
            horizon.note(position, taken, self._clock.monotonic())
            horizon.settle(await self._statement("fetchval", "oldest_running"))
        return horizon.settled

    async def horizon_age(self) -> float:
        await self.stream_bound()
        waiting = self._horizon.waiting
        if waiting is None:
            return 0.0
        # A process that has just begun to look knows less than the server, which tells a user of its own sessions only.
        open_for = await self._statement("fetchval", "holding_back", str(waiting.below))
        return max(self._clock.monotonic() - waiting.seen, open_for or 0.0)

    async def read_stream(self, workflow: str, after: int, upto: int, limit: int) -> list[Fact]:
        rows = await self._statement("fetch", "read_stream", workflow, after, upto, limit)
        return [Fact(*row.values()) for row in rows]

    async def stream_lag(self, workflow: str, after: int) -> StreamLag:
        return StreamLag(*await self._statement("fetchrow", "stream_lag", workflow, after))

    async def stream_types(self, workflow: str) -> list[StreamType]:
        return [StreamType(*row) for row in await self._statement("fetch", "stream_types", workflow)]

    async def transitions(self, workflow: str) -> list[Transition]:
        return [Transition(*row) for row in await self._statement("fetch", "transitions", workflow)]

    # -- work

    async def open_work_types(self, workflow: str) -> list[OpenWorkType]:
        return [OpenWorkType(*row) for row in await self._statement("fetch", "open_work_types", workflow)]

    async def claim(self, request: ClaimRequest) -> list[Handed]:
        if failpoints.armed:
            await failpoints.reach("claim.before")
        names = (request.queue, list(request.workflows), list(request.actions))
        asked = (*names, request.limit, request.worker, request.losses_below, ahead.MOST_AHEAD_US)
        rows = await self._statement("fetch", "claim" if request.recall is None else "claim_items", *asked)
        if failpoints.armed:
            await failpoints.reach("claim.after")
        if request.recall is not None:
            handed = await self._recalled(rows, request.recall, request.worker)
        else:
            handed = _handed(rows)
        handed.sort(key=lambda item: (-item.work.priority, item.work.due))
        return handed

    async def _recalled(self, rows: list[Any], recall: Recall, worker: str) -> list[Handed]:
        """What was claimed, of what is remembered; the rest is read."""
        handed: list[Handed] = []
        unknown: list[tuple[str, str, int, int]] = []
        for now, token, *told in rows:
            item = ReadyItem(*told)
            if (known := recall(item)) is None:
                unknown.append((item.run, item.node, item.attempt, token))
                continue
            work = leased(*known, worker=worker, now=now)
            handed.append(Handed(work, begun(known[1], work)))
        if unknown:
            try:
                handed += _handed(await self._statement("fetch", "claimed", *map(list, zip(*unknown, strict=True))))
            except StoreUnavailable:
                if not handed:  # else those begin now; the others are leased to this worker, whose sweep will find them
                    raise
        return handed

    async def promote(self, queues: Sequence[str], ahead_us: int = 0) -> int | None:
        due: int | None
        asked = self._clock.monotonic()
        due, now = await self._statement("fetchrow", "promote", list(queues), ahead_us)
        self._learn_time(now, asked)
        return due

    def time_left(self, due: int) -> int:
        # Not by `now`, which never goes back and may be as much before the server's clock as that has been set back.
        return due - self._server_time.at_least(self._clock.monotonic())

    async def leased_to(self, worker: str) -> list[Work]:
        return [Work(*row.values()) for row in await self._statement("fetch", "leased_to", worker)]

    async def dead(self, limit: int) -> list[Work]:
        return [Work(*row.values()) for row in await self._statement("fetch", "dead", limit)]

    async def unknown(self, older_than: int, limit: int) -> list[Work]:
        live = [worker for worker in await self.workers() if worker.lease_until >= self.now()]
        rows = await self._statement("fetch", "ready_before", older_than, 10_000)
        ready = (Work(*row.values()) for row in rows)
        return [work for work in ready if not any(worker.knows(work) for worker in live)][:limit]

    # -- workers

    async def see_code(
        self, code: Mapping[CodeVersion, bytes], *, serve: bool = False, again: bool = False
    ) -> CodeSeen:
        workflows, signatures = [workflow for workflow, _ in code], [signature for _, signature in code]
        async with self.connections.use() as connection:
            await connection.execute(self._sql["see_code"], workflows, signatures, list(code.values()))
            if serve:
                await connection.execute(self._sql["serve_code"], workflows, signatures, again)
            rows = await connection.fetch(self._sql["code_seen"], workflows)
        return {(row[0], row[1]): Seen(row[2], row[3]) for row in rows}

    async def code_nodes(self, workflow: str, signature: str | None) -> bytes | None:
        async with self.connections.use() as connection:
            found: bytes | None = await connection.fetchval(self._sql["code_nodes"], workflow, signature)
        return found

    async def enroll(self, worker: WorkerRow, lease_seconds: float) -> WorkerRow:
        session = await self._session(worker.id)
        provable = worker.id in self._locked
        with translate(self.connections.shown):
            now = self.now()
            names = [msgspec.json.encode(names).decode() for names in (worker.queues, worker.workflows, worker.actions)]
            identity = (worker.id, worker.host, worker.pid, *names, worker.concurrency, provable)
            await self._run(session, "execute", self._sql["enroll"], *identity, now, int(lease_seconds * 1e6))
        if failpoints.armed:
            await failpoints.reach("enroll.after")
        return replace(worker, provable=provable, started=now, seen=now, lease_until=now + int(lease_seconds * 1e6))

    async def learn_names(self, worker: WorkerRow) -> None:
        names = [msgspec.json.encode(names).decode() for names in (worker.workflows, worker.actions)]
        await self._statement("execute", "learn_names", worker.id, *names)

    async def _session(self, worker: str) -> Connection:
        """The worker's own connection, which holds its lock. A new one takes the lock again.

        The lock may be taken for a while: by a sweeper that looks whether we live, or by what the server still
        believes to be our old session. It is asked for until we have it.
        """
        session = self._sessions.get(worker)
        if session is None or session.is_closed():
            self._locked.discard(worker)
            session = self._sessions[worker] = await self.connections.connect()
        if worker not in self._locked and not self.connections.pooled:
            with translate(self.connections.shown):
                if await self._run(session, "fetchval", self._sql["hold_worker_lock"], worker):
                    self._locked.add(worker)
        return session

    def proves_life(self, worker: str) -> bool:
        session = self._sessions.get(worker)
        locked = worker in self._locked and session is not None and not session.is_closed()
        return self.connections.pooled or locked

    async def heartbeat(self, worker: str, lease_seconds: float) -> bool:
        if failpoints.armed:
            await failpoints.reach("heartbeat.before")
        session = await self._session(worker)
        try:
            asked = self._clock.monotonic()
            with translate(self.connections.shown):
                seen = await self._run(session, "fetchval", self._sql["heartbeat"], worker, int(lease_seconds * 1e6))
        except StoreUnavailable:
            session.terminate()
            raise
        if seen is not None:
            self._learn_time(seen, asked)
        if failpoints.armed:
            await failpoints.reach("heartbeat.after")
        return seen is not None

    async def retire(self, worker: str) -> None:
        await self._statement("execute", "retire", worker)
        session = self._sessions.pop(worker, None)
        self._locked.discard(worker)
        if session is not None:
            with suppress(Exception):
                await session.close(timeout=2.0)

    async def lapsed_workers(self, exclude: str) -> list[str]:
        return [row[0] for row in await self._statement("fetch", "lapsed_workers", exclude)]

    async def workers(self) -> list[WorkerRow]:
        found = []
        for row in await self._statement("fetch", "workers"):
            fields = dict(row.items())
            for name in ("queues", "workflows", "actions"):
                fields[name] = stored_names(fields[name])
            found.append(WorkerRow(**fields))
        return found

    # -- for people

    async def stats(self) -> StoreStats:
        runs = await self._statement("fetch", "count_runs")
        work = await self._statement("fetch", "count_work")
        queues = await self._statement("fetch", "queue_depths")
        inbox, oldest = await self._statement("fetchrow", "inbox")
        now = self.now()
        return StoreStats(
            runs={row[0]: row[1] for row in runs},
            work={row[0]: row[1] for row in work},
            workers=len(await self.workers()),
            inbox=inbox,
            inbox_oldest_seconds=max(0, now - (oldest or now)) / 1e6,
            dead_events=(await self._statement("fetchrow", "dead_events"))[0],
            queues=tuple(
                QueueDepth(
                    queue=row[0],
                    ready=row[1],
                    delayed=row[2],
                    leased=row[3],
                    oldest_seconds=max(0, now - (row[4] or now)) / 1e6,
                )
                for row in queues
            ),
        )

    async def prune(self, ended_before: int, limit: int) -> int:
        async with self.connections.use() as connection, connection.transaction():
            old = [row[0] for row in await connection.fetch(self._sql["prunable"], ended_before, limit)]
            for table in PRUNED:
                await connection.execute(self._sql[f"prune_{table}"], old)
                if failpoints.armed:
                    await failpoints.reach("prune.between")
        return len(old)

    async def forget_commands(self, workflow: str, before: int, limit: int, last: int | None = None) -> int:
        return len(await self._statement("fetch", "forget_commands", before, workflow, last, limit))

    async def doctor(self) -> list[Finding]:
        from holdfast.store.audit import postgres_findings

        async with self.connections.use() as connection:
            return await postgres_findings(connection, self._sql, self.connections.pooled)

    # -- hints

    async def announce(self, channels: frozenset[str]) -> None:
        if failpoints.armed:
            await failpoints.reach("announce.before")
        if len(self._hearers) > 1:
            self._tell(channels)
        # Without parameters it is one message and nothing to plan: whoever waits for the hint has it a fifth sooner.
        # Never in the hot transaction, since it takes a database-wide lock at commit. It does not wait for the disk.
        hints = "; ".join(f"NOTIFY holdfast, '{channel}'" for channel in sorted(channels))
        if (ear := self._ear) is not None:
            if self._neighbours is not None:
                self._neighbours.ring(channels)
            # From the session that listens: the server then need not wake it to tell us what we said ourselves.
            with translate(self.connections.shown):
                await self._run(ear, "execute", hints)
        else:
            async with self.connections.use() as connection:
                await self._run(connection, "execute", hints)
        if failpoints.armed:
            await failpoints.reach("announce.after")

    async def listen(self, heard: Callable[[str], None]) -> None:
        """One listening connection, made again whenever it breaks. A pooler passes no notifications on."""
        if self.connections.pooled:
            return
        self._hearers.append(heard)
        if self._listener is None:
            self._listener = asyncio.get_running_loop().create_task(self._keep_listening(), name="holdfast-listener")

    def _tell(self, channels: Iterable[str]) -> None:
        for channel in channels:
            for heard in self._hearers:
                heard(channel)

    async def _keep_listening(self) -> None:
        while True:
            with suppress(StoreUnavailable, OSError):
                await self._listen_once()
            await asyncio.sleep(0.2)

    async def _neighbours_on(self, connection: Connection, session: int) -> Neighbours | None:
        try:
            database: str = await self._run(connection, "fetchval", self._sql["database"])
        except asyncpg.PostgresError:  # a role that may not ask, or a server that cannot tell
            return None
        return Neighbours.of(database, session, self._tell)

    async def _listen_once(self) -> None:
        connection = await self.connections.connect()
        session = connection.get_server_pid()
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())

        def hear(_connection: Connection, sender: int, _channel: str, payload: str) -> None:
            if sender == session:
                return  # what this process committed its observers know, and better
            if self._neighbours is None or not self._neighbours.has_told(sender, payload):
                self._tell((payload,))

        try:
            with translate(self.connections.shown):
                await connection.add_listener("holdfast", hear)
                self._neighbours = await self._neighbours_on(connection, session)
            self._ear = connection
            self._tell(("work", "ended"))  # whatever was announced while nobody listened
            await gone.wait()
        finally:
            self._ear = None
            if self._neighbours is not None:
                self._neighbours.close()
                self._neighbours = None
            connection.terminate()


def _handed(rows: list[Any]) -> list[Handed]:
    """Items with their runs, of which each comes with the first of its items at least."""
    runs: dict[str, Run] = {}
    works: list[Work] = []
    for row in rows:
        works.append(work := Work(*row[:_WORK_WIDTH]))
        if row[_WORK_WIDTH] is not None:
            runs[work.run] = begun(Run(*row[_WORK_WIDTH:]), work)
    return [Handed(work, runs[work.run]) for work in works]
