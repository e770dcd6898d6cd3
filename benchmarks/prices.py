"""What a step is made of, counted by the databases: statements, commits, and bytes of the write-ahead log.

`python -m benchmarks.prices` prints the table of docs/performance.md. Counts do not depend on the machine, so tests
keep them (tests/costs/test_prices.py). Housekeeping is off: claims by the clock, heartbeats and sweeps are of no step.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

import holdfast as hf
from benchmarks import flows, functions, graphs
from benchmarks.chains import chain_of
from benchmarks.databases import Databases
from benchmarks.fan_out import WIDE, fan_out_of
from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.table import aligned
from benchmarks.waiting import WAITING, go, wait_until_all_wait, waits_for_go
from holdfast.authoring.registry import Registry

QUIET: dict[str, Any] = {"poll_seconds": 600, "sweep_seconds": 600, "lease_seconds": 3600, "notify": False}
STEPS, RUNS, WIDTH, WAITERS = 50, 200, 300, 200
FRAME_HEADER_BYTES = 24  # of each page in SQLite's log

# Prepares, yields when counting begins, and ends when it does.
Scenario = Callable[[hf.Engine], AsyncIterator[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """For each step. A statement is a round trip on PostgreSQL; BEGIN and COMMIT are statements on SQLite."""

    statements: float
    commits: float
    wal_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A workload of a model; `steps` is how many the counts are divided by."""

    workload: str
    model: str
    steps: int
    registry: Registry
    scenario: Scenario


def _of_runs(start: Callable[[hf.Engine], Any], runs: int) -> Scenario:
    """All started at once, until the last has ended; results are not asked for."""

    async def scenario(engine: hf.Engine) -> AsyncIterator[None]:
        left, ended = runs, asyncio.Event()

        def on_commit(commit: Any) -> None:
            nonlocal left
            left -= len(commit.ended_runs())
            if left <= 0:
                ended.set()

        engine.coordinator.observers.append(on_commit)
        yield
        await asyncio.gather(*(start(engine) for _ in range(runs)))
        await asyncio.wait_for(ended.wait(), 100)
        engine.coordinator.observers.remove(on_commit)

    return scenario


async def _events(engine: hf.Engine) -> AsyncIterator[None]:
    handles = await asyncio.gather(*(engine.start(waits_for_go) for _ in range(WAITERS)))
    await wait_until_all_wait(engine, WAITERS)
    yield
    left, ended = WAITERS, asyncio.Event()

    def on_commit(commit: Any) -> None:
        nonlocal left
        left -= len(commit.ended_runs())
        if left <= 0:
            ended.set()

    engine.coordinator.observers.append(on_commit)
    await asyncio.gather(*(engine.send(go, number, to=handle) for number, handle in enumerate(handles)))
    await asyncio.wait_for(ended.wait(), 100)
    engine.coordinator.observers.remove(on_commit)


def _workloads() -> tuple[Priced, ...]:
    dags, nodes = Registry(), Registry()
    long, short = chain_of(STEPS, dags), chain_of(3, dags)
    graph = graphs.chain_graph(STEPS, nodes)

    def of(workload: str, model: str, steps: int, registry: Registry, start: Any, runs: int = 1) -> Priced:
        return Priced(workload=workload, model=model, steps=steps, registry=registry, scenario=_of_runs(start, runs))

    return (
        of("W1", "dag", STEPS, dags, lambda engine: engine.start(long())),
        of("W1", "function", STEPS, functions.CHAINS, lambda engine: engine.start(functions.chain, STEPS)),
        of("W1", "flow", STEPS, flows.COMPILED, lambda engine: engine.start(flows.chain, STEPS)),
        of("W1", "graph", STEPS, nodes, lambda engine: engine.start(graph, {"n": 0})),
        of("W2", "dag", 3 * RUNS, dags, lambda engine: engine.start(short()), RUNS),
        of("W2", "function", 3 * RUNS, functions.CHAINS, lambda engine: engine.start(functions.chain, 3), RUNS),
        of("W2", "flow", 3 * RUNS, flows.COMPILED, lambda engine: engine.start(flows.three_steps, 1), RUNS),
        of("W3", "dag", WIDTH, WIDE, lambda engine: engine.start(fan_out_of(WIDTH))),
        of("W3", "flow", WIDTH, flows.COMPILED, lambda engine: engine.start(flows.spread, WIDTH)),
        Priced(workload="W5", model="function", steps=WAITERS, registry=WAITING, scenario=_events),
    )


# Transactions that wrote, of the whole server, and where its log is; so nobody else may be at work.
_POSITION = (
    "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS transactions,"
    " pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS bytes"
)

WORKLOADS = {f"{each.workload} {each.model}": each for each in _workloads()}


async def price_of(url: str, priced: Priced) -> Price:
    """Count one scenario, on an engine that has done it before."""
    async with hf.Engine(url, registry=priced.registry, **QUIET) as engine, engine.worker():
        async for _ in priced.scenario(engine):
            pass
        counted = _counted_sqlite if url.startswith("sqlite") else _counted_postgres
        return await counted(url, engine, priced)


async def _counted_sqlite(url: str, engine: hf.Engine, priced: Priced) -> Price:
    db = engine.store.db  # type: ignore[attr-defined]
    said: list[str] = []
    async for _ in priced.scenario(engine):
        db.execute("PRAGMA wal_autocheckpoint=0")  # else the log would begin anew meanwhile
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.set_trace_callback(said.append)
    db.set_trace_callback(None)
    _, frames, _ = db.execute("PRAGMA wal_checkpoint").fetchone()
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    return Price(
        statements=len(said) / priced.steps,
        commits=said.count("COMMIT") / priced.steps,
        wal_bytes=frames * (page_bytes + FRAME_HEADER_BYTES) / priced.steps,
    )


async def _counted_postgres(url: str, engine: hf.Engine, priced: Priced) -> Price:
    watch = await asyncpg.connect(url)
    began: Any = None
    trips = 0
    try:
        async for _ in priced.scenario(engine):
            trips, began = engine.store.round_trips, await watch.fetchrow(_POSITION)  # type: ignore[attr-defined]
        trips = engine.store.round_trips - trips  # type: ignore[attr-defined]
        ended = await watch.fetchrow(_POSITION)
    finally:
        await watch.close()
    return Price(
        statements=trips / priced.steps,
        commits=(ended["transactions"] - began["transactions"]) / priced.steps,
        wal_bytes=float(ended["bytes"] - began["bytes"]) / priced.steps,
    )


def main() -> None:
    rows = [("", "statements", "commits", "log, bytes")]
    for store in sys.argv[1:] or (SQLITE, POSTGRES):
        with Databases(store) as databases:
            for name, priced in WORKLOADS.items():
                price = asyncio.run(price_of(databases.fresh_url(), priced))
                rows.append(
                    (f"{name}, {store}", f"{price.statements:.2f}", f"{price.commits:.2f}", f"{price.wal_bytes:,.0f}")
                )
    print(aligned(rows, left=(0,)))


if __name__ == "__main__":
    main()
