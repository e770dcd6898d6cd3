"""The contract of a store: lock, load and save rows. Every store passes the same conformance suite.

A store knows nothing of what a completion or a cancel means; `decide` does. It promises:

- `flush` writes all of a batch or none of it, and only if every updated run still has the version,
  and every updated work item the token, that the decision saw. Otherwise it names the runs that did
  not match and writes nothing.
- `transaction` locks topics, then runs, in sorted order, and loads rows in later statements.
- `claim` never waits for a lock, and gives each ready item to one worker.
- Times are those of the database's clock, as `now` tracks it (K12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.core.ahead import starts_at
from holdfast.core.function_operations import TURN
from holdfast.core.operations import Handed
from holdfast.core.rows import (
    ACTION_ENOUGH,
    BROUGHT_BY_TIME,
    GATE_OPEN,
    LEASED,
    PENDING,
    RUNNING,
    SUSPENDED,
    Fact,
    History,
    Key,
    Row,
    Run,
    Table,
    Work,
)
from holdfast.core.view import Changes, Query

Need = tuple[Table[Any], Key] | Query


class Conflict(Exception):
    """A flush lost a race (a unique key, a deadlock, a lock time-out): decide again on the locked path."""


class Busy(Conflict):
    """A run stayed locked for longer than the lock time-out; the operations on it are set aside."""


class WorkerRow(Row, frozen=True, kw_only=True):
    """A worker, as the others see it: what it knows, and until when its leases hold."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    actions: tuple[str, ...]
    concurrency: int = 1
    provable: bool = True  # whether a free lock proves that it is dead
    started: int = 0
    seen: int = 0
    lease_until: int = 0

    def knows(self, work: Work) -> bool:
        """I8: whether this worker would claim the item."""
        known = work.kind in ACTION_ENOUGH or work.workflow in self.workflows
        return known and work.queue in self.queues and work.name in self.actions


def begun(run: Run, work: Work) -> Run:
    """The run as its first claim leaves it: running since the claim, or from when the item is due."""
    return msgspec.structs.replace(run, status=RUNNING, started=work.started) if run.status == PENDING else run


def brought_by_time(work: Work, run: Run) -> bool:
    """A decider's timer, a flow's sleep, the turn of a function that slept: nothing is done before the next commit.

    So a store need not wait until such a lease is on its disk. That its token is a time lets no two have the same (K3).
    """
    return work.kind in BROUGHT_BY_TIME or (work.kind == TURN and run.status == SUSPENDED)


def leased(work: Work, run: Run, *, worker: str, now: int) -> Work:
    """The item as a claim leaves it. What was let in ahead of its time starts when that has come."""
    token = max(work.token + 1, now) if brought_by_time(work, run) else work.token + 1
    started = starts_at(work.due, now)
    return msgspec.structs.replace(work, status=LEASED, token=token, worker=worker, started=started, gate=GATE_OPEN)


NO_LOSSES_LIMIT = 2**31 - 1


class ReadyItem(NamedTuple):
    """What tells whether an item that is claimed, and its run, are as they are remembered (K4)."""

    run: str
    node: str
    attempt: int
    token: int  # before the claim
    version: int  # of its run
    status: str  # of its run


Recall = Callable[[ReadyItem], tuple[Work, Run] | None]


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for: at most `limit` items of one queue whose names it knows.

    Who remembers most of what there is to claim says so by `recall`: rows that it gives need not be read and sent.
    """

    worker: str
    queue: str
    limit: int
    workflows: tuple[str, ...]
    actions: tuple[str, ...]
    losses_below: int = NO_LOSSES_LIMIT  # only items that were lost less often than this
    recall: Recall | None = None


CodeVersion = tuple[str, str]
"""A workflow and the signature of its graph."""


class Seen(msgspec.Struct, frozen=True):
    """When a version of a workflow's code was deployed, and whether a worker has had it."""

    at: int
    served: bool


CodeSeen = dict[CodeVersion, Seen]


class FindRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by id, the greatest first, for whoever goes through all of them; `after` is the id of the last one seen.

    That is no order of time: ids of instances and projections are made of their keys.
    """

    workflow: str | None = None
    model: str | None = None
    key_prefix: str | None = None
    status: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    since: int | None = None
    limit: int = 50
    after: str | None = None


class ListRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs by when they were made, newest first; `after` has that of the last one seen, and its id.

    `search` is what an id, a key or a workflow's name begins with. `since` is included, `until` is not.
    """

    workflow: str | None = None
    model: str | None = None
    status: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    search: str | None = None
    since: int | None = None
    until: int | None = None
    limit: int = 50
    after: tuple[int, str] | None = None

    def matches(self, run: Run, tags: Mapping[str, str]) -> bool:
        """Whether a run with these tags is meant, on whatever page."""
        return (
            (self.workflow is None or run.workflow == self.workflow)
            and (self.model is None or run.model == self.model)
            and (not self.status or run.status in self.status)
            and all(tags.get(name) == value for name, value in self.tags)
            and (self.search is None or any(text.startswith(self.search) for text in _searched(run)))
            and (self.since is None or run.created >= self.since)
            and (self.until is None or run.created < self.until)
        )


def _searched(run: Run) -> tuple[str, ...]:
    return (run.id, run.key or "", run.workflow)


NOT_COUNTED = -1


class RunMark(NamedTuple):
    """What tells whether a run is as it was: `leases` differs when work was begun, which writes no run.

    They are counted of the runs that were asked for by id alone; in the other rows they are NOT_COUNTED.
    """

    id: str
    workflow: str
    model: str
    status: str
    version: int
    leases: int


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """How much a queue holds, and for how long its oldest due item has been waiting."""

    queue: str
    ready: int
    delayed: int
    leased: int
    oldest_seconds: float


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything there is; `inbox` counts inputs that wait to be applied by deciders.

    Dead letters are dead work, which `work` counts, and `dead_events`: events and inputs that nobody could take.
    """

    runs: dict[str, int]
    work: dict[str, int]
    queues: tuple[QueueDepth, ...]
    workers: int
    inbox: int = 0
    inbox_oldest_seconds: float = 0.0
    dead_events: int = 0


class StreamType(NamedTuple):
    """A type and version of events in the streams of a workflow: how many there are, and where one of them is."""

    type: str
    version: int
    total: int
    run: str
    sequence: int


class Transition(NamedTuple):
    """How often an input took instances of a workflow from one status to another, as it was observed."""

    before: str | None
    type: str
    after: str | None
    total: int


class OpenWorkType(NamedTuple):
    """A kind and name of open work of a workflow: how much of it there is, and a run that has some."""

    kind: str
    name: str
    total: int
    run: str


class StreamLag(NamedTuple):
    """How many events come after a position, and when the first of them was written."""

    events: int
    oldest_at: int | None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` has to say: `severity` is "ok", "warning" or "error"."""

    severity: str
    subject: str
    message: str


class UserTransaction(Protocol):
    """A transaction that user code writes in (`hf.Tx`)."""

    @property
    def raw(self) -> Any: ...

    @property
    def is_open(self) -> bool:
        """False once the user's code has committed it or rolled it back."""

    async def execute(self, sql: str, *args: object) -> int: ...

    async def fetch(self, sql: str, *args: object) -> list[Any]: ...

    async def fetchrow(self, sql: str, *args: object) -> Any: ...

    async def fetchval(self, sql: str, *args: object) -> Any: ...


class Transaction(Protocol):
    """The locked path. Leaving the context commits; an exception rolls back."""

    @property
    def now(self) -> int: ...

    async def lock_topics(self, names: Sequence[str]) -> None: ...

    async def lock_runs(self, ids: Sequence[str]) -> frozenset[str]:
        """Lock these runs in one sorted statement. Rows are read afterwards, in a new snapshot.

        Which of them are locked: one that does not exist yet cannot be, and may exist when the rows are read.
        """

    async def load(self, needs: Sequence[Need]) -> list[list[Any]]:
        """The rows for each need, in order. Work items are locked as they are read: a claim may be under way."""

    async def write(self, changes: Changes) -> None: ...

    @property
    def user(self) -> UserTransaction: ...


class Store(Protocol):
    """Memory, SQLite or PostgreSQL."""

    kind: str
    shared: bool  # whether other processes may write to it
    flushes_overlap: bool  # whether it writes one batch while another is decided: a server does
    on_foreign_write: Callable[[], None]  # called when all that is remembered may be out of date (SQLite)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the migrations that ran."""

    def now(self) -> int:
        """The database's time in microseconds, tracked between statements without a round trip."""

    async def flush(self, changes: Changes) -> frozenset[str]:
        """Write a batch if nothing it was decided on has changed. The runs that did not match; empty: committed."""

    def transaction(self, *, user: bool = False) -> AbstractAsyncContextManager[Transaction]: ...

    def join(self, connection: Any) -> Transaction:
        """A transaction of the caller's own, which the caller commits (`tx=`)."""

    async def claim(self, request: ClaimRequest) -> list[Handed]: ...

    async def promote(self, queues: Sequence[str], ahead_us: int = 0) -> int | None:
        """Make delayed items claimable whose time has come, or will have so soon; when the next one is due.

        Who claims ahead of the time has to wait for it: nothing of the item may be seen to happen before."""

    def time_left(self, due: int) -> int:
        """Microseconds until then by the database's clock, as `promote` last found it: never too few (G6)."""

    async def see_code(
        self, code: Mapping[CodeVersion, bytes], *, serve: bool = False, again: bool = False
    ) -> CodeSeen:
        """Note versions of code that are deployed, with the time: when they are first seen, and when a worker first
        serves them; with `again` also if one had served them before. All versions of these workflows.

        A version comes with its graph, for those who look at a run and lack its code."""

    async def code_nodes(self, workflow: str, signature: str | None) -> bytes | None:
        """The graph of a version of a workflow's code, or (None) of the latest, if it was ever seen here."""

    async def enroll(self, worker: WorkerRow, lease_seconds: float) -> WorkerRow: ...

    async def learn_names(self, worker: WorkerRow) -> None:
        """Show others what an enrolled worker knows by now. A worker that was taken over stays gone."""

    async def heartbeat(self, worker: str, lease_seconds: float) -> bool:
        """Extend the leases of a worker, which is its one row. False: it was taken over in the meantime."""

    def proves_life(self, worker: str) -> bool:
        """False while the lock that proves this worker's life may be free: the next heartbeat takes it again (I7)."""

    async def retire(self, worker: str) -> None: ...

    async def lapsed_workers(self, exclude: str) -> list[str]:
        """Workers whose leases ran out, or that are provably dead."""

    async def leased_to(self, worker: str) -> list[Work]: ...

    async def runs(self, ids: Sequence[str], *, settled: bool = False) -> list[Run]:
        """These runs, as far as they exist; with `settled` only those that have ended or are paused."""

    async def foreign_writes(self) -> int | None:
        """A number that is another one after each write of another process; None if only asking for rows can tell."""

    async def find(self, ask: FindRuns) -> list[Run]: ...

    async def list_runs(self, ask: ListRuns) -> list[Run]: ...

    async def count_runs(self, ask: ListRuns, most: int) -> dict[str, int]:
        """How many runs there are by status; of those that ended, and of those that did not, at most so many."""

    async def marks(self, most: int, *, ended_since: int, most_ended: int, of: Sequence[str] = ()) -> list[RunMark]:
        """At most so many runs that have not ended, the latest that have since then, and these. For people."""

    async def history(self, run: str, after: int = 0) -> list[History]:
        """What was recorded of a run, oldest first, after this sequence."""

    async def rows(self, need: Query) -> list[Any]:
        """Committed rows for a question, for people: never used for a decision."""

    async def stream_bound(self) -> int:
        """How far streams may be read: at or below this position, no event will ever appear that is not there now."""

    async def read_stream(self, workflow: str, after: int, upto: int, limit: int) -> list[Fact]:
        """Events of a workflow's instances after a position and up to another, in this order, complete up to the bound.
        The engine's own records are left out (I36)."""

    async def horizon_age(self) -> float:
        """For how many seconds the bound has been held back below the last position by a transaction that is open."""

    async def stream_lag(self, workflow: str, after: int) -> StreamLag:
        """What a reader at this position has before it, above the bound too."""

    async def stream_types(self, workflow: str) -> list[StreamType]:
        """Every type and version of event that the streams of a workflow hold, with the newest event as a sample."""

    async def transitions(self, workflow: str) -> list[Transition]:
        """What observed inputs did to the instances of a workflow, for every input that was applied."""

    async def open_work_types(self, workflow: str) -> list[OpenWorkType]:
        """Every kind and name of work of a workflow that is blocked, ready or leased."""

    async def workers(self) -> list[WorkerRow]: ...

    async def dead(self, limit: int) -> list[Work]: ...

    async def unknown(self, older_than: int, limit: int) -> list[Work]:
        """Ready items due before `older_than` that no live worker knows, the oldest first."""

    async def stats(self) -> StoreStats: ...

    async def prune(self, ended_before: int, limit: int) -> int: ...

    async def forget_commands(self, workflow: str, before: int, limit: int, last: int | None = None) -> int:
        """Delete ids of commands, and equal inputs of windows, that instances of a decider had before this time.

        With `last`, equal inputs among the last so many of their instance stay, however old. Returns how many went.
        """

    async def doctor(self) -> list[Finding]: ...

    async def announce(self, channels: frozenset[str]) -> None:
        """Tell other processes that there is work or news. A hint: losing it costs a poll."""

    async def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard(channel)` for announcements of other processes, where the store can.

        Several engines of one process may share the store, until the first of them closes it: each then hears what
        any of them announces.
        """
