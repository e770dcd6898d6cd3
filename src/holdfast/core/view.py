"""The View: the rows a batch of operations sees and changes, before anything is written.

Theory of operation. A View lays changes over committed rows that a `RowCache` remembers or that a
transaction has loaded. Decisions read and replace rows in it; nothing else happens until the flush.

A partial View is three-valued (K6): a row is known, known to be absent, or *not loaded*. Reading what
is not loaded raises `NotLoaded`; the coordinator loads it and decides that operation again. Without
this a good completion would look stale just because its row was never fetched.

An *optimistic* View (the fast path, nothing locked) may presume a row absent with `probe`, on the
condition that the decision then inserts it: the table's unique key proves the presumption at the
flush, or sends the batch to the locked path.

Undo is a log of replaced values: a refused operation takes back its own changes and no others (K7).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from holdfast.core.changes import MISSING, Changes, NotLoaded, Query
from holdfast.core.row_cache import CachedRun, RowCache
from holdfast.core.rows import PUT_IN_PLACE, RUNS, WORK, Key, R, Row, Run, Table


class View:
    """Rows as a batch sees them. `now` is the one time of the whole batch."""

    __slots__ = (
        "_answers",
        "_cache",
        "_changes",
        "_log",
        "_loose",
        "_presumed",
        "_touched",
        "may_repeat",
        "now",
        "optimistic",
        "presumes_no_holds",
    )

    def __init__(self, cache: RowCache, *, now: int, optimistic: bool) -> None:
        self.now = now
        self.optimistic = optimistic
        self.may_repeat = False  # the operation being decided may have been committed before: its answer was lost
        self.presumes_no_holds = False
        self._cache = cache
        self._changes: defaultdict[Table[Any], dict[Key, Any]] = defaultdict(dict, {RUNS: {}})
        self._log: list[tuple[dict[Key, Any], Key, Any]] = []
        self._answers: dict[Query, dict[Key, Any]] = {}
        self._loose: dict[tuple[Table[Any], Key], Any] = {}
        self._presumed: list[tuple[Table[Any], Key] | Query] = []
        self._touched: dict[str, bool] = {}  # runs that the operation writes, and whether it creates them

    # -- reading

    def get(self, table: Table[R], key: Key) -> R | None:
        """The row, or None if it is known not to exist."""
        row: Any = self._changes[table].get(key, MISSING)
        if row is MISSING:
            row = self._look(table, key)
            if row is MISSING:
                raise NotLoaded((table, key))
        found: R | None = row
        return found

    def probe(self, table: Table[R], key: Key) -> R | None:
        """Like `get`, but an optimistic View answers None for an unloaded row. On None the caller must insert it."""
        row: Any = self._changes[table].get(key, MISSING)
        if row is MISSING:
            row = self._look(table, key)
            if row is MISSING:
                if not self.optimistic:
                    raise NotLoaded((table, key))
                self._presumed.append((table, key))
                return None
        found: R | None = row
        return found

    def expect(self, table: Table[Any], keys: Iterable[Key]) -> None:
        """Say which rows will be read, so that the locked path loads them together and not one after another."""
        if self.optimistic:
            return
        missing = [(table, key) for key in keys if not self._knows(table, key)]
        if missing:
            raise NotLoaded(*missing)

    def _knows(self, table: Table[Any], key: Key) -> bool:
        try:
            self.get(table, key)
        except NotLoaded:
            return False
        return True

    def committed(self, table: Table[R], key: Key) -> R | None:
        """The row as it is stored, whatever this batch has made of it."""
        row: Any = self._look(table, key)
        if row is MISSING:
            raise NotLoaded((table, key))
        stored: R | None = row
        return stored

    def run(self, run: str) -> Run | None:
        return self.get(RUNS, (run,))

    def find(self, query: Query) -> list[Any]:
        """All rows that match, this batch's changes included, in the query's order."""
        changed = self._changes[query.table]
        if query.presumed_empty and self.optimistic and not changed and not self._answers:
            self.presumes_no_holds = True
            return []
        remembered = self._remembered(query)
        if remembered is None:
            found = dict(self._answer(query))
        else:
            picked = query.pick(lambda key: changed[key] if key in changed else remembered.get(key))
            if picked is not None:
                return sorted(picked, key=query.order)
            found = {key: row for key, row in remembered.items() if query.matches(row)}
        run = query.of_run if query.table.by_run else None
        for key, row in changed.items():
            if run is not None and key[0] != run:
                continue  # a batch changes rows of very many runs, and this is about one
            if row is None or not query.matches(row):
                found.pop(key, None)
            else:
                found[key] = row
        return sorted(found.values(), key=query.order)

    def oldest(self, query: Query, limit: int | None) -> tuple[list[Any], bool]:
        """The rows that match, in order, as far as a question with a limit can tell; and whether that is all of them.

        More rows may be stored behind the last one that was read: what this batch has added belongs behind those.
        """
        found, stored = self.find(query), self._answer(query)
        if limit is None or len(stored) < limit:
            return found, True
        last = max(map(query.order, stored.values()))
        return [row for row in found if query.order(row) <= last], False

    def _remembered(self, query: Query) -> dict[Key, Any] | None:
        """The rows of the question's run, if every row that matches is among them."""
        run = query.of_run
        if run is None:
            return None
        cached = self._cache.runs.get(run)
        if cached is None:
            # A run that this very batch creates has nothing stored.
            return {} if (run,) in self._changes[RUNS] else None
        if cached.whole or query in cached.answered or query.within in cached.answered:
            return cached.rows.get(query.table, {})
        return None

    def _look(self, table: Table[Any], key: Key) -> Any:
        """The stored row, None if there is none, MISSING if that is not known. Raises nothing: it is too frequent."""
        if self._loose:  # nothing is, on the fast path
            loose = self._loose.get((table, key), MISSING)
            if loose is not MISSING:
                return loose
        cached = self._cache.runs.get(key[0])
        if cached is not None:
            if table is RUNS:
                return MISSING if cached.run is None else cached.run
            rows = cached.rows.get(table)
            if rows is not None:
                row = rows.get(key)
                if row is not None:
                    return row
            if cached.whole or (table, key) in cached.absent:
                return None
        elif table is not RUNS and (key[0],) in self._changes[RUNS]:
            return None  # the run is being created by this very batch
        return MISSING

    def _answer(self, query: Query) -> dict[Key, Any]:
        answer = self._answers.get(query)
        if answer is not None:
            return answer
        if query.presumed_empty and self.optimistic:
            self.presumes_no_holds = True
            return {}
        if query.unique and self.optimistic:
            self._presumed.append(query)
            return {}
        raise NotLoaded(query)

    # -- changing

    def insert(self, table: Table[R], row: R) -> None:
        """Add a row that does not exist; the store's unique key has the last word."""
        if table is RUNS:
            self._touched[row.id] = True  # type: ignore[attr-defined]
        self.put(table, row)

    def put(self, table: Table[R], row: R) -> None:
        """Replace a row that was read before. As `_change`, written out: several times with every step."""
        key: Any = (row.id,) if table is RUNS else table.key(row)  # type: ignore[attr-defined]  # a run has one
        changed = self._changes[table]
        self._log.append((changed, key, changed.get(key, MISSING)))
        changed[key] = row
        if table.by_run:
            self._touched.setdefault(key[0], False)
        elif (run := table.run(row)) is not None:
            self._touched.setdefault(run, False)

    def put_lease(self, table: Table[R], row: R) -> None:
        """Replace what a claim writes: columns that the token guards, so that the run's version stays (K4)."""
        run = table.run(row)
        touched = run in self._touched
        self.put(table, row)
        if run is not None and not touched:
            del self._touched[run]

    def delete(self, table: Table[R], row: R) -> None:
        self._change(table, table.key(row), None)
        run = table.run(row)
        if run is not None:
            self._touched.setdefault(run, False)

    def _change(self, table: Table[Any], key: Key, row: Any) -> None:
        """Replace a row, or the absence of one; the caller knows whether that touches a run."""
        changed = self._changes[table]
        self._log.append((changed, key, changed.get(key, MISSING)))
        changed[key] = row

    # -- one operation at a time

    def begin(self) -> int:
        """Mark the start of an operation."""
        self._touched.clear()
        self._presumed.clear()
        return len(self._log)

    def finish(self, mark: int) -> bool:
        """End an operation that was accepted: every run it wrote gets its next version (K4). Whether it wrote any."""
        for need in self._presumed:
            if not self._is_proven(need):
                raise NotLoaded(need)
        runs = self._changes[RUNS]
        for run, is_new in self._touched.items():
            if is_new:
                continue
            key = (run,)
            changed = runs.get(key, MISSING)
            row: Any = self.get(RUNS, key) if changed is MISSING else changed
            if row is not None:
                self._log.append((runs, key, changed))
                runs[key] = replace(row, version=row.version + 1, updated=self.now)
        return len(self._log) > mark

    def undo(self, mark: int) -> None:
        """Take back everything since the mark."""
        log = self._log
        while len(log) > mark:
            changed, key, previous = log.pop()
            if previous is MISSING:
                del changed[key]
            else:
                changed[key] = previous

    def _is_proven(self, need: tuple[Table[Any], Key] | Query) -> bool:
        if isinstance(need, Query):
            return any(row is not None and need.matches(row) for row in self._changes[need.table].values())
        table, key = need
        return self._changes[table].get(key) is not None

    # -- loading and flushing

    def supply(self, need: tuple[Table[Any], Key] | Query, rows: list[Any]) -> None:
        """Take what a transaction has read for a need. An empty list means: it does not exist."""
        if not isinstance(need, tuple):
            run = need.of_run
            if run is None:
                # These rows may be of runs that are not locked: they serve this batch and are not remembered,
                # or they would join rows of another version of their run (K4).
                self._answers[need] = {need.table.key(row): row for row in rows}
                for row in rows:
                    self._loose[(need.table, need.table.key(row))] = row
                return
            for row in rows:
                self._cache.learn(need.table, row)
            self._cache.of_run(run).note_answered(need)
            return
        table, key = need
        if rows and table is RUNS:
            self._cache.learn_run(rows[0])
        elif rows and table.by_run:
            self._cache.learn(table, rows[0])
        elif table.by_run and table is not RUNS:
            self._cache.of_run(key[0]).note_absent(table, key)
        else:
            self._loose[(table, key)] = rows[0] if rows else None

    def changes(self) -> Changes:
        """Everything that differs from what is stored, sorted by key so that inserts never deadlock (K2)."""
        changes = Changes(self.presumes_no_holds)
        known = self._cache.runs
        for table, changed in self._changes.items():
            if not changed:  # only read, or taken back
                continue
            inserts: list[Any] = []
            updates: list[tuple[Any, Any]] = []
            deletes: list[Any] = []
            is_updated = table is RUNS or table is WORK
            for key, row in changed.items() if len(changed) < 2 else sorted(changed.items(), key=itemgetter(0)):
                before: Any
                cached = known.get(key[0])
                if cached is None or self._loose:
                    before = self._look(table, key)
                elif table is RUNS:
                    before = cached.run
                else:  # as `_look`, but it does not matter whether what is not remembered is known to be absent
                    rows = cached.rows.get(table)
                    before = None if rows is None else rows.get(key)
                if before is None or before is MISSING:  # presumed absent: the unique key will tell
                    if row is not None:
                        inserts.append(row)
                elif row is None:
                    deletes.append(before)
                elif is_updated:
                    if before is not row:
                        updates.append((before, row))
                elif before is not row:
                    inserts.append(row)
                    if table not in PUT_IN_PLACE:  # else rows come and go as a whole: deletes are written first
                        deletes.append(before)
            if inserts:
                changes.inserts[table] = inserts
            if updates:
                changes.updates[table] = updates
            if deletes:
                changes.deletes[table] = deletes
        if RUNS in changes.inserts:  # ids are nobody else's; keys are what two processes may insert at once
            changes.inserts[RUNS].sort(key=lambda run: (run.workflow, run.key or "", run.id))
        return changes


__all__ = ["MISSING", "CachedRun", "Changes", "NotLoaded", "Query", "Row", "RowCache", "View"]
