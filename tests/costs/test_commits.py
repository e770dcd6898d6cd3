"""The counted price of a step: one commit, on PostgreSQL one round trip. Counted by the databases, not by us."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

import holdfast as hf
from benchmarks.chains import chain_of
from holdfast.authoring.registry import Registry
from holdfast.coordinator import Commit

STEPS = 100
# An autovacuum that happens to come by commits in the same database; a second commit a step would be a hundred.
FOREIGN_COMMITS = 5
# Nothing but the steps themselves: claims, heartbeats, sweeps and announcements are hints or housekeeping, and happen
# by the clock and not by the step.
ONLY_STEPS: dict[str, Any] = {"poll_seconds": 600, "sweep_seconds": 600, "lease_seconds": 3600, "notify": False}


async def run_quietly(engine: hf.Engine, dag: type[hf.Dag]) -> None:
    """Run to the end without asking the store for the result: a waiter's polls are no cost of a step."""
    ended = asyncio.Event()

    def on_commit(commit: Commit) -> None:
        if commit.ended_runs():
            ended.set()

    engine.coordinator.observers.append(on_commit)
    await engine.start(dag())
    await asyncio.wait_for(ended.wait(), 60)
    engine.coordinator.observers.remove(on_commit)


async def test_k1_a_step_of_a_chain_is_one_commit_on_sqlite(sqlite_url: str) -> None:
    """K1: start and 100 completions, each with the lease of what follows, are 101 transactions and no more."""
    registry = Registry()
    dag = chain_of(STEPS, registry)
    async with hf.Engine(sqlite_url, registry=registry, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, dag)
        said: list[str] = []
        engine.store.db.set_trace_callback(said.append)  # type: ignore[attr-defined]
        await run_quietly(engine, dag)
        engine.store.db.set_trace_callback(None)  # type: ignore[attr-defined]
    assert sum(statement == "COMMIT" for statement in said) == STEPS + 1
    assert not [statement for statement in said if statement.startswith("ROLLBACK")]


async def test_k1_a_step_of_a_chain_reads_no_work_and_no_run_on_sqlite(sqlite_url: str) -> None:
    """K1: the fast path loads nothing; what a step needs is remembered from the step before."""
    registry = Registry()
    dag = chain_of(STEPS, registry)
    async with hf.Engine(sqlite_url, registry=registry, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, dag)
        said: list[str] = []
        engine.store.db.set_trace_callback(said.append)  # type: ignore[attr-defined]
        await run_quietly(engine, dag)
        engine.store.db.set_trace_callback(None)  # type: ignore[attr-defined]
    assert "COMMIT" in said
    assert not [s for s in said if s.startswith("SELECT") and (" FROM runs" in s or " FROM work" in s)]


async def test_k1_a_step_of_a_chain_is_one_round_trip_on_postgresql(postgres_url: str) -> None:
    """K1: 101 statements for the start and 100 steps, as the store counts what it sends."""
    registry = Registry()
    dag = chain_of(STEPS, registry)
    async with hf.Engine(postgres_url, registry=registry, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, dag)
        before = engine.store.round_trips  # type: ignore[attr-defined]
        await run_quietly(engine, dag)
        trips = engine.store.round_trips - before  # type: ignore[attr-defined]
    assert trips == STEPS + 1


async def test_k1_a_step_of_a_chain_is_one_commit_on_postgresql(postgres_url: str) -> None:
    """K1: what the server counts for 200 steps more than for 100 is 100 transactions.

    The difference, because opening, migrating, enrolling and retiring commit too, and cost the same both times.
    """
    registry = Registry()
    short, long = chain_of(STEPS, registry), chain_of(2 * STEPS, registry)
    counter = await asyncpg.connect(postgres_url, database="postgres")
    try:
        database = postgres_url.partition("?")[0].rpartition("/")[2]
        for dag in (short, long):  # so that the schema is there, and both are as warm as each other
            await _transactions(counter, database, postgres_url, registry, dag)
        await _without_autovacuum(postgres_url)
        hundred = await _transactions(counter, database, postgres_url, registry, short)
        two_hundred = await _transactions(counter, database, postgres_url, registry, long)
    finally:
        await counter.close()
    assert two_hundred - hundred >= STEPS, "the server must have counted them, or this test shows nothing"
    assert two_hundred - hundred <= STEPS + FOREIGN_COMMITS


async def _without_autovacuum(url: str) -> None:
    """It commits once a table, and may come by while either half is counted."""
    connection = await asyncpg.connect(url)
    try:
        ours = "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND oid > 16383"
        for (table,) in await connection.fetch(ours):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    finally:
        await connection.close()


async def _transactions(counter: Any, database: str, url: str, registry: Registry, dag: type[hf.Dag]) -> int:
    before = await _committed_or_rolled_back(counter, database)
    async with hf.Engine(url, registry=registry, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, dag)
    return await _committed_or_rolled_back(counter, database) - before


async def _committed_or_rolled_back(counter: Any, database: str) -> int:
    # A session reports its counts when it ends, before it leaves the list of sessions.
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'"
    async with asyncio.timeout(20):
        while await counter.fetchval(sessions, database):
            pass
    counted: int = await counter.fetchval(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", database
    )
    return counted
