"""K1, K4, K5 for events: whoever waits here is told in one commit, and what others wrote meanwhile is never missed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.coordinator import Commit, Coordinator
from holdfast.core import row_cache
from holdfast.core.function_operations import Delivered, Queued
from holdfast.store.contract import Store
from tests.functions.kernel_moves import (
    LATER,
    claim_functions,
    entries_of,
    result,
    send,
    start,
    suspend,
    turn,
    unsound,
    wait,
)
from tests.kernel.kernels import make_coordinator, opened_kernel
from tests.support.stores import EPOCH_US, SHARED_KINDS, Site, VirtualClock, every_row


def commits_of(coordinator: Coordinator) -> list[Commit]:
    seen: list[Commit] = []
    coordinator.observers.append(seen.append)
    return seen


@asynccontextmanager
async def two_kernels(site: Site) -> AsyncIterator[tuple[tuple[Coordinator, Store], tuple[Coordinator, Store]]]:
    """Two engines on one database: what one writes the other is not told of."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory is not shared")
    clock = VirtualClock()
    async with site.opened(clock) as store, site.opened(clock) as elsewhere:
        here, there = make_coordinator(store, clock), make_coordinator(elsewhere, clock)
        yield (here, store), (there, elsewhere)
        await here.close()
        await there.close()


@pytest.mark.parametrize("due", [None, LATER])
async def test_k5_an_event_for_a_function_that_waits_here_reads_nothing(site: Site, due: int | None) -> None:
    """Its waits and its turn are remembered while it waits, with or without a deadline."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        await coordinator.submit(suspend("r", "a", due=due))
        seen = commits_of(coordinator)
        assert await coordinator.submit(send("r", "e1", "a")) == Delivered("r")
        assert await coordinator.submit(send("r", "e2", "a")) == Queued("e2")
        assert [commit.locked for commit in seen] == [False, False]
        rows = await every_row(store)
        assert [entry.source for entry in entries_of(rows, "r")] == ["e1"]
        assert (rows["work"][0].status, rows["runs"][0].status, rows["waits"]) == ("ready", "running", [])
        assert not unsound(rows)
        assert len(await store.claim(claim_functions())) == 1


async def test_k5_an_event_for_a_function_that_runs_here_reads_nothing(site: Site) -> None:
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        await coordinator.submit(turn("r", entries=(result("0#1"),)))
        seen = commits_of(coordinator)
        assert await coordinator.submit(send("r", "e1", "a")) == Queued("e1")
        assert [commit.locked for commit in seen] == [False]
        assert not unsound(await every_row(store))


async def test_k4_a_run_that_somebody_has_just_claimed_stays_begun(site: Site) -> None:
    """A claim makes a pending run a running one and leaves its version, so that nothing is decided on a pending one."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r", lease=False))
        assert len(await store.claim(claim_functions("other"))) == 1
        assert await coordinator.submit(send("r", "e1", "a")) == Queued("e1")
        rows = await every_row(store)
        assert (rows["runs"][0].status, rows["runs"][0].mailbox) == ("running", 1)
        assert rows["runs"][0].started is not None


async def test_i12_the_same_event_again_is_answered_as_before(site: Site) -> None:
    """The key that proves the first one new is what the second one meets."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit_batch([start("r"), suspend("r", "a")])
        first = await coordinator.submit(send("r", "e1", "a"))
        coordinator.cache.clear()
        rows = await every_row(store)
        assert await coordinator.submit(send("r", "e1", "a")) == first == Delivered("r")
        assert await every_row(store) == rows


async def test_k5_of_very_many_that_wait_only_the_latest_are_remembered_with_their_waits(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "WAITING_LIMIT", 2)
    async with opened_kernel(site) as (coordinator, store):
        for run in ("r1", "r2", "r3"):
            await coordinator.submit(start(run))
            await coordinator.submit(suspend(run, "a"))
        seen = commits_of(coordinator)
        for run in ("r1", "r2", "r3"):
            assert await coordinator.submit(send(run, "e", "a")) == Delivered(run)
        assert [commit.locked for commit in seen] == [True, False, False]
        assert not unsound(await every_row(store))


async def test_k4_a_run_that_another_engine_has_moved_is_read_again(site: Site) -> None:
    """The wait that is remembered here was answered there: the event is kept for the next one."""
    async with two_kernels(site) as ((here, store), (there, _)):
        await here.submit_batch([start("r"), suspend("r", "a")])
        assert await there.submit(send("r", "e1", "a")) == Delivered("r")
        assert await here.submit(send("r", "e2", "a")) == Queued("e2")
        rows = await every_row(store)
        assert [entry.source for entry in entries_of(rows, "r")] == ["e1"]
        assert not unsound(rows)


async def test_k4_a_turn_that_another_engine_has_claimed_stays_claimed(site: Site) -> None:
    """A claim leaves the run's version as it is; the turn's token tells."""
    async with two_kernels(site) as ((here, store), (there, elsewhere)):
        await here.submit(start("r"))
        await here.submit(suspend("r", "a", due=EPOCH_US))
        await elsewhere.promote(["default"])
        (handed,) = await elsewhere.claim(claim_functions("other"))
        there.remember([handed])
        assert await here.submit(send("r", "e1", "a")) == Delivered("r")
        rows = await every_row(store)
        assert (rows["work"][0].status, rows["work"][0].worker) == ("leased", "other")
        assert [entry.source for entry in entries_of(rows, "r")] == ["e1"]
        goes_on = turn("r", known=1, token=handed.work.token, opens=(wait("0#2", "a"),), park=True)
        assert (await there.submit(goes_on)).parked
        assert not unsound(await every_row(store))
