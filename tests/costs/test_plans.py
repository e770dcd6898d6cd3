"""Finished work must cost nothing: what runs all the time finds its rows by index, however much has been done before.

50,000 finished items by default; `COST_TEST_ITEMS=1000000` for the size at which a scan would hurt.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

import holdfast as hf
from benchmarks.chains import chain_of
from holdfast.authoring.registry import Registry
from holdfast.core.rows import RUNS, WORK, Run, Work
from holdfast.core.view import Changes
from holdfast.store.postgres_connections import Connections
from holdfast.store.postgres_flush import guarded_flush
from holdfast.store.statements import statements
from tests.costs.finished_items import ITEMS, OPEN_RUNS, READY, prepare, run_id, wide_run
from tests.support.postgres import Databases

FIRST_OPEN = ITEMS // 10
NAMES = ["Old"]
BATCH = 100

# Statement, arguments, and the indexes that must serve it. "workers" is small and may be scanned.
ON_POSTGRES: dict[str, tuple[tuple[Any, ...], set[str]]] = {
    "claim": (("default", NAMES, ["Old.s"], BATCH, "worker-1", 10), {"work_claimable", "runs_pkey"}),
    "heartbeat": (("worker-1", 30_000_000), set()),
    "leased_to": (("worker-1",), {"work_leased"}),
    "lapsed_workers": (("worker-1",), {"work_leased"}),
    "dead": ((BATCH,), {"work_dead"}),
    "prunable": ((1000, BATCH), {"runs_ended"}),
    "next_due": ((["default"],), {"work_delayed"}),
    "promote": ((["default"],), {"work_delayed"}),
    "ready_before": ((1000, BATCH), {"work_claimable"}),
    "get_runs": (([run_id(FIRST_OPEN)],), {"runs_pkey"}),
    "lock_runs": (([run_id(FIRST_OPEN)],), {"runs_pkey"}),
    "OpenWork": ((run_id(FIRST_OPEN),), {"work_pkey"}),
    "Attempts": ((run_id(FIRST_OPEN), ["s0"]), {"work_pkey"}),
    "RunByKey": (("Old", "key"), {"runs_by_key"}),
}
ON_SQLITE: dict[str, set[str]] = {
    "claimable": {"work_claimable"},
    "lease": {"work"},
    "heartbeat": {"workers"},
    "leased_to": {"work_leased"},
    "ownerless": {"work_leased"},
    "dead": {"work_dead"},
    "prunable": {"runs_ended"},
    "next_due": {"work_delayed"},
    "promote": {"work_delayed"},
    "ready_before": {"work_claimable"},
    "update_runs": {"runs"},
    "update_runs_step": {"runs"},
    "update_work": {"work"},
    "update_work_settled": {"work"},
    "get_runs": {"runs"},
    "get_work": {"work"},
    "OpenWork": {"work"},
    "Attempts": {"work"},
    "RunByKey": {"runs_by_key"},
}


# -- SQLite


@pytest.fixture(scope="module")
def used_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("used") / "app.db"
    asyncio.run(prepare(f"sqlite:///{path}"))
    return path


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_statement_finds_its_rows_by_index_on_sqlite(used_sqlite: Path, name: str) -> None:
    """The cost of an operation does not grow with what has been done before."""
    statement = statements("sqlite")[name]
    db = sqlite3.connect(used_sqlite)
    try:
        arguments = ["[]" if "json_each" in statement else 0] * statement.count("?")
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", arguments)]
    finally:
        db.close()
    shown = "\n".join(plan)
    for line in plan:
        walked = re.match(r"SCAN (?:work|runs|w)\b(.*)", line)
        # Walking a partial index in its order is fine: it holds only what is not finished, or is stopped by a limit.
        assert walked is None or "USING" in walked[1], shown
    assert _sqlite_indexes(plan) >= ON_SQLITE[name], shown


def _sqlite_indexes(plan: list[str]) -> set[str]:
    """Named indexes, and a table's own name for its primary key."""
    used = set()
    for line in plan:
        if named := re.search(r"USING (?:COVERING )?INDEX (\w+)", line):
            used.add(named[1])
        elif keyed := re.match(r"SEARCH (\w+) USING PRIMARY KEY", line):
            used.add(keyed[1])
    return used


# -- PostgreSQL


@pytest.fixture(scope="module")
def used_postgres(databases: Databases) -> Iterator[str]:
    def in_a_loop_of_its_own(url: str) -> None:
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(lambda: asyncio.run(prepare(url))).result()

    with databases.fresh(databases.template("finished items", in_a_loop_of_its_own)) as url:
        yield url


async def plans_of(url: str, statement: str, arguments: tuple[Any, ...]) -> dict[str, str]:
    """The plan for these very arguments, and the generic one that the server keeps after some uses."""
    connection = await Connections(url, timeout_seconds=20).connect()  # with the settings that the store gives it
    try:
        custom = await connection.fetch(f"EXPLAIN {statement}", *arguments)
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        await connection.execute(f"PREPARE asked AS {statement}")
        nulls = ", ".join(["NULL"] * len(arguments))
        generic = await connection.fetch(f"EXPLAIN EXECUTE asked({nulls})" if nulls else "EXPLAIN EXECUTE asked")
    finally:
        await connection.close()
    return {
        "custom": "\n".join(row[0] for row in custom),
        "generic": "\n".join(row[0] for row in generic),
    }


def assert_by_index(plans: dict[str, str], expected: set[str]) -> None:
    for kind, plan in plans.items():
        assert not re.search(r"Seq Scan on (work|runs)\b", plan), f"{kind} plan:\n{plan}"
        used = set(re.findall(r"(?:Scan(?: Backward)? using|Bitmap Index Scan on) (\w+)", plan))
        assert used >= expected, f"{kind} plan uses {sorted(used)}:\n{plan}"


@pytest.mark.parametrize("name", ON_POSTGRES)
async def test_a_statement_finds_its_rows_by_index_on_postgresql(used_postgres: str, name: str) -> None:
    """The cost of an operation does not grow with what has been done before."""
    arguments, expected = ON_POSTGRES[name]
    assert_by_index(await plans_of(used_postgres, statements("postgres")[name], arguments), expected)


@pytest.mark.parametrize("size", [1, BATCH])
@pytest.mark.parametrize("ends", [False, True])
async def test_k1_a_flush_finds_its_rows_by_index_on_postgresql(used_postgres: str, size: int, ends: bool) -> None:
    """K1: one statement writes a batch; it must not read a table for that, whichever plan the server keeps."""
    statement, arguments = guarded_flush(completions(size, ends=ends))
    plans = await plans_of(used_postgres, statement, tuple(arguments))
    assert_by_index(plans, {"runs_pkey", "work_pkey"})


def completions(count: int, *, ends: bool) -> Changes:
    """What the completion of a leased item in each of `count` runs writes."""
    changes = Changes(False)
    for number in range(FIRST_OPEN + READY, FIRST_OPEN + READY + count):
        run = Run(run_id(number), "Old", "dag", status="running", version=5)
        item = Work(run.id, "s0", 1, "Old", name="Old.s", status="leased", token=1, worker="worker-1")
        done = replace(run, version=6, status="completed" if ends else "running", finished=9 if ends else None)
        changes.updates.setdefault(RUNS, []).append((run, done))
        changes.updates.setdefault(WORK, []).append((item, replace(item, status="completed", result=b"null")))
        if not ends:
            changes.inserts.setdefault(WORK, []).append(replace(item, node="s1", status="leased"))
    return changes


async def test_a_claim_from_a_wide_run_reads_only_what_it_claims(used_postgres: str) -> None:
    """A hundred items of a run with 10,000 ready ones: the other 9,900 must not be looked at for each of them."""
    connection = await Connections(used_postgres, timeout_seconds=20).connect()
    transaction = connection.transaction()
    try:
        await transaction.start()
        await connection.execute(wide_run("wide", 10_000))
        await connection.execute("ANALYZE work")
        statement, arguments = statements("postgres")["claim"], ("wide", NAMES, ["Old.s"], BATCH, "worker-1", 10)
        answer = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *arguments)
    finally:
        await transaction.rollback()
        await connection.close()
    plan = json.loads(answer)[0]["Plan"]
    seen = {describe(node): node["Actual Rows"] * node["Actual Loops"] for node in nodes_of(plan)}
    assert max(seen.values()) <= 2 * BATCH, seen
    assert plan["Actual Rows"] == BATCH


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def describe(node: dict[str, Any]) -> str:
    return " ".join(str(node[key]) for key in ("Node Type", "Relation Name", "Index Name", "Alias") if key in node)


async def test_a_worker_among_finished_items_reads_no_table_from_end_to_end(used_postgres: str) -> None:
    """Claims, flushes, heartbeats, sweeps and results of 60 runs, as the server counted its scans."""
    registry = Registry()
    dag = chain_of(3, registry)
    counter = await asyncpg.connect(used_postgres)
    try:
        before = await scans_of(counter)
        async with hf.Engine(used_postgres, registry=registry, poll_seconds=0.05, sweep_seconds=0.05) as engine:
            handles = [await engine.start(dag()) for _ in range(30)]  # without a worker: these must be claimed
            async with engine.worker(concurrency=10) as worker:
                handles += [await engine.start(dag()) for _ in range(30)]
                for handle in handles:
                    await handle.result(30)
                assert await engine.store.heartbeat(worker.id, 30.0)
                await engine.store.dead(10)
                await engine.store.lapsed_workers(worker.id)
        after = await scans_of(counter)
    finally:
        await counter.close()
    for table in ("work", "runs"):
        assert after[table][1] > before[table][1], "no index was used, so nothing was counted"
        assert after[table][0] == before[table][0], f"{table} was scanned from end to end"


async def scans_of(counter: Any) -> dict[str, tuple[int, int]]:
    # A session reports its counts when it ends, before it leaves the list of sessions.
    sessions = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    async with asyncio.timeout(20):
        while await counter.fetchval(sessions):
            pass
    rows = await counter.fetch("SELECT relname, seq_scan, idx_scan FROM pg_stat_user_tables")
    return {row[0]: (row[1], row[2]) for row in rows}


def test_the_filled_database_is_as_large_as_it_says(used_sqlite: Path) -> None:
    """The tests above show nothing on an empty table."""
    db = sqlite3.connect(used_sqlite)
    try:
        assert db.execute("SELECT count(*) FROM work").fetchone()[0] == ITEMS + OPEN_RUNS
        assert db.execute("SELECT count(*) FROM work WHERE status = 'completed'").fetchone()[0] == ITEMS
        assert db.execute("SELECT count(*) FROM runs").fetchone()[0] == ITEMS // 10 + OPEN_RUNS
    finally:
        db.close()
