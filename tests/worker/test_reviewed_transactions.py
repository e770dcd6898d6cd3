"""Transactions of actions and callers next to the engine's own: nobody starves, nothing leaks, failures end."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.rows import FAILED
from holdfast.store.contract import Conflict
from tests.worker.support import engine_on, statuses, until


async def test_g9_transactional_actions_that_wait_do_not_starve_the_engine(postgres_url: str) -> None:
    """G9: while eight transactions are open, more than the engine has connections, other work goes on."""
    registry = hf.Registry()
    go = asyncio.Event()
    begun: list[str] = []

    @hf.action(registry=registry, transactional=True)
    async def slow() -> int:
        begun.append(hf.current().run_id)
        await go.wait()
        return 1

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    engine = engine_on(postgres_url, registry)
    async with engine, engine.worker():
        slow_ones = [await engine.start(slow) for _ in range(8)]
        try:
            await until(lambda: len(begun) == 8, "eight transactions are open", 5)
            assert await engine.run(quick, timeout=5) == 2
        finally:
            go.set()
        assert [await handle.result(timeout=10) for handle in slow_ones] == [1] * 8


async def test_g9_conflicts_of_a_transactional_action_leak_no_slots(shared_url: str) -> None:
    """G9: after two lost races the action commits, and the worker has all of its slots again."""
    registry = hf.Registry()
    lost: list[str] = []

    @hf.action(registry=registry, transactional=True)
    async def write() -> int:
        return 1

    def lose_twice(name: str) -> None:
        if name == "action.tx.before_commit" and len(lost) < 2:
            lost.append(name)
            raise Conflict("lost a race")

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker(concurrency=10) as worker:
        failpoints.arm(lose_twice)
        try:
            assert await engine.run(write, timeout=5) == 1
        finally:
            failpoints.disarm()
        assert len(lost) == 2
        await until(lambda: worker.free == 10, "every slot is free again", 5)


async def test_g9_a_constraint_that_only_the_commit_checks_fails_the_attempt(postgres_url: str) -> None:
    """G9: the commit can never succeed, so the run fails with the database's words instead of trying for ever."""
    registry = hf.Registry()
    executions: list[int] = []

    @hf.action(registry=registry, transactional=True)
    async def insert() -> None:
        executions.append(hf.current().attempt)
        await hf.current().tx.execute("INSERT INTO numbers VALUES (1)")

    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("CREATE TABLE numbers (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        await connection.execute("INSERT INTO numbers VALUES (1)")
        engine = engine_on(postgres_url, registry)
        async with engine, engine.worker():
            handle = await engine.start(insert)
            with pytest.raises(hf.RunFailed, match="duplicate key value"):
                await handle.result(timeout=10)
            assert await statuses(engine, handle.id) == [FAILED]
        assert await connection.fetchval("SELECT count(*) FROM numbers") == 1
    finally:
        await connection.close()
    assert len(executions) < 20


async def test_g9_the_engine_inside_a_transactional_action_is_refused_on_sqlite(sqlite_url: str) -> None:
    """G9: its transaction holds the only writer, so a start inside would wait for ever; the error says what to do."""
    registry = hf.Registry()
    engine = engine_on(sqlite_url, registry, store_timeout_seconds=2.0)

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    @hf.action(registry=registry, transactional=True)
    async def starts() -> str:
        return (await engine.start(quick)).id

    async with engine, engine.worker():
        with pytest.raises(hf.RunFailed, match="is transactional and used the engine"):
            await engine.run(starts, timeout=5)
        assert await engine.run(quick, timeout=5) == 2


async def test_i12_two_callers_transactions_under_one_key_get_one_run(postgres_url: str) -> None:
    """I12: the second waits for the first, joins its run, and its own transaction is still good."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    first, second, watcher = [await asyncpg.connect(postgres_url) for _ in range(3)]

    async def somebody_waits() -> bool:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(await watcher.fetchval(waiting))

    try:
        async with engine_on(postgres_url, registry) as engine:
            one, two = first.transaction(), second.transaction()
            await one.start()
            await two.start()
            await second.execute("CREATE TEMP TABLE mine (id int)")
            started = await engine.start(pay, 1, key="k", tx=first)
            joining = asyncio.ensure_future(engine.start(pay, 1, key="k", tx=second))
            await until(somebody_waits, "the second start waits for the first transaction")
            await one.commit()
            assert (await joining).id == started.id
            await second.execute("INSERT INTO mine VALUES (1)")
            await two.commit()
    finally:
        for connection in (first, second, watcher):
            await connection.close()


async def test_g9_topics_of_many_transactions_do_not_wait_for_each_others_connections(postgres_url: str) -> None:
    """G9: more transactions than connections lock a topic each, and all of them end."""
    async with engine_on(postgres_url, hf.Registry()) as engine:

        async def lock(number: int) -> None:
            async with engine.store.transaction() as tx:
                await tx.lock_topics([f"topic-{number}"])

        async with asyncio.timeout(10):
            await asyncio.gather(*(lock(number) for number in range(8)))


async def test_users_statements_have_the_servers_settings_and_leave_none_behind(postgres_url: str) -> None:
    """What the engine sets for its own statements is not for users, and what a user sets is not for the next."""
    registry = hf.Registry()
    seen: dict[str, str] = {}

    @hf.action(registry=registry, transactional=True)
    async def look() -> None:
        tx = hf.current().tx
        for name in ("enable_seqscan", "lock_timeout", "work_mem"):
            seen[name] = await tx.fetchval(f"SHOW {name}")
        await tx.execute("SET work_mem = '65kB'")

    connection = await asyncpg.connect(postgres_url)
    try:
        usual = {
            name: await connection.fetchval(f"SHOW {name}") for name in ("enable_seqscan", "lock_timeout", "work_mem")
        }
    finally:
        await connection.close()
    engine = engine_on(postgres_url, registry)
    async with engine:
        async with engine.worker():
            await engine.run(look, timeout=5)
        pools = engine.store.connections
        after = {await idle.fetchval("SHOW work_mem") for idle in [*pools.engine.idle, *pools.users.idle]}
    assert seen == usual
    assert after == {usual["work_mem"]}


async def test_i5_waiting_for_a_result_ends_in_time_although_every_connection_is_busy(postgres_url: str) -> None:
    """I5: the timeout of `result` includes the wait for a connection."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    async with engine_on(postgres_url, registry) as engine:
        handle = await engine.start(pay, 1)
        engine.coordinator.cache.clear()
        slots = engine.store.connections.engine.slots
        taken = 0
        try:
            while not slots.locked():
                await slots.acquire()
                taken += 1
            waiting = asyncio.ensure_future(handle.result(timeout=0.2))
            done, _ = await asyncio.wait({waiting}, timeout=5)
            assert done
            with pytest.raises(TimeoutError):
                await waiting
        finally:
            for _ in range(taken):
                slots.release()
