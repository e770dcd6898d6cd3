"""Starting runs: keys, idempotency keys, decisions that raise, and the caller's own transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.core.operations import StartRun
from holdfast.core.rows import COMPLETED, FAILED, LOST, READY
from holdfast.core.view import View
from tests.endtoend.programs import app, journal
from tests.worker.support import Processes, assert_sound, engine_on, statuses, until, work_of


def make_registry() -> tuple[hf.Registry, Any]:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        if amount < 0:
            raise ValueError("no debts")
        return amount

    return registry, pay


# --- keys ----------------------------------------------------------------------------------------------------------


async def test_i12_a_key_and_input_give_the_same_run_whatever_became_of_it(url: str) -> None:
    """I12: pending, completed, failed and cancelled alike; another input under the key is a conflict, likewise."""
    registry, pay = make_registry()
    engine = engine_on(url, registry)
    async with engine:
        pending = await engine.start(pay, 1, key="pending")
        assert (await engine.start(pay, 1, key="pending")).id == pending.id
        with pytest.raises(hf.KeyConflict, match="pending") as conflict:
            await engine.start(pay, 2, key="pending")
        assert "wait until that run has ended" in conflict.value.hint
        cancelled = await engine.start(pay, 3, key="cancelled")
        await cancelled.cancel()
        async with engine.worker():
            completed = await engine.start(pay, 4, key="completed")
            failed = await engine.start(pay, -1, key="failed")
            assert await completed.result(timeout=5) == 4
            with pytest.raises(hf.RunFailed):
                await failed.result(timeout=5)
            for handle, amount in ((completed, 4), (failed, -1), (cancelled, 3)):
                assert (await engine.start(pay, amount, key=handle.key)).id == handle.id
                with pytest.raises(hf.KeyConflict, match=str(handle.key)) as conflict:
                    await engine.start(pay, 99, key=handle.key)
                assert "wait" not in conflict.value.hint  # it has ended
            assert await engine.run(pay, 4, key="completed", timeout=5) == 4
        assert len(await engine.find()) == 4


async def test_i12_restart_makes_a_new_run_under_the_key_once_the_old_one_has_ended(url: str) -> None:
    """I12: while the old one is open, restart finds it; afterwards the key belongs to the new one."""
    registry, pay = make_registry()
    engine = engine_on(url, registry)
    async with engine:
        first = await engine.start(pay, -1, key="k", if_exists="restart")
        assert (await engine.start(pay, -1, key="k", if_exists="restart")).id == first.id
        async with engine.worker():
            with pytest.raises(hf.RunFailed):
                await first.result(timeout=5)
            second = await engine.start(pay, -1, key="k", if_exists="restart")
            assert second.id != first.id
            with pytest.raises(hf.RunFailed):
                await second.result(timeout=5)
            assert (await engine.start(pay, -1, key="k")).id == second.id
        assert await first.status() == "failed"


async def test_i12_of_many_who_start_under_one_key_at_once_all_get_the_same_run(shared_url: str) -> None:
    """I12: from several engines at the same moment, executed once."""
    registry, pay = make_registry()
    engines = [engine_on(shared_url, registry) for _ in range(3)]
    async with engines[0], engines[1], engines[2], engines[0].worker():
        handles = await asyncio.gather(*(engine.start(pay, 5, key="once") for engine in engines for _ in range(5)))
        assert len({handle.id for handle in handles}) == 1
        assert await handles[-1].result(timeout=5) == 5
        assert len(await engines[1].find()) == 1
        assert await statuses(engines[0], handles[0].id) == [COMPLETED]


def pay_in(registry: hf.Registry, *, renamed: bool) -> Any:
    """An action of before or after a deploy that gave it another name."""
    name, aliases = ("settle", ["remit", "pay"]) if renamed else ("pay", [])

    @hf.action(registry=registry, name=name, aliases=aliases)
    async def pay(amount: int) -> int:
        return amount

    return pay


async def test_i12_i15_a_key_is_the_same_run_after_a_rename(url: str) -> None:
    """It is looked for under the name and all aliases; restart moves it to the name of now."""
    engine = engine_on(url, hf.Registry())
    async with engine:
        before = await engine.start(pay_in(engine.registry, renamed=False), 1, key="order-1")
        settle = pay_in(engine.registry, renamed=True)
        assert (await engine.start(settle, 1, key="order-1")).id == before.id
        assert (await engine.start("pay", 1, key="order-1")).id == before.id
        with pytest.raises(hf.KeyConflict, match=before.id):
            await engine.start(settle, 2, key="order-1")
        async with engine.worker():
            assert await before.result(timeout=5) == 1
        after = await engine.start(settle, 1, key="order-1", if_exists="restart")
        assert after.id != before.id
        assert (await engine.start(settle, 1, key="order-1")).id == after.id
        assert [run.workflow for run in await engine.find()] == ["settle", "pay"]


async def test_i12_i15_of_many_who_start_under_one_key_after_a_rename_all_get_the_same_run(shared_url: str) -> None:
    """Whether there is an old run or not: a run under another name is no row that an index could refuse."""
    old, new = hf.Registry(), hf.Registry()
    async with engine_on(shared_url, old) as engine:
        before = await engine.start(pay_in(old, renamed=False), 5, key="old")
    settle = pay_in(new, renamed=True)
    engines = [engine_on(shared_url, new) for _ in range(3)]
    async with engines[0], engines[1], engines[2]:
        for key in ("old", "new"):
            started = await asyncio.gather(*(engine.start(settle, 5, key=key) for engine in engines for _ in range(5)))
            assert len({handle.id for handle in started}) == 1
            assert (started[0].id == before.id) == (key == "old")
        assert len(await engines[0].find()) == 2


async def test_i15_find_lists_the_runs_of_before_a_rename_page_by_page(url: str) -> None:
    """By the definition or by its name of now; by the old name, those that are stored under it."""
    engine = engine_on(url, hf.Registry())
    async with engine:
        pay = pay_in(engine.registry, renamed=False)
        runs = [(await engine.start(pay, number)).id for number in range(3)]
        settle = pay_in(engine.registry, renamed=True)
        runs += [(await engine.start(settle, number)).id for number in range(3)]
        for asked in (settle, "settle"):
            first = await engine.find(workflow=asked, limit=4)
            rest = await engine.find(workflow=asked, limit=4, after=first.cursor)
            assert [run.id for run in (*first, *rest)] == runs[::-1]
            assert rest.cursor is None
        assert [run.id for run in await engine.find(workflow="pay")] == runs[2::-1]


async def test_the_last_page_of_runs_says_that_it_is_the_last_however_many_there_are(url: str) -> None:
    registry, pay = make_registry()
    engine = engine_on(url, registry)
    async with engine:
        for _ in range(4):
            await engine.start(pay, 1)
        for asked in (None, pay):
            first = await engine.find(workflow=asked, limit=2)
            assert first.cursor is not None
            last = await engine.find(workflow=asked, limit=2, after=first.cursor)
            assert (len(first), len(last), last.cursor) == (2, 2, None)
            assert (await engine.find(workflow=asked, limit=4)).cursor is None


# --- idempotency keys ----------------------------------------------------------------------------------------------


async def test_i13_the_idempotency_key_is_the_same_in_every_attempt_and_differs_between_runs(url: str) -> None:
    """I13: across retries and an operator's retry; another run of the same action has another."""
    registry = hf.Registry()
    seen: dict[str, list[str]] = {}

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.01, cap=0.01))
    async def pay() -> None:
        keys = seen.setdefault(hf.current().run_id, [])
        keys.append(hf.current().idempotency_key)
        if len(keys) < 3:
            raise ValueError("again")

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        runs = [await engine.start(pay) for _ in range(2)]
        for run in runs:
            with pytest.raises(hf.RunFailed):
                await run.result(timeout=5)
            await run.retry()
            await run.result(timeout=5)
            assert await statuses(engine, run.id) == [FAILED, FAILED, COMPLETED]
    first, second = (seen[run.id] for run in runs)
    assert len(first) == len(second) == 3
    assert len(set(first)) == len(set(second)) == 1
    assert set(first) != set(second)


async def test_i13_the_idempotency_key_survives_a_lost_lease(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I13: the process was killed in the middle; whoever goes on uses the same key."""
    async with engine_on(shared_url, app.registry) as engine:
        victim, _ = await processes.serving(engine, shared_url)
        handle = await engine.start(app.Walk(journal=journal_path))
        await handle.result(timeout=10)
        held = await engine.start(app.hold, f"{journal_path}-2")
        await until(lambda: journal.begun(f"{journal_path}-2"), "the process has begun")
        victim.kill()
        async with engine.worker():
            await until(lambda: len(journal.begun(f"{journal_path}-2")) == 2, "it goes on here")
            Path(f"{journal_path}-2.go").touch()
            await held.result(timeout=5)
        assert await statuses(engine, held.id) == [LOST, COMPLETED]
        assert len({deed.key for deed in journal.read(f"{journal_path}-2")}) == 1
        keys = [deed.key for deed in journal.begun(journal_path)]
        assert len(set(keys)) == 5, "the nodes of one run differ"


# --- decisions that raise ------------------------------------------------------------------------------------------


async def test_i16_a_decision_that_raises_writes_nothing_and_tells_only_who_asked(url: str) -> None:
    """I16, K9: the exception goes to the caller; the rest of the batch, and the next, are served."""
    registry, pay = make_registry()
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        decisions: dict[Any, Any] = engine.coordinator._decisions  # type: ignore[assignment]
        real = decisions[StartRun]

        def raising(view: View, operation: StartRun) -> Any:
            decided = real(view, operation)
            if operation.key == "k0":
                raise ZeroDivisionError("in a decision, after it has written to the view")
            return decided

        decisions[StartRun] = raising
        results = await asyncio.gather(*(engine.start(pay, n, key=f"k{n}") for n in range(3)), return_exceptions=True)
        assert [type(result) for result in results].count(ZeroDivisionError) == 1
        started = [result for result in results if isinstance(result, hf.Handle)]
        assert len(started) == 2
        assert sorted([await handle.result(timeout=5) for handle in started]) == [1, 2]
        assert len(await engine.find()) == 2, "nothing of the decision that raised was written"
        decisions[StartRun] = real
        assert await engine.run(pay, 0, key="k0", timeout=5) == 0
        await assert_sound(engine)


# --- the caller's transaction --------------------------------------------------------------------------------------


async def test_g1_a_start_in_the_callers_transaction_exists_if_that_commits(postgres_url: str) -> None:
    """G1: `tx=` joins it: rolled back there is no run and nothing runs, committed it runs at once."""
    registry, pay = make_registry()
    engine = engine_on(postgres_url, registry, poll_seconds=60.0)
    connection = await asyncpg.connect(postgres_url)
    try:
        async with engine, engine.worker():
            await connection.execute("CREATE TABLE orders (id int)")
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO orders VALUES (1)")
            refused = await engine.start(pay, 1, key="order 1", tx=connection)
            assert await engine.find() == [], "nobody else sees it before the commit"
            await transaction.rollback()
            assert await engine.find() == []
            with pytest.raises(hf.UnknownWorkflow, match=refused.id):
                await refused

            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (2)")
                accepted = await engine.start(pay, 2, key="order 2", tx=connection)
                again = await engine.start(pay, 2, key="order 2", tx=connection)
                assert again.id == accepted.id, "the key holds inside the transaction too"
            # The next poll is a minute away: the commit itself has told the worker.
            assert await accepted.result(timeout=5) == 2
            assert await connection.fetch("SELECT id FROM orders") == [(2,)]
            # The key of the rolled-back start is free.
            assert await engine.run(pay, 7, key="order 1", timeout=5) == 7
            await assert_sound(engine)
    finally:
        await connection.close()


async def test_g1_a_conflict_in_the_callers_transaction_is_the_callers_to_handle(postgres_url: str) -> None:
    """G1, I12: the key is taken by a committed run with another input; the caller's own writes are still good."""
    registry, pay = make_registry()
    connection = await asyncpg.connect(postgres_url)
    try:
        async with engine_on(postgres_url, registry) as engine:
            await connection.execute("CREATE TABLE orders (id int)")
            taken = await engine.start(pay, 1, key="k")
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (1)")
                with pytest.raises(hf.KeyConflict):
                    await engine.start(pay, 2, key="k", tx=connection)
                assert (await engine.start(pay, 1, key="k", tx=connection)).id == taken.id
            assert await connection.fetchval("SELECT count(*) FROM orders") == 1
            assert [work.status for work in await work_of(engine, taken.id)] == [READY]
    finally:
        await connection.close()


async def test_a_transaction_of_the_callers_is_refused_where_there_is_none_to_join(sqlite_url: str) -> None:
    registry, pay = make_registry()
    for url in ("memory://", sqlite_url):
        async with engine_on(url, registry) as engine:
            with pytest.raises(hf.UsageError, match="tx="):
                await engine.start(pay, 1, tx=object())
            assert await engine.find() == []
