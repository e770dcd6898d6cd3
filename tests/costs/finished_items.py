"""A database that has been used for long: very many finished items, and a few that are not."""

from __future__ import annotations

import os
from typing import Any

import asyncpg

from holdfast.store.contract import Store

ITEMS_VARIABLE = "COST_TEST_ITEMS"
ITEMS = int(os.environ.get(ITEMS_VARIABLE, "50000"))
A_RUN = 10  # items of each finished run
READY, LEASED, DEAD = 200, 100, 50
OPEN_RUNS = READY + LEASED + DEAD

_RUN = (
    "id, workflow, model, status, version, input, codec, input_digest, on_failure, queue, priority, tags, token,"
    " awaited, superseded, remaining, active, gave_up, entries, due, created, started, finished, updated"
)
_WORK = (
    "run, node, attempt, workflow, kind, name, status, required, completed, token, queue, priority, gate, due, worker,"
    " codec, result, outcome, ancestry, failures, losses, created, started, finished"
)


def _fill(numbers: str, id_text: str, empty: str, false: str) -> list[str]:
    """The statements; the dialects differ in how they count, pad, and write bytes and booleans."""
    run = (
        f"SELECT {id_text}, 'Old', 'dag', CASE WHEN n < {{ended}} THEN 'completed' ELSE 'running' END, 5,"
        f" {empty}, 'json', '', 'fail', 'default', 0, '{{{{}}}}', 0, {false}, {false}, 0, 0, 0, 0, 0, n, n,"
        " CASE WHEN n < {ended} THEN n END, n"
    )
    work = (
        f"SELECT {id_text}, 's' || {{node}}, 1, 'Old', 'node', 'Old.s', {{status}}, 1, 1, 1, 'default', 0, 0, n,"
        f" {{worker}}, 'json', {empty}, {empty}, '', 0, 0, n, n, {{finished}}"
    )
    ended = ITEMS // A_RUN
    ranges = {
        "ready": (ended, ended + READY, "NULL", "NULL"),
        "leased": (ended + READY, ended + READY + LEASED, "'worker-' || (n % 5)", "NULL"),
        "dead": (ended + READY + LEASED, ended + OPEN_RUNS, "'worker-0'", "n"),
    }
    runs = numbers.format(first=0, last=ended + OPEN_RUNS - 1)
    statements = [f"INSERT INTO runs ({_RUN}) {run.format(ended=ended)} FROM {runs}"]
    for node in range(A_RUN):
        finished = work.format(node=node, status="'completed'", worker="'worker-gone'", finished="n")
        statements.append(f"INSERT INTO work ({_WORK}) {finished} FROM {numbers.format(first=0, last=ended - 1)}")
    for status, (first, last, worker, ended_at) in ranges.items():
        open_item = work.format(node=0, status=f"'{status}'", worker=worker, finished=ended_at)
        statements.append(f"INSERT INTO work ({_WORK}) {open_item} FROM {numbers.format(first=first, last=last - 1)}")
    return statements


def wide_run(queue: str, items: int) -> str:
    """The PostgreSQL statement that gives one of the open runs this many ready items, in a queue of their own."""
    return (
        f"INSERT INTO work ({_WORK}) SELECT '{run_id(ITEMS // A_RUN)}', 'w' || n, 1, 'Old', 'node', 'Old.s', 'ready',"
        f" 1, 1, 1, '{queue}', 0, 0, n, NULL, 'json', ''::bytea, ''::bytea, '', 0, 0, n, n, NULL"
        f" FROM generate_series(1, {items}) n"
    )


def run_id(number: int) -> str:
    return f"run-{number:012d}"


async def fill_postgres(connection: Any) -> None:
    """Fill, and let the planner know: a server's autovacuum would have by then."""
    for statement in _fill(
        "generate_series({first}, {last}) n", "'run-' || lpad(n::text, 12, '0')", "''::bytea", "false"
    ):
        await connection.execute(statement)
    await connection.execute("VACUUM ANALYZE")


def fill_sqlite(db: Any) -> None:
    numbers = "(WITH RECURSIVE c(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {last}) SELECT n FROM c)"
    db.execute("BEGIN IMMEDIATE")
    for statement in _fill(numbers, "printf('run-%012d', n)", "x''", "0"):
        db.execute(statement)
    db.execute("COMMIT")


async def prepare(url: str) -> None:
    """Make the schema and fill it; connections are closed afterwards."""
    import holdfast as hf

    async with hf.Engine(url) as engine:
        store: Store = engine.store
        if store.kind == "sqlite":
            fill_sqlite(store.db)  # type: ignore[attr-defined]
            return
    connection = await asyncpg.connect(url)
    try:
        await fill_postgres(connection)
    finally:
        await connection.close()
