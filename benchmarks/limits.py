"""What the bare database can do, without an engine: every figure of ours is compared with these.

`one_commit`: a row is inserted and committed, in milliseconds. `batched`: in each commit 100 rows become completed and
100 new ones are inserted, as a hundred steps of a hundred runs would; in steps per second.
"""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path

import asyncpg

BATCH = 100
_TABLE = "CREATE TABLE steps (id bigint PRIMARY KEY, status text NOT NULL, result text)"


async def one_commit_ms(url: str, commits: int) -> float:
    if url.startswith("sqlite"):
        return _sqlite_one_commit_ms(url, commits)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DROP TABLE IF EXISTS steps; {_TABLE}")
        insert = await connection.prepare("INSERT INTO steps VALUES ($1, 'completed', 'null')")
        started = time.perf_counter()
        for number in range(commits):
            await insert.fetch(number)
        return (time.perf_counter() - started) / commits * 1000
    finally:
        await connection.close()


async def batched_steps_per_second(url: str, batches: int) -> float:
    if url.startswith("sqlite"):
        return _sqlite_batched(url, batches)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DROP TABLE IF EXISTS steps; {_TABLE}")
        await connection.execute("INSERT INTO steps SELECT n, 'leased', NULL FROM generate_series(0, 99) n")
        step = await connection.prepare(
            "WITH u AS (UPDATE steps s SET status = 'completed', result = n.result"
            " FROM unnest($1::bigint[], $2::text[]) n(id, result) WHERE s.id = n.id)"
            " INSERT INTO steps SELECT n, 'leased', NULL FROM unnest($3::bigint[]) n"
        )
        results = ["null"] * BATCH
        started = time.perf_counter()
        for batch in range(batches):
            ids = list(range(batch * BATCH, (batch + 1) * BATCH))
            await step.fetch(ids, results, [number + BATCH for number in ids])
        return batches * BATCH / (time.perf_counter() - started)
    finally:
        await connection.close()


def computing_ms() -> float:
    """Processor time for a fixed piece of Python: calls, dicts, objects. More when the cores are shared with others."""
    began = time.process_time()
    kept: dict[int, tuple[int, str]] = {}
    draw = random.Random(1).random
    for number in range(50_000):
        kept[int(draw() * 1000)] = (number, str(number))
    return (time.process_time() - began) * 1000


def _sqlite_one_commit_ms(url: str, commits: int) -> float:
    db = _sqlite(url)
    try:
        started = time.perf_counter()
        for number in range(commits):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO steps VALUES (?, 'completed', 'null')", (number,))
            db.execute("COMMIT")
        return (time.perf_counter() - started) / commits * 1000
    finally:
        db.close()


def _sqlite_batched(url: str, batches: int) -> float:
    db = _sqlite(url)
    try:
        db.executemany("INSERT INTO steps VALUES (?, 'leased', NULL)", [(number,) for number in range(BATCH)])
        started = time.perf_counter()
        for batch in range(batches):
            ids = range(batch * BATCH, (batch + 1) * BATCH)
            db.execute("BEGIN IMMEDIATE")
            completed = [("null", number) for number in ids]
            db.executemany("UPDATE steps SET status = 'completed', result = ? WHERE id = ?", completed)
            db.executemany("INSERT INTO steps VALUES (?, 'leased', NULL)", [(number + BATCH,) for number in ids])
            db.execute("COMMIT")
        return batches * BATCH / (time.perf_counter() - started)
    finally:
        db.close()


def _sqlite(url: str) -> sqlite3.Connection:
    path = Path(url.removeprefix("sqlite:///"))
    # Beside the measured file, on the same disk: the limit is the disk's, not the schema's.
    db = sqlite3.connect(path.with_name(f"{path.name}-limit"), isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("DROP TABLE IF EXISTS steps")
    db.execute(_TABLE)
    return db
