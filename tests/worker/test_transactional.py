"""Transactional actions: their writes and their result are one commit, whatever happens around it."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.operations import LapseWork
from holdfast.core.rows import COMPLETED, FAILED, LOST, TIMED_OUT
from tests.endtoend.programs import app, journal
from tests.worker.support import Processes, assert_sound, counted, engine_on, statuses, until, work_of

RETRY = hf.Retry(attempts=3, base=0.01, cap=0.01)


async def make_table(engine: hf.Engine) -> None:
    async with engine.store.transaction(user=True) as tx:
        await tx.user.execute("CREATE TABLE ledger (number int PRIMARY KEY)")


async def ledger(url: str) -> list[int]:
    """What is committed, seen from outside."""
    if url.startswith("sqlite"):
        db = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            return sorted(row[0] for row in db.execute("SELECT number FROM ledger"))
        finally:
            db.close()
    connection = await asyncpg.connect(url)
    try:
        return sorted(row[0] for row in await connection.fetch("SELECT number FROM ledger"))
    finally:
        await connection.close()


def insert(number: int) -> str:
    return f"INSERT INTO ledger (number) VALUES ({number})"


async def test_g3_writes_and_result_commit_together(shared_url: str) -> None:
    """G3: and what depends on the action runs after that commit, in a chain too."""
    registry = hf.Registry()
    seen: list[list[int]] = []

    class Books(hf.Dag, registry=registry):
        @hf.step(transactional=True)
        async def write(self) -> None:
            tx = hf.current().tx
            assert await tx.execute(insert(1)) == 1
            assert await tx.fetchval("SELECT count(*) FROM ledger") == 1
            assert (await tx.fetchrow("SELECT number FROM ledger"))["number"] == 1
            assert [row[0] for row in await tx.fetch("SELECT number FROM ledger")] == [1]
            seen.append(await ledger(shared_url))

        @hf.step
        async def read(self) -> None:
            seen.append(await ledger(shared_url))

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        await make_table(engine)
        handle = await engine.start(Books())
        await handle.result(timeout=5)
        assert seen == [[], [1]]
        assert await statuses(engine, handle.id) == [COMPLETED, COMPLETED]
        await assert_sound(engine)


async def test_g3_an_exception_rolls_the_writes_back_and_is_retried(shared_url: str) -> None:
    """G3, I3: each attempt writes, only the last one's writes stay."""
    registry = hf.Registry()

    @hf.action(registry=registry, transactional=True, retry=RETRY)
    async def write() -> int:
        attempt = hf.current().attempt
        await hf.current().tx.execute(insert(attempt))
        if attempt < 3:
            raise ValueError(f"attempt {attempt}")
        return attempt

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        await make_table(engine)
        handle = await engine.start(write)
        assert await handle.result(timeout=5) == 3
        assert await ledger(shared_url) == [3]
        assert await statuses(engine, handle.id) == [FAILED, FAILED, COMPLETED]
        await assert_sound(engine)


async def test_g3_a_result_that_cannot_be_stored_rolls_the_writes_back(shared_url: str) -> None:
    """G3: the two commit together or not at all, whatever the reason."""
    registry = hf.Registry()

    @hf.action(registry=registry, transactional=True)
    async def write() -> object:
        await hf.current().tx.execute(insert(1))
        return object()

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        await make_table(engine)
        with pytest.raises(hf.RunFailed):
            await engine.run(write, timeout=5)
        assert await ledger(shared_url) == []


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_g3_an_action_that_ends_its_transaction_itself_has_failed_for_good(
    shared_url: str, statement: str
) -> None:
    """G3: no result is recorded beside writes that it did not commit with, and nothing is written a second time."""
    registry = hf.Registry()

    @hf.action(registry=registry, transactional=True, retry=RETRY)
    async def write() -> int:
        tx = hf.current().tx
        assert isinstance(tx, hf.Tx)
        await tx.execute(insert(1))
        await tx.execute(statement)
        return 1

    @hf.action(registry=registry, transactional=True)
    async def behave() -> int:
        return await hf.current().tx.execute(insert(2))

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        await make_table(engine)
        handle = await engine.start(write)
        with pytest.raises(hf.RunFailed, match="ended its transaction itself") as failed:
            await handle.result(timeout=5)
        assert isinstance(failed.value.cause, hf.UsageError)
        assert await statuses(engine, handle.id) == [FAILED]
        assert await engine.run(behave, timeout=5) == 1, "the connection is still good"
        assert await ledger(shared_url) == ([1, 2] if statement == "COMMIT" else [2])
        await assert_sound(engine)


async def test_g3_a_stale_lease_rolls_the_writes_back(shared_url: str) -> None:
    """G3, I6: the lease was lost before the transaction began; what it wrote must not stay beside the other's."""
    registry = hf.Registry()
    written: list[int] = []
    lapsed = asyncio.Event()
    late: list[str] = []

    @hf.action(registry=registry, transactional=True)
    async def write() -> int:
        attempt = hf.current().attempt
        written.append(await hf.current().tx.execute(insert(attempt)))
        return attempt

    def delay_the_first(name: str) -> Awaitable[Any] | None:
        if name != "action.before" or late:
            return None
        late.append(name)
        return lapsed.wait()

    # No sweep: this worker is not to notice that it has lost anything.
    engine = engine_on(shared_url, registry, sweep_seconds=60.0, notify=False)
    async with engine, engine.worker() as worker:
        await make_table(engine)
        failpoints.arm(delay_the_first)
        try:
            handle = await engine.start(write)
            await until(lambda: late, "the first attempt is about to begin")
            (held,) = await engine.store.leased_to(worker.id)
            await engine.coordinator.submit(
                LapseWork(run=held.run, node=held.node, attempt=held.attempt, token=held.token)
            )
            assert await handle.result(timeout=5) == 2
            lapsed.set()
            await until(lambda: counted(engine, "stale_completions") == 1, "the late attempt is refused")
        finally:
            failpoints.disarm()
        assert written == [1, 1], "both wrote"
        assert await ledger(shared_url) == [2], "and one of them committed"
        assert await statuses(engine, handle.id) == [LOST, COMPLETED]
        await assert_sound(engine)


@pytest.mark.parametrize(
    ("failpoint", "executions"),
    [("action.tx.before_commit", 2), ("action.tx.after_commit", 1)],
    ids=["before", "after"],
)
async def test_g3_killed_around_the_commit_there_are_both_or_neither(
    shared_url: str, journal_path: str, processes: Processes, failpoint: str, executions: int
) -> None:
    """G3: killed before the commit, neither is there and it runs again; after it, both are and it does not."""
    async with engine_on(shared_url, app.registry, lease_seconds=30.0) as engine:
        await make_table(engine)
        handle = await engine.start(app.insert_row, 7, journal_path)
        victim = processes.serve(shared_url, environ={"HOLDFAST_FAILPOINT": f"{failpoint}:1:kill"})
        await until(lambda: victim.poll() is not None, "the process dies")
        assert victim.returncode == -signal.SIGKILL
        committed = await ledger(shared_url)
        recorded = [work.status for work in await work_of(engine, handle.id)].count(COMPLETED)
        assert len(committed) == recorded == (0 if executions == 2 else 1)
        async with engine.worker():
            assert await handle.result(timeout=5) == 7
        assert await ledger(shared_url) == [7]
        assert len(journal.begun(journal_path)) == executions
        await assert_sound(engine)


async def test_g9_code_that_hides_a_failed_statement_fails_within_its_budget(shared_url: str) -> None:
    """G9: on PostgreSQL the transaction is lost then, on SQLite only the statement; neither hangs nor loops."""
    registry = hf.Registry()
    executions: list[int] = []

    @hf.action(registry=registry, transactional=True, retry=RETRY)
    async def write() -> str:
        executions.append(hf.current().attempt)
        await hf.current().tx.execute(insert(1))
        with suppress(Exception):
            await hf.current().tx.execute("INSERT INTO no_such_table VALUES (1)")
        return "as if nothing had happened"

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        await make_table(engine)
        handle = await engine.start(write)
        if shared_url.startswith("sqlite"):
            assert await handle.result(timeout=5) == "as if nothing had happened"
            assert (await ledger(shared_url), executions) == ([1], [1])
        else:
            with pytest.raises(hf.RunFailed):
                await handle.result(timeout=5)
            assert (await ledger(shared_url), executions) == ([], [1, 2, 3])
            assert await statuses(engine, handle.id) == [FAILED, FAILED, FAILED]


async def test_i5_a_transactional_action_past_its_deadline_rolls_back(shared_url: str) -> None:
    """I5, G3: timed out, and nothing of what it wrote stays."""
    registry = hf.Registry()

    @hf.action(registry=registry, transactional=True, timeout=0.2)
    async def write() -> None:
        await hf.current().tx.execute(insert(1))
        await asyncio.Event().wait()

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        await make_table(engine)
        handle = await engine.start(write)
        with pytest.raises(hf.RunFailed, match=r"timeout of 0\.2 s"):
            await handle.result(timeout=5)
        assert await statuses(engine, handle.id) == [TIMED_OUT]
        assert await ledger(shared_url) == []


async def test_g9_a_heartbeat_inside_a_transaction_does_not_wait_for_that_transaction(shared_url: str) -> None:
    """G9: the transaction holds SQLite's only writer, and a heartbeat writes too."""
    registry = hf.Registry()

    @hf.action(registry=registry, transactional=True)
    async def write() -> None:
        await hf.current().tx.execute(insert(1))
        for _ in range(5):
            await hf.current().heartbeat()
            await asyncio.sleep(0.05)

    engine = engine_on(shared_url, registry, lease_seconds=0.3)
    async with engine, engine.worker():
        await make_table(engine)
        await engine.run(write, timeout=5)
        assert await ledger(shared_url) == [1]


async def test_a_transactional_action_is_refused_where_there_is_no_database() -> None:
    """On memory:// it is not even started, and the error says what to use instead."""
    registry = hf.Registry()
    executions: list[int] = []

    @hf.action(registry=registry, transactional=True)
    async def write() -> None:
        executions.append(1)

    engine = engine_on("memory://", registry)
    async with engine, engine.worker():
        with pytest.raises(hf.UsageError, match="needs a database"):
            await engine.run(write, timeout=5)
    assert executions == []


async def test_i3_a_step_that_needs_a_transaction_is_not_tried_again_where_there_is_none() -> None:
    """I3: each attempt would be refused as the first was."""
    registry = hf.Registry()

    class Books(hf.Dag, registry=registry, on_failure="fail"):
        @hf.step(transactional=True, retry=hf.Retry(attempts=5, base=60.0))
        async def write(self) -> None: ...

    engine = engine_on("memory://", registry)
    async with engine, engine.worker():
        handle = await engine.start(Books())
        with pytest.raises(hf.RunFailed, match="needs a database"):
            await handle.result(timeout=5)
        assert await statuses(engine, handle.id) == [FAILED]


async def test_g3_many_transactional_actions_at_once_each_write_once(shared_url: str) -> None:
    """G3: they compete for rows, connections and the writer; each writes its row exactly once."""
    registry = hf.Registry()

    @hf.action(registry=registry, transactional=True, retry=RETRY)
    async def write(number: int) -> int:
        tx: Any = hf.current().tx
        await tx.execute(insert(number))
        await asyncio.sleep(0)
        return int(await tx.fetchval("SELECT count(*) FROM ledger"))

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker(concurrency=20):
        await make_table(engine)
        handles = await asyncio.gather(*(engine.start(write, number) for number in range(40)))
        await asyncio.gather(*(handle.result(timeout=20) for handle in handles))
        assert await ledger(shared_url) == list(range(40))
        await assert_sound(engine)
