"""`transaction`: locks in order, reads what is committed, writes all or nothing, rolls back on any exception."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.errors import UsageError
from holdfast.core.queries import (
    AllWork,
    Attempts,
    Holds,
    OpenWork,
    QueuedEvents,
    RunByAlias,
    RunByKey,
    WaitersOf,
    WaitsOf,
)
from holdfast.core.rows import EVENTS, HISTORY, HOLDS, RUNS, WAITS, WORK
from holdfast.core.view import Changes
from holdfast.store.contract import Conflict, Store
from tests.store.conformance.rows import a_hold, a_run, a_wait, a_work, an_entry, an_event, asked, put
from tests.support.stores import EPOCH_US, Site, VirtualClock, change, every_row


async def _write_and_fail(store: Store, changes: Changes, statement: str | None = None) -> None:
    async with store.transaction(user=statement is not None) as tx:
        if statement is not None:
            await tx.user.execute(statement)
        await tx.write(changes)
        raise RuntimeError("after the write")


async def test_k1_an_exception_takes_everything_back(site: Site) -> None:
    """Inserted, updated and deleted rows are as they were before."""
    run, work, wait, event = a_run(active=1), a_work(), a_wait(), an_event()
    async with site.opened(VirtualClock()) as store:
        await put(store, run, work, wait, event)
        before = await every_row(store)
        changes = change(
            insert=(a_run("r2", key="k"), a_work("r2"), an_entry(), a_hold()),
            update=((run, replace(run, version=2)), (work, replace(work, token=1, status="leased", worker="w"))),
            delete=(wait, event),
        )
        with pytest.raises(RuntimeError, match="after the write"):
            await _write_and_fail(store, changes)
        assert await every_row(store) == before
        # Not even what is derived from the rows remembers: the key is free, the item can be claimed.
        await put(store, a_run("r3", key="k"))
        (handed,) = await store.claim(asked())
        assert handed.work.token == 1


async def test_k9_a_cancelled_transaction_is_rolled_back_and_the_next_one_works(site: Site) -> None:
    """Whoever is cancelled inside a transaction leaves neither rows nor locks."""
    async with site.opened(VirtualClock()) as store:
        inside = asyncio.Event()

        async def stuck() -> None:
            async with store.transaction() as tx:
                await tx.lock_runs(["r1"])
                await tx.write(change(insert=(a_run(),)))
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(stuck())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await every_row(store))["runs"] == []
        await put(store, a_run())
        assert await store.runs(["r1"]) == [a_run()]


async def test_k1_a_write_with_an_old_version_or_token_aborts_the_transaction(site: Site) -> None:
    """The locked path has the same guard: a bug there must not overwrite what somebody recorded."""
    run, work = a_run(version=3), a_work(token=2)
    async with site.opened(VirtualClock()) as store:
        await put(store, run, work)
        for old in (replace(run, version=2), replace(work, token=1)):
            with pytest.raises(Conflict):
                async with store.transaction() as tx:
                    await tx.write(change(insert=(a_run("r2"),), update=((old, old),)))
        assert (await every_row(store))["runs"] == [run]


@pytest.mark.parametrize("row", [a_wait(), an_event(), a_hold()], ids=["wait", "event", "hold"])
async def test_i50_deleting_a_row_that_is_gone_aborts_the_transaction(site: Site, row: Any) -> None:
    """An event that somebody else has consumed must not be delivered a second time."""
    async with site.opened(VirtualClock()) as store:
        await put(store, row)
        async with store.transaction() as tx:
            await tx.write(change(delete=(row,)))
        assert not any((await every_row(store)).values())
        with pytest.raises(Conflict):
            async with store.transaction() as tx:
                await tx.write(change(insert=(a_run(),), delete=(row,)))
        assert not any((await every_row(store)).values())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (a_wait(), a_wait(topic="shipped")),
        (a_hold(), replace(a_hold(), by="bob")),
        (an_event(), an_event(name="shipped")),
    ],
    ids=["wait", "hold", "event"],
)
async def test_k1_a_row_can_be_replaced_in_one_write(site: Site, old: Any, new: Any) -> None:
    """A run that is woken and waits again in one batch has the new wait, not the old one and not none."""
    async with site.opened(VirtualClock()) as store:
        await put(store, old)
        async with store.transaction() as tx:
            await tx.write(change(insert=(new,), delete=(old,)))
        assert [row for table in (await every_row(store)).values() for row in table] == [new]


async def test_k6_rows_are_loaded_in_the_order_of_the_needs_and_absence_is_an_empty_answer(site: Site) -> None:
    """Every table by key, every question, in one call."""
    r1, r2 = a_run("r1", key="k"), a_run("r2", key="k", superseded=True)
    done, ready, blocked = a_work(node="a", status="completed"), a_work(node="b"), a_work(node="c", status="blocked")
    other = a_work("r2", "a")
    first, second = a_wait(since=EPOCH_US), a_wait("r2", 1, since=EPOCH_US - 1)
    early, late, targeted = an_event("e2"), an_event("e1", at=EPOCH_US + 1), an_event("e3", target="r1")
    rows = (r1, r2, done, ready, blocked, other, an_entry(), first, second, early, late, targeted, a_hold())
    needs: list[tuple[Any, list[Any]]] = [
        ((RUNS, ("r2",)), [r2]),
        ((RUNS, ("none",)), []),
        ((WORK, ("r1", "b", 1)), [ready]),
        ((WORK, ("r1", "b", 2)), []),
        ((HISTORY, ("r1", 1)), [an_entry()]),
        ((WAITS, ("r1", 0)), [first]),
        ((EVENTS, ("e1",)), [late]),
        ((HOLDS, ("all", "")), [a_hold()]),
        ((HOLDS, ("all", "x")), []),
        (RunByKey("flow", "k"), [r1]),
        (RunByKey("flow", "none"), []),
        (RunByAlias("flow", "k"), [r1]),
        (RunByAlias("other", "k"), []),
        (OpenWork("r1"), [ready, blocked]),
        (AllWork("r1"), [done, ready, blocked]),
        (Attempts("r1", frozenset({"a", "c", "none"})), [done, blocked]),
        (WaitersOf("paid"), [second, first]),
        (WaitsOf("r2"), [second]),
        (QueuedEvents("paid", None), [early, late]),
        (QueuedEvents("paid", "r1"), [targeted]),
        (QueuedEvents("paid", "r2"), []),
        (Holds(), [a_hold()]),
        ((RUNS, ("r1",)), [r1]),
    ]
    async with site.opened(VirtualClock()) as store:
        await put(store, *rows)
        async with store.transaction() as tx:
            await tx.lock_topics(["shipped", "paid"])
            await tx.lock_runs(["r2", "r1", "none"])
            assert await tx.load([need for need, _ in needs]) == [expected for _, expected in needs]
        for need, expected in needs:
            if not isinstance(need, tuple):
                assert await store.rows(need) == expected


async def test_k12_a_transaction_has_the_stores_time(site: Site) -> None:
    """One time for everything that is decided in it."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        clock.advance(5)
        async with store.transaction() as tx:
            await tx.lock_runs(["r1"])
            assert tx.now == store.now() == EPOCH_US + 5_000_000


async def test_g3_user_statements_and_rows_commit_or_vanish_together(shared_site: Site) -> None:
    """A transactional action's own write is there exactly when its result is."""
    async with shared_site.opened(VirtualClock()) as store:
        async with store.transaction(user=True) as tx:
            await tx.user.execute("CREATE TABLE accounts (name text, balance integer)")
            assert await tx.user.execute("INSERT INTO accounts VALUES ('ann', 10)") == 1
        with pytest.raises(RuntimeError, match="after the write"):
            await _write_and_fail(store, change(insert=(a_run(),)), "UPDATE accounts SET balance = 0")
        async with store.transaction(user=True) as tx:
            assert await tx.user.fetchval("SELECT balance FROM accounts") == 10
            assert (await tx.user.fetchrow("SELECT name FROM accounts"))[0] == "ann"
            assert len(await tx.user.fetch("SELECT * FROM accounts")) == 1
            await tx.user.execute("DROP TABLE accounts")
        assert await store.runs(["r1"]) == []


async def test_g3_a_store_without_a_database_says_so(site: Site) -> None:
    """Memory refuses transactional actions, and only PostgreSQL joins a caller's transaction."""
    async with site.opened(VirtualClock()) as store:
        if site.kind == "memory":
            with pytest.raises(UsageError, match="memory"):
                store.transaction(user=True)
        if site.kind != "postgresql":
            with pytest.raises(UsageError, match=site.kind):
                store.join(object())
