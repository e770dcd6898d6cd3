"""What went wrong with locks and races when this kernel was first tried out, each as a test on a real PostgreSQL.

Two or more connections, and interleavings that are forced: a batch is stopped at a named place while another one
runs into its locks. A cancelled caller and an exception in a decision are in test_coordinator.py, topics in
test_topics.py, plans in test_flush_plan.py, lost answers of workers in test_lost_answers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.operations import CancelRun, LapseWork, PauseRun
from holdfast.core.rows import Run, Work
from holdfast.runtime.system import RealClock
from holdfast.store.contract import Store, WorkerRow
from holdfast.store.statements import statements
from tests.kernel.kernels import GRAPHS, NAMES, claim_request, complete, make_coordinator, start
from tests.kernel.postgres_watch import deadlocks, outsider, until_someone_waits_for_a_lock
from tests.kernel.scripts import unsound
from tests.support.stores import Site, change, every_row

ROUNDS = 5


@asynccontextmanager
async def two_engines(site: Site) -> AsyncIterator[tuple[Coordinator, Coordinator, Store, Store]]:
    async with site.opened() as one, site.opened() as two:
        first, second = (make_coordinator(store, RealClock()) for store in (one, two))
        try:
            yield first, second, one, two
        finally:
            failpoints.disarm()
            await first.close()
            await second.close()


class Stop:
    """Stops whoever reaches a place first, until told to go on."""

    def __init__(self, place: str) -> None:
        self.arrived, self._go_on = asyncio.Event(), asyncio.Event()
        self._place = place
        failpoints.arm(self._hook)

    def _hook(self, name: str) -> asyncio.Future[None] | None:
        if name != self._place or self.arrived.is_set():
            return None
        self.arrived.set()
        return asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        await self._go_on.wait()

    def release(self) -> None:
        self._go_on.set()
        failpoints.disarm()


async def work_of(store: Store, run: str) -> dict[str, Work]:
    return {work.node: work for work in (await every_row(store))["work"] if work.run == run}


async def test_k2_children_are_read_after_the_wait_for_their_run(postgres_site: Site) -> None:
    """Two parents of a join complete at once: the second, which had to wait, counts on what the first has written."""
    async with two_engines(postgres_site) as (first, second, store, _):
        await first.submit_batch([start("r", "join", lease=True), complete("r", "z")])
        first.cache.clear()
        stop = Stop("flush.before_commit")
        x = first.submit(complete("r", "x"))
        await stop.arrived.wait()
        y = second.submit(complete("r", "y"))
        await until_someone_waits_for_a_lock(postgres_site.url)
        stop.release()
        assert [(await x).verdict, (await y).verdict] == ["recorded", "recorded"]
        joined = (await work_of(store, "r"))["sum"]
        assert (joined.completed, joined.status) == (3, "ready")
        assert unsound(await every_row(store)) == []


async def test_k3_a_cancel_decided_on_memory_never_shares_a_token_with_a_claim(postgres_site: Site) -> None:
    """Another process claimed the item, which leaves the version: the stored token is raised, not the remembered."""
    async with two_engines(postgres_site) as (first, second, store, other):
        await first.submit(start("r"))
        (handed,) = await other.claim(claim_request("theirs"))
        assert handed.work.token == 1
        assert (await first.submit(CancelRun(run="r"))).changed
        assert (await work_of(store, "r"))["only"].token == 2
        assert (await second.submit(complete("r", token=1))).verdict == "stale"


async def test_k3_a_cancel_waits_for_a_claim_that_is_just_being_written(postgres_site: Site) -> None:
    """The claim's statement has taken the row and not committed yet."""
    claim = statements("postgres")["claim"]
    async with two_engines(postgres_site) as (first, _, store, _other), outsider(postgres_site.url) as claiming:
        await first.submit(start("r"))
        transaction = claiming.transaction()
        await transaction.start()
        assert len(await claiming.fetch(claim, "default", list(GRAPHS), list(NAMES), 5, "theirs", 2**31 - 1, 0)) == 1
        cancelling = first.submit(CancelRun(run="r"))
        await until_someone_waits_for_a_lock(postgres_site.url)
        await transaction.commit()
        assert (await cancelling).changed
        work = (await work_of(store, "r"))["only"]
        assert (work.status, work.token, work.worker) == ("cancelled", 2, "theirs")


async def test_k10_claims_and_promotions_never_wait_for_a_batch_and_no_batch_for_them(postgres_site: Site) -> None:
    """Stopped with its runs locked, with its items locked, and with everything written: claims come back at once."""
    for place in ("load.after_locks", "load.after_rows", "flush.before_commit"):
        async with two_engines(postgres_site) as (first, _, _store, other):
            runs = [f"{place} {number}" for number in range(3)]
            await first.submit_batch([start(run, due=1) for run in runs])
            stop = Stop(place)
            cancelling = asyncio.gather(*(first.submit(CancelRun(run=run)) for run in runs))
            await stop.arrived.wait()
            async with asyncio.timeout(1.5):  # less than the lock time-out, so that waiting would show
                taken = {item.work.run: item.work.token for item in await other.claim(claim_request("theirs"))}
                await other.promote(["default"])
            stop.release()
            assert all(changed.changed for changed in await cancelling)
            tokens = {run: (await work_of(other, run))["only"].token for run in runs}
            # Claimed before the cancel looked: one for the claim, one for the cancel. Never the same.
            assert tokens == {run: taken.get(run, 0) + 1 for run in runs}


async def test_k10_a_heartbeat_does_not_wait_for_a_batch_over_the_workers_items(postgres_site: Site) -> None:
    """The lease of everything a worker holds is its own row: no order of locks to get wrong."""
    async with two_engines(postgres_site) as (first, _, store, other):
        row = WorkerRow(id="w", host="here", pid=1, queues=("default",), workflows=tuple(GRAPHS), actions=NAMES)
        await other.enroll(row, 30.0)
        await first.submit_batch([start(f"r{number}", "join", lease=True) for number in range(5)])
        first.cache.clear()
        stop = Stop("flush.before_commit")
        settled = asyncio.gather(*(first.submit(complete(f"r{number}", "x")) for number in range(5)))
        await stop.arrived.wait()
        async with asyncio.timeout(1.5):
            assert await other.heartbeat("w", 30.0)
            assert len(await other.leased_to("w")) == 15
            assert await other.lapsed_workers("me") == []
        stop.release()
        assert {result.verdict for result in await settled} == {"recorded"}
        assert len(await store.workers()) == 1


async def test_k2_starts_under_the_same_keys_in_any_order_do_not_deadlock(postgres_site: Site) -> None:
    """Two processes start the same keys, the ids in opposite order; both are held at the first key until both wait."""
    before = await deadlocks(postgres_site.url)
    async with two_engines(postgres_site) as (first, second, store, _):
        for number in range(ROUNDS):
            blocker_run = Run(id=f"{number}-blocker", workflow="solo", model="dag", key=f"{number}-k1")
            async with outsider(postgres_site.url) as blocker:
                transaction = blocker.transaction()
                await transaction.start()
                await store.join(blocker).write(change(insert=(blocker_run,)))
                mine = first.submit_batch(
                    [start(f"{number}-a", key=f"{number}-k2"), start(f"{number}-b", key=f"{number}-k1")]
                )
                theirs = second.submit_batch(
                    [start(f"{number}-c", key=f"{number}-k1"), start(f"{number}-d", key=f"{number}-k2")]
                )
                both = asyncio.gather(mine, theirs)
                await until_someone_waits_for_a_lock(postgres_site.url, 2)
                await transaction.rollback()
                (b2, b1), (d1, d2) = await both
            assert (b1.run, b2.run) == (d1.run, d2.run)
        assert len((await every_row(store))["runs"]) == 2 * ROUNDS
    assert await deadlocks(postgres_site.url) == before


async def test_k2_flushes_over_the_same_runs_in_any_order_do_not_deadlock(postgres_site: Site) -> None:
    """Both are stopped in the middle of the runs they lock by a third, and then let go."""
    before = await deadlocks(postgres_site.url)
    runs = [f"r{number}" for number in range(6)]
    async with two_engines(postgres_site) as (first, second, store, _):
        await first.submit_batch([start(run, "join", lease=True) for run in runs])
        for node, coordinators in (("x", (first, second)), ("y", (second, first))):
            for coordinator in coordinators:
                coordinator.cache.clear()
                await coordinator.submit_batch([PauseRun(run=run) for run in runs])  # everybody remembers everything
            async with outsider(postgres_site.url) as blocker:
                transaction = blocker.transaction()
                await transaction.start()
                await blocker.execute("SELECT id FROM runs WHERE id = 'r3' FOR UPDATE")
                one = coordinators[0].submit_batch([complete(run, node) for run in runs])
                two = coordinators[1].submit_batch([complete(run, node) for run in reversed(runs)])
                both = asyncio.gather(one, two)
                await until_someone_waits_for_a_lock(postgres_site.url, 2)
                await transaction.rollback()
                answers = [answer.verdict for part in await both for answer in part]
            assert sorted(answers) == ["recorded"] * len(runs) + ["repeated"] * len(runs)
        assert {(await work_of(store, run))["sum"].completed for run in runs} == {2}
    assert await deadlocks(postgres_site.url) == before


async def test_k2_hand_made_flushes_in_opposite_order_do_not_deadlock(postgres_site: Site) -> None:
    """The statement itself locks in order, whatever order its arrays are in."""
    before = await deadlocks(postgres_site.url)
    async with two_engines(postgres_site) as (first, _, one, two):
        await first.submit_batch([start(f"r{number}", lease=True) for number in range(8)])
        for _ in range(ROUNDS):
            rows = (await every_row(one))["runs"]
            pairs = tuple((row, replace(row, version=row.version + 1)) for row in rows)
            async with outsider(postgres_site.url) as blocker:
                transaction = blocker.transaction()
                await transaction.start()
                await blocker.execute("SELECT id FROM runs WHERE id = 'r4' FOR UPDATE")
                both = asyncio.gather(one.flush(change(update=pairs)), two.flush(change(update=pairs[::-1])))
                await until_someone_waits_for_a_lock(postgres_site.url, 2)
                await transaction.rollback()
                missed = await both
            assert sorted(map(len, missed)) == [0, 8], "one goes through, the other names every run"
    assert await deadlocks(postgres_site.url) == before


async def test_i7_a_dead_workers_item_is_taken_over_although_it_is_remembered_as_ready(postgres_site: Site) -> None:
    """Claimed elsewhere, which this process never heard of: the lapse must not be refused as stale."""
    async with two_engines(postgres_site) as (first, _, store, other):
        await first.submit(start("r"))
        (handed,) = await other.claim(claim_request("gone"))
        work = handed.work
        lapse = LapseWork(run="r", node="only", attempt=1, token=work.token)
        assert (await first.submit(lapse)).verdict == "recorded"
        assert [(item.attempt, item.status) for item in (await every_row(store))["work"]] == [(1, "lost"), (2, "ready")]


@pytest.mark.parametrize("remembered", [True, False])
async def test_k10_a_run_that_somebody_holds_locked_holds_up_nobody_else(postgres_site: Site, remembered: bool) -> None:
    """Operations on other runs, in the same batch and in later ones, are answered while the hot run's still wait."""
    async with two_engines(postgres_site) as (first, _, _store, _other), outsider(postgres_site.url) as holder:
        await first.submit_batch([start(run, "join", lease=True) for run in ("hot", "cold")])
        if not remembered:
            first.cache.clear()
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("SELECT id FROM runs WHERE id = 'hot' FOR UPDATE")
        hot = [first.submit(complete("hot", "x"))]
        async with asyncio.timeout(20):
            same_batch = await first.submit(complete("cold", "x"))
            hot.append(first.submit(complete("hot", "y")))
            later = await first.submit(complete("cold", "y"))
            locked = await first.submit(CancelRun(run="cold"))
            new = await first.submit(start("new"))
        assert (same_batch.verdict, later.verdict, locked.status, new.run) == (
            "recorded",
            "recorded",
            "cancelled",
            "new",
        )
        assert not any(future.done() for future in hot)
        await transaction.rollback()
        assert [(await future).verdict for future in hot] == ["recorded", "recorded"]
