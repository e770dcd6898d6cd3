"""How rows are written to and read from SQLite: one statement per table, whatever the batch holds."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
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
from holdfast.core.stored import stored_names
from holdfast.core.view import Changes, Query
from holdfast.store.contract import Conflict, Need, WorkerRow
from holdfast.store.questions import json_list, query_arguments
from holdfast.store.shapes import (
    RUN_SHAPES,
    WORK_SHAPES,
    Pairs,
    new_run,
    new_work,
    run_shape_of,
    work_shape_of,
)
from holdfast.store.statements import for_several

ROWS_TOGETHER = 8  # that one statement inserts, of a batch with so many
_KEY = attrgetter("run", "node", "attempt", "token")
# Of tables whose new rows leave much open: the rest of such a row.
_NEW = {RUNS: new_run, WORK: new_work}
# Runs first, then work, then what only inserts: the same order as in PostgreSQL.
ORDER: tuple[Table[Any], ...] = (
    *(RUNS, WORK, HISTORY, WAITS, EVENTS, HOLDS, DEFINITIONS, INPUTS),
    *(STREAM, SNAPSHOTS, OBSERVATIONS, VALUES, CHECKPOINTS, RECORDED),
)
_RANK = {table: rank for rank, table in enumerate(ORDER)}.__getitem__


def adapt_plain_values() -> None:
    """Tell Python's sqlite3 that bytes and None are stored as they are, unless the program told it something else.

    Before it binds one, it asks everybody who might convert it, and makes an exception out of nobody's answer: that
    takes longer than the binding.
    """
    adapters: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = (
        (bytes, bytes.__bytes__),
        (type(None), {None: None}.get),
    )
    for kind, itself in adapters:
        if (kind, sqlite3.PrepareProtocol) not in sqlite3.adapters:
            sqlite3.register_adapter(kind, itself)


def write_changes(db: sqlite3.Connection, sql: dict[str, str], changes: Changes) -> None:
    """Write a batch inside the transaction that is open. A row that is not as expected aborts it."""
    if failpoints.armed:
        failpoints.hit("flush.before")
    updates, deletes, inserts = changes.updates, changes.deletes, changes.inserts
    for table in sorted({*updates, *deletes, *inserts}, key=_RANK):
        pairs = updates.get(table)
        if pairs:
            for shape, values in (_run_updates(pairs) if table is RUNS else _work_updates(pairs)).items():
                _exactly(db, sql[f"update_{table.name}_{shape}"], values, table)
        deleted = deletes.get(table)
        if deleted:
            # An event that someone else has consumed must abort the batch, or it would be delivered twice.
            _exactly(db, sql[f"delete_{table.name}"], [table.key(row) for row in deleted], table)
        inserted = inserts.get(table)
        if inserted:
            _insert(db, sql, table, inserted)
        if failpoints.armed and (pairs or inserted or deleted):
            failpoints.hit("flush.between")


def _exactly(db: sqlite3.Connection, statement: str, values: list[tuple[Any, ...]], table: Table[Any]) -> None:
    if _execute(db, statement, values).rowcount != len(values):
        raise Conflict(f"a row of {table.name} changed meanwhile")


def _execute(db: sqlite3.Connection, statement: str, values: list[tuple[Any, ...]]) -> sqlite3.Cursor:
    """A lone run's step writes one row a table, and `executemany` takes 3 µs more for it."""
    return db.execute(statement, values[0]) if len(values) == 1 else db.executemany(statement, values)


def _insert(db: sqlite3.Connection, sql: dict[str, str], table: Table[Any], rows: list[Any]) -> None:
    new_of = _NEW.get(table)
    if new_of is not None:
        new = [sent for row in rows if (sent := new_of(row)) is not None]
        if new:
            _insert_values(db, sql[f"insert_{table.name}_new"], new)
        if len(new) == len(rows):
            return
        rows = [row for row in rows if new_of(row) is None]
    values = [astuple(row) for row in rows]
    if table is STREAM:  # the position, the last column, is given at the write
        values = [sent[:-1] for sent in values]
    _insert_values(db, sql[f"insert_{table.name}"], values)


def _insert_values(db: sqlite3.Connection, statement: str, values: list[tuple[Any, ...]]) -> None:
    """Several rows at once: with each statement, Python lets other threads run, which takes as long as half a row."""
    alone = len(values) % ROWS_TOGETHER
    if alone:  # the first of them, first: the order of the writes is that of an event's positions
        _execute(db, statement, values[:alone])
    if alone < len(values):
        starts = range(alone, len(values), ROWS_TOGETHER)
        groups = [tuple(chain.from_iterable(values[start : start + ROWS_TOGETHER])) for start in starts]
        _execute(db, for_several(statement, ROWS_TOGETHER), groups)


# Each row by its own shape: SQLite writes every index that has a column of the statement, whether it changed or not.
# One run of a batch that ends, or one join that counts, would make all the others dearer.


def _run_updates(pairs: Pairs) -> dict[str, list[tuple[Any, ...]]]:
    updates: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for old, new in pairs:
        shape, key = run_shape_of(old, new), (new.id, old.version)
        updates[shape].append(RUN_SHAPES[shape](new) + key)
    return updates


def _work_updates(pairs: Pairs) -> dict[str, list[tuple[Any, ...]]]:
    updates: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for old, new in pairs:
        shape = work_shape_of(old, new)
        if shape == "settled" and new.error is None:
            settled = new.status, new.result, new.outcome, new.finished, old.run, old.node, old.attempt, old.token
            updates["done"].append(settled)
        else:
            updates[shape].append(WORK_SHAPES[shape](new) + _KEY(old))
    return updates


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


def worker_of(row: tuple[Any, ...]) -> WorkerRow:
    """A worker as it is stored, with its three lists of names as JSON."""
    values = [*row[:3], *map(stored_names, row[3:6]), *row[6:]]
    return WorkerRow(**dict(zip(WorkerRow.__struct_fields__, values, strict=True)))
