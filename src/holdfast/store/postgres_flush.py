"""One statement for a whole batch on PostgreSQL: lock and check, then write everything or nothing.

The shape matters twice. Writes ask `(SELECT ok FROM a)` instead of joining the locked rows: that join becomes
a nested loop once the server caches a generic plan, and a batch then costs the square of its size. And
columns that a batch leaves alone are not sent: most of a lone step's time is parameters, so the ordinary
step has shapes of its own. What concerns one run and one of its items is not joined at all (`_guard_one`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter, itemgetter
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
from holdfast.store.postgres_arrays import array_arguments, array_types, taking_arguments
from holdfast.store.shapes import (
    RUN_SHAPES,
    WORK_SHAPES,
    Pairs,
    new_run,
    new_work,
    run_shape,
    run_shape_of,
    work_shape,
    work_shape_of,
)
from holdfast.store.statements import statements

_LONE_KEY = attrgetter("node", "attempt", "token")
# What an ordinary node's first attempt has in common with all others.
_NOTHING_SPECIAL = {"attempt": 1, "kind": "node", "codec": "json", "failures": 0, "losses": 0} | dict.fromkeys(
    ("timeout", "policy", "payload", "result", "error", "outcome", "finished")
)
_SPECIAL_PLACES = [(WORK.columns.index(name), value) for name, value in _NOTHING_SPECIAL.items()]
_fresh = itemgetter(*(place for place, name in enumerate(WORK.columns) if name not in _NOTHING_SPECIAL))

_INSERTS: dict[Table[Any], str] = {
    RUNS: "flush_runs_insert",
    WORK: "flush_work_insert",
    HISTORY: "flush_history_insert",
    WAITS: "flush_waits_insert",
    EVENTS: "flush_events_insert",
    HOLDS: "flush_holds_insert",
    DEFINITIONS: "flush_definitions_insert",
    INPUTS: "flush_inputs_insert",
    STREAM: "flush_stream_insert",
    SNAPSHOTS: "flush_snapshots_insert",
    OBSERVATIONS: "flush_observations_insert",
    VALUES: "flush_inbox_insert",
    CHECKPOINTS: "flush_checkpoints_insert",
    RECORDED: "flush_recorded_insert",
}
# Tables whose rows can be taken away in the same statement, and how its parts know those that were found.
_DELETES: dict[Table[Any], str] = {
    WORK: "SELECT 1 FROM fk",
    VALUES: "SELECT 1 FROM fv",
    WAITS: "SELECT 1 FROM fw",
    EVENTS: "SELECT 1 FROM fe",
    INPUTS: "SELECT 1 FROM fi",
}

Columns = Sequence[tuple[Any, ...]]


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
    runs, work = changes.updates.get(RUNS, []), changes.updates.get(WORK, [])
    if not changes.updates and not deleted:
        first = _first_item(changes.inserts) if changes.presumes_no_holds else _first_input(changes.inserts)
        if first is not None:
            return first
    statement = _Statement(_is_single(changes, deleted))
    if _concern_one_run(runs, work) and not deleted:
        end = _guard_one(statement, runs, work, presumes_no_holds=changes.presumes_no_holds)
    else:
        end = _guard_many(statement, runs, work, deleted, presumes_no_holds=changes.presumes_no_holds)
    for table, part in _INSERTS.items():
        if rows := changes.inserts.get(table):
            _insert(statement, table, part, rows)
    return _assembled(tuple(statement.parts), end), statement.args


def _concern_one_run(runs: Pairs, work: Pairs) -> bool:
    return len(runs) == 1 and (not work or (len(work) == 1 and work[0][0].run == runs[0][0].id))


def _guard_one(statement: _Statement, runs: Pairs, work: Pairs, *, presumes_no_holds: bool) -> str:
    """One run and at most one of its items: each is looked up by its key, and found or not."""
    ((old, new),) = runs
    shape, key = run_shape_of(old, new), (old.id, old.version)
    if work or presumes_no_holds:
        statement.add("lone_run_not_held" if presumes_no_holds else "lone_run_locked", key)
    if work:
        ((item, settled),) = work
        work_shape = work_shape_of(item, settled)
        statement.add(f"lone_work_{work_shape}", WORK_SHAPES[work_shape](settled) + _LONE_KEY(item))
        statement.add(f"lone_run_{shape}_after_work", RUN_SHAPES[shape](new))
    elif presumes_no_holds:
        statement.add(f"lone_run_{shape}_after_lock", RUN_SHAPES[shape](new))
    else:
        statement.add(f"lone_run_{shape}", RUN_SHAPES[shape](new) + key)
    statement.add("lone_ok")
    return "lone_end"


def _guard_many(
    statement: _Statement, runs: Pairs, work: Pairs, deleted: dict[Table[Any], list[Any]], *, presumes_no_holds: bool
) -> str:
    """Everything is locked in order and counted, and written if all of it was found."""
    run_part, work_part = "flush_no_runs", "flush_no_work"
    if runs:
        run_part = f"flush_runs_{(shape := run_shape(runs))}"
        statement.add_columns(run_part, _columns((new.id, old.version, *RUN_SHAPES[shape](new)) for old, new in runs))
    else:
        statement.add(run_part)
    if work:
        work_part = f"flush_work_{(shape := work_shape(work))}"
        statement.add_columns(
            work_part,
            _columns((old.run, old.node, old.attempt, old.token, *WORK_SHAPES[shape](new)) for old, new in work),
        )
    else:
        statement.add(work_part)
    for table in _DELETES:
        if rows := deleted.get(table):
            statement.add_columns(f"flush_{table.name}_found", _columns(map(table.key, rows)))
    counts = [len(runs), len(work), presumes_no_holds]
    if deleted:
        # The one part that is not among the named ones: it differs with the tables.
        statement.add(f"f AS ({' UNION ALL '.join(_DELETES[table] for table in _DELETES if table in deleted)})")
        counts.append(sum(map(len, deleted.values())))
    statement.add("flush_ok_deleting" if deleted else "flush_ok", counts)
    statement.add(f"{run_part}_update")
    if work:
        statement.add(f"{work_part}_update")
    for table in _DELETES:
        if table in deleted:
            statement.add(f"flush_{table.name}_delete")
    return "flush_end"


class _Statement:
    """The parts of a statement so far, each with its number of rows, and the arguments that they take in this order."""

    def __init__(self, single: bool) -> None:
        self.parts: list[tuple[str, bool]] = []
        self.args: list[Any] = []
        self._single = single

    def add(self, part: str, args: Iterable[Any] = ()) -> None:
        self.parts.append((part, False))
        self.args += args

    def add_columns(self, part: str, columns: Columns) -> None:
        """One row alone goes through VALUES, which costs the server a third of what an unnest of many arrays does."""
        single = self._single and len(columns[0]) == 1
        self.parts.append((part, single))
        self.args += _only_row(columns) if single else _arrays(part, columns)


def _is_single(changes: Changes, deleted: dict[Table[Any], list[Any]]) -> bool:
    """Whether this is a lone step: a row of each table. The number of its events tells nothing."""
    groups = (*changes.updates.values(), *changes.inserts.values(), *deleted.values())
    return all(len(rows) == 1 for rows in groups if rows is not changes.inserts.get(STREAM))


def _insert(statement: _Statement, table: Table[Any], part: str, rows: list[Any]) -> None:
    columns = _columns(map(astuple, rows))
    if table is WORK and _are_fresh(columns):
        statement.add_columns("flush_work_fresh", _fresh(columns))
    elif table is STREAM:
        statement.add_columns(part, columns[:-1])  # without the position, which the server gives
    else:
        statement.add_columns(part, columns)


def _are_fresh(columns: Columns) -> bool:
    count = len(columns[0])
    return all([columns[place] == (value,) * count for place, value in _SPECIAL_PLACES])


def _first_item(inserts: Mapping[Table[Any], list[Any]]) -> tuple[str, list[Any]] | None:
    """The statement of a run that begins with one item, and with nothing else."""
    if len(inserts) != 2 or len(inserts.get(RUNS, ())) != 1 or len(inserts.get(WORK, ())) != 1:
        return None
    ((run,), (item,)) = inserts[RUNS], inserts[WORK]
    of_run, of_item = new_run(run), new_work(item)
    if of_run is None or of_item is None or item.run != run.id:
        return None
    return _complete("lone_start", False), [*of_run, *of_item[1:]]


def _first_input(inserts: Mapping[Table[Any], list[Any]]) -> tuple[str, list[Any]] | None:
    """The statement of the input that one instance of a decider begins with."""
    if len(inserts) != 2 or STREAM not in inserts or len(inserts.get(RUNS, ())) != 1:
        return None
    facts = _columns(map(astuple, inserts[STREAM]))[:-1]
    single = len(facts[0]) == 1
    of_run = list(astuple(inserts[RUNS][0]))
    of_run += _only_row(facts) if single else _arrays("lone_first_input", facts)
    return _complete("lone_first_input", single), of_run


def _columns(rows: Iterable[tuple[Any, ...]]) -> Columns:
    return list(zip(*rows, strict=True))


def _only_row(columns: Columns) -> list[Any]:
    return [column[0] for column in columns]


def _arrays(part: str, columns: Columns) -> list[Any]:
    typed = zip(_types(part), columns, strict=True)
    return [argument for kind, column in typed for argument in array_arguments(kind, column)]


@cache
def _types(part: str) -> tuple[str, ...]:
    return array_types(statements("postgres")[part])


@cache
def _assembled(parts: tuple[tuple[str, bool], ...], end: str) -> str:
    sql = statements("postgres")
    texts = [_of_values(sql[part]) if single else taking_arguments(sql.get(part, part)) for part, single in parts]
    return _numbered("WITH " + ",\n".join(texts) + "\n" + sql[end])


@cache
def _complete(name: str, single: bool) -> str:
    body = statements("postgres")[name]
    return _numbered(_of_values(body) if single else taking_arguments(body))


def _of_values(body: str) -> str:
    return re.sub(r"unnest\(([^()]*)\)", lambda found: f"(VALUES ({found[1].replace('[]', '')}))", body)


def _numbered(body: str) -> str:
    pieces = body.split("$?")
    return "".join(piece + (f"${number}" if number < len(pieces) else "") for number, piece in enumerate(pieces, 1))
