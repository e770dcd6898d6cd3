"""G6, I56: what is decided ahead of its time bears that time, and leads to nothing that could be seen before."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.coordinator import Coordinator
from holdfast.core.flow_waits import WakeAhead
from holdfast.core.function_operations import TURN, Entry, TakeTurn
from holdfast.core.operations import RECORDED, REPEATED, STALE, CancelRun, ClaimWork, CompleteWork, Offer, StartRun
from holdfast.core.queries import AllWork
from holdfast.core.rows import COMPLETED, GATE_DUE, GATE_OPEN, LEASED, READY, Work
from holdfast.models.flow_code import NotAhead
from holdfast.store.contract import Store
from tests.kernel import waiting_flow as flows
from tests.kernel.kernels import opened_kernel
from tests.support.stores import EPOCH_US, SECOND, Site, VirtualClock, every_row

DUE = EPOCH_US + 10 * SECOND
AT: dict[str, Any] = {"run": "r", "node": "sleep", "attempt": 1, "token": 1}
FOLLOWS = Offer(worker="w", room=10, queues=("default",))
AT_TURN = AT | {"node": TURN}


async def fall_asleep(coordinator: Coordinator) -> None:
    """A function that waits for a time alone, and has been parked."""
    await coordinator.submit(StartRun(run="r", workflow="f", model="function", offer=FOLLOWS))
    await coordinator.submit(TakeTurn(**AT_TURN, known=0, park=True, due=DUE))


async def work_of(store: Store) -> dict[str, Work]:
    return {work.node: work for work in await store.rows(AllWork("r"))}


@pytest.mark.parametrize("handed_over", [True, False])
async def test_g6_what_follows_a_sleep_that_is_over_ahead_of_its_time_starts_at_it(
    site: Site, handed_over: bool
) -> None:
    """Whether it is handed over, and held, or claimed by somebody, who sees that it is not due."""
    clock = VirtualClock()
    async with opened_kernel(site, clock) as (coordinator, store):
        await coordinator.submit(flows.begin_flow("r", flows.sleeps_and_acts))
        await coordinator.submit(ClaimWork(**AT, worker="w"))
        clock.advance(9.5)
        settled = await coordinator.submit(WakeAhead(**AT, offer=FOLLOWS if handed_over else None))
        assert (settled.verdict, settled.run_status) == (RECORDED, "running")
        work = await work_of(store)
        assert (work["sleep"].status, work["sleep"].finished) == (COMPLETED, DUE)
        act = work["act"]
        assert act.due == DUE
        assert (act.status, act.started) == ((LEASED, DUE) if handed_over else (READY, None))
        assert [item.work for item in settled.handed] == ([act] if handed_over else [])
        (run,) = await store.runs(["r"])
        assert run.updated == EPOCH_US + 9.5 * SECOND  # the time of the others in this batch is as it was


async def test_g6_all_that_a_sleep_leads_to_is_of_its_time(site: Site) -> None:
    clock = VirtualClock()
    async with opened_kernel(site, clock) as (coordinator, store):
        await coordinator.submit(flows.begin_flow("r", flows.sleeps_and_spreads))
        await coordinator.submit(ClaimWork(**AT, worker="w"))
        clock.advance(9.5)
        assert (await coordinator.submit(WakeAhead(**AT, offer=FOLLOWS))).verdict == RECORDED
        elements = [work for work in (await work_of(store)).values() if work.node.startswith("act")]
        assert len(elements) == 3
        assert {work.due for work in elements} == {DUE}


REFUSED = {
    "the run would end": flows.sleeps_and_returns,
    "the run would fail": flows.sleeps_and_fails,
    "a join that waits for others": flows.sleeps_beside,
}


@pytest.mark.parametrize("why", REFUSED)
async def test_g6_a_sleep_that_leads_to_what_everybody_sees_is_over_at_its_time_only(site: Site, why: str) -> None:
    """Nothing is written of the refused one, and another run in its batch is not held up."""
    clock = VirtualClock()
    async with opened_kernel(site, clock) as (coordinator, store):
        for run, which in (("r", REFUSED[why]), ("other", flows.sleeps_and_acts)):
            await coordinator.submit(flows.begin_flow(run, which))
            await coordinator.submit(ClaimWork(**AT | {"run": run}, worker="w"))
        clock.advance(9.5)
        before = [work for work in (await every_row(store))["work"] if work.run == "r"]
        refused, other = await coordinator.submit_batch([WakeAhead(**AT), WakeAhead(**AT | {"run": "other"})])
        assert isinstance(refused, NotAhead)
        assert other.verdict == RECORDED
        assert [work for work in (await every_row(store))["work"] if work.run == "r"] == before
        clock.advance(0.5)
        assert (await coordinator.submit(CompleteWork(**AT, offer=FOLLOWS))).verdict == RECORDED
        (run,) = await store.runs(["r"])
        assert run.finished in (None, DUE)


async def test_g6_the_last_sleep_of_a_join_makes_it_ready_for_its_time(site: Site) -> None:
    clock = VirtualClock()
    async with opened_kernel(site, clock) as (coordinator, store):
        await coordinator.submit(flows.begin_flow("r", flows.sleeps_beside))
        await coordinator.submit(ClaimWork(**AT | {"node": "act"}, worker="w"))
        await coordinator.submit(CompleteWork(**AT | {"node": "act"}, result=b"1"))
        await coordinator.submit(ClaimWork(**AT, worker="w"))
        clock.advance(9.5)
        assert (await coordinator.submit(WakeAhead(**AT))).verdict == RECORDED
        assert (await work_of(store))["gather"].due == DUE


async def test_k3_k8_who_wakes_ahead_holds_the_lease_and_is_told_that_it_was_done(site: Site) -> None:
    clock = VirtualClock()
    async with opened_kernel(site, clock) as (coordinator, _):
        await coordinator.submit(flows.begin_flow("r", flows.sleeps_and_acts))
        await coordinator.submit(ClaimWork(**AT | {"token": 2}, worker="w"))
        assert (await coordinator.submit(WakeAhead(**AT))).verdict == STALE
        assert (await coordinator.submit(WakeAhead(**AT | {"token": 2}))).verdict == RECORDED
        assert (await coordinator.submit(WakeAhead(**AT | {"token": 2}))).verdict == REPEATED


@pytest.mark.parametrize("late", [0, 1])
async def test_i56_a_timer_that_is_recorded_ahead_bears_the_time_that_it_is_due(site: Site, late: int) -> None:
    """The code is told that when it has come, in each replay; of one that is late it is when it was recorded."""
    clock, timer = VirtualClock(), Entry(address="/1", kind="timer", name="")
    async with opened_kernel(site, clock) as (coordinator, store):
        await fall_asleep(coordinator)
        await coordinator.submit(ClaimWork(**AT_TURN | {"token": 2}, worker="w"))
        clock.advance(9.5 + late)
        said = await coordinator.submit(TakeTurn(**AT_TURN | {"token": 2}, known=0, entries=(timer,), ahead=True))
        (row,) = await store.history("r")
        assert row.at == DUE + late * SECOND // 2
        assert [(each.entry, each.at) for each in said.entries] == [(timer, row.at)]


@pytest.mark.parametrize("left", [0.01, 1.0, -0.01])
async def test_i10_g6_a_cancel_leaves_a_turn_that_was_claimed_ahead_its_time(site: Site, left: float) -> None:
    """What it has recorded may be of then, and whoever rolls back is told of it before the cancel.

    What is due later than it could be claimed for has a time of another clock, which nobody waits for.
    """
    clock = VirtualClock()
    async with opened_kernel(site, clock) as (coordinator, store):
        await fall_asleep(coordinator)
        await coordinator.submit(ClaimWork(**AT_TURN | {"token": 2}, worker="w"))
        clock.advance(10 - left)
        await coordinator.submit(CancelRun(run="r"))
        fenced = (await work_of(store))[TURN]
        due, gate = (DUE, GATE_DUE) if left == 0.01 else (clock.now_us(), GATE_OPEN)
        assert (fenced.status, fenced.due, fenced.gate, fenced.token) == (READY, due, gate, 3)


@pytest.mark.parametrize("left", [9.0, 0.01])
async def test_i10_a_cancel_wakes_a_sleeper_at_once(site: Site, left: float) -> None:
    """Also one that is to wake in a moment: with a clock of tests that moment may never come."""
    clock = VirtualClock()
    async with opened_kernel(site, clock) as (coordinator, store):
        await fall_asleep(coordinator)
        clock.advance(10 - left)
        await coordinator.submit(CancelRun(run="r"))
        woken = (await work_of(store))[TURN]
        assert (woken.status, woken.due, woken.gate) == (READY, clock.now_us(), GATE_OPEN)
