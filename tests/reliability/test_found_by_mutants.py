"""What no other test had noticed until a mutant lived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

import holdfast as hf
from holdfast.authoring.flows import flow
from holdfast.core.errors import ReadinessOverflow
from holdfast.core.function_operations import EVENT
from holdfast.core.operations import CompleteWork, Settled
from holdfast.core.queries import AllWork
from holdfast.core.rows import Run, Work
from holdfast.store.contract import Conflict, Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.shapes import run_shape, work_shape
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.engines import SeededRandomness
from tests.flows.actions import add, double
from tests.flows.by_hand import registry_with_actions, worker_by_hand
from tests.functions import kernel_moves as moves
from tests.kernel.kernels import complete, opened_kernel, start
from tests.store.conformance.rows import a_run, a_work, put
from tests.support.stores import KINDS, SHARED_KINDS, Site, VirtualClock, change, every_row, site_for

RUN_CHANGES: dict[str, dict[str, Any]] = {
    "step": {"active": 2},
    "ended": {"finished": 2},
    "input": {"base": 2},
    "full": {"reason": "why"},
}
WORK_CHANGES: dict[str, dict[str, Any]] = {
    "settled": {"result": b"1"},
    "failed": {"error": b"1"},  # of the same shape, and a statement of its own on SQLite
    "full": {"losses": 1},
    "whole": {"name": "b"},
}
FULL_SYNC = 2
AN_HOUR_US = 3_600_000_000


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@pytest.fixture(params=SHARED_KINDS)
def shared_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the stores that processes share."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


async def is_refused(store: Store, *updates: tuple[Any, Any]) -> bool:
    try:
        return bool(await store.flush(change(update=updates)))
    except Conflict:
        return True


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("shape", RUN_CHANGES)
async def test_k1_whatever_changes_on_a_run_is_guarded_by_its_version(site: Site, shape: str, alone: bool) -> None:
    """K1, K4: statements are chosen by what changes, and each of them has to compare the version by itself."""
    stored = a_run(version=5)
    seen = replace(stored, version=4)
    new = replace(seen, version=5, **RUN_CHANGES[shape])
    assert run_shape([(seen, new)]) == shape
    company = a_run("r2")
    beside = () if alone else ((company, replace(company, version=2)),)
    async with site.opened(VirtualClock()) as store:
        await put(store, stored, company)
        assert await is_refused(store, (seen, new), *beside)
        assert (await every_row(store))["runs"] == [stored, company]
        assert not await is_refused(store, (stored, replace(stored, version=6, **RUN_CHANGES[shape])), *beside)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("shape", RUN_CHANGES)
async def test_k1_a_run_is_guarded_by_its_version_also_with_an_item_of_it(site: Site, shape: str, alone: bool) -> None:
    """K1, K4: neither the run nor the item is written, although the item is as it was seen."""
    stored, item, company = a_run(version=5), a_work(token=3), a_run("r2")
    seen = replace(stored, version=4)
    beside = () if alone else ((company, replace(company, version=2)),)
    settled = (item, replace(item, status="completed", result=b"1"))
    async with site.opened(VirtualClock()) as store:
        await put(store, stored, item, company)
        assert await is_refused(store, (seen, replace(seen, version=5, **RUN_CHANGES[shape])), settled, *beside)
        rows = await every_row(store)
        assert (rows["runs"], rows["work"]) == ([stored, company], [item])
        new = replace(stored, version=6, **RUN_CHANGES[shape])
        assert not await is_refused(store, (stored, new), settled, *beside)
        assert (await every_row(store))["runs"][0] == new


@pytest.mark.parametrize("shape", RUN_CHANGES)
@pytest.mark.parametrize("beside", RUN_CHANGES)
async def test_k1_runs_that_change_in_different_ways_are_written_together(site: Site, shape: str, beside: str) -> None:
    """K1: the one statement for both has every column that either of them changes."""
    runs = a_run("r1"), a_run("r2")
    new = [replace(run, version=2, **RUN_CHANGES[each]) for run, each in zip(runs, (shape, beside), strict=True)]
    async with site.opened(VirtualClock()) as store:
        await put(store, *runs)
        assert not await is_refused(store, *zip(runs, new, strict=True))
        assert (await every_row(store))["runs"] == new


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("shape", WORK_CHANGES)
async def test_k3_whatever_changes_on_an_item_is_guarded_by_its_token(site: Site, shape: str, alone: bool) -> None:
    """K3: a claim raises the token and leaves the version; who decided before it must not write."""
    run, stored = a_run(version=5), a_work(token=3)
    seen = replace(stored, token=2)
    new = replace(seen, **WORK_CHANGES[shape])
    assert work_shape([(seen, new)]) == ("settled" if shape == "failed" else shape)
    company = a_run("r2")
    runs = ((run, replace(run, version=6)), *(() if alone else ((company, replace(company, version=2)),)))
    async with site.opened(VirtualClock()) as store:
        await put(store, run, stored, company)
        assert await is_refused(store, *runs, (seen, new))
        rows = await every_row(store)
        assert (rows["runs"], rows["work"]) == ([run, company], [stored])
        assert not await is_refused(store, *runs, (stored, replace(stored, **WORK_CHANGES[shape])))


async def test_g1_every_commit_on_sqlite_waits_for_the_disk(sqlite_url: str) -> None:
    """G1: a machine that loses power keeps what was acknowledged; NORMAL would forget the last commits."""
    async with Site("sqlite", sqlite_url).opened() as store:
        assert isinstance(store, SqliteStore)
        assert store.db.execute("PRAGMA synchronous").fetchone() == (FULL_SYNC,)
        assert store.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


class FastClock:
    """A machine whose clock is an hour ahead, as seen after the engine was opened."""

    def __init__(self) -> None:
        self.ahead_us = AN_HOUR_US

    def now_us(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us

    monotonic = staticmethod(time.monotonic)


async def test_g6_i5_on_postgresql_the_servers_clock_decides_and_not_the_hosts(postgres_url: str) -> None:
    """G6, I5: due times, leases and deadlines of hosts whose clocks differ mean the same, as all are the server's."""
    store = PostgresStore(postgres_url, clock=FastClock())
    try:
        await store.open()
        await store.migrate()
        connection = await asyncpg.connect(postgres_url)
        server_us = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        await connection.close()
        assert abs(store.now() - server_us) < AN_HOUR_US / 10
        async with store.transaction() as tx:
            await tx.lock_runs(["nobody"])
            assert abs(tx.now - server_us) < AN_HOUR_US / 10
    finally:
        await store.close()


async def test_g9_g5_a_turn_is_not_parked_while_something_came_in_that_its_driver_has_not_seen(site: Site) -> None:
    """G5, G9: parked, it would wait for ever with the event in its history: nobody wakes what was woken already."""
    async with opened_kernel(site) as (coordinator, store):
        waits = moves.turn("r", opens=(moves.wait("0#1", "paid"),))
        assert (await coordinator.submit_batch([moves.start("r"), waits]))[1].verdict == "recorded"
        await coordinator.submit(moves.send("r", "e1", "paid"))
        parking = await coordinator.submit(moves.turn("r", known=0, park=True))
        assert not parking.parked
        (turn,) = await store.rows(AllWork("r"))
        assert turn.status == "leased"
        assert [entry.kind for entry in await store.history("r")] == [EVENT]


async def overcount(store: Store, run: str, node: str) -> None:
    """Somebody has changed rows by hand: a node that waits has all its predecessors."""
    row: Run = (await store.runs([run]))[0]
    work: Work = next(each for each in await store.rows(AllWork(run)) if each.node == node)
    full = replace(work, completed=work.required)
    assert not await is_refused(store, (row, replace(row, version=row.version + 1)), (work, full))


async def test_i23_g4_one_predecessor_too_many_of_a_dag_undoes_that_report_and_no_other(site: Site) -> None:
    """I23, G4: a count above what is required is a bug that must be seen, and not a node that runs twice."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit_batch([start("r", "join", lease=True), start("other", lease=True)])
        assert (await coordinator.submit(complete("r", "x"))).verdict == "recorded"
        await overcount(store, "r", "sum")
        coordinator.cache.clear()
        before = [row for row in (await every_row(store))["work"] if row.run == "r"]
        refused, settled = await coordinator.submit_batch([complete("r", "y"), complete("other")])
        assert isinstance(refused, ReadinessOverflow)
        assert isinstance(settled, Settled)
        assert settled.verdict == "recorded"
        assert [row for row in (await every_row(store))["work"] if row.run == "r"] == before


async def two_halves(number: int) -> int:
    one, two = await asyncio.gather(double(number), double(number + 1))
    return await add(one, two)


async def test_i23_one_predecessor_too_many_of_a_flow_undoes_that_report(site: Site) -> None:
    """I23: as for DAGs; the barrier is not made ready a second time."""
    registry = registry_with_actions()
    made = flow(registry=registry)(two_halves)
    hands = await worker_by_hand(site, registry, VirtualClock(), SeededRandomness("overflow"))
    engine = hands.engine
    handle = await engine.start(made, 3)
    one, two = await hands.claim(limit=2)
    await engine.coordinator.submit(report(one.work))
    rows = await engine.store.rows(AllWork(handle.id))
    (barrier,) = [row.node for row in rows if row.kind == "barrier"]
    await overcount(engine.store, handle.id, barrier)
    engine.coordinator.cache.clear()
    before = (await every_row(engine.store))["work"]
    with pytest.raises(ReadinessOverflow):
        await engine.coordinator.submit(report(two.work))
    assert (await every_row(engine.store))["work"] == before
    if site.kind != "memory":
        await engine.store.close()


def report(work: Work) -> CompleteWork:
    return CompleteWork(run=work.run, node=work.node, attempt=work.attempt, token=work.token, result=b"6")


async def test_g7_i10_a_report_that_comes_after_a_cancel_is_stale(site: Site) -> None:
    """G7, I10: the cancel was acknowledged, so the run stays cancelled, and so does what ran."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r", lease=True))
        await coordinator.submit(moves.cancel("r"))
        assert (await coordinator.submit(complete("r"))).verdict == "stale"
        assert [row.status for row in await store.runs(["r"])] == ["cancelled"]
        assert [(row.status, row.token) for row in await store.rows(AllWork("r"))] == [("cancelled", 2)]


async def test_k4_a_completion_that_another_process_has_recorded_is_not_recorded_again(shared_site: Site) -> None:
    """K4: this process remembers the item as leased, and the version of its run is all that says otherwise."""
    async with opened_kernel(shared_site) as (here, store), opened_kernel(shared_site) as (elsewhere, _):
        await here.submit(start("r", lease=True))
        assert (await elsewhere.submit(complete("r"))).verdict == "recorded"
        written = await every_row(store)
        assert (await here.submit(complete("r"))).verdict == "repeated"
        assert await every_row(store) == written


async def test_k4_what_another_process_wrote_is_seen_before_anything_is_decided_under_a_lock(
    shared_site: Site,
) -> None:
    """K4: rows that this process remembers belong to a version of their run, and are of no use to another."""
    async with opened_kernel(shared_site) as (here, store), opened_kernel(shared_site) as (elsewhere, _):
        await here.submit(start("r", "diamond", lease=True))  # whole in the memory of this process
        assert (await elsewhere.submit(complete("r", "top"))).verdict == "recorded"
        store.on_foreign_write = lambda: None  # a hint that SQLite has and PostgreSQL lacks: not what is tested
        await here.submit(moves.cancel("r"))
        found = {row.node: row.status for row in await store.rows(AllWork("r"))}
        assert found == {"top": "completed", "left": "cancelled", "right": "cancelled"}


async def test_i7_a_worker_that_hears_of_its_own_death_stops_what_it_runs() -> None:
    """I7: its leases are somebody else's now; whatever it still runs is done twice."""
    registry = hf.Registry()
    began, stopped = asyncio.Event(), asyncio.Event()

    @hf.action(registry=registry)
    async def hold() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    # No sweep: that would find out too, some time later.
    settings: dict[str, Any] = {"sweep_seconds": 3600.0, "shutdown_seconds": 0.1}
    async with hf.Engine("memory://", registry=registry, **settings) as engine, engine.worker() as worker:
        await engine.start(hold)
        await began.wait()
        old = worker.id
        await engine.store.retire(old)
        await worker._beat()
        await asyncio.wait_for(stopped.wait(), 5)
        assert worker.id != old
