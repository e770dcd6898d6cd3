"""A database that already holds very much: finished runs, and runs that wait.

They are made by copying the rows of one real run, as the crowd of benchmarks/crowd.py is: a million real ones would
take hours and measure nothing else.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

import holdfast as hf
from benchmarks.chains import chain_of
from benchmarks.crowd import measure_crowd
from benchmarks.functions import CHAINS, many_functions, one_function
from benchmarks.stored import stored_bytes
from benchmarks.throughput import many_runs, one_run, working_engine
from holdfast.authoring.registry import Registry
from holdfast.core.rows import RUNS, WORK, Table
from holdfast.store.statements import columns

Values = dict[str, float]
FINISHED: tuple[Table[Any], ...] = (RUNS, WORK)
PER_STATEMENT = 50_000


async def add_finished_runs(url: str, runs: int) -> None:
    """Let one run of three steps end, and copy its rows so many times; each has ended a little earlier."""
    registry = Registry()
    dag = chain_of(3, registry, name="Finished")
    async with hf.Engine(url, registry=registry) as engine, engine.worker():
        handle = await engine.start(dag())
        await handle.result()
        if engine.store.kind == "sqlite":
            db = engine.store.db  # type: ignore[attr-defined]
            db.execute("BEGIN IMMEDIATE")
            numbers = "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?2) SELECT n FROM c)"
            for table in FINISHED:
                db.execute(_copy(table, "printf('done-%08d', n)", numbers, "?1"), (handle.id, runs))
            db.execute("COMMIT")
            db.execute("ANALYZE")
            return
    connection = await asyncpg.connect(url)
    try:
        for table in FINISHED:
            for first in range(1, runs + 1, PER_STATEMENT):
                numbers = "generate_series($2::int, $3::int) n"
                statement = _copy(table, "'done-' || lpad(n::text, 8, '0')", numbers, "$1::text")
                await connection.execute(statement, handle.id, first, min(runs, first + PER_STATEMENT - 1))
        await connection.execute("VACUUM ANALYZE")  # as a server's autovacuum would have by then
    finally:
        await connection.close()


def _copy(table: Table[Any], id_text: str, numbers: str, run: str) -> str:
    owner = "id" if table is RUNS else "run"
    others = tuple(name for name in table.columns if name != owner)
    return (
        f"INSERT INTO {table.name} ({owner}, {columns(others)}) SELECT {id_text}, {columns(others, 'o.')}"
        f" FROM {table.name} o, {numbers} WHERE o.{owner} = {run}"
    )


async def _speeds(url: str, part: int) -> Values:
    registry = Registry()
    runs = max(1, 2000 // part)
    long, short = chain_of(100, registry), chain_of(3, registry)
    async with working_engine(url, registry) as engine:
        await engine.run(long())
        await many_runs(engine, short, max(1, runs // 10))
        lone, crowd = await one_run(engine, long), await many_runs(engine, short, runs)
    async with working_engine(url, CHAINS) as engine:
        await one_function(engine, 100)
        await many_functions(engine, max(1, runs // 10), 3)
        function, functions = await one_function(engine, 100), await many_functions(engine, runs, 3)
    return {
        "DAG, ms a step": lone.wall_ms,
        "DAGs, steps/s": crowd.steps_per_second,
        "function, ms a step": function.wall_ms,
        "functions, steps/s": functions.steps_per_second,
    }


def of_finished(url: str, runs: int, part: int = 1) -> Values:
    """The speed of one run and of many beside so many that have ended."""
    if runs:
        asyncio.run(add_finished_runs(url, runs))
    return asyncio.run(_speeds(url, part)) | {"stored, MB": stored_bytes(url) / 1e6}


def of_waiting(url: str, runs: int, part: int = 1) -> Values:
    """A new worker beside so many runs that wait, an event to one of them, and the speed of others meanwhile."""
    crowd = measure_crowd(url, runs=runs, events=max(2, 50 // part))
    return {
        "new worker, s": crowd.start_seconds,
        "its memory, MB": crowd.megabytes,
        "event to result, ms": crowd.event_ms,
    } | asyncio.run(_speeds(url, part))
