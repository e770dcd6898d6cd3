"""`flush`: all of a batch or none of it, and only if what was decided on is still so."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.view import Changes
from holdfast.store.contract import Conflict, Store
from tests.store.conformance.rows import a_fact, a_hold, a_run, a_wait, a_work, an_entry, an_event, asked, put
from tests.support.stores import Site, VirtualClock, change, every_row


async def settle(store: Store) -> None:
    """SQLite's first flush after opening always loses: it can't know yet whether others wrote."""
    async with store.transaction():
        pass


async def refusal(store: Store, changes: Changes) -> frozenset[str] | None:
    """The runs that a refused flush named; None if it lost the race as a whole. Fails if it was not refused."""
    try:
        named = await store.flush(changes)
    except Conflict:
        return None
    assert named, "the flush went through"
    return named


def everything() -> tuple[Any, ...]:
    return (a_run(), a_work(), an_entry(), a_wait(), an_event(), a_hold())


async def test_k1_a_flush_writes_rows_of_every_table_as_they_are(site: Site) -> None:
    """Every column of every table comes back equal, None and text beyond ASCII included."""
    run = a_run(
        key="ключ",
        input=b"\x00\xff",
        result=b"1",
        error=b"{}",
        definition="d",
        parent="p",
        queue="q",
        priority=-3,
        tags='{"a":"ü"}',
        token=7,
        awaited=True,
        remaining=3,
        active=1,
        gave_up=1,
        entries=2,
        reason="why",
        due=5,
        started=6,
        finished=7,
    )
    work = a_work(
        kind="effect",
        required=3,
        token=2,
        gate=2,
        timeout=5,
        policy="{}",
        worker="w",
        payload=b"p",
        result=b"r",
        error=b"e",
        outcome=b"o",
        ancestry="a",
        failures=1,
        losses=2,
        started=3,
        finished=4,
    )
    rows = (run, work, an_entry(), a_wait(), replace(an_event(target="r1"), expires=9), a_hold())
    async with site.opened(VirtualClock()) as store:
        await settle(store)
        assert await store.flush(change(insert=rows)) == frozenset()
        stored = await every_row(store)
    assert tuple(row for table in stored.values() for row in table) == rows


async def test_k1_a_flush_updates_every_column_a_decision_may_change(site: Site) -> None:
    """Runs and work items are replaced as a whole, whatever part of them changed."""
    before_run, before_work = a_run(remaining=2, active=1), a_work(token=1)
    changed_run = replace(
        before_run,
        version=2,
        status="failed",
        result=b"1",
        error=b"2",
        definition="d",
        token=1,
        awaited=True,
        superseded=True,
        remaining=1,
        active=0,
        gave_up=1,
        entries=4,
        reason="x",
        started=5,
        finished=6,
        updated=7,
    )
    changed_work = replace(
        before_work,
        status="failed",
        completed=1,
        token=2,
        gate=1,
        due=3,
        worker="w",
        result=b"1",
        error=b"2",
        outcome=b"3",
        ancestry="a",
        failures=1,
        losses=1,
        started=2,
        finished=3,
    )
    async with site.opened(VirtualClock()) as store:
        await put(store, before_run, before_work)
        assert await store.flush(change(update=((before_run, changed_run), (before_work, changed_work)))) == frozenset()
        stored = await every_row(store)
    assert stored["runs"] == [changed_run]
    assert stored["work"] == [changed_work]


@pytest.mark.parametrize("taken", range(6))
async def test_k1_one_row_that_exists_keeps_the_whole_flush_out(site: Site, taken: int) -> None:
    """Whichever table refuses, nothing of the batch is there afterwards."""
    existing = everything()[taken]
    async with site.opened(VirtualClock()) as store:
        await put(store, existing)
        with pytest.raises(Conflict):
            await store.flush(change(insert=(*everything(), a_run("r2"), a_work("r2"))))
        stored = await every_row(store)
    assert [row for table in stored.values() for row in table] == [existing]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("guard", ["version", "token"])
async def test_k1_a_run_that_changed_meanwhile_keeps_the_whole_flush_out(site: Site, guard: str, alone: bool) -> None:
    """Another version or token than decided on: the run is named, or the flush is lost; nothing is written.

    Stores may write what concerns one run alone in a way of its own.
    """
    fresh_run, fresh_work, other = a_run(version=5), a_work(token=3), a_run("r2")
    seen_run = replace(fresh_run, version=4) if guard == "version" else fresh_run
    seen_work = replace(fresh_work, token=2) if guard == "token" else fresh_work
    changes = change(
        insert=(an_entry("r2"), a_run("r3")),
        update=(
            (seen_run, replace(seen_run, version=6)),
            *(() if alone else ((other, replace(other, version=2)),)),
            (seen_work, replace(seen_work, status="completed")),
        ),
    )
    async with site.opened(VirtualClock()) as store:
        await put(store, fresh_run, fresh_work, other)
        assert await refusal(store, changes) in (frozenset({"r1"}), None)
        stored = await every_row(store)
    assert stored["runs"] == [fresh_run, other]
    assert stored["work"] == [fresh_work]
    assert stored["history"] == []


async def test_k3_a_claim_since_the_decision_keeps_the_flush_out(site: Site) -> None:
    """A claim leaves the version as it is; the token alone tells."""
    run, work = a_run(active=1), a_work()
    decided = change(update=((run, replace(run, version=2)), (work, replace(work, status="cancelled", token=1))))
    async with site.opened(VirtualClock()) as store:
        await put(store, run, work)
        (handed,) = await store.claim(asked())
        assert handed.run == run
        assert await refusal(store, decided) in (frozenset({"r1"}), None)
        assert (await every_row(store))["work"] == [handed.work]


async def test_k1_a_run_that_is_gone_keeps_the_flush_out(site: Site) -> None:
    """Pruned meanwhile: an update of nothing is no success."""
    run = a_run()
    async with site.opened(VirtualClock()) as store:
        await settle(store)
        changes = change(insert=(an_entry(),), update=((run, replace(run, version=2)),))
        assert await refusal(store, changes) in (frozenset({"r1"}), None)
        assert not any((await every_row(store)).values())


async def test_i12_a_key_belongs_to_one_run_until_it_is_superseded(site: Site) -> None:
    """The unique key has the last word; a restart hands it over in one write."""
    old, new = a_run("r1", key="k"), a_run("r2", key="k")
    async with site.opened(VirtualClock()) as store:
        await put(store, old)
        with pytest.raises(Conflict):
            await store.flush(change(insert=(new,)))
        await store.flush(change(insert=(a_run("r3", key="k", workflow="other"), a_run("r4"), a_run("r5"))))
        handed_over = change(insert=(new,), update=((old, replace(old, version=2, superseded=True)),))
        assert await store.flush(handed_over) == frozenset()
        with pytest.raises(Conflict):
            await store.flush(change(insert=(a_run("r6", key="k"),)))
        assert [run.id for run in (await every_row(store))["runs"]] == ["r1", "r2", "r3", "r4", "r5"]


@pytest.mark.parametrize("beside", [(), (a_fact(),), (a_work(),)], ids=["alone", "with an event", "with an item"])
async def test_i11_a_flush_that_presumes_no_holds_fails_while_there_is_one(site: Site, beside: tuple[Any, ...]) -> None:
    """Maintenance that was switched on a moment ago stops a start or a hand-over that was decided without it."""
    new = (a_run(), *beside)
    async with site.opened(VirtualClock()) as store:
        await put(store, a_hold("queue", "elsewhere"))
        with pytest.raises(Conflict):
            await store.flush(change(insert=new, presumes_no_holds=True))
        assert (await every_row(store))["runs"] == []
        assert await store.flush(change(insert=new)) == frozenset()


@pytest.mark.parametrize(
    ("run", "item"),
    [
        ({}, {}),
        ({"result": b"1"}, {}),
        ({"parent": "p", "depth": 1, "awaited": True}, {}),
        ({}, {"policy": "{}", "timeout": 5}),
        ({}, {"run": "of another"}),
    ],
    ids=["plain", "ended", "a child", "with a policy", "of another run"],
)
async def test_k1_a_start_alone_is_written_as_it_is(site: Site, run: dict[str, Any], item: dict[str, Any]) -> None:
    """A run and its first item, each column another value, with what is nearly always left open and without."""
    begun = a_run(
        key="ключ",
        status="pending",
        version=2,
        input=b"\x00\xff",
        codec="msgpack",
        input_digest="digest",
        on_failure="pause",
        queue="q",
        priority=-3,
        tags='{"a":"ü"}',
        token=7,
        remaining=3,
        active=1,
        gave_up=4,
        entries=5,
        due=6,
        created=8,
        started=9,
        updated=10,
        signature="s",
        adopted=11,
        base=12,
        mailbox=13,
    )
    first = a_work(
        kind="turn",
        name="другой",
        status="leased",
        required=2,
        completed=14,
        token=15,
        queue="w",
        priority=16,
        gate=2,
        due=17,
        worker="worker",
        payload=b"p",
        codec="msgpack",
        parents="[]",
        ancestry="a",
        failures=18,
        losses=19,
        created=20,
        started=21,
    )
    begun, first = replace(begun, **run), replace(first, **item)
    async with site.opened(VirtualClock()) as store:
        await settle(store)
        assert await store.flush(change(insert=(begun, first), presumes_no_holds=True)) == frozenset()
        stored = await every_row(store)
    assert (stored["runs"], stored["work"]) == ([begun], [first])


@pytest.mark.parametrize("with_item", [False, True])
async def test_i11_a_step_that_presumes_no_holds_is_kept_out_by_one(site: Site, with_item: bool) -> None:
    """A step of one run, with an item that it settles or without: all of it is written, or none."""
    run, work = a_run(), a_work(token=3)
    step = change(
        insert=(a_work(node="next"), an_entry()),
        update=(
            (run, replace(run, version=2)),
            *(((work, replace(work, status="completed")),) if with_item else ()),
        ),
        presumes_no_holds=True,
    )
    hold = a_hold("queue", "elsewhere")
    async with site.opened(VirtualClock()) as store:
        await put(store, run, work, hold)
        assert await refusal(store, step) in (frozenset({"r1"}), None)
        stored = await every_row(store)
        assert (stored["runs"], stored["work"], stored["history"]) == ([run], [work], [])
        async with store.transaction() as tx:
            await tx.write(change(delete=(hold,)))
        assert await store.flush(step) == frozenset()
        assert [row.version for row in (await every_row(store))["runs"]] == [2]
        assert len((await every_row(store))["work"]) == 2


@pytest.mark.parametrize("how", ["flush", "transaction", "another store"])
async def test_i11_it_fails_also_if_there_was_none_the_last_time(site: Site, how: str) -> None:
    """A store may know that nothing is held back, until anybody could have written that something is."""
    clock = VirtualClock()
    async with site.opened(clock) as store, site.opened(clock) as other:
        for run in ("r1", "r2"):
            await store.flush(change(insert=(a_run(run),), presumes_no_holds=True))
        hold = change(insert=(a_hold("queue", "elsewhere"),))
        if how == "transaction":
            async with store.transaction() as tx:
                await tx.write(hold)
        else:
            await (store if how == "flush" else other).flush(hold)
        for run in ("r3", "r4"):
            with pytest.raises(Conflict):
                await store.flush(change(insert=(a_run(run),), presumes_no_holds=True))
        assert [run.id for run in (await every_row(store))["runs"]] == ["r1", "r2"]


async def test_k4_two_stores_at_one_site_notice_each_other(shared_site: Site) -> None:
    """What another process has written keeps out whatever was decided before."""
    clock = VirtualClock()
    run = a_run()
    async with shared_site.opened(clock) as first, shared_site.opened(clock) as second:
        await put(first, run)
        await settle(second)
        assert await second.flush(change(update=((run, replace(run, version=2)),))) == frozenset()
        late = change(insert=(an_entry(),), update=((run, replace(run, version=2, status="paused")),))
        assert await refusal(first, late) in (frozenset({"r1"}), None)
        stored = await every_row(first)
    assert stored["runs"] == [replace(run, version=2)]
    assert stored["history"] == []
