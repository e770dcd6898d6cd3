"""What is due in a moment is claimed before, where a claim takes time; and nothing of it begins early (G6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.core.operations import Handed
from holdfast.runtime.worker import Worker
from tests.worker.support import DEADLINE_SECONDS, assert_sound, engine_on, statuses, until, work_of

SLOW_CLAIM_SECONDS = 0.024
SOON = 0.07  # further away than a poll, nearer than what is let in together after claims as slow as these


class Ahead:
    """A worker that thinks its claims slow, and what it claims before its time."""

    def __init__(self, engine: hf.Engine) -> None:
        self.engine = engine
        self.claimed: list[Handed] = []
        self.when_claimed: Callable[[Handed], Any] = lambda handed: None
        engine.coordinator.claim_observers.append(self._note)

    def _note(self, handed: Sequence[Handed]) -> None:
        for each in handed:
            if each.work.due > self.engine.store.now():
                self.claimed.append(each)
                self.when_claimed(each)

    def expect_slow_claims(self) -> None:
        (worker,) = self.engine.local_workers
        assert isinstance(worker, Worker)
        for _ in range(50):
            worker._delayed.learn(SLOW_CLAIM_SECONDS)


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=SOON)


BEGAN: list[float] = []
going = Registry()
go = hf.event("ahead-go", int, registry=going)


@hf.action(registry=going)
async def note(due: float) -> float:
    BEGAN.append(time.time() - due)
    return due


class Later(hf.Dag, registry=going):
    due: float

    @hf.step
    async def begin(self) -> None:
        BEGAN.append(time.time() - self.due)


@hf.workflow(registry=going)
async def sleeps() -> float:
    due = hf.now().timestamp() + SOON
    await hf.sleep(seconds=SOON)
    return await note(due)


@hf.workflow(registry=going)
async def waits_a_little() -> int | None:
    try:
        async with asyncio.timeout(SOON):
            return (await hf.wait_for(go)).value
    except TimeoutError:
        return None


@pytest.fixture(autouse=True)
def nothing_began() -> None:
    BEGAN.clear()


async def cancel(engine: hf.Engine, handed: Handed) -> None:
    await (await engine.get(handed.work.run)).cancel()


async def _end_of(handle: hf.Handle[Any]) -> str | None:
    status = await handle.status()
    return status if status in ("completed", "cancelled") else None


async def test_g6_what_is_claimed_before_its_time_begins_when_it_comes(shared_url: str) -> None:
    async with engine_on(shared_url, going) as engine:
        ahead = Ahead(engine)
        async with engine.worker():
            ahead.expect_slow_claims()
            at = soon()
            handle = await engine.start(Later(due=at.timestamp()), at=at)
            await handle.result(timeout=DEADLINE_SECONDS)
        (claimed,) = ahead.claimed
        assert claimed.work.started == claimed.work.due  # a step that waits for its moment has not begun
        assert claimed.run.started == claimed.work.due
        (stored,) = await work_of(engine, handle.id)
        assert stored.finished >= stored.due
        await assert_sound(engine)
    (late,) = BEGAN
    assert late >= 0


async def test_g6_a_sleep_whose_turn_was_claimed_before_ends_on_time(shared_url: str) -> None:
    """And its end is recorded then, not before."""
    async with engine_on(shared_url, going) as engine:
        ahead = Ahead(engine)
        async with engine.worker():
            ahead.expect_slow_claims()
            handle = await engine.start(sleeps)
            due = await handle.result(timeout=DEADLINE_SECONDS)
        assert ahead.claimed
        timer = next(row for row in await engine.store.history(handle.id, 0) if row.kind == "timer")
        assert timer.at >= round(due * 1e6)
        await assert_sound(engine)
    (late,) = BEGAN
    assert late >= 0


async def test_i50_an_event_reaches_a_wait_whose_turn_was_claimed_before_its_time(shared_url: str) -> None:
    async with engine_on(shared_url, going) as engine:
        ahead, sent = Ahead(engine), list[asyncio.Task[Any]]()
        ahead.when_claimed = lambda handed: sent.append(
            asyncio.ensure_future(engine.send(go, 7, to=handed.work.run, id="early"))
        )
        async with engine.worker():
            ahead.expect_slow_claims()
            for _ in range(20):  # a slow machine may send it too late
                handle = await engine.start(waits_a_little)
                if (told := await handle.result(timeout=DEADLINE_SECONDS)) is not None:
                    break
            assert told == 7
        assert sent
        await asyncio.gather(*sent)
        await assert_sound(engine)


@pytest.mark.parametrize("begin", ["dag", "function"])
async def test_i10_what_was_claimed_before_its_time_can_be_cancelled(shared_url: str, begin: str) -> None:
    async with engine_on(shared_url, going) as engine:
        ahead, cancelled = Ahead(engine), list[asyncio.Task[Any]]()
        ahead.when_claimed = lambda handed: cancelled.append(asyncio.ensure_future(cancel(engine, handed)))
        async with engine.worker():
            ahead.expect_slow_claims()
            for _ in range(20):  # a slow machine may cancel it too late
                BEGAN.clear()
                at = soon()
                handle = await (
                    engine.start(sleeps) if begin == "function" else engine.start(Later(due=at.timestamp()), at=at)
                )
                ended = await until(lambda handle=handle: _end_of(handle), "it has ended")
                if ended == "cancelled":
                    break
            assert await handle.status() == "cancelled"
            assert not BEGAN
        await asyncio.gather(*cancelled)
        await assert_sound(engine)


async def test_i3_a_slot_is_kept_for_what_is_due_soon_only_until_somebody_needs_it(shared_url: str) -> None:
    """It goes back as it was, and counts as nothing; whoever has a slot takes it on time."""
    async with engine_on(shared_url, going) as engine:
        ahead = Ahead(engine)
        async with engine.worker(concurrency=4):
            (worker,) = engine.local_workers
            ahead.expect_slow_claims()
            ahead.when_claimed = lambda handed: worker._in_hand.let_go()  # type: ignore[attr-defined]
            at = soon()
            handle = await engine.start(Later(due=at.timestamp()), at=at)
            await until(lambda: ahead.claimed, "it is claimed before its time")
            await handle.result(timeout=DEADLINE_SECONDS)
        (work,) = await work_of(engine, handle.id)
        assert (work.attempt, work.losses) == (1, 0)
        await assert_sound(engine)
    (late,) = BEGAN
    assert late >= 0


async def test_i5_a_worker_that_stops_gives_back_what_was_not_due_yet(shared_url: str) -> None:
    async with engine_on(shared_url, going) as engine:
        ahead = Ahead(engine)
        async with engine.worker():
            (worker,) = engine.local_workers
            ahead.expect_slow_claims()
            at = soon()
            handle = await engine.start(Later(due=at.timestamp()), at=at)
            await until(lambda: ahead.claimed, "it is claimed before its time")
            await worker.stop(grace_seconds=0.0)
        assert await statuses(engine, handle.id) in (["ready"], ["completed"])  # the latter on a slow machine
        async with engine.worker():
            await handle.result(timeout=DEADLINE_SECONDS)
        await assert_sound(engine)
    (late,) = BEGAN
    assert late >= 0


async def test_who_has_few_slots_left_claims_nothing_before_its_time(shared_url: str) -> None:
    blocked = asyncio.Event()
    registry = Registry()

    @hf.action(registry=registry)
    async def busy() -> None:
        await blocked.wait()

    @hf.action(registry=registry)
    async def soon_due() -> None: ...

    async with engine_on(shared_url, registry) as engine:
        ahead = Ahead(engine)
        async with engine.worker(concurrency=2):
            ahead.expect_slow_claims()
            first = await engine.start(busy)
            second = await engine.start(soon_due, at=soon())
            await second.result(timeout=DEADLINE_SECONDS)
            blocked.set()
            await first.result(timeout=DEADLINE_SECONDS)
        assert not ahead.claimed
