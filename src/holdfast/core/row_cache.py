"""Committed rows that a process remembers, each under the version of its run: what spares a step its reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from sys import intern
from typing import Any, Final

import msgspec

from holdfast.core.changes import Changes, Query
from holdfast.core.function_operations import TURN
from holdfast.core.operations import Handed
from holdfast.core.queries import Attempts, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CHECKPOINTS,
    EFFECT,
    ENDED,
    LEASED,
    OBSERVATIONS,
    OPEN_WORK,
    READY,
    RECORDED,
    RUNS,
    SNAPSHOTS,
    STREAM,
    SUSPENDED,
    WAITS,
    WORK,
    Key,
    Run,
    Table,
    Work,
)

# Rows that are written and not read again by those who wrote them: the state is remembered, not what it came from.
NOT_REMEMBERED: Final[frozenset[Table[Any]]] = frozenset({STREAM, OBSERVATIONS, SNAPSHOTS, CHECKPOINTS, RECORDED})
NOTES_LIMIT: Final = 1_000  # of rows that are gone and of questions that were answered
WAITING_LIMIT: Final = 2_000  # runs that wait, of which more is remembered than their own row: a kilobyte or two each
FEW_ROWS: Final = 20  # of a run that is remembered whole while it waits, such as a flow that sleeps
_TURN: Final = frozenset({TURN})
_NO_ROWS: Final[dict[Key, Any]] = {}
_NONE: Final[frozenset[Any]] = frozenset()  # most runs have nothing to note, and a set takes 200 bytes


class CachedRun:
    """Committed rows of one run, all of them valid under the version of its `runs` row."""

    __slots__ = ("absent", "answered", "rows", "run", "since", "whole")

    def __init__(self) -> None:
        self.run: Run | None = None
        self.since = 0  # from this version on, all that changed was committed here, and its work is remembered
        self.rows: dict[Table[Any], dict[Key, Any]] = {}  # of the other tables
        self.absent: set[tuple[Table[Any], Key]] | frozenset[Any] = _NONE
        self.answered: set[Query] | frozenset[Any] = _NONE
        self.whole = False  # created here and never missed: a key that is not here does not exist

    def __len__(self) -> int:
        return (self.run is not None) + sum(map(len, self.rows.values()))

    def note_absent(self, table: Table[Any], key: Key) -> None:
        self.absent = self.absent if isinstance(self.absent, set) else set()
        self.absent.add((table, key))

    def note_deleted(self, table: Table[Any], key: Key) -> None:
        """As `note_absent`, and for a long loop's rows without an end: what is not noted is asked for again."""
        if not self.whole and len(self.absent) < NOTES_LIMIT:
            self.note_absent(table, key)
        if len(self.answered) > NOTES_LIMIT:
            self.answered = _NONE

    def note_answered(self, query: Query) -> None:
        self.answered = self.answered if isinstance(self.answered, set) else set()
        self.answered.add(query)


def _sharing_texts(run: Run) -> Run:
    """The same row, without copies of its own of what very many runs have in common."""
    return msgspec.structs.replace(
        run,
        workflow=intern(run.workflow),
        model=intern(run.model),
        codec=intern(run.codec),
        on_failure=intern(run.on_failure),
        queue=intern(run.queue),
        tags=intern(run.tags),
    )


class RowCache:
    """Rows of runs that this process loaded, claimed or wrote. May be emptied at any moment (K5)."""

    def __init__(self, limit_rows: int = 200_000) -> None:
        self.runs: OrderedDict[str, CachedRun] = OrderedDict()
        self._waiting: OrderedDict[str, None] = OrderedDict()  # those that an event finds remembered
        self._limit = limit_rows
        self._count = 0

    def clear(self) -> None:
        self.runs.clear()
        self._waiting.clear()
        self._count = 0

    def drop(self, run: str) -> None:
        cached = self.runs.pop(run, None)
        if cached is not None:
            self._count -= len(cached)

    def run_row(self, run: str) -> Run | None:
        cached = self.runs.get(run)
        return None if cached is None else cached.run

    def of_run(self, run: str) -> CachedRun:
        cached = self.runs.get(run)
        if cached is None:
            cached = self.runs[run] = CachedRun()
        else:
            self.runs.move_to_end(run)
        return cached

    def learn(self, table: Table[Any], row: Any) -> None:
        """Remember a committed row that was just read or claimed."""
        self._learn_all(table, (row,), ())

    def learn_run(self, row: Run) -> None:
        """Remember a run's row that was just read, and forget what was remembered with another version of it."""
        known = self.run_row(row.id)
        if known is None or known.version != row.version:
            self.drop(row.id)
        self.learn(RUNS, row)

    def recall(self, item: tuple[str, str, int, int, int, str]) -> tuple[Work, Run] | None:
        """The ready item with this token and its run with this version and status, if both are remembered so.

        Of what claims write the status of the run and the item's token tell; and a gate, which may have been opened
        without either, is open.
        """
        run, node, attempt, token, version, status = item
        cached = self.runs.get(run)
        row = None if cached is None else cached.run
        if cached is None or row is None or row.version != version or row.status != status:
            return None
        work: Work | None = cached.rows.get(WORK, _NO_ROWS).get((run, node, attempt))
        return None if work is None or work.token != token or work.status != READY else (work, row)

    def learn_claims(self, handed: Iterable[Handed]) -> bool:
        """Remember what a claim returned; whether all of it was remembered as it was."""
        run, late, all_known = None, False, True
        for item in handed:
            all_known = all_known and self._was_ready_here(item.work)
            if item.run is not run:  # else it is the next item of the same one
                run = item.run
                known = self.run_row(run.id)
                all_known = all_known and known is not None and known.version == run.version
                late = known is not None and known.version > run.version
                if known is None or known.version < run.version:
                    self.drop(run.id)  # the other rows belong to an older version
                if not late:
                    self.learn(RUNS, run)  # also under the same version: a claim shows that a run has begun
            if late:
                self.learn_late_claim(item.work, item.run.version)  # and the item may be another's by now
            else:
                self.learn(WORK, item.work)
        return all_known

    def _was_ready_here(self, claimed: Work) -> bool:
        cached = self.runs.get(claimed.run)
        if cached is None:
            return False
        work = cached.rows.get(WORK, _NO_ROWS).get((claimed.run, claimed.node, claimed.attempt))
        return work is not None and _is_claim_of(claimed, work)

    def learn_late_claim(self, claimed: Work, version: int) -> None:
        """Remember a claim whose run had this version and was written since. Only on top of the very row that was
        claimed: one whose token has grown is somebody else's, or was cancelled; and one that is not remembered may be,
        unless whatever was written since was written here."""
        cached = self.runs.get(claimed.run)
        row = None if cached is None else cached.rows.get(WORK, {}).get(WORK.key(claimed))
        if row is None and cached is not None and cached.run is not None and version >= cached.since:
            self.learn(WORK, claimed)
        elif row is not None and _is_claim_of(claimed, row):
            leased = {"token": claimed.token, "worker": claimed.worker, "started": claimed.started}
            self.learn(WORK, msgspec.structs.replace(row, status=LEASED, **leased))

    def absorb(self, changes: Changes) -> None:
        """The flush committed: what the View said is now what is stored."""
        runs = self.runs
        for old, _ in changes.updates.get(RUNS, ()):
            cached = runs.get(old.id)
            known = old if cached is None else cached.run
            if known is not old and known is not None and known.version != old.version:
                # Remembered meanwhile, by a claim whose answer was late: rows of that version must not join these (K4).
                self.drop(old.id)
        deciders: list[str] = []
        stepped: list[str] = []
        shortened: list[str] = []
        for table, deleted in changes.deletes.items():
            for row in deleted:
                run = table.run(row)
                cached = runs.get(run) if run is not None else None
                if cached is not None and cached.rows.get(table, {}).pop(table.key(row), None) is not None:
                    self._count -= 1
                    cached.note_deleted(table, table.key(row))
                    if table is WORK:
                        shortened.append(row.run)
        waiting: list[Run] = []
        left: set[str] = set()  # whose rows are not kept
        for row in changes.rows(RUNS):
            if row.status in ENDED:  # nothing more will be decided about it soon
                self.drop(row.id)
                left.add(row.id)
            elif row.model == "decider":
                deciders.append(row.id)
            elif row.model == "graph" and ((before := self.run_row(row.id)) is None or before.base != row.base):
                stepped.append(row.id)
            elif row.status == SUSPENDED:
                waiting.append(row)
        for row in changes.inserts.get(RUNS, ()):
            if row.id not in left:
                self.of_run(row.id).whole = True
        for table in changes.inserts:
            if table not in NOT_REMEMBERED:
                self._learn_all(table, changes.rows(table), left)
        for table in changes.updates:
            if table not in changes.inserts:
                self._learn_all(table, changes.rows(table), left)
        if deciders:
            self._forget_settled(deciders, changes)
        for run in stepped:
            self._forget_step(run)
        for run in (*deciders, *stepped, *shortened):
            if (cached := runs.get(run)) is not None and cached.run is not None:
                cached.since = cached.run.version
        for row in waiting:
            self._keep_what_wakes(row)
        if self._count > self._limit:
            self.trim()

    def _learn_all(self, table: Table[Any], rows: Iterable[Any], left: Collection[str]) -> None:
        if table is RUNS:
            self._learn_runs(rows, left)
            return
        runs, key_of = self.runs, table.key
        for row in rows:
            key = key_of(row)
            run = key[0] if table.by_run else table.run(row)
            if run is None or (left and run in left):
                continue
            cached = runs.get(run)
            if cached is None:
                cached = runs[run] = CachedRun()
            known = cached.rows.get(table)
            if known is None:
                known = cached.rows[table] = {}
            if key not in known:
                self._count += 1
            known[key] = row

    def _learn_runs(self, rows: Iterable[Run], left: Collection[str]) -> None:
        """Their rows; and they are the latest used: whatever is written of a run, its row is written too (K4)."""
        runs = self.runs
        for row in rows:
            if left and row.id in left:
                continue
            cached = runs.get(row.id)
            if cached is None:
                cached = runs[row.id] = CachedRun()
            else:
                runs.move_to_end(row.id)
            if cached.run is None:
                self._count += 1
                cached.since = row.version
            cached.run = row

    def _keep_what_wakes(self, run: Run) -> None:
        """The run waits, maybe for long: what moves it on is kept. Of those that wait longest, and where that is not
        known or much, only the run's own row is: very many may wait, and whatever wakes one then reads what it needs.
        """
        cached = self.of_run(run.id)
        known = self._strip(run, cached) if run.model == "function" else cached.whole and len(cached) <= FEW_ROWS
        if not known:
            self._keep_row(run)
            return
        self._waiting[run.id] = None
        self._waiting.move_to_end(run.id)
        if len(self._waiting) > WAITING_LIMIT:
            longest, _ = self._waiting.popitem(last=False)
            if (row := self.run_row(longest)) is not None and row.status == SUSPENDED:
                self._keep_row(row)

    def _strip(self, run: Run, cached: CachedRun) -> bool:
        """Leave a function its waits and its turn, which an event moves; False if they are not all known."""
        turn_key = (run.id, TURN, 1)
        turn = cached.rows.get(WORK, {}).get(turn_key)
        knows_waits = cached.whole or WaitsOf(run.id) in cached.answered
        # Its first attempt is the last there is: only its end could lead to another. A claim of it changes its token.
        if not knows_waits or turn is None or turn.status not in (BLOCKED, READY):
            return False
        self._count -= len(cached)
        cached.rows = {WORK: {turn_key: turn}, WAITS: cached.rows.get(WAITS, {})}
        cached.absent, cached.whole, cached.since = _NONE, False, run.version
        cached.answered = {WaitsOf(run.id), Attempts(run.id, _TURN)}
        self._count += len(cached)
        return True

    def _keep_row(self, run: Run) -> None:
        self.drop(run.id)
        self.learn(RUNS, _sharing_texts(run))

    def _forget_settled(self, deciders: list[str], changes: Changes) -> None:
        """Instances live long: what is folded or settled is not kept. Only unique keys rely on its absence then."""
        for _, row in changes.updates.get(WORK, ()):
            cached = self.runs.get(row.run)
            if cached is not None and row.kind == EFFECT and row.status not in OPEN_WORK:
                self._count -= cached.rows.get(WORK, {}).pop(WORK.key(row), None) is not None
        for run in deciders:
            self._forget_folded(run)

    def _forget_step(self, run: str) -> None:
        """I47: a graph may take steps without end, and never looks back at the items of one that is over."""
        self._forget_folded(run)
        cached = self.runs.get(run)
        rows = {} if cached is None else cached.rows.get(WORK, {})
        for key in [key for key, row in rows.items() if row.status not in OPEN_WORK]:
            del rows[key]
            self._count -= 1

    def _forget_folded(self, run: str) -> None:
        cached = self.runs.get(run)
        if cached is None:
            return
        for table in NOT_REMEMBERED & cached.rows.keys():
            self._count -= len(cached.rows.pop(table))
        if cached.answered:
            cached.answered = {query for query in cached.answered if query.table not in NOT_REMEMBERED}

    def trim(self) -> None:
        while self._count > self._limit and self.runs:
            oldest = next(iter(self.runs))
            self.drop(oldest)


def _is_claim_of(claimed: Work, ready: Work) -> bool:
    """Whether this claim took the item as it is remembered, and nobody else had it in between, or fenced it since."""
    # As the token of a sleeper is; it starts when it is due, a little later, if it was claimed ahead of that.
    is_the_time = ready.token < claimed.token <= (claimed.started or 0) < claimed.token + 1_000_000
    return ready.status == READY and (is_the_time or claimed.token == ready.token + 1)
