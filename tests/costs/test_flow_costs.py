"""What a step of a flow costs: one commit; in a spread or a loop of ten thousand the same as in one of a thousand."""

from __future__ import annotations

import asyncio
import gc
import math
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.flows import COMPILED, add_one, chain, measure_w3_flow, spread
from benchmarks.limits import batched_steps_per_second
from benchmarks.startup import bare_python_seconds
from benchmarks.throughput import working_engine
from holdfast.authoring.registry import Registry
from holdfast.coordinator import Commit
from holdfast.core.flow_graph import CHUNK
from holdfast.core.operations import CompleteWork
from holdfast.core.queries import AllWork, ValuesOf
from holdfast.core.rows import COMPLETED
from holdfast.store.contract import ClaimRequest
from tests.costs.attempts import Try, assert_one_is_good, slower_than
from tests.costs.test_commits import ONLY_STEPS
from tests.costs.test_dag_costs import FACTOR, FEW, GROWTH, MANY, REFERENCE_PYTHON_SECONDS

STEPS = 100


# -- commits and round trips


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


async def test_k1_i18_a_pass_of_a_loop_is_one_commit_and_reads_nothing_on_sqlite(sqlite_url: str) -> None:
    """K1, I18: completing, binding, releasing the pass before and enqueuing the next; all from what is remembered."""
    async with hf.Engine(sqlite_url, registry=COMPILED, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, STEPS)
        said: list[str] = []
        engine.store.db.set_trace_callback(said.append)  # type: ignore[attr-defined]
        await run_quietly(engine, STEPS)
        engine.store.db.set_trace_callback(None)  # type: ignore[attr-defined]
    assert said.count("COMMIT") == STEPS + 1
    assert "ROLLBACK" not in said
    assert not [each for each in said if each.startswith("SELECT") and re.search(r"FROM (runs|work|inbox)\b", each)]


async def test_k1_i18_a_pass_of_a_loop_is_one_round_trip_on_postgresql(postgres_url: str) -> None:
    """K1, I18: one statement a pass, as the store counts what it sends; each is a transaction by itself."""
    async with hf.Engine(postgres_url, registry=COMPILED, **ONLY_STEPS) as engine, engine.worker():
        await run_quietly(engine, STEPS)
        before = engine.store.round_trips  # type: ignore[attr-defined]
        await run_quietly(engine, STEPS)
        trips = engine.store.round_trips - before  # type: ignore[attr-defined]
    assert trips == STEPS + 1


WIDE = Registry()
WIDE.add(add_one)


@hf.flow(registry=WIDE)
async def one_then_many(width: int) -> int:
    first = await add_one(0)
    return sum(await asyncio.gather(*[add_one(first) for _ in range(width)]))


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url"])
async def test_k5_a_flow_that_has_slept_goes_on_without_reading_its_rows(
    store: str, request: pytest.FixtureRequest
) -> None:
    """K5: those that have not waited for long are remembered as any run that moves."""
    registry = Registry()

    @hf.action(registry=registry)
    async def at_once(number: int) -> int:
        return number

    @hf.flow(registry=registry)
    async def sleeper(number: int) -> int:
        first = await at_once(number)
        await hf.sleep(seconds=0.2)
        return first + await at_once(2)

    commits: list[Commit] = []
    url = request.getfixturevalue(store)
    async with hf.Engine(url, registry=registry, **ONLY_STEPS) as engine, engine.worker():
        engine.coordinator.observers.append(commits.append)
        assert await engine.run(sleeper, 1, timeout=60) == 3
    assert "suspended" in [run.status for commit in commits for run in commit.runs]
    assert not any(commit.locked for commit in commits)


async def test_k6_a_spread_that_is_decided_without_anything_in_memory_reads_in_a_few_rounds(postgres_url: str) -> None:
    """K6: whether its elements exist is asked for all of them at once, and not for one after another."""
    async with hf.Engine(postgres_url, registry=WIDE, **ONLY_STEPS) as engine:
        trips = []
        for width in (10, FEW):
            await engine.start(one_then_many, width)
            names = engine.definitions
            request = ClaimRequest(
                worker="the test",
                queue="default",
                limit=1,
                workflows=names.known_workflows(),
                actions=names.known_actions(),
            )
            ((handed),) = await engine.store.claim(request)
            work = handed.work
            engine.coordinator.cache.clear()  # as in a process that has just taken the run over
            before = engine.store.round_trips  # type: ignore[attr-defined]
            answer = await engine.coordinator.submit(
                CompleteWork(run=work.run, node=work.node, attempt=work.attempt, token=work.token, result=b"1")
            )
            trips.append(engine.store.round_trips - before)  # type: ignore[attr-defined]
            assert answer.verdict == "recorded"
            assert len(await engine.store.rows(AllWork(work.run))) == width + 2
            await engine.get(work.run).cancel()
    assert trips[0] == trips[1] <= 10


# -- rows


async def rows_of(engine: hf.Engine, run: str) -> int:
    return len(await engine.store.rows(AllWork(run))) + len(await engine.store.rows(ValuesOf(run)))


async def test_i18_finished_passes_are_released_while_the_loop_goes_on() -> None:
    """I18: what is stored does not grow from pass to pass; only the sequence is kept, 64 items a row, to its end."""
    registry = Registry()
    seen: list[int] = []

    @hf.action(registry=registry)
    async def look(number: int) -> int:
        if number % 50 == 25:
            seen.append(await rows_of(engine, run.id))
        return number + 1

    @hf.flow(registry=registry)
    async def looking(times: int) -> int:
        number = 0
        for _ in range(times):
            number = await look(number)
        return number

    @hf.flow(registry=registry)
    async def looking_while(times: int) -> int:
        number = 0
        while number < times:
            number = await look(number)
        return number

    async with hf.Engine("memory://", registry=registry) as engine, engine.worker():
        left = []
        for times in (FEW // 5, FEW // 2):
            for made, chunks in ((looking_while, 0), (looking, math.ceil(times / CHUNK))):
                seen.clear()
                run: Any = await engine.start(made, times)
                assert await run.result(timeout=60) == times
                assert len(seen) == times // 50
                assert max(seen) == min(seen) <= chunks + 6, f"rows during {times} passes of {made.name}: {seen}"
                left.append(await rows_of(engine, run.id) - chunks)
        assert left[:2] == left[2:], "a loop that is over leaves as much as a short one"


async def test_i20_an_element_of_ten_thousand_has_as_many_rows_as_one_of_a_thousand() -> None:
    """I20: its work item, and its value for the barrier."""
    async with hf.Engine("memory://", registry=COMPILED) as engine, engine.worker():
        stored = []
        for width in (FEW, MANY):
            handle = await engine.start(spread, width)
            assert await handle.result(timeout=60) == width * (width + 1) // 2
            stored.append(await rows_of(engine, handle.id) / width)
            done = [item for item in await engine.store.rows(AllWork(handle.id)) if item.status == COMPLETED]
            assert len(done) == width + 2
    assert stored[1] <= stored[0] <= 2.1


# -- growth


@pytest.mark.timing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("made", [spread, chain], ids=["spread", "loop"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_step_of_ten_thousand_costs_what_a_step_of_one_thousand_costs(
    store: str, made: hf.Flow[[int], int], request: pytest.FixtureRequest
) -> None:
    """I18, I20: in processor time, so that what waits for others is left out; and for a disk, so nothing is synced."""
    url: str = request.getfixturevalue(f"{store}_url")

    async def measured() -> Try:
        async with working_engine(url, COMPILED) as engine:
            if store == "sqlite":
                engine.store.db.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]
            await engine.run(made, FEW)
            before = await _spent(engine, made, FEW)
            many = await _spent(engine, made, MANY)
            after = await _spent(engine, made, FEW)  # on both sides: a neighbour comes and goes
            return Try(many / MANY, GROWTH * (before + after) / 2 / FEW)

    assert_one_is_good(f"seconds a step on {store}", _quiet(measured), tries=3)


async def _spent(engine: hf.Engine, made: hf.Flow[[int], int], steps: int) -> float:
    began = time.process_time()
    await engine.run(made, steps)
    return time.process_time() - began


def _quiet(measured: Callable[[], Any]) -> Callable[[], Try]:
    def once() -> Try:
        gc.collect()
        gc.freeze()  # what the tests hold is gone through by every collection, and is none of a program's business
        try:
            found: Try = asyncio.run(measured())
            return found
        finally:
            gc.unfreeze()

    return once


# -- speed


@pytest.mark.timing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", [m.SQLITE, m.POSTGRES])
def test_wide_spreads_take_no_more_than_twice_their_target(store: str, request: pytest.FixtureRequest) -> None:
    """W3: 1,000 and 10,000 elements. A machine whose interpreter or database is slower may be slower by as much."""
    durable: Databases = request.getfixturevalue("durable_postgres" if store == m.POSTGRES else "durable_sqlite")

    def measured() -> Try:
        batched = asyncio.run(batched_steps_per_second(durable.fresh_url(), 50))
        database = slower_than(1 / m.REFERENCE_BATCHED[store], 1 / batched)
        python = slower_than(REFERENCE_PYTHON_SECONDS, min(bare_python_seconds() for _ in range(3)))
        few, many = asyncio.run(measure_w3_flow(durable.fresh_url()))
        cost = max(few / m.W3_FLOW_FEW.targets[store], many / m.W3_FLOW_MANY.targets[store])
        return Try(cost, FACTOR * max(database, python))

    assert_one_is_good(f"times the target for a spread on {store}", measured)
