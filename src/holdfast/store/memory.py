"""The memory store: the View's rows with nothing behind them. For tests, the simulation and sketches.

It keeps the same promises as the others within one process, checks the same guards, and loses
everything when the process ends.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import islice, takewhile
from typing import Any

from msgspec.structs import replace

from holdfast.core import failpoints
from holdfast.core.errors import UsageError
from holdfast.core.operations import Handed
from holdfast.core.projection_operations import PROJECTION_MODEL, sources_of
from holdfast.core.queries import (
    AllWork,
    CodeGraph,
    DueWork,
    EventsFor,
    FactsCausedBy,
    QueuedEvents,
    RunByKey,
    StreamAfter,
)
from holdfast.core.rows import (
    ACTION_ENOUGH,
    CANCELLED,
    DEAD,
    DEAD_EVENT,
    EVENTS,
    GATE_DUE,
    GATE_OPEN,
    HISTORY,
    HOLDS,
    INPUTS,
    LEASED,
    OBSERVATIONS,
    OPEN_WORK,
    PAUSED,
    PUT_IN_PLACE,
    QUEUED_EVENT,
    READY,
    RUNS,
    STREAM,
    TABLES,
    WORK,
    Definition,
    Fact,
    History,
    Input,
    Key,
    Run,
    Table,
    Work,
)
from holdfast.core.seams import Clock
from holdfast.core.view import Changes, Query
from holdfast.store import memory_listing
from holdfast.store.contract import (
    ClaimRequest,
    CodeSeen,
    CodeVersion,
    Conflict,
    Finding,
    FindRuns,
    ListRuns,
    Need,
    OpenWorkType,
    QueueDepth,
    RunMark,
    Seen,
    StoreStats,
    StreamLag,
    StreamType,
    Transaction,
    Transition,
    UserTransaction,
    WorkerRow,
    begun,
    leased,
)
from holdfast.store.memory_events import QueuedEventsByAge
from holdfast.store.memory_pruning import is_needed
from holdfast.store.memory_streams import Positions, transitions_of, types_of

COMMAND, SAME = "command:", "same:"  # the ids that deciders keep among those of events


class MemoryStore:
    """Rows in dictionaries. One transaction at a time, which one event loop gives for free."""

    kind = "memory"
    shared = False
    flushes_overlap = False

    def __init__(self, clock: Clock, *, tables: tuple[Table[Any], ...] = TABLES) -> None:
        self._clock = clock
        self.tables: dict[Table[Any], dict[Key, Any]] = {table: {} for table in tables}
        self._of_run: dict[Table[Any], dict[str, dict[Key, Any]]] = {table: {} for table in tables}
        self._ready: dict[str, dict[Key, Work]] = {}  # claimable items by queue
        self._leased: dict[Key, Work] = {}
        self._delayed: dict[str, list[tuple[int, Key]]] = {}  # heaps by queue; what has changed since is skipped
        self._keys: dict[tuple[str, str], str] = {}
        self._queued = QueuedEventsByAge()
        self._positions = Positions()
        self._workers: dict[str, WorkerRow] = {}
        self._code: CodeSeen = {}
        self._graphs: dict[CodeVersion, bytes] = {}
        self.on_foreign_write: Callable[[], None] = lambda: None

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def migrate(self) -> list[str]:
        return []

    def now(self) -> int:
        return self._clock.now_us()

    # -- saving

    async def flush(self, changes: Changes) -> frozenset[str]:
        if changes.presumes_no_holds and self.tables[HOLDS]:
            raise Conflict("something is held back")
        if missed := self.missed(changes):
            return missed
        if failpoints.armed:
            await failpoints.reach("flush.before")
        self._write(changes)
        if failpoints.armed:
            await failpoints.reach("flush.after_commit")
        return frozenset()

    def missed(self, changes: Changes) -> frozenset[str]:
        """Runs whose version, or the token of whose work, is not what the decision saw."""
        runs = {old.id for old, _ in changes.updates.get(RUNS, ()) if not self._is_current(RUNS, old, "version")}
        work = {old.run for old, _ in changes.updates.get(WORK, ()) if not self._is_current(WORK, old, "token")}
        return frozenset(runs | work)

    def _is_current(self, table: Table[Any], old: Any, guard: str) -> bool:
        row = self.tables[table].get(table.key(old))
        return row is not None and getattr(row, guard) == getattr(old, guard)

    def _write(self, changes: Changes) -> None:
        for table, rows in changes.inserts.items():
            if table in PUT_IN_PLACE:
                continue  # put in the place of the one before, if there is one (I38)
            replaced = {table.key(row) for row in changes.deletes.get(table, ())}
            for row in rows:
                if table.key(row) in self.tables[table] and table.key(row) not in replaced:
                    raise Conflict(f"{table.name} {table.key(row)} exists")
        freed = {(old.workflow, old.key) for old, new in changes.updates.get(RUNS, ()) if new.superseded}
        for run in changes.inserts.get(RUNS, ()):
            taken = run.key is not None and (run.workflow, run.key) in self._keys
            if taken and (run.workflow, run.key) not in freed:
                raise Conflict(f"key {run.key} is taken")
        for table, rows in changes.deletes.items():
            for row in rows:
                if table.key(row) not in self.tables[table]:
                    raise Conflict(f"{table.name} {table.key(row)} was consumed by someone else")
        for table, pairs in changes.updates.items():
            for _, new in pairs:
                self._save(table, new)
        for table, rows in changes.deletes.items():
            for row in rows:
                self._remove(table, row)
        for table, rows in changes.inserts.items():
            for row in rows:
                self._save(table, row)

    def _save(self, table: Table[Any], row: Any) -> None:
        if table is STREAM:
            row = self._positions.placed(row)
        key = table.key(row)
        self.tables[table][key] = row
        run = table.run(row)
        if run is not None:
            self._of_run[table].setdefault(run, {})[key] = row
        if table is WORK:
            ready = self._ready.setdefault(row.queue, {})
            if row.status == READY and row.gate == GATE_OPEN:
                ready[key] = row
            else:
                ready.pop(key, None)
            if row.status == LEASED:
                self._leased[key] = row
            else:
                self._leased.pop(key, None)
            if row.status == READY and row.gate == GATE_DUE:
                heapq.heappush(self._delayed.setdefault(row.queue, []), (row.due, key))
        elif table is EVENTS:
            self._queued.add(row)
        elif table is RUNS and row.key is not None and not row.superseded:
            self._keys[(row.workflow, row.key)] = row.id

    def _remove(self, table: Table[Any], row: Any) -> None:
        key = table.key(row)
        self.tables[table].pop(key, None)
        run = table.run(row)
        if run is not None:
            self._of_run[table].get(run, {}).pop(key, None)
        if table is WORK:
            self._ready.get(row.queue, {}).pop(key, None)
            self._leased.pop(key, None)
        elif table is RUNS and row.key is not None and self._keys.get((row.workflow, row.key)) == row.id:
            del self._keys[(row.workflow, row.key)]

    def _take_back(self, changes: Changes) -> None:
        for table, rows in changes.inserts.items():
            for row in rows:
                self._remove(table, row)
        for table, rows in changes.deletes.items():
            for row in rows:
                self._save(table, row)
        for table, pairs in changes.updates.items():
            for old, _ in pairs:
                self._save(table, old)

    def transaction(self, *, user: bool = False) -> AbstractAsyncContextManager[Transaction]:
        if user:
            raise UsageError(
                "a transactional action needs a database, and memory:// has none",
                hint="use a SQLite file or PostgreSQL for this engine",
            )
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Transaction]:
        transaction = _MemoryTransaction(self)
        try:
            yield transaction
        except BaseException:
            for changes in reversed(transaction.written):
                self._take_back(changes)
            raise
        if failpoints.armed:
            await failpoints.reach("flush.after_commit")

    # -- reading

    async def rows(self, need: Query) -> list[Any]:
        return self.answer(need)

    def answer(self, need: Need) -> list[Any]:
        if not isinstance(need, Query):
            table, key = need
            row = self.tables[table].get(key)
            return [] if row is None else [row]
        if isinstance(need, RunByKey):
            found = self._keys.get((need.workflow, need.key))
            return [] if found is None else [self.tables[RUNS][(found,)]]
        if isinstance(need, DueWork):
            return self._due(need)
        if isinstance(need, QueuedEvents):
            return self._queued.oldest(need, self.tables[EVENTS])
        if isinstance(need, StreamAfter):
            return self._stream_after(need)
        if isinstance(need, CodeGraph):
            nodes = self._graphs.get((need.workflow, need.signature))
            name = f"{need.workflow}@{need.signature}"
            return [] if nodes is None else [Definition(id=name, run="", signature=need.signature, nodes=nodes)]
        run = need.run if isinstance(need, EventsFor | FactsCausedBy) else need.of_run
        rows = self.tables[need.table] if run is None else self._of_run[need.table].get(run, {})
        matching = sorted((row for row in rows.values() if need.matches(row)), key=need.order)
        return matching[: getattr(need, "limit", None)]

    def _stream_after(self, need: StreamAfter) -> list[Fact]:
        found: list[Fact] = []  # sequences have no gaps, so the first that is missing is the end
        facts = self._of_run[STREAM].get(need.run, {})
        while len(found) < need.limit and (fact := facts.get((need.run, need.after + len(found) + 1))) is not None:
            found.append(fact)
        return found

    def _due(self, need: DueWork) -> list[Work]:
        found = dict(self._leased)
        for ready in self._ready.values():
            found.update(ready)
        for heap in self._delayed.values():  # below what is not due, nothing is
            places = [0]
            while places:
                place = places.pop()
                if place < len(heap) and heap[place][0] <= need.now:
                    if (work := self.tables[WORK].get(heap[place][1])) is not None:
                        found[heap[place][1]] = work
                    places += (2 * place + 1, 2 * place + 2)
        return [work for work in found.values() if need.matches(work)][: need.limit]

    async def history(self, run: str, after: int = 0) -> list[History]:
        rows = self._of_run[HISTORY].get(run, {}).values()
        return sorted((row for row in rows if row.sequence > after), key=HISTORY.key)

    async def runs(self, ids: Sequence[str], *, settled: bool = False) -> list[Run]:
        found = [self.tables[RUNS][(run,)] for run in ids if (run,) in self.tables[RUNS]]
        return [run for run in found if run.ended or run.status == PAUSED] if settled else found

    async def foreign_writes(self) -> int | None:
        return None

    async def find(self, ask: FindRuns) -> list[Run]:
        return memory_listing.found(self.tables[RUNS].values(), ask)

    async def list_runs(self, ask: ListRuns) -> list[Run]:
        return memory_listing.listed(self.tables[RUNS].values(), ask)

    async def count_runs(self, ask: ListRuns, most: int) -> dict[str, int]:
        return memory_listing.counted(self.tables[RUNS].values(), ask, most)

    async def marks(self, most: int, *, ended_since: int, most_ended: int, of: Sequence[str] = ()) -> list[RunMark]:
        followed = await self.runs(of)
        leases = {run.id: sum(w.token for w in self._leased.values() if w.run == run.id) for run in followed}
        return memory_listing.marks(self.tables[RUNS].values(), most, ended_since, most_ended, leases)

    # -- streams

    async def stream_bound(self) -> int:
        return self._positions.last

    async def horizon_age(self) -> float:
        return 0.0

    async def read_stream(self, workflow: str, after: int, upto: int, limit: int) -> list[Fact]:
        below = takewhile(lambda fact: fact.position <= upto, self._facts_after(workflow, after))
        return list(islice(below, limit))

    def _facts_after(self, workflow: str, after: int) -> Iterator[Fact]:
        return self._positions.after(workflow, after, self.tables[STREAM])

    async def stream_lag(self, workflow: str, after: int) -> StreamLag:
        times = [fact.at for fact in self._facts_after(workflow, after)]
        return StreamLag(len(times), times[0] if times else None)

    async def stream_types(self, workflow: str) -> list[StreamType]:
        return types_of(self._facts_after(workflow, 0))

    async def transitions(self, workflow: str) -> list[Transition]:
        return transitions_of(row for row in self.tables[OBSERVATIONS].values() if row.workflow == workflow)

    # -- work

    async def open_work_types(self, workflow: str) -> list[OpenWorkType]:
        found: dict[tuple[str, str], tuple[int, str]] = {}
        for work in self.tables[WORK].values():
            if work.workflow == workflow and work.status in OPEN_WORK:
                total, run = found.get((work.kind, work.name), (0, work.run))
                found[work.kind, work.name] = (total + 1, min(run, work.run))
        return [OpenWorkType(*kind, *found[kind]) for kind in sorted(found)]

    def join(self, connection: Any) -> Transaction:
        raise UsageError(
            f"tx= joins a PostgreSQL transaction, and this engine runs on {self.kind}",
            hint="leave tx= out, or use a transactional action",
        )

    async def claim(self, request: ClaimRequest) -> list[Handed]:
        if failpoints.armed:
            await failpoints.reach("claim.before")
        candidates = (
            work
            for work in self._ready.get(request.queue, {}).values()
            if (work.kind in ACTION_ENOUGH or work.workflow in request.workflows)
            and work.name in request.actions
            and work.losses < request.losses_below
            and not self._is_held(work)
        )
        chosen = heapq.nsmallest(
            request.limit, candidates, key=lambda w: (-w.priority, w.due, w.run, w.node, w.attempt)
        )
        handed = []
        for work in chosen:
            run = self.tables[RUNS][(work.run,)]
            item = leased(work, run, worker=request.worker, now=self._clock.now_us())
            self._save(WORK, item)
            self._save(RUNS, run := begun(run, item))
            handed.append(Handed(item, run))
        if failpoints.armed:
            await failpoints.reach("claim.after")
        return handed

    def _is_held(self, work: Work) -> bool:
        holds = self.tables[HOLDS]
        return bool(holds) and (
            ("all", "") in holds or ("workflow", work.workflow) in holds or ("queue", work.queue) in holds
        )

    async def promote(self, queues: Sequence[str], ahead_us: int = 0) -> int | None:
        now, next_due = self._clock.now_us() + ahead_us, None
        for queue in queues:
            heap = self._delayed.get(queue, [])
            while heap:
                due, key = heap[0]
                work = self.tables[WORK].get(key)
                if work is not None and (work.status, work.gate, work.due) == (READY, GATE_DUE, due):
                    if due > now:
                        next_due = due if next_due is None else min(due, next_due)
                        break
                    self._save(WORK, replace(work, gate=GATE_OPEN))
                heapq.heappop(heap)
        return next_due

    def time_left(self, due: int) -> int:
        return due - self.now()

    async def leased_to(self, worker: str) -> list[Work]:
        return [work for work in self._leased.values() if work.worker == worker]

    async def dead(self, limit: int) -> list[Work]:
        return [work for work in self.tables[WORK].values() if work.status == DEAD][:limit]

    async def unknown(self, older_than: int, limit: int) -> list[Work]:
        now = self._clock.now_us()
        live = [worker for worker in self._workers.values() if worker.lease_until >= now]
        unknown = [
            work
            for ready in self._ready.values()
            for work in ready.values()
            if work.due < older_than and not any(worker.knows(work) for worker in live)
        ]
        return sorted(unknown, key=lambda work: work.due)[:limit]

    # -- workers

    async def see_code(
        self, code: Mapping[CodeVersion, bytes], *, serve: bool = False, again: bool = False
    ) -> CodeSeen:
        for version in code:
            known = self._code.get(version)
            self._graphs.setdefault(version, code[version])
            if known is None or (serve and (again or not known.served)):
                self._code[version] = Seen(self.now(), serve)
        workflows = {workflow for workflow, _ in code}
        return {version: seen for version, seen in self._code.items() if version[0] in workflows}

    async def code_nodes(self, workflow: str, signature: str | None) -> bytes | None:
        versions = [version for version in self._code if version[0] == workflow and signature in (None, version[1])]
        return self._graphs[max(versions, key=lambda version: self._code[version].at)] if versions else None

    async def enroll(self, worker: WorkerRow, lease_seconds: float) -> WorkerRow:
        now = self._clock.now_us()
        row = replace(worker, started=now, seen=now, lease_until=now + int(lease_seconds * 1e6))
        self._workers[worker.id] = row
        return row

    async def learn_names(self, worker: WorkerRow) -> None:
        if (row := self._workers.get(worker.id)) is not None:
            self._workers[worker.id] = replace(row, workflows=worker.workflows, actions=worker.actions)

    def proves_life(self, worker: str) -> bool:
        return True

    async def heartbeat(self, worker: str, lease_seconds: float) -> bool:
        row = self._workers.get(worker)
        if row is None:
            return False
        now = self._clock.now_us()
        self._workers[worker] = replace(row, seen=now, lease_until=now + int(lease_seconds * 1e6))
        return True

    async def retire(self, worker: str) -> None:
        self._workers.pop(worker, None)

    async def lapsed_workers(self, exclude: str) -> list[str]:
        now = self._clock.now_us()
        lapsed = [w.id for w in self._workers.values() if w.lease_until < now and w.id != exclude]
        owners = {work.worker for work in self._leased.values() if work.worker}
        return lapsed + sorted(owners - set(self._workers) - {exclude})

    async def workers(self) -> list[WorkerRow]:
        return list(self._workers.values())

    # -- for people

    async def stats(self) -> StoreStats:
        runs: dict[str, int] = {}
        work: dict[str, int] = {}
        queues: dict[str, list[Work]] = {}
        for run in self.tables[RUNS].values():
            runs[run.status] = runs.get(run.status, 0) + 1
        for item in self.tables[WORK].values():
            work[item.status] = work.get(item.status, 0) + 1
            if item.status in (READY, LEASED):
                queues.setdefault(item.queue, []).append(item)
        inbox = [
            event.at
            for event in self.tables[EVENTS].values()
            if (event.name, event.status) == ("input", QUEUED_EVENT) and self._is_instance(event.target)
        ]
        return StoreStats(
            runs=runs,
            work=work,
            workers=len(self._workers),
            inbox=len(inbox),
            inbox_oldest_seconds=max(0, self.now() - min(inbox, default=self.now())) / 1e6,
            dead_events=sum(event.status == DEAD_EVENT for event in self.tables[EVENTS].values()),
            queues=tuple(_depth(name, items, self._clock.now_us()) for name, items in sorted(queues.items())),
        )

    def _is_instance(self, run: str | None) -> bool:
        row = self.tables[RUNS].get((run,))
        return row is not None and row.model == "decider"

    async def prune(self, ended_before: int, limit: int) -> int:
        ended = (run for run in self.tables[RUNS].values() if run.ended and (run.finished or 0) < ended_before)
        work, by_id = self._of_run[WORK], self.tables[RUNS]
        ended = (
            run for run in ended if not is_needed(run, by_id.get((run.parent,)), lambda of: work.get(of, {}).values())
        )
        old = [run for run in ended if not self._is_unseen(run)][:limit]
        for run in old:
            for table in self.tables:
                for row in list(self._of_run[table].pop(run.id, {}).values()):
                    self._remove(table, row)
        return len(old)

    def _is_unseen(self, run: Run) -> bool:
        """Whether a projection has still to see events of an instance (I36). One that was cancelled never will."""
        facts = self._of_run[STREAM].get(run.id, {}).values()
        last = max((fact.position for fact in facts if not fact.system), default=0)
        return last > 0 and any(
            other.model == PROJECTION_MODEL
            and other.status != CANCELLED
            and last > other.base
            and run.workflow in sources_of(other)
            for other in self.tables[RUNS].values()
        )

    async def forget_commands(self, workflow: str, before: int, limit: int, last: int | None = None) -> int:
        def goes(row: Input) -> bool:
            if row.at >= before or not row.id.startswith((COMMAND, SAME)):
                return False
            run = self.tables[RUNS][(row.run,)]
            needed = row.id.startswith(SAME) and last is not None and int(row.answer) + last > run.token + run.mailbox
            return bool(run.workflow == workflow and not needed)

        old = [row for row in self.tables[INPUTS].values() if goes(row)]
        for row in old[:limit]:
            self._remove(INPUTS, row)
        return len(old[:limit])

    async def doctor(self) -> list[Finding]:
        from holdfast.store.audit import audit

        findings = audit(self.tables[RUNS].values(), lambda run: self.answer(AllWork(run.id)), self._sequences)
        return [Finding(severity="ok", subject="store", message="memory: nothing outlives this process"), *findings]

    def _sequences(self, run: Run) -> list[int]:
        return sorted(fact.sequence for fact in self._of_run[STREAM].get(run.id, {}).values())

    async def announce(self, channels: frozenset[str]) -> None: ...

    async def listen(self, heard: Callable[[str], None]) -> None: ...


class _MemoryTransaction:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.now = store.now()
        self.written: list[Changes] = []

    async def lock_topics(self, names: Sequence[str]) -> None: ...

    async def lock_runs(self, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(ids)

    async def load(self, needs: Sequence[Need]) -> list[list[Any]]:
        return [self._store.answer(need) for need in needs]

    async def write(self, changes: Changes) -> None:
        if failpoints.armed:
            await failpoints.reach("flush.before")
        if missed := self._store.missed(changes):
            raise Conflict(f"run {min(missed)} changed meanwhile")
        self._store._write(changes)
        self.written.append(changes)

    @property
    def user(self) -> UserTransaction:
        raise UsageError("memory:// has no transactions for user code")


def _depth(queue: str, items: list[Work], now: int) -> QueueDepth:
    waiting = [item for item in items if item.status == READY and item.gate == GATE_OPEN]
    oldest = min((item.due for item in waiting), default=now)
    return QueueDepth(
        queue=queue,
        ready=len(waiting),
        delayed=sum(1 for item in items if item.status == READY and item.gate != GATE_OPEN),
        leased=sum(1 for item in items if item.status == LEASED),
        oldest_seconds=max(0, now - oldest) / 1e6,
    )
