"""The counted price of an input: one commit, on PostgreSQL one round trip, however long the stream behind it is."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast as hf
from benchmarks import deciders as d
from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.figures import Measure
from benchmarks.limits import computing_ms, one_commit_ms
from benchmarks.throughput import Cost
from holdfast.core.queries import SnapshotOf
from holdfast.core.rows import RUNS, STREAM, Fact, Run
from holdfast.core.view import Changes
from holdfast.store.postgres_flush import guarded_flush
from tests.costs.attempts import Try, assert_one_is_good, slower_than
from tests.costs.test_commits import ONLY_STEPS
from tests.costs.test_plans import assert_by_index, plans_of

INPUTS = 100
SHORT, LONG = 100, 100_000


A_READ = re.compile(r"SELECT .* FROM (runs|work|stream|snapshots|inputs|events)\b", re.DOTALL)


@contextmanager
def counted(engine: hf.Engine) -> Iterator[Callable[[], int]]:
    """Counts round trips on PostgreSQL; on SQLite commits, and whatever is read: the locked path commits once too."""
    store: Any = engine.store
    if store.kind == "sqlite":
        said: list[str] = []
        store.db.set_trace_callback(said.append)
        yield lambda: sum(each in ("COMMIT", "ROLLBACK") or A_READ.match(each) is not None for each in said)
        store.db.set_trace_callback(None)
    else:
        before = store.round_trips
        yield lambda: store.round_trips - before


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture(params=[m.SQLITE, m.POSTGRES])
def durable(request: pytest.FixtureRequest) -> Databases:
    databases: Databases = request.getfixturevalue(f"durable_{'postgres' if request.param == m.POSTGRES else 'sqlite'}")
    return databases


# -- commits and round trips


async def test_k1_a_lone_input_is_one_commit(url: str) -> None:
    """K1: fold, decide, append and complete. Neither the stream nor the run is read: both are remembered."""
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await d.deposit(engine, "a")
        with counted(engine) as count:
            for _ in range(INPUTS):
                await d.deposit(engine, "a")
            assert count() == INPUTS


async def test_k1_the_first_input_of_an_instance_is_one_commit(url: str) -> None:
    """K1: whether the instance exists is not asked: its key tells when it is written."""
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await d.deposit(engine, "warm")
        with counted(engine) as count:
            for number in range(INPUTS):
                await d.deposit(engine, f"new {number}")
            assert count() == INPUTS


async def test_k1_an_input_with_a_command_id_is_one_commit(url: str) -> None:
    """K1, I12: that the id is new is told by its unique key, also for an instance that others have begun."""
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await d.deposit(engine, "a")
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await d.deposit(engine, "a")
        with counted(engine) as count:
            for number in range(INPUTS):
                await engine.execute(d.Account, d.Deposit("a", 1), command_id=f"request {number}")
            assert count() == INPUTS


async def test_k1_an_effect_and_what_follows_from_it_are_one_commit_more(url: str) -> None:
    """K1: the input, which hands its effect over; and the effect's end with the input that it returned."""
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine, engine.worker():
        await notify(engine, "a", 1)
        with counted(engine) as count:
            await notify(engine, "a", INPUTS)
            assert count() == 2 * INPUTS


async def notify(engine: hf.Engine, account: str, inputs: int) -> None:
    """Give inputs one after another, each when the effect of the one before is settled."""
    for _ in range(inputs):
        with d.watched_for(engine, d.settled_effects(1)) as settled:
            await engine.execute(d.Account, d.Notify(account))
            await settled()


async def test_k1_callers_share_their_commits(url: str) -> None:
    """K1: what has come in while a commit was under way is written with the next one, also for one instance."""
    inputs = 10 * d.CALLERS
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await d.from_callers(d.CALLERS, lambda number: d.deposit(engine, f"a {number % 2}"))
        with counted(engine) as count:
            await d.from_callers(inputs, lambda number: d.deposit(engine, f"a {number % 2}"))
            assert count() <= 2 * inputs // d.CALLERS + 2
        assert (await engine.state(d.Account, "a 0")).cents == (inputs + d.CALLERS) // 2


async def test_k1_an_enqueued_input_is_one_commit_and_an_inbox_is_emptied_by_the_hundred(url: str) -> None:
    """K1: durable in one commit; and 300 inputs of one instance are applied in three, with the claim before them."""
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await engine.enqueue_input(d.Account, d.Deposit("a", 1))
        with counted(engine) as count:
            for _ in range(INPUTS):
                await engine.enqueue_input(d.Account, d.Deposit("a", 1))
            assert count() == INPUTS
        for _ in range(2 * INPUTS - 1):
            await engine.enqueue_input(d.Account, d.Deposit("a", 1))
        drained: list[int] = []
        engine.coordinator.observers.append(lambda commit: drained.append(len(commit.changes.inserts.get(STREAM, ()))))
        async with engine.worker():
            await engine.settle(timeout=20)
        assert [events for events in drained if events] == [100, 100, 100]


# -- statements


def lone_input(run: Run) -> Changes:
    """What an input writes that leaves one event."""
    changes = Changes()
    changes.updates[RUNS] = [(run, replace(run, version=run.version + 1, base=run.base + 1, token=run.token + 1))]
    changes.inserts[STREAM] = [Fact(run.id, run.base + 1, "w", "k", "Deposited", 1, 1, b"{}", "json", False, "c")]
    return changes


async def test_k4_an_input_whose_instance_has_moved_on_writes_nothing_on_postgresql(postgres_url: str) -> None:
    """K4: the statement for a lone input has a guard of its own: all of it is written, or none."""
    run = Run("r", "w", "decider", key="k", status="running", version=3, base=7)
    async with hf.Engine(postgres_url) as engine:
        start = Changes()
        start.inserts[RUNS] = [run]
        assert await engine.store.flush(start) == frozenset()
        assert await engine.store.flush(lone_input(replace(run, version=2))) == {"r"}
        assert await engine.store.read_stream("w", 0, 1_000, 10) == []
        assert await engine.store.runs(["r"]) == [run]
        assert await engine.store.flush(lone_input(run)) == frozenset()
        assert [fact.sequence for fact in await engine.store.read_stream("w", 0, 1_000, 10)] == [8]
        assert [(row.version, row.base) for row in await engine.store.runs(["r"])] == [(4, 8)]
        assert guarded_flush(lone_input(run))[0].startswith("WITH ur AS"), "or this test shows nothing"


async def test_k1_a_lone_input_finds_its_instance_by_index_on_postgresql(postgres_url: str) -> None:
    """K1: whichever plan the server keeps."""
    async with hf.Engine(postgres_url, registry=d.ACCOUNTS):
        pass
    statement, arguments = guarded_flush(lone_input(Run("r", "w", "decider", key="k", version=2)))
    assert_by_index(await plans_of(postgres_url, statement, tuple(arguments)), {"runs_pkey"})


# -- long streams


@pytest.mark.timing
@pytest.mark.timeout(300)
def test_i38_an_input_costs_the_same_however_long_the_stream(url: str) -> None:
    """I38: with 100,000 events before it at most 1.3 times what it costs with 100, in processor time; also right after
    the snapshot was deleted and the state was folded from the first event."""
    asyncio.run(_grow(url))

    async def measured(rebuild: bool) -> Try:
        async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
            if rebuild:
                for account in ("short", "long"):
                    assert await engine.delete_snapshot(d.Account, account)
            for account in ("short", "long") * 5:
                await d.deposit(engine, account)
            spent = {"short": 0.0, "long": 0.0}
            for _ in range(10):  # in turns, so that a noisy moment hits both
                for account in spent:
                    began = time.process_time()
                    for _ in range(25):
                        await d.deposit(engine, account)
                    spent[account] += time.process_time() - began
        return Try(spent["long"], 1.3 * spent["short"])

    assert_one_is_good("seconds for 250 inputs", lambda: asyncio.run(measured(rebuild=False)), tries=3)
    assert_one_is_good("seconds for 250 inputs, rebuilt", lambda: asyncio.run(measured(rebuild=True)), tries=3)


async def _grow(url: str) -> None:
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await d.fill(engine, "short", SHORT)
        await d.fill(engine, "long", LONG)


async def test_i38_a_snapshot_that_is_missing_is_made_again_by_the_next_input(url: str) -> None:
    """I38: or every process that meets the instance would fold its whole stream until the next one is due."""
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        await d.fill(engine, "a", 2_050)
        (run,) = [each.run_id for each in await engine.instances(d.Account)]
        assert await engine.delete_snapshot(d.Account, "a")
        await d.deposit(engine, "a")
        assert [row.sequence for row in await engine.store.rows(SnapshotOf(run))] == [2_051]
        with counted(engine) as count:
            await d.deposit(engine, "a")
            assert count() == 1
        assert [row.sequence for row in await engine.store.rows(SnapshotOf(run))] == [2_051], "not at every input"
    async with hf.Engine(url, registry=d.ACCOUNTS, **ONLY_STEPS) as engine:
        assert (await engine.state(d.Account, "a")).cents == 2_052


# -- speed

FACTOR = 2.0


@pytest.mark.timing
@pytest.mark.timeout(300)
def test_a_lone_input_stays_near_a_bare_commit(durable: Databases) -> None:
    """One caller waits for little more than its commit: what the target allows, twice."""

    def measured() -> Try:
        before = asyncio.run(one_commit_ms(durable.fresh_url(), 300))
        cost = asyncio.run(d.measure_execute_alone(durable.fresh_url()))
        after = asyncio.run(one_commit_ms(durable.fresh_url(), 300))
        target = m.EXECUTE_TO_COMMIT.targets[durable.store] * max(
            (before + after) / 2, m.REFERENCE_ONE_COMMIT_MS[durable.store]
        )
        return Try(cost.wall_ms, FACTOR * target)

    assert_one_is_good("milliseconds for an input", measured)


@pytest.mark.timing
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("measure", "measured_by"),
    [
        (m.EXECUTE, lambda url: _first(d.measure_execute(url, inputs=4000))),
        (m.EFFECTS, lambda url: d.measure_effects(url, inputs=2000)),
        (m.PROJECTION, lambda url: d.measure_projection(url, events=20_000)),
    ],
    ids=["inputs", "effects", "projection"],
)
def test_a_crowd_stays_near_its_target(
    durable: Databases, measure: Measure, measured_by: Callable[[str], Coroutine[Any, Any, Cost]]
) -> None:
    """Commits are shared, so that computing is the limit: that is what is compared, and what others compute on the
    same cores meanwhile is left out."""

    def measured() -> Try:
        slowness = slower_than(m.REFERENCE_COMPUTING_MS, min(computing_ms() for _ in range(5)))
        gc.collect()
        gc.freeze()  # what the tests hold is gone through by every collection, and is none of a program's business
        cost = asyncio.run(measured_by(durable.fresh_url()))
        gc.unfreeze()
        return Try(cost.cpu_ms, FACTOR * 1000 / measure.targets[durable.store] * slowness)

    assert_one_is_good(f"milliseconds of processor time, {measure.what}", measured)


async def _first(both: Coroutine[Any, Any, tuple[Cost, Cost]]) -> Cost:
    return (await both)[0]
