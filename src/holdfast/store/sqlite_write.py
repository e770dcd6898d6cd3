"""How rows are written to and read from SQLite: one statement per table, whatever the batch holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from holdfast.core import failpoints
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
from holdfast.core.view import Changes, Query
from holdfast.store.contract import Conflict, Need
from holdfast.store.questions import json_list, query_arguments
from holdfast.store.shapes import RUN_SHAPES, WORK_SHAPES, Pairs, run_shape, work_shape

_KEY = attrgetter("run", "node", "attempt", "token")
# Runs first, then work, then what only inserts: the same order as in PostgreSQL.
ORDER: tuple[Table[Any], ...] = (
    *(RUNS, WORK, HISTORY, WAITS, EVENTS, HOLDS, DEFINITIONS, INPUTS),
    *(STREAM, SNAPSHOTS, OBSERVATIONS, VALUES, CHECKPOINTS, RECORDED),
)


def write_changes(db: sqlite3.Connection, sql: dict[str, str], changes: Changes) -> None:
    """Write a batch inside the transaction that is open. A row that is not as expected aborts it."""
    if failpoints.armed:
        failpoints.hit("flush.before")
    for table in ORDER:
        pairs = changes.updates.get(table)
        if pairs:
            statement, values = _run_updates(pairs) if table is RUNS else _work_updates(pairs)
            _exactly(db, sql[statement], values, table)
        deleted = changes.deletes.get(table)
        if deleted:
            # An event that someone else has consumed must abort the batch, or it would be delivered twice.
            _exactly(db, sql[f"delete_{table.name}"], [table.key(row) for row in deleted], table)
        inserted = changes.inserts.get(table)
        if inserted:
            _insert(db, sql, table, inserted)
        if failpoints.armed and (pairs or inserted or deleted):
            failpoints.hit("flush.between")


def _exactly(db: sqlite3.Connection, statement: str, values: list[tuple[Any, ...]], table: Table[Any]) -> None:
    if db.executemany(statement, values).rowcount != len(values):
        raise Conflict(f"a row of {table.name} changed meanwhile")


def _insert(db: sqlite3.Connection, sql: dict[str, str], table: Table[Any], rows: list[Any]) -> None:
    sent = len(table.columns) - (table is STREAM)  # the position, the last column, is given at the write
    db.executemany(sql[f"insert_{table.name}"], [astuple(row)[:sent] for row in rows])


def _run_updates(pairs: Pairs) -> tuple[str, list[tuple[Any, ...]]]:
    shape = run_shape(pairs)
    written = RUN_SHAPES[shape]
    return f"update_runs_{shape}", [(*written(new), new.id, old.version) for old, new in pairs]


def _work_updates(pairs: Pairs) -> tuple[str, list[tuple[Any, ...]]]:
    shape = work_shape(pairs)
    written = WORK_SHAPES[shape]
    return f"update_work_{shape}", [written(new) + _KEY(old) for old, new in pairs]


def load_rows(db: sqlite3.Connection, sql: dict[str, str], need: Need) -> list[Any]:
    """The committed rows for a key or a question."""
    if isinstance(need, Query):
        statement, args = sql[type(need).__name__], query_arguments(need, json_list)
        row_type = need.table.row
    else:
        table, args = need
        statement, row_type = sql[f"get_{table.name}"], table.row
    make: Callable[..., Any] = row_type
    return [make(*row) for row in db.execute(statement, args)]
