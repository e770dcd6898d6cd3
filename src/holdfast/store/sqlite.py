"""The SQLite store: one file, one connection, one writer.

Theory of operation. Every write happens in `BEGIN IMMEDIATE` while the file lock beside the database is
held, so there is one writer and one checkpointer at any time, over all processes. Statements run on the
event loop while commits are quick and nobody else writes (a hand-over to a thread costs more than the
commit), and on one writer thread when the lock is taken or the disk is slow.

`PRAGMA data_version`, read inside the transaction, changes when another connection has committed. If it
has not changed, everything this process remembers is still true. If it has, the version of each run and the
token of each item that a flush writes are its guard, as on PostgreSQL, and whatever else is remembered is forgotten.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from holdfast.core import failpoints
from holdfast.core.errors import StoreUnavailable, UsageError
from holdfast.core.operations import Handed
from holdfast.core.rows import HOLDS, Fact, History, Run, Work
from holdfast.core.seams import Clock, StatementExecutor
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
    RunMark,
    Seen,
    StoreStats,
    StreamLag,
    StreamType,
    Transaction,
    Transition,
    WorkerRow,
)
from holdfast.store.file_bell import FileBell
from holdfast.store.listing import Listing, found_in_sqlite
from holdfast.store.sqlite_claim import claim_items
from holdfast.store.sqlite_locks import WorkerLocks, WriteLock
from holdfast.store.sqlite_log import LogRoom
from holdfast.store.sqlite_schema import check_database, is_current, migrate_database, translate
from holdfast.store.sqlite_transaction import SqliteTransaction
from holdfast.store.sqlite_write import adapt_plain_values, load_rows, worker_of, write_changes
from holdfast.store.statements import PRUNED, statements

T = TypeVar("T")

SLOW_COMMIT_SECONDS = 0.005
# How often it is looked whether others have written: more often for a while after they have, as more is likely to come.
WATCH_SECONDS, BUSY_WATCH_SECONDS, BUSY_SECONDS = 0.005, 0.001, 1.0
_json = msgspec.json.encode


class SqliteStore:
    """Rows in a SQLite file that several processes may share."""

    kind = "sqlite"
    shared = True
    flushes_overlap = False

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        inline: StatementExecutor,
        threaded: StatementExecutor,
        sleep: Callable[[float], None],
        timeout_seconds: float = 30.0,
    ) -> None:
        # The program may change its directory while the engine is open, or be in one that is gone.
        self.path = path = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
        self._clock = clock
        self._inline = inline
        self._threaded = threaded
        self._sleep = sleep
        self._timeout = timeout_seconds
        self._sql = statements("sqlite")
        self._listing = Listing("sqlite")
        self._lock = WriteLock(f"{path}-holdfast-lock")
        self._worker_locks = WorkerLocks(path)
        self._bell = FileBell(self._lock.path)
        self._log_room = LogRoom(self.path)
        self._mutex = asyncio.Lock()
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._data_version = -1
        self._seen_version = -1
        self._no_holds = False  # as of the last look, and nobody has written any since
        self._last_now = 0
        self._slow_commits = 0
        self._watcher: asyncio.Task[None] | None = None
        self._hearers: list[Callable[[str], None]] = []  # one for each engine on this store
        self.on_foreign_write: Callable[[], None] = lambda: None

    # -- opening

    async def open(self) -> None:
        with translate(self.path):
            self._db = self._connect()
            check_database(self._db, self.path)  # before the first write: the journal mode is one
            self._inode = os.stat(self.path).st_ino
            if self._db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                # A rollback journal that a power cut brings back would undo this, and the file would be empty: its
                # deletion must reach the disk too.
                self._db.execute("PRAGMA synchronous=EXTRA")
                # Needs the file to itself, so under the lock: several processes may be opening a new file.
                await self._write(lambda db: db.execute("PRAGMA journal_mode=WAL").fetchone(), own_transaction=False)
            self._configure(self._db)

    def _connect(self) -> sqlite3.Connection:
        adapt_plain_values()
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        return sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            timeout=min(5.0, self._timeout),
        )

    def _configure(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA mmap_size=0")
        db.execute("PRAGMA cache_size=-16384")  # 16 MB
        db.execute("PRAGMA wal_autocheckpoint=2000")  # at a commit, so under the file lock

    @property
    def db(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreUnavailable(f"{self.path} is not open")
        return self._db

    async def migrate(self) -> list[str]:
        if await self._read(is_current):
            return []
        return await self._write(lambda db: migrate_database(db, self.now()), own_transaction=False)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None
        self._hearers.clear()
        async with self._mutex:
            db, self._db = self._db, None
            if db is not None:
                # The last connection to close checkpoints the log: that is a write, so it holds the lock.
                locked = False
                with suppress(StoreUnavailable):  # what could not be locked to write can still be closed
                    locked = self._lock.try_lock()
                db.close()
                if locked:
                    self._lock.unlock()
        self._worker_locks.abandon()
        self._bell.close()
        self._lock.close()
        self._inline.close()
        self._threaded.close()

    def now(self) -> int:
        # The host's clock may step back; times that leases are compared with must not.
        self._last_now = max(self._last_now, self._clock.now_us())
        return self._last_now

    # -- transactions

    async def _write(self, call: Callable[[sqlite3.Connection], T], *, own_transaction: bool = True) -> T:
        """Run `call` in a write transaction: here if that is quick, else on the writer thread."""
        if self._slow_commits < 3 and not self._mutex.locked() and self._lock.try_lock():
            return self._transact(call, own_transaction)  # nobody else runs meanwhile, so nobody needs to be kept out
        async with self._mutex:
            if self._slow_commits < 3 and self._lock.try_lock():
                return await self._inline.run(lambda: self._transact(call, own_transaction))
            return await self._threaded.run(lambda: self._locked_transact(call, own_transaction))

    def _locked_transact(self, call: Callable[[sqlite3.Connection], T], own: bool) -> T:
        self._wait_for_lock()
        return self._transact(call, own)

    def _wait_for_lock(self) -> None:
        if not self._lock.lock(self._timeout, self._clock, self._sleep):
            raise StoreUnavailable(
                f"{self.path} is locked by another process for more than {self._timeout:g} s",
                hint="find the process that holds it open (another worker, a copied backup, a shell in a transaction)",
            )

    def _transact(self, call: Callable[[sqlite3.Connection], T], own: bool) -> T:
        """The file lock is held on entry and released on return."""
        try:
            with translate(self.path):
                self._check_in_place()
                if not own:
                    return call(self.db)
                self.db.execute("BEGIN IMMEDIATE")
                try:
                    self._log_room.make()
                    result = call(self.db)
                    self._commit()
                except BaseException:
                    if self.db.in_transaction:
                        self.db.execute("ROLLBACK")
                    raise
                return result
        finally:
            self._lock.unlock()

    def _check_in_place(self) -> None:
        """A file that was deleted or replaced would still take writes, and nobody could ever read them."""
        try:
            inode = os.stat(self.path).st_ino
        except FileNotFoundError:
            inode = 0
        if inode != self._inode:
            raise StoreUnavailable(
                f"{self.path} was deleted or replaced while it was open",
                hint="put the file back, or open the engine again to use the one that is there now",
            )

    def _commit(self) -> None:
        if failpoints.armed:
            failpoints.hit("flush.before_commit")
        started = self._clock.monotonic()
        self.db.execute("COMMIT")
        self._note_speed(self._clock.monotonic() - started)
        if failpoints.armed:
            failpoints.hit("flush.after_commit")

    def _note_speed(self, seconds: float) -> None:
        # A slow disk would hold up the event loop: after three slow commits in a row the thread takes over.
        self._slow_commits = self._slow_commits + 1 if seconds > SLOW_COMMIT_SECONDS else 0

    def _others_wrote(self, db: sqlite3.Connection) -> bool:
        version = db.execute("PRAGMA data_version").fetchone()[0]
        changed = version != self._data_version
        self._data_version = version
        self._no_holds = self._no_holds and not changed
        return bool(changed)

    async def flush(self, changes: Changes) -> frozenset[str]:
        foreign = False

        def guarded(db: sqlite3.Connection) -> None:
            nonlocal foreign
            foreign = self._others_wrote(db)
            if foreign and changes.deletes:
                raise Conflict("another process wrote to the file")
            if changes.presumes_no_holds and not self._no_holds:
                if db.execute("SELECT 1 FROM holds LIMIT 1").fetchone():
                    raise Conflict("something is held back")
                self._no_holds = True
            if HOLDS in changes.inserts:
                self._no_holds = False
            write_changes(db, self._sql, changes)

        try:
            await self._write(guarded)
        finally:
            if foreign:  # before what was written is remembered
                self.on_foreign_write()
        return frozenset()

    def transaction(self, *, user: bool = False) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Transaction]:
        async with self._mutex:
            self._no_holds = False
            executor = self._inline if self._lock.try_lock() else self._threaded
            try:  # unlocking what is not held does no harm; a cancel while waiting for it must not keep it
                if executor is self._threaded:
                    await executor.run(self._wait_for_lock)
                with translate(self.path):
                    self._check_in_place()
                    await executor.run(lambda: self.db.execute("BEGIN IMMEDIATE"))
                    if self._others_wrote(self.db):
                        self.on_foreign_write()
                try:
                    yield SqliteTransaction(self, executor)
                    with translate(self.path):
                        await executor.run(self._commit)
                except BaseException:
                    if self._db is not None and self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            finally:
                self._lock.unlock()

    # -- reading

    async def _read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        if self._slow_commits < 3 and not self._mutex.locked():
            with translate(self.path):
                return call(self.db)
        async with self._mutex:
            executor = self._inline if self._slow_commits < 3 else self._threaded
            with translate(self.path):
                return await executor.run(lambda: call(self.db))

    async def _ask(self, name: str, *args: Any) -> list[Any]:
        return await self._read(lambda db: db.execute(self._sql[name], args).fetchall())

    async def rows(self, need: Query) -> list[Any]:
        return await self._read(lambda db: load_rows(db, self._sql, need))

    async def history(self, run: str, after: int = 0) -> list[History]:
        return [History(*row) for row in await self._ask("HistoryOf", run, after)]

    async def runs(self, ids: Sequence[str], *, settled: bool = False) -> list[Run]:
        name = "settled_runs" if settled else "runs_by_id"
        return [Run(*row) for row in await self._ask(name, _json(list(ids)).decode())]

    async def foreign_writes(self) -> int | None:
        return self._foreign_writes()

    def _foreign_writes(self) -> int | None:
        if self._db is None or self._mutex.locked():
            return None
        with suppress(sqlite3.Error):
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])
        return None

    async def find(self, ask: FindRuns) -> list[Run]:
        sql, args = found_in_sqlite(ask)
        return [Run(*row) for row in await self._read(lambda db: db.execute(sql, args).fetchall())]

    async def list_runs(self, ask: ListRuns) -> list[Run]:
        def look(db: sqlite3.Connection) -> list[Any]:
            rows = db.execute(*self._listing.page_among_newest(ask)).fetchall()
            return rows if len(rows) == ask.limit else db.execute(*self._listing.page_among_all(ask)).fetchall()

        return [Run(*row) for row in await self._read(look)]

    async def count_runs(self, ask: ListRuns, most: int) -> dict[str, int]:
        sql, args = self._listing.counts(ask, most)
        return dict(await self._read(lambda db: db.execute(sql, args).fetchall()))

    async def marks(self, most: int, *, ended_since: int, most_ended: int, of: Sequence[str] = ()) -> list[RunMark]:
        asked = (most, ended_since, most_ended, _json(list(of)).decode())
        return [RunMark(*row) for row in await self._ask("marks", *asked)]

    # -- streams

    async def stream_bound(self) -> int:
        return int((await self._ask("stream_bound"))[0][0])

    async def horizon_age(self) -> float:
        return 0.0  # one writer: positions are given in the order of commits

    async def read_stream(self, workflow: str, after: int, upto: int, limit: int) -> list[Fact]:
        return [Fact(*row) for row in await self._ask("read_stream", workflow, after, upto, limit)]

    async def stream_lag(self, workflow: str, after: int) -> StreamLag:
        return StreamLag(*(await self._ask("stream_lag", workflow, after))[0])

    async def stream_types(self, workflow: str) -> list[StreamType]:
        return [StreamType(*row) for row in await self._ask("stream_types", workflow)]

    async def transitions(self, workflow: str) -> list[Transition]:
        return [Transition(*row) for row in await self._ask("transitions", workflow)]

    # -- work

    async def open_work_types(self, workflow: str) -> list[OpenWorkType]:
        return [OpenWorkType(*row) for row in await self._ask("open_work_types", workflow)]

    def join(self, connection: Any) -> Transaction:
        raise UsageError(
            f"tx= joins a PostgreSQL transaction, and this engine runs on {self.kind}",
            hint="leave tx= out, or use a transactional action",
        )

    async def claim(self, request: ClaimRequest) -> list[Handed]:
        known = (_json(request.workflows).decode(), _json(request.actions).decode())
        wanted = (request.queue, *known, request.losses_below)
        if failpoints.armed:
            await failpoints.reach("claim.before")
        # Look before locking: an idle worker must not take the write lock at every poll.
        if not await self._read(lambda db: db.execute(self._sql["claimable"], (*wanted, 1)).fetchone()):
            return []

        def take(db: sqlite3.Connection) -> tuple[bool, list[Handed]]:
            foreign = self._others_wrote(db)
            handed = claim_items(db, self._sql, request, (*wanted, request.limit), self.now())
            if failpoints.armed:
                failpoints.hit("claim.before_commit")
            return foreign, handed

        foreign, handed = await self._write(take)
        if foreign:
            self.on_foreign_write()
        if failpoints.armed:
            await failpoints.reach("claim.after")
        return handed

    async def promote(self, queues: Sequence[str], ahead_us: int = 0) -> int | None:
        def next_due(db: sqlite3.Connection) -> int | None:
            dues = [db.execute(self._sql["next_due"], (queue,)).fetchone()[0] for queue in queues]
            return min((due for due in dues if due is not None), default=None)

        due = await self._read(next_due)
        if due is None or due > (upto := self.now() + ahead_us):
            return due

        def open_gates(db: sqlite3.Connection) -> int | None:
            db.executemany(self._sql["promote"], [(queue, upto) for queue in queues])
            return next_due(db)

        return await self._write(open_gates)

    def time_left(self, due: int) -> int:
        return due - self.now()

    async def leased_to(self, worker: str) -> list[Work]:
        return [Work(*row) for row in await self._ask("leased_to", worker)]

    async def dead(self, limit: int) -> list[Work]:
        return [Work(*row) for row in await self._ask("dead", limit)]

    async def unknown(self, older_than: int, limit: int) -> list[Work]:
        live = [worker for worker in await self.workers() if worker.lease_until >= self.now()]
        rows = await self._read(lambda db: db.execute(self._sql["ready_before"], (older_than, 10_000)).fetchall())
        ready = (Work(*row) for row in rows)
        return [work for work in ready if not any(worker.knows(work) for worker in live)][:limit]

    # -- workers

    async def see_code(
        self, code: Mapping[CodeVersion, bytes], *, serve: bool = False, again: bool = False
    ) -> CodeSeen:
        workflows = _json(sorted({workflow for workflow, _ in code})).decode()

        def known(db: sqlite3.Connection) -> CodeSeen:
            return {
                (row[0], row[1]): Seen(row[2], bool(row[3])) for row in db.execute(self._sql["code_seen"], (workflows,))
            }

        def note(db: sqlite3.Connection) -> None:
            now = self.now()
            db.executemany(self._sql["see_code"], [(*version, nodes, now) for version, nodes in code.items()])
            if serve:
                db.executemany(self._sql["serve_code"], [(now, *version, again) for version in code])

        seen = await self._read(known)
        # Look before locking: what is known already is not written again.
        if again or any(version not in seen or (serve and not seen[version].served) for version in code):
            await self._write(note)
            seen = await self._read(known)
        return seen

    async def code_nodes(self, workflow: str, signature: str | None) -> bytes | None:
        row = await self._read(lambda db: db.execute(self._sql["code_nodes"], (workflow, signature)).fetchone())
        return None if row is None else bytes(row[0])

    async def enroll(self, worker: WorkerRow, lease_seconds: float) -> WorkerRow:
        now = self.now()
        provable = self._worker_locks.hold(worker.id)
        row = replace(worker, provable=provable, started=now, seen=now, lease_until=now + int(lease_seconds * 1e6))
        values = (*astuple(row)[:3], *(_json(names).decode() for names in astuple(row)[3:6]), *astuple(row)[6:])
        await self._write(lambda db: db.execute(self._sql["enroll"], values))
        if failpoints.armed:
            await failpoints.reach("enroll.after")
        return row

    async def learn_names(self, worker: WorkerRow) -> None:
        names = (_json(worker.workflows).decode(), _json(worker.actions).decode())
        await self._write(lambda db: db.execute(self._sql["learn_names"], (*names, worker.id)))

    def proves_life(self, worker: str) -> bool:
        return True  # the operating system's lock lasts as long as the process

    async def heartbeat(self, worker: str, lease_seconds: float) -> bool:
        if failpoints.armed:
            await failpoints.reach("heartbeat.before")
        now = self.now()
        until = now + int(lease_seconds * 1e6)
        count = await self._write(lambda db: db.execute(self._sql["heartbeat"], (now, until, worker)).rowcount)
        if failpoints.armed:
            await failpoints.reach("heartbeat.after")
        return count == 1

    async def retire(self, worker: str) -> None:
        await self._write(lambda db: db.execute(self._sql["retire"], (worker,)))
        self._worker_locks.release(worker)
        self._worker_locks.forget(worker)

    async def lapsed_workers(self, exclude: str) -> list[str]:
        now = self.now()
        return [
            worker.id
            for worker in await self.workers()
            if worker.id != exclude
            and (worker.lease_until < now or (worker.provable and self._worker_locks.is_dead(worker.id)))
        ] + await self._read(lambda db: [row[0] for row in db.execute(self._sql["ownerless"], (exclude,))])

    async def workers(self) -> list[WorkerRow]:
        rows = await self._read(lambda db: db.execute(self._sql["workers"]).fetchall())
        found = [worker_of(row) for row in rows]
        # A provably dead worker holds no lease, whatever its row says.
        return [
            replace(worker, lease_until=0) if worker.provable and self._worker_locks.is_dead(worker.id) else worker
            for worker in found
        ]

    # -- for people

    async def stats(self) -> StoreStats:
        names = ("count_runs", "count_work", "queue_depths", "workers", "inbox", "dead_events")
        counted = await self._read(lambda db: [db.execute(self._sql[name]).fetchall() for name in names])
        runs, work, queues, workers, [(inbox, oldest_input)], [(dead_events,)] = counted
        now = self.now()
        return StoreStats(
            runs=dict(runs),
            work=dict(work),
            workers=len(workers),
            inbox=inbox,
            inbox_oldest_seconds=max(0, now - (oldest_input or now)) / 1e6,
            dead_events=dead_events,
            queues=tuple(
                QueueDepth(
                    queue=queue,
                    ready=ready,
                    delayed=delayed,
                    leased=leased,
                    oldest_seconds=max(0, now - (oldest or now)) / 1e6,
                )
                for queue, ready, delayed, leased, oldest in queues
            ),
        )

    async def prune(self, ended_before: int, limit: int) -> int:
        def delete(db: sqlite3.Connection) -> int:
            old = db.execute(self._sql["prunable"], (ended_before, limit)).fetchall()
            for table in PRUNED:
                db.executemany(self._sql[f"prune_{table}"], old)
                if failpoints.armed:
                    failpoints.hit("prune.between")
            return len(old)

        return await self._write(delete)

    async def forget_commands(self, workflow: str, before: int, limit: int, last: int | None = None) -> int:
        return await self._write(
            lambda db: db.execute(self._sql["forget_commands"], (before, workflow, last, limit)).rowcount
        )

    async def doctor(self) -> list[Finding]:
        from holdfast.store.audit import sqlite_findings

        return await self._read(lambda db: sqlite_findings(db, self._sql))

    async def announce(self, channels: frozenset[str]) -> None:
        """What is new, other processes see by the change of `data_version`; the bell says when to look."""
        if len(self._hearers) > 1:
            self._tell(channels)
        self._bell.ring()

    async def listen(self, heard: Callable[[str], None]) -> None:
        self._hearers.append(heard)
        if self._watcher is None:
            watch = self._watch(has_bell=self._bell.listen(self._look))
            self._watcher = asyncio.get_running_loop().create_task(watch, name="holdfast-sqlite-watch")

    def _tell(self, channels: Iterable[str]) -> None:
        for channel in channels:
            for heard in self._hearers:
                heard(channel)

    def _look(self) -> bool:
        """Whether another process has written; on to whoever wants to know."""
        version = self._foreign_writes()
        if version is None or version == self._seen_version:
            return False
        self._seen_version = version
        self._tell(("work", "ended", "stream"))
        return True

    async def _watch(self, *, has_bell: bool) -> None:
        busy_until = 0.0
        while True:
            busy = not has_bell and self._clock.monotonic() < busy_until
            await asyncio.sleep(BUSY_WATCH_SECONDS if busy else WATCH_SECONDS)
            if self._look():
                busy_until = self._clock.monotonic() + BUSY_SECONDS
