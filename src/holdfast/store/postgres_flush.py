"""One statement for a whole batch on PostgreSQL: lock and check, then write everything or nothing.

The shape matters twice. Writes ask `(SELECT ok FROM a)` instead of joining the locked rows: that join becomes
a nested loop once the server caches a generic plan, and a batch then costs the square of its size. And
columns that a batch leaves alone are not sent: most of a lone step's time is parameters, so the ordinary
step has shapes of its own.
"""

from __future__ import annotations

import re
from functools import cache
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from holdfast.core.rows import (
    CHECKPOINTS,
    DEFINITIONS,
    EVENTS,
    HISTORY,
    HOLDS,
    INPUTS,
    OBSERVATIONS,
    RECORDED,
    RUNS,
    SNAPSHOTS,
    STREAM,
    VALUES,
    WAITS,
    WORK,
    Table,
)
from holdfast.core.view import Changes
from holdfast.store.shapes import RUN_SHAPES, WORK_SHAPES, run_input, run_shape, run_step, work_shape
from holdfast.store.statements import statements

_KEY = attrgetter("run", "node", "attempt", "token")
_fresh = attrgetter(
    *(
        "run",
        "node",
        "workflow",
        "name",
        "status",
        "required",
        "completed",
        "token",
        "queue",
        "priority",
        "gate",
        "due",
    ),
    *("worker", "parents", "ancestry", "created", "started"),
)
_special = attrgetter(
    *("attempt", "kind", "codec", "failures", "losses"),
    *("timeout", "policy", "payload", "result", "error", "outcome", "finished"),
)
_NOTHING_SPECIAL = (1, "node", "json", 0, 0, None, None, None, None, None, None, None)

_INSERTS: tuple[tuple[Table[Any], str], ...] = (
    (RUNS, "flush_runs_insert"),
    (WORK, "flush_work_insert"),
    (HISTORY, "flush_history_insert"),
    (WAITS, "flush_waits_insert"),
    (EVENTS, "flush_events_insert"),
    (HOLDS, "flush_holds_insert"),
    (DEFINITIONS, "flush_definitions_insert"),
    (INPUTS, "flush_inputs_insert"),
    (STREAM, "flush_stream_insert"),
    (SNAPSHOTS, "flush_snapshots_insert"),
    (OBSERVATIONS, "flush_observations_insert"),
    (VALUES, "flush_inbox_insert"),
    (CHECKPOINTS, "flush_checkpoints_insert"),
    (RECORDED, "flush_recorded_insert"),
)
# Tables whose rows can be taken away in the same statement, and how its parts know those that were found.
_DELETES: dict[Table[Any], str] = {
    WORK: "SELECT 1 FROM fk",
    VALUES: "SELECT 1 FROM fv",
    WAITS: "SELECT 1 FROM fw",
    EVENTS: "SELECT 1 FROM fe",
    INPUTS: "SELECT 1 FROM fi",
}

Rows = list[tuple[Any, ...]]


def deletes_fit(changes: Changes) -> bool:
    """Whether one statement can make all deletes: each row's run is guarded in it, and no row is put in its place."""
    if not changes.deletes:
        return True
    guarded = {old.id for old, _ in changes.updates.get(RUNS, ())}
    for table, rows in changes.deletes.items():
        if table not in _DELETES or any(table.run(row) not in guarded for row in rows):
            return False
        replaced = {table.key(row) for row in changes.inserts.get(table, ())}
        if replaced and any(table.key(row) in replaced for row in rows):
            return False
    return True


def guarded_flush(changes: Changes, *, deletes: bool = True) -> tuple[str, list[Any]]:
    """The statement for these changes and its arguments; without `deletes`, someone has made those already."""
    deleted = changes.deletes if deletes else {}
    if lone := None if deleted or changes.presumes_no_holds else _lone(changes):
        return lone
    runs, work = changes.updates.get(RUNS, []), changes.updates.get(WORK, [])
    statement = _Statement(_is_single(changes, deleted))
    run_part, work_part = "flush_no_runs", "flush_no_work"
    if runs:
        run_part = f"flush_runs_{(shape := run_shape(runs))}"
        statement.add(run_part, [(new.id, old.version, *RUN_SHAPES[shape](new)) for old, new in runs])
    else:
        statement.add(run_part)
    if work:
        work_part = f"flush_work_{(shape := work_shape(work))}"
        statement.add(work_part, [_KEY(old) + WORK_SHAPES[shape](new) for old, new in work])
    else:
        statement.add(work_part)
    for table in _DELETES:
        if rows := deleted.get(table):
            statement.add(f"flush_{table.name}_found", [table.key(row) for row in rows])
    counts = [len(runs), len(work), changes.presumes_no_holds]
    if deleted:
        # The one part that is not among the named ones: it differs with the tables.
        statement.add(f"f AS ({' UNION ALL '.join(_DELETES[table] for table in _DELETES if table in deleted)})")
        counts.append(sum(map(len, deleted.values())))
    statement.add("flush_ok_deleting" if deleted else "flush_ok")
    statement.args += counts
    statement.add(f"{run_part}_update")
    if work:
        statement.add(f"{work_part}_update")
    for table in _DELETES:
        if table in deleted:
            statement.add(f"flush_{table.name}_delete")
    for table, part in _INSERTS:
        if rows := changes.inserts.get(table):
            _insert(statement, table, part, rows)
    return _assembled(tuple(statement.parts)), statement.args


class _Statement:
    """The parts of a statement so far, each with its number of rows, and the arguments that they take in this order."""

    def __init__(self, single: bool) -> None:
        self.parts: list[tuple[str, bool]] = []
        self.args: list[Any] = []
        self._single = single

    def add(self, part: str, rows: Rows | None = None) -> None:
        """One row alone goes through VALUES, which costs the server a third of what an unnest of many arrays does."""
        single = self._single and rows is not None and len(rows) == 1
        self.parts.append((part, single))
        if rows:
            self.args += rows[0] if single else zip(*rows, strict=True)


def _is_single(changes: Changes, deleted: dict[Table[Any], list[Any]]) -> bool:
    """Whether this is a lone step: a row of each table. The number of its events tells nothing."""
    groups = (*changes.updates.values(), *changes.inserts.values(), *deleted.values())
    return all(len(rows) == 1 for rows in groups if rows is not changes.inserts.get(STREAM))


def _insert(statement: _Statement, table: Table[Any], part: str, rows: list[Any]) -> None:
    if table is WORK and all(_special(row) == _NOTHING_SPECIAL for row in rows):
        statement.add("flush_work_fresh", [_fresh(row) for row in rows])
    elif table is STREAM:
        statement.add(part, _facts(rows))
    else:
        statement.add(part, [astuple(row) for row in rows])


def _facts(rows: list[Any]) -> Rows:
    return [astuple(row)[:-1] for row in rows]  # without the position, which the server gives


def _lone(changes: Changes) -> tuple[str, list[Any]] | None:
    """The statement of the one step of one run that by far the most flushes consist of."""
    inserts, updates = changes.inserts, changes.updates
    pairs = updates.get(RUNS, [])
    if len(updates) == len(inserts) == len(pairs) == 1:
        ((old, new),) = pairs
        if HISTORY in inserts:
            if len(inserts[HISTORY]) == 1 and run_shape(pairs) == "step":
                args = [new.id, old.version, *run_step(new), *astuple(inserts[HISTORY][0])]
                return statements("postgres")["lone_turn"], args
        elif STREAM in inserts and run_shape(pairs) != "full":
            return _lone_input("lone_input", [*run_input(new), new.id, old.version], inserts[STREAM])
    elif not updates and len(inserts) == 2 and len(inserts.get(RUNS, ())) == 1 and STREAM in inserts:
        return _lone_input("lone_first_input", list(astuple(inserts[RUNS][0])), inserts[STREAM])
    return None


def _lone_input(name: str, of_run: list[Any], rows: list[Any]) -> tuple[str, list[Any]]:
    facts = _facts(rows)
    single = len(facts) == 1
    of_run += facts[0] if single else zip(*facts, strict=True)
    return _complete(name, single), of_run


@cache
def _assembled(parts: tuple[tuple[str, bool], ...]) -> str:
    sql = statements("postgres")
    texts = [_of_values(sql[part]) if single else sql.get(part, part) for part, single in parts]
    return _numbered("WITH " + ",\n".join(texts) + "\n" + sql["flush_end"])


@cache
def _complete(name: str, single: bool) -> str:
    body = statements("postgres")[name]
    return _numbered(_of_values(body) if single else body)


def _of_values(body: str) -> str:
    return re.sub(r"unnest\(([^()]*)\)", lambda found: f"(VALUES ({found[1].replace('[]', '')}))", body)


def _numbered(body: str) -> str:
    pieces = body.split("$?")
    return "".join(piece + (f"${number}" if number < len(pieces) else "") for number, piece in enumerate(pieces, 1))
