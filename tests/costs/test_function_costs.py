"""The counted price of a function's step: one commit, on PostgreSQL one round trip, however long its history is.

And of a function that waits: rows, which nobody looks at but those whom they concern.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

import holdfast as hf
from benchmarks.crowd import make_crowd, run_id
from benchmarks.functions import CHAINS, chain
from benchmarks.throughput import working_engine
from benchmarks.waiting import WAITING, go
from holdfast.authoring.registry import Registry
from holdfast.coordinator import Commit
from holdfast.core.rows import HISTORY, RUNS, History, Run
from holdfast.core.view import Changes
from holdfast.store.postgres_flush import guarded_flush
from holdfast.store.statements import statements
from tests.costs.attempts import Try, assert_one_is_good
from tests.costs.test_commits import ONLY_STEPS
from tests.costs.test_plans import assert_by_index, describe, nodes_of, plans_of, scans_of
from tests.support.postgres import Databases
from tests.worker.support import until

STEPS = 100
START_AND_END = 2  # a function's end is recorded by itself: what it returns is known when its last entry is committed
CROWD = 20_000


# -- a step


async def run_quietly(engine: hf.Engine, steps: int) -> None:
    """Run to the end without asking the store for the result: a waiter's polls are no cost of a step."""
    ended = asyncio.Event()

    def on_commit(commit: Commit) -> None:
        if commit.ended_runs():
            ended.set()

    engine.coordinator.observers.append(on_commit)
    await engine.start(chain, steps)
    await asyncio.wait_for(ended.wait(), 60)
    engine.coordinator.observers.remove(on_commit)


async def test_k1_a_step_of_a_function_is_one_commit_and_reads_nothing_on_sqlite(sqlite_url: str) -> None:
    """K1: an entry a step; what was recorded is remembered by the function itself, and never read again."""
    async with hf.Engine(sqlite_url, registry=CHAINS, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, STEPS)
        said: list[str] = []
        engine.store.db.set_trace_callback(said.append)  # type: ignore[attr-defined]
        await run_quietly(engine, STEPS)
        engine.store.db.set_trace_callback(None)  # type: ignore[attr-defined]
    assert said.count("COMMIT") == STEPS + START_AND_END
    assert "ROLLBACK" not in said
    assert not [
        each for each in said if each.startswith("SELECT") and re.search(r"FROM (runs|work|history|waits)", each)
    ]


async def test_k1_a_step_of_a_function_is_one_round_trip_on_postgresql(postgres_url: str) -> None:
    """K1: one statement a step, as the store counts what it sends; each is a transaction by itself."""
    async with hf.Engine(postgres_url, registry=CHAINS, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, STEPS)
        before = engine.store.round_trips  # type: ignore[attr-defined]
        await run_quietly(engine, STEPS)
        trips = engine.store.round_trips - before  # type: ignore[attr-defined]
    assert trips == STEPS + START_AND_END


async def test_k1_branches_of_a_function_share_their_commits(postgres_url: str) -> None:
    """K1: what has come in while a commit was under way is written with the next one."""
    registry = Registry()

    @hf.action(registry=registry)
    async def at_once(number: int) -> int:
        return number

    @hf.workflow(registry=registry)
    async def wide(width: int) -> int:
        return sum(await asyncio.gather(*(at_once(number) for number in range(width))))

    async with hf.Engine(postgres_url, registry=registry, **ONLY_STEPS) as engine, engine.worker():
        assert await engine.run(wide, STEPS) == sum(range(STEPS))
        before = engine.store.round_trips  # type: ignore[attr-defined]
        assert await engine.run(wide, STEPS) == sum(range(STEPS))
        trips = engine.store.round_trips - before  # type: ignore[attr-defined]
    assert trips <= 10


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url"])
async def test_k5_a_function_that_has_slept_goes_on_without_reading_its_rows(
    store: str, request: pytest.FixtureRequest
) -> None:
    """K5, I1: once its time has come it is running, and its rows are remembered as those of any run that moves."""
    registry = Registry()

    @hf.action(registry=registry)
    async def at_once(number: int) -> int:
        return number

    @hf.workflow(registry=registry)
    async def sleeper() -> int:
        await hf.sleep(seconds=0.3)  # longer than it takes to say so, on a busy machine too
        return await at_once(1) + await at_once(2)

    commits: list[Commit] = []
    url = request.getfixturevalue(store)
    async with hf.Engine(url, registry=registry, **ONLY_STEPS) as engine, engine.worker():
        engine.coordinator.observers.append(commits.append)
        assert await engine.run(sleeper, timeout=60) == 3
    assert [run.status for commit in commits for run in commit.changes.rows(RUNS)] == [
        *("running", "suspended"),  # the start, handed over at once; the sleep
        *("running", "running", "running", "completed"),  # the time that has come, two steps, the end
    ]
    assert not any(commit.locked for commit in commits)


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url"])
async def test_k5_a_function_that_waits_here_reads_only_what_others_wrote_for_it(
    store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K5, G5: an event that this process sent it was told of; one that another sent is read, with all since."""
    registry = Registry()
    said = hf.event("said", str, registry=registry)

    @hf.workflow(registry=registry)
    async def listens() -> list[str]:
        return [(await hf.wait_for(said)).value for _ in range(3)]

    url = request.getfixturevalue(store)
    async with hf.Engine(url, registry=registry) as here, hf.Engine(url, registry=registry) as there, here.worker():
        handle = await here.start(listens)

        async def waits() -> bool:
            return await handle.status() == "suspended"

        reads: list[str] = []
        history = here.store.history

        async def counted(run: str, after: int = 0) -> list[History]:
            reads.append(run)
            return await history(run, after)

        monkeypatch.setattr(here.store, "history", counted)
        for engine, word in ((here, "a"), (there, "b"), (here, "c")):
            await until(waits, "it waits again")
            assert await engine.send(said, word, to=handle) == hf.Delivered(handle.id)
        assert await handle.result(timeout=60) == ["a", "b", "c"]
        assert len(reads) == 1


def lone_turn(run: Run) -> Changes:
    """What a function's step writes: one entry more."""
    changes = Changes()
    changes.updates[RUNS] = [(run, replace(run, version=run.version + 1, entries=run.entries + 1))]
    changes.inserts[HISTORY] = [History(run.id, run.entries + 1, "result", 1, b"", "entry")]
    return changes


async def test_k4_a_turn_whose_run_has_moved_on_writes_nothing_on_postgresql(postgres_url: str) -> None:
    """K4: the statement for a lone turn has a guard of its own: all of it is written, or none."""
    run = Run("r", "w", "function", status="running", version=3, entries=7)
    async with hf.Engine(postgres_url) as engine:
        start = Changes()
        start.inserts[RUNS] = [run]
        assert await engine.store.flush(start) == frozenset()
        assert await engine.store.flush(lone_turn(replace(run, version=2))) == {"r"}
        assert await engine.store.history("r") == []
        assert await engine.store.runs(["r"]) == [run]
        assert await engine.store.flush(lone_turn(run)) == frozenset()
        assert [row.sequence for row in await engine.store.history("r")] == [8]
        assert [row.version for row in await engine.store.runs(["r"])] == [4]
        assert guarded_flush(lone_turn(run))[0].startswith("WITH ur AS"), "or this test shows nothing"


# -- a long history


_SPENT: list[float] = []
LONG = Registry()


@hf.action(registry=LONG)
async def note_time_spent(number: int) -> int:
    _SPENT.append(time.process_time())
    return number + 1


@hf.workflow(registry=LONG)
async def long_chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await note_time_spent(number)
    return number


@pytest.mark.timing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_step_costs_the_same_however_long_the_history(store: str, request: pytest.FixtureRequest) -> None:
    """W7: the last 500 of 5,000 steps against the first 500, in processor time: what waits for a disk is left out."""
    url: str = request.getfixturevalue(f"{store}_url")

    async def measured() -> Try:
        async with working_engine(url, LONG) as engine:
            await engine.run(long_chain, 200)
            _SPENT.clear()
            await engine.run(long_chain, 5_000)
        return Try(_SPENT[-1] - _SPENT[-501], 1.3 * (_SPENT[500] - _SPENT[0]))

    assert_one_is_good("seconds for the last 500 steps", lambda: asyncio.run(measured()), tries=3)


# -- a crowd that waits


@pytest.fixture(scope="module")
def crowded_postgres(databases: Databases) -> Iterator[str]:
    def in_a_loop_of_its_own(url: str) -> None:
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(lambda: asyncio.run(make_crowd(url, CROWD))).result()

    with databases.fresh(databases.template("a crowd that waits", in_a_loop_of_its_own)) as url:
        yield url


@pytest.fixture(scope="module")
def crowded_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crowd") / "app.db"
    asyncio.run(make_crowd(f"sqlite:///{path}", CROWD))
    return path


ONE = run_id(CROWD // 2)
# What a new worker asks for, and what an event to one run reads and writes.
AMONG_A_CROWD: dict[str, tuple[tuple[Any, ...], set[str]]] = {
    "lock_runs": (([ONE],), {"runs_pkey"}),
    "get_runs": (([ONE],), {"runs_pkey"}),
    "waits_of_runs": (([ONE],), {"waits_pkey"}),
    "attempts_of_runs": (([ONE], ["turn"]), {"work_pkey"}),
    "delete_waits": (([ONE], [1]), {"waits_pkey"}),
    "WaitersOf": (("end:nobody", 8), {"waits_by_topic"}),
    "promote": ((["default"], 0), {"work_delayed"}),
    "leased_to": (("worker-1",), {"work_leased"}),
}
AMONG_A_CROWD_ON_SQLITE = ("WaitsOf", "WaitersOf", "Attempts", "delete_waits", "next_due", "promote", "get_runs")


@pytest.mark.parametrize("name", AMONG_A_CROWD)
async def test_a_statement_finds_its_rows_among_a_crowd_that_waits_on_postgresql(
    crowded_postgres: str, name: str
) -> None:
    """An event finds its run by index, and a worker that has nothing to do looks at none of them."""
    arguments, expected = AMONG_A_CROWD[name]
    plans = await plans_of(crowded_postgres, statements("postgres")[name], arguments)
    assert_by_index(plans, expected)
    for kind, plan in plans.items():  # an index can also be gone through from end to end
        assert "Index Cond" in plan, f"{kind} plan:\n{plan}"


@pytest.mark.parametrize("name", AMONG_A_CROWD_ON_SQLITE)
def test_a_statement_finds_its_rows_among_a_crowd_that_waits_on_sqlite(crowded_sqlite: Path, name: str) -> None:
    """The same on SQLite."""
    statement = statements("sqlite")[name]
    db = sqlite3.connect(crowded_sqlite)
    try:
        arguments = ["[]" if "json_each" in statement else 0] * statement.count("?")
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", arguments)]
    finally:
        db.close()
    assert any(line.startswith("SEARCH") for line in plan), plan
    assert not [line for line in plan if re.match(r"SCAN (runs|work|waits|w)\b(?!.*USING)", line)], plan


async def test_k1_a_lone_turn_finds_its_run_by_index_on_postgresql(crowded_postgres: str) -> None:
    """K1: whichever plan the server keeps."""
    statement, arguments = guarded_flush(lone_turn(Run(ONE, "waits_for_go", "function", version=2)))
    assert_by_index(await plans_of(crowded_postgres, statement, tuple(arguments)), {"runs_pkey"})


async def test_a_claim_among_a_crowd_that_waits_looks_at_none_of_it(crowded_postgres: str) -> None:
    """A parked turn is in no index that a claim reads: its cost is the same with a hundred thousand of them."""
    connection = await asyncpg.connect(crowded_postgres)
    transaction = connection.transaction()
    try:
        await transaction.start()
        arguments = ("default", ["waits_for_go"], ["waits_for_go"], 100, "worker-1", 10, 0)
        sql = f"EXPLAIN (ANALYZE, FORMAT JSON) {statements('postgres')['claim']}"
        answer = await connection.fetchval(sql, *arguments)
    finally:
        await transaction.rollback()
        await connection.close()
    (explained,) = json.loads(answer)
    seen = {describe(node): node["Actual Rows"] * node["Actual Loops"] for node in nodes_of(explained["Plan"])}
    removed = [node.get("Rows Removed by Filter", 0) for node in nodes_of(explained["Plan"])]
    assert max(seen.values()) == 0, seen
    assert max(removed) <= 10, removed  # holds and workers are small tables and may be gone through


async def test_g5_an_event_to_one_of_a_crowd_reads_no_table_from_end_to_end(crowded_postgres: str) -> None:
    """A new worker, ten events and their results among 20,000 runs that wait, as the server counted its scans."""
    counter = await asyncpg.connect(crowded_postgres)
    try:
        before = await scans_of(counter)
        often: dict[str, Any] = {"poll_seconds": 0.05, "sweep_seconds": 0.05}
        async with hf.Engine(crowded_postgres, registry=WAITING, **often) as engine, engine.worker():
            for number in range(1, 11):
                assert await engine.send(go, number, to=run_id(number)) == hf.Delivered(run_id(number))
                assert await engine.get(run_id(number)).result(20) == number
        after = await scans_of(counter)
    finally:
        await counter.close()
    for table in ("runs", "work", "waits"):
        assert after[table][1] > before[table][1], "no index was used, so nothing was counted"
        assert after[table][0] == before[table][0], f"{table} was scanned from end to end"
