"""Leases and enrolment around what a worker does not know, was told twice, or has outlived."""

from __future__ import annotations

import sqlite3

import asyncpg
from msgspec.structs import replace

import holdfast as hf
from holdfast.core.rows import RUNS, WORK, Run, Work
from holdfast.core.view import Changes, RowCache
from holdfast.store.contract import ClaimRequest
from tests.worker.support import engine_on, until


async def forget_workers(url: str) -> None:
    """Remove every worker's row from outside, as somebody who took them for dead would."""
    if url.startswith("sqlite"):
        db = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=5, isolation_level=None)
        try:
            db.execute("DELETE FROM workers")
        finally:
            db.close()
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DELETE FROM workers")
    finally:
        await connection.close()


async def test_i8_a_lapse_that_cannot_be_decided_here_keeps_no_worker_from_starting(shared_url: str) -> None:
    """I8: the lost item belongs to a workflow that this worker has never heard of, and its losses are used up."""
    known, other = hf.Registry(), hf.Registry()

    class Skipping(hf.Dag, registry=known, on_failure="skip"):
        @hf.step
        async def one(self) -> None: ...

        @hf.step
        async def two(self) -> None: ...

    @hf.action(registry=other)
    async def quick() -> int:
        return 2

    theirs, ours = engine_on(shared_url, known), engine_on(shared_url, other, lost_limit=1)
    async with theirs, ours:
        await theirs.start(Skipping())
        gone = ClaimRequest(worker="gone", queue="default", limit=1, workflows=("Skipping",), actions=("Skipping.one",))
        assert await theirs.store.claim(gone)
        async with ours.worker():
            assert await ours.run(quick, timeout=5) == 2


async def test_i7_a_worker_declared_dead_three_times_holds_one_lock(shared_url: str) -> None:
    """I7: enrolling under a new id gives up what proved that the old one was alive."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    engine = engine_on(shared_url, registry, lease_seconds=0.6)
    async with engine, engine.worker() as worker:
        ids = {worker.id}
        for _ in range(3):
            await forget_workers(shared_url)
            await until(lambda: worker.id not in ids, "the worker enrolls under a new id")
            ids.add(worker.id)
            assert await engine.run(quick, timeout=5) == 2
        store = engine.store
        held = store._sessions if store.kind == "postgresql" else store._worker_locks._mine
        await until(lambda: len(held) == 1, "the locks of the old ids are given up", 5)
        assert list(held) == [worker.id]


def test_g2_a_commit_joins_no_rows_of_an_older_version() -> None:
    """G2: rows learned at version 1 do not pass for rows of version 4 when the commit from 3 to 4 is absorbed."""
    cache = RowCache()
    run = Run(id="r", workflow="w", model="dag", version=1)
    cache.learn(RUNS, run)
    cache.learn(WORK, Work(run="r", node="x", attempt=1, workflow="w", status="leased", token=1))
    changes = Changes()
    changes.updates[RUNS] = [(replace(run, version=3), replace(run, version=4))]
    cache.absorb(changes)
    assert cache.run_row("r") is None or ("r", "x", 1) not in cache.runs["r"].rows.get(WORK, {})
