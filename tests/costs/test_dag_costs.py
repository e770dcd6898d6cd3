"""What a node of a large DAG costs: few commits for very many, and in ten thousand the same as in a thousand."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.fan_out import WIDE, fan_out_of, layers_of, measure_w3
from benchmarks.limits import batched_steps_per_second
from benchmarks.startup import bare_python_seconds
from benchmarks.throughput import working_engine
from holdfast.coordinator import Commit
from tests.costs.attempts import Try, assert_one_is_good, slower_than
from tests.costs.test_commits import ONLY_STEPS

AT_MOST_COMMITS = 50
GROWTH = 1.3
FEW, MANY = 1000, 10_000
FACTOR = 2.0
REFERENCE_PYTHON_SECONDS = 0.011  # `python -c pass` where the targets were set


# -- commits


async def _run_quietly(engine: hf.Engine, dag: hf.BuiltDag) -> None:
    """Run to the end without asking the store for the result: a waiter's polls are no cost of a node."""
    ended = asyncio.Event()

    def on_commit(commit: Commit) -> None:
        if commit.ended_runs():
            ended.set()

    engine.coordinator.observers.append(on_commit)
    await engine.start(dag)
    await asyncio.wait_for(ended.wait(), 60)
    engine.coordinator.observers.remove(on_commit)


async def test_k1_a_fan_out_of_a_thousand_is_at_most_fifty_commits_on_sqlite(sqlite_url: str) -> None:
    """K1: what is ready is claimed together, and what is done is recorded together."""
    async with hf.Engine(sqlite_url, registry=WIDE, **ONLY_STEPS) as engine, engine.worker():
        await _run_quietly(engine, fan_out_of(1))
        said: list[str] = []
        engine.store.db.set_trace_callback(said.append)  # type: ignore[attr-defined]
        await _run_quietly(engine, fan_out_of(FEW))
        engine.store.db.set_trace_callback(None)  # type: ignore[attr-defined]
    assert 2 <= said.count("COMMIT") <= AT_MOST_COMMITS
    assert "ROLLBACK" not in said


async def test_k1_a_fan_out_of_a_thousand_is_at_most_fifty_commits_on_postgresql(postgres_url: str) -> None:
    """K1: as the server counts them, where every statement alone is one; opening and closing costs the same for two."""
    counter = await asyncpg.connect(postgres_url, database="postgres")
    try:
        counted = []
        for steps in (1, 1, FEW):  # the first makes the tables
            before = await _transactions(counter, postgres_url)
            async with hf.Engine(postgres_url, registry=WIDE, **ONLY_STEPS) as engine, engine.worker():
                await _run_quietly(engine, fan_out_of(steps))
            counted.append(await _transactions(counter, postgres_url) - before)
    finally:
        await counter.close()
    _, of_one, of_many = counted
    assert 2 <= of_many - of_one <= AT_MOST_COMMITS, counted


async def _transactions(counter: Any, url: str) -> int:
    """Committed and rolled back so far. A session reports its counts when it ends, before it leaves the list."""
    database = url.partition("?")[0].rpartition("/")[2]
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'"
    async with asyncio.timeout(20):
        while await counter.fetchval(sessions, database):
            pass
    counted: int = await counter.fetchval(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", database
    )
    return counted


# -- growth


@pytest.mark.timing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("made", [fan_out_of, layers_of])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_node_of_ten_thousand_costs_what_a_node_of_one_thousand_costs(
    store: str, made: Callable[[int], hf.BuiltDag], request: pytest.FixtureRequest
) -> None:
    """One join of them all, and joins of two everywhere: a completion costs what its own edges cost."""
    url: str = request.getfixturevalue(f"{store}_url")

    async def measured() -> Try:
        gc.collect()
        gc.freeze()  # what thousands of tests have left is looked at by no collection, as in a process of its own
        async with working_engine(url, WIDE) as engine:
            await engine.run(made(FEW))
            before = await _seconds(engine, made(FEW))
            many = await _seconds(engine, made(MANY))
            after = await _seconds(engine, made(FEW))  # on both sides: a neighbour comes and goes
            return Try(many / MANY, GROWTH * (before + after) / 2 / FEW)

    try:
        assert_one_is_good(f"seconds a node on {store}", lambda: asyncio.run(measured()))
    finally:
        gc.unfreeze()


async def _seconds(engine: hf.Engine, dag: hf.BuiltDag) -> float:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await engine.run(dag)
    return loop.time() - started


# -- speed


@pytest.mark.timing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", [m.SQLITE, m.POSTGRES])
def test_very_many_parallel_steps_and_an_aggregate_take_no_more_than_twice_their_target(
    store: str, request: pytest.FixtureRequest
) -> None:
    """W3: 1,000 and 10,000 steps. A machine whose interpreter or database is slower may be slower by as much."""
    durable: Databases = request.getfixturevalue("durable_postgres" if store == m.POSTGRES else "durable_sqlite")

    def measured() -> Try:
        batched = asyncio.run(batched_steps_per_second(durable.fresh_url(), 50))
        database = slower_than(1 / m.REFERENCE_BATCHED[store], 1 / batched)
        python = slower_than(REFERENCE_PYTHON_SECONDS, min(bare_python_seconds() for _ in range(3)))
        few, many = asyncio.run(measure_w3(durable.fresh_url()))
        cost = max(few / m.W3_FEW.targets[store], many / m.W3_MANY.targets[store])
        return Try(cost, FACTOR * max(database, python))

    assert_one_is_good(f"times the target for parallel steps on {store}", measured)
