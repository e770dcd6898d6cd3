"""Very many runs that wait: what a new worker has to do with them, and how an event finds its own.

The crowd is made by copying the rows of one real run that waits: starting a hundred thousand would take minutes and
measure nothing else. As a program: `python -m benchmarks.crowd URL` is the new worker; it says when it is ready, and
answers each line of its input with the result of the run of that id.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
import psutil

import holdfast as hf
from benchmarks.waiting import WAITING, go, wait_until_all_wait, waits_for_go
from holdfast.core.rows import RUNS, WAITS, WORK, Table
from holdfast.store.statements import columns

COPIED: tuple[Table[Any], ...] = (RUNS, WORK, WAITS)


def run_id(number: int) -> str:
    return f"crowd-{number:08d}"


async def make_crowd(url: str, runs: int) -> None:
    """Let one function wait for an event, and copy its rows this many times."""
    async with hf.Engine(url, registry=WAITING) as engine, engine.worker():
        handle = await engine.start(waits_for_go)
        await wait_until_all_wait(engine, 1)
        if engine.store.kind == "sqlite":
            db = engine.store.db  # type: ignore[attr-defined]
            numbers = "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?2) SELECT n FROM c)"
            db.execute("BEGIN IMMEDIATE")
            for table in COPIED:
                db.execute(_copy(table, "printf('crowd-%08d', n)", numbers, "?1"), (handle.id, runs))
            db.execute("COMMIT")
            return
    connection = await asyncpg.connect(url)
    try:
        for table in COPIED:
            numbers = "generate_series(1, $2::int) n"
            await connection.execute(
                _copy(table, "'crowd-' || lpad(n::text, 8, '0')", numbers, "$1::text"), handle.id, runs
            )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What a crowd of waiting runs costs those who do not concern it."""

    start_seconds: float
    megabytes: float
    event_ms: float


def measure_crowd(url: str, *, runs: int = 100_000, events: int = 50) -> Crowd:
    """A new worker beside the crowd: how soon it is there, what it weighs, and an event from `send` to the result."""
    asyncio.run(make_crowd(url, runs))
    started = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.crowd", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == "working"
        start_seconds = time.perf_counter() - started
        megabytes = psutil.Process(worker.pid).memory_info().rss / 1e6
        taken = []
        for number in range(events):
            worker.stdin.write(f"{run_id(1 + number * (runs // events))}\n")
            worker.stdin.flush()
            taken.append(float(worker.stdout.readline()))
        worker.stdin.close()
        worker.wait()
    return Crowd(start_seconds=start_seconds, megabytes=megabytes, event_ms=statistics.median(taken))


async def main(url: str) -> None:
    async with hf.Engine(url, registry=WAITING) as engine, engine.worker():
        print("working", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            handle: hf.Handle[int] = engine.get(line.strip())
            started = time.perf_counter()
            await engine.send(go, 1, to=handle)
            await handle.result()
            print((time.perf_counter() - started) * 1000, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
