"""A crowd of starts waits for slots, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.rows import READY
from holdfast.runtime import lobby
from holdfast.runtime.worker import Worker
from tests.worker.support import counted, engine_on, statuses, until
from tests.worker.test_slots import Gauge

CROWD = 300
SOON_SECONDS = 15.0


class Jobs:
    """An action that holds its slot until it is told to go on, and one that notes that it ran."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.may_end = asyncio.Event()
        self.gauge = Gauge()
        self.ran: list[int] = []

        @hf.action(registry=self.registry)
        async def hold() -> None:
            await self.may_end.wait()

        @hf.action(registry=self.registry)
        async def quick(number: int) -> int:
            with self.gauge:
                await asyncio.sleep(0)
            self.ran.append(number)
            return number

        self.hold, self.quick = hold, quick


@asynccontextmanager
async def all_slots_taken(url: str, jobs: Jobs, slots: int = 2) -> AsyncIterator[tuple[hf.Engine, Worker]]:
    engine = engine_on(url, jobs.registry)
    async with engine, engine.worker(concurrency=slots) as worker:
        for _ in range(slots):
            await engine.start(jobs.hold)
        await until(lambda: worker.free == 0, "every slot is taken")
        yield engine, worker


@pytest.fixture
def waits_for_slots_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds no slot waits for one, however few they are and however long it takes."""
    monkeypatch.setattr(lobby, "CROWD", 0)
    monkeypatch.setattr(lobby, "LOOK_SECONDS", 3600.0)


async def test_a_crowd_of_starts_is_handed_over_slot_by_slot(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written as ready and claimed again, and no more runs at once than there are slots."""
    monkeypatch.setattr(lobby, "PATIENCE", 1_000_000)  # a machine that is busy with other things is no reason
    jobs = Jobs()
    engine = engine_on(url, jobs.registry, poll_seconds=60.0)
    async with engine, engine.worker(concurrency=40):
        handles = await asyncio.gather(*(engine.start(jobs.quick, number) for number in range(CROWD)))
        assert await asyncio.gather(*(handle.result(timeout=SOON_SECONDS) for handle in handles)) == list(range(CROWD))
        assert counted(engine, "claimed_items") == 0
        assert jobs.gauge.most <= 40
    assert sorted(jobs.ran) == list(range(CROWD))


async def test_a_crowd_is_let_in_while_every_slot_is_held(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions may take hours: a start is acknowledged all the same."""
    monkeypatch.setattr(lobby, "PATIENCE", 1_000_000)  # at once, as nothing else is going on
    jobs = Jobs()
    async with all_slots_taken(url, jobs) as (engine, worker):
        starts = asyncio.gather(*(engine.start(jobs.quick, number) for number in range(CROWD)))
        handles = await asyncio.wait_for(starts, SOON_SECONDS)
        assert not jobs.ran
        assert not worker.lobby
        jobs.may_end.set()
        for handle in handles:
            await handle.result(timeout=SOON_SECONDS)


async def test_a_crowd_is_let_in_while_others_keep_the_process_busy(url: str) -> None:
    jobs = Jobs()
    async with all_slots_taken(url, jobs) as (engine, _):
        done = asyncio.Event()

        async def keep_busy() -> None:
            while not done.is_set():
                await engine.start(jobs.hold, paused=True)

        busy = asyncio.create_task(keep_busy())
        starts = asyncio.gather(*(engine.start(jobs.quick, number) for number in range(CROWD)))
        try:
            await asyncio.wait_for(starts, SOON_SECONDS)
        finally:
            done.set()
            await busy
            jobs.may_end.set()


@pytest.mark.usefixtures("waits_for_slots_only")
async def test_g9_what_is_stored_is_not_overtaken(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits to be started comes after what was ready before, also if there is a slot for one of them only."""
    jobs = Jobs()
    async with all_slots_taken(url, jobs, slots=1) as (engine, worker):
        with monkeypatch.context() as patched:
            patched.setattr(lobby, "CROWD", 1_000_000)
            stored = [await engine.start(jobs.quick, number) for number in range(10)]
        await until(lambda: worker._backlog, "the worker knows that something is ready")
        later = [asyncio.create_task(engine.start(jobs.quick, number)) for number in range(10, 20)]
        await until(lambda: len(worker.lobby) == 10, "the others wait")
        jobs.may_end.set()
        for handle in (*stored, *[await start for start in later]):
            await handle.result(timeout=SOON_SECONDS)
        assert jobs.ran == list(range(20))


@pytest.mark.usefixtures("waits_for_slots_only")
async def test_whoever_gives_up_starts_nothing_and_keeps_no_slot(url: str) -> None:
    jobs = Jobs()
    engine = engine_on(url, jobs.registry)
    async with engine, engine.worker(concurrency=1) as worker:
        await until(lambda: counted(engine, "claims") >= 1, "the worker has looked once")
        lent = worker.lend()
        first, second = (asyncio.create_task(engine.start(jobs.quick, number)) for number in (1, 2))
        await until(lambda: len(worker.lobby) == 2, "both wait")
        first.cancel()
        await asyncio.sleep(0)
        worker.take_back(lent)
        worker.lobby.admit()
        assert (len(worker.lobby), worker.free) == (0, 0)
        second.cancel()  # with the slot, which it has not yet noticed
        results: list[Any] = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2
        assert worker.free == 1
        assert await engine.run(jobs.quick, 3, timeout=SOON_SECONDS) == 3
        assert jobs.ran == [3]
        assert len(await engine.find()) == 1


@pytest.mark.usefixtures("waits_for_slots_only")
async def test_a_worker_that_stops_lets_everybody_in(url: str) -> None:
    """For whoever claims it next."""
    jobs = Jobs()
    async with all_slots_taken(url, jobs) as (engine, worker):
        start = asyncio.create_task(engine.start(jobs.quick, 1))
        await until(lambda: len(worker.lobby) == 1, "it waits")
        stop = asyncio.create_task(worker.stop(grace_seconds=SOON_SECONDS))
        handle = await asyncio.wait_for(start, SOON_SECONDS)
        assert await statuses(engine, handle.id) == [READY]
        assert await asyncio.wait_for(engine.start(jobs.quick, 2), SOON_SECONDS)
        jobs.may_end.set()
        await stop
