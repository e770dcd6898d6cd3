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
from holdfast.core.rows import EVENTS as EVENTS_TABLE
from holdfast.core.rows import (
    INPUTS,
    OBSERVATIONS,
    RUNS,
    SNAPSHOTS,
    STREAM,
    WAITS,
    WORK,
    Event,
    Fact,
    Input,
    Observation,
    Run,
    Snapshot,
    Wait,
    Work,
)
from holdfast.core.view import Changes
from holdfast.store.postgres_connections import Connections
from holdfast.store.postgres_flush import deletes_fit, guarded_flush
from holdfast.store.statements import statements
from tests.costs.finished_items import ITEMS, OPEN_RUNS, READY, prepare, run_id, wide_run
from tests.support.postgres import Databases

FIRST_OPEN = ITEMS // 10
NAMES = ["Old"]
BATCH = 100
EVENTS, AN_INSTANCE = 20_000, 10  # in streams, and of each instance


def instance(number: int) -> str:
    return f"instance-{number}"


# The statement that fills the streams; the dialects differ in how they count and write bytes and booleans.
FILL_STREAMS = (
    "INSERT INTO stream (run, sequence, workflow, key, type, version, at, data, codec, system, cause, position)"
    " SELECT 'instance-' || (n / {each}), n % {each} + 1, CASE WHEN n % 3 = 0 THEN 'Order' ELSE 'Invoice' END,"
    " 'k', 'Created', 1, n, {empty}, 'json', {false}, 'input:' || n, {position} FROM {numbers}"
)
FILL_SQLITE = FILL_STREAMS.format(
    each=AN_INSTANCE,
    empty="x''",
    false="0",
    position="NULL",
    numbers=f"(WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < {EVENTS - 1}) SELECT n FROM c)",
)
FILL_POSTGRES = FILL_STREAMS.format(
    each=AN_INSTANCE,
    empty="''::bytea",
    false="false",
    position="nextval('stream_positions')",
    numbers=f"generate_series(0, {EVENTS - 1}) n",
)

# Statement, arguments, and the indexes that must serve it. "workers" is small and may be scanned.
ON_POSTGRES: dict[str, tuple[tuple[Any, ...], set[str]]] = {
    "claim": (("default", NAMES, ["Old.s"], BATCH, "worker-1", 10, 0), {"work_claimable", "runs_pkey"}),
    "claim_items": (("default", NAMES, ["Old.s"], BATCH, "worker-1", 10, 0), {"work_claimable", "runs_pkey"}),
    "claimed": (([run_id(FIRST_OPEN)], ["s0"], [1], [1]), {"work_pkey", "runs_pkey"}),
    "heartbeat": (("worker-1", 30_000_000), set()),
    "leased_to": (("worker-1",), {"work_leased"}),
    "lapsed_workers": (("worker-1",), {"work_leased"}),
    "dead": ((BATCH,), {"work_dead"}),
    "dead_events": ((), {"events_not_queued"}),
    "prunable": ((1000, BATCH), {"runs_ended"}),
    "promote": ((["default"], 0), {"work_delayed"}),
    "ready_before": ((1000, BATCH), {"work_claimable"}),
    "get_runs": (([run_id(FIRST_OPEN)],), {"runs_pkey"}),
    "lock_runs": (([run_id(FIRST_OPEN)],), {"runs_pkey"}),
    "OpenWork": ((run_id(FIRST_OPEN),), {"work_pkey"}),
    "Attempts": ((run_id(FIRST_OPEN), ["s0"]), {"work_pkey"}),
    "RunByKey": (("Old", "key"), {"runs_by_key"}),
    "read_stream": (("Order", 5000, 9000, BATCH), {"stream_by_position"}),
    "stream_lag": (("Order", EVENTS - 100), {"stream_by_position"}),
    "streams_after": (([instance(7)], [0], [BATCH]), {"stream_pkey"}),
    "StreamAfter": ((instance(7), 0, BATCH), {"stream_pkey"}),
    "FactsCausedBy": ((instance(7), "input:1"), {"stream_pkey"}),
    "get_snapshots": (([instance(7)],), {"snapshots_pkey"}),
    "transitions": (("Order",), {"observations_by_workflow"}),
}
ON_SQLITE: dict[str, set[str]] = {
    "claimable": {"work_claimable"},
    "claimable_items": {"work_claimable", "r"},
    "lease": {"work"},
    "heartbeat": {"workers"},
    "leased_to": {"work_leased"},
    "ownerless": {"work_leased"},
    "dead": {"work_dead"},
    "dead_events": {"events_not_queued"},
    "prunable": {"runs_ended"},
    "next_due": {"work_delayed"},
    "promote": {"work_delayed"},
    "ready_before": {"work_claimable"},
    "update_runs_step": {"runs"},
    "update_runs_ended": {"runs"},
    "update_runs_input": {"runs"},
    "update_runs_full": {"runs"},
    "update_work_settled": {"work"},
    "update_work_full": {"work"},
    "update_work_whole": {"work"},
    "read_stream": {"stream_by_position"},
    "stream_lag": {"stream_by_position"},
    "StreamAfter": {"sqlite_autoindex_stream_1"},
    "FactsCausedBy": {"sqlite_autoindex_stream_1"},
    "get_snapshots": {"snapshots"},
    "transitions": {"observations_by_workflow"},
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
    db = sqlite3.connect(path)
    with db:
        db.execute(FILL_SQLITE)
    db.close()
    return path


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_statement_finds_its_rows_by_index_on_sqlite(used_sqlite: Path, name: str) -> None:
    """The cost of an operation does not grow with what has been done before."""
    statement = statements("sqlite")[name]
    db = sqlite3.connect(used_sqlite)
    try:
        numbered = set(re.findall(r"\?\d", statement))
        arguments = ["[]" if "json_each" in statement else 0] * (len(numbered) or statement.count("?"))
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", arguments)]
    finally:
        db.close()
    shown = "\n".join(plan)
    for line in plan:
        walked = re.match(r"SCAN (?:work|runs|w|stream|snapshots|observations)\b(.*)", line)
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
    async def fill(url: str) -> None:
        await prepare(url)
        connection = await asyncpg.connect(url)
        await connection.execute(FILL_POSTGRES)
        await connection.execute("ANALYZE stream")
        await connection.close()

    def in_a_loop_of_its_own(url: str) -> None:
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(lambda: asyncio.run(fill(url))).result()

    with databases.fresh(databases.template("finished items and streams", in_a_loop_of_its_own)) as url:
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
        assert not re.search(r"Seq Scan on (work|runs|stream|snapshots|observations|events|waits|inputs)\b", plan), (
            f"{kind} plan:\n{plan}"
        )
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


def test_i36_a_projection_reads_on_by_position_on_sqlite(used_sqlite: Path) -> None:
    """I36: a page costs what it holds, wherever in the stream it is: nothing is sorted, nothing before it is read."""
    db = sqlite3.connect(used_sqlite)
    try:
        plan = [
            row[3]
            for row in db.execute(f"EXPLAIN QUERY PLAN {statements('sqlite')['read_stream']}", ["Order", 1, 2, 3])
        ]
    finally:
        db.close()
    assert plan == ["SEARCH stream USING INDEX stream_by_position (workflow=? AND position>? AND position<?)"]


async def test_i36_a_projection_reads_on_by_position_on_postgresql(used_postgres: str) -> None:
    """I36: the same, as the server counted the rows that it looked at."""
    connection = await Connections(used_postgres, timeout_seconds=20).connect()
    try:
        last = await connection.fetchval("SELECT max(position) FROM stream")
        statement, arguments = statements("postgres")["read_stream"], ("Order", last - 5000, last, BATCH)
        answer = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *arguments)
    finally:
        await connection.close()
    plan = json.loads(answer)[0]["Plan"]
    nodes = list(nodes_of(plan))
    assert "Sort" not in {node["Node Type"] for node in nodes}
    assert max(node["Actual Rows"] for node in nodes) == BATCH
    assert sum(node.get("Rows Removed by Filter", 0) for node in nodes) == 0


@pytest.mark.parametrize("events", [1, 2])
@pytest.mark.parametrize("first", [True, False])
async def test_k1_an_input_alone_has_a_statement_of_its_own_on_postgresql(
    used_postgres: str, events: int, first: bool
) -> None:
    """K1: an input that has nothing but events to write is one short statement, which finds its run by index."""
    changes = inputs(1, events=events, first=first)
    statement, arguments = guarded_flush(changes)
    assert "holds" not in statement, "the general statement, in which everything has a place"
    plans = await plans_of(used_postgres, statement, tuple(arguments))
    assert_by_index(plans, set() if first else {"runs_pkey"})


@pytest.mark.parametrize("size", [1, BATCH])
async def test_k1_inputs_with_all_that_they_may_write_find_their_rows_by_index(used_postgres: str, size: int) -> None:
    """K1: events, a snapshot, an observation, a command id, a timer set anew, and an input taken out of the inbox."""
    changes = inputs(size)
    for run, _ in changes.updates[RUNS]:
        timer = Work(run.id, "timer/k", 1, "Order", kind="timer", name="Order:Remind", token=1)
        changes.updates.setdefault(WORK, []).append((timer, replace(timer, token=2, payload=b"new")))
        changes.inserts.setdefault(SNAPSHOTS, []).append(Snapshot(run.id, 1, b"{}"))
        changes.inserts.setdefault(OBSERVATIONS, []).append(Observation(run.id, 1, "Order", "Create"))
        changes.inserts.setdefault(INPUTS, []).append(Input(run.id, "command:1", run.id))
        changes.deletes.setdefault(EVENTS_TABLE, []).append(Event(f"{run.id}-e", "input", run.id))
        changes.deletes.setdefault(INPUTS, []).append(Input(run.id, "command:0", run.id))
        changes.deletes.setdefault(WAITS, []).append(Wait(run.id, 1, "paid"))
    assert deletes_fit(changes)
    statement, arguments = guarded_flush(changes)
    plans = await plans_of(used_postgres, statement, tuple(arguments))
    assert_by_index(plans, {"runs_pkey", "work_pkey", "events_pkey", "inputs_pkey", "waits_pkey"})


def inputs(count: int, *, events: int = 1, first: bool = False) -> Changes:
    """What an input of each of `count` instances writes."""
    changes = Changes(False)
    for number in range(FIRST_OPEN, FIRST_OPEN + count):
        run = Run(run_id(number), "Order", "decider", key=f"k{number}", status="running", version=5)
        moved = replace(run, version=6, token=1, base=events)
        if first:
            changes.inserts.setdefault(RUNS, []).append(moved)
        else:
            changes.updates.setdefault(RUNS, []).append((run, moved))
        facts = [Fact(run.id, sequence, "Order", "k", "Created") for sequence in range(1, events + 1)]
        changes.inserts.setdefault(STREAM, []).extend(facts)
    return changes


async def test_a_claim_from_a_wide_run_reads_only_what_it_claims(used_postgres: str) -> None:
    """A hundred items of a run with 10,000 ready ones: the other 9,900 must not be looked at for each of them."""
    connection = await Connections(used_postgres, timeout_seconds=20).connect()
    transaction = connection.transaction()
    try:
        await transaction.start()
        await connection.execute(wide_run("wide", 10_000))
        await connection.execute("ANALYZE work")
        statement, arguments = statements("postgres")["claim"], ("wide", NAMES, ["Old.s"], BATCH, "worker-1", 10, 0)
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
