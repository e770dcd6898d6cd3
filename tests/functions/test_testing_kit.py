"""`holdfast.testing`: time that a test turns, and an engine that says when it has come to rest."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import engine_in_memory

START = datetime(2031, 5, 1, tzinfo=UTC)
REAL_SECONDS = 5.0  # far less than any time that passes in these tests


class Days:
    """Workflows that wait for long, and what they did when."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.journal: list[tuple[str, timedelta]] = []
        self.failures_left = 2
        self.may_end = asyncio.Event()
        approved = self.approved = hf.event("approved", str, expires=timedelta(hours=3), registry=self.registry)

        @hf.action(registry=self.registry)
        async def note(what: str, at: datetime) -> str:
            self.journal.append((what, at - START))
            return what

        @hf.action(retry=hf.Retry(attempts=3, base=3600.0, cap=7200.0), queue="flaky", registry=self.registry)
        async def fails_twice() -> str:
            self.failures_left -= 1
            if self.failures_left >= 0:
                raise ConnectionError("not yet")
            return "third time"

        @hf.action(registry=self.registry)
        async def hang() -> str:
            await self.may_end.wait()
            return "released"

        @hf.action(timeout=90.0, registry=self.registry)
        async def hang_with_a_timeout() -> None:
            await asyncio.Event().wait()

        @hf.workflow(registry=self.registry)
        async def onboard(user: str) -> str:
            match await hf.wait_for(approved | hf.after(days=2)):
                case hf.Received(value=value):
                    return f"approved by {value}"
                case hf.TimeReached():
                    return await note(f"remind {user}", hf.now())

        @hf.workflow(registry=self.registry)
        async def wake(what: str, hours: float) -> str:
            await hf.sleep(hours=hours)
            return await note(what, hf.now())

        @hf.workflow(registry=self.registry)
        async def insists() -> tuple[str, datetime]:
            return await fails_twice(), hf.now()

        @hf.workflow(registry=self.registry)
        async def limits() -> str:
            try:
                async with asyncio.timeout(60):
                    return await hang()
            except TimeoutError:
                return f"gave up after {hf.now() - START}"

        @hf.workflow(registry=self.registry)
        async def is_limited() -> str:
            try:
                await hang_with_a_timeout()
            except TimeoutError as error:
                return f"{type(error).__name__} after {hf.now() - START}"
            return "never"

        self.note, self.onboard, self.wake = note, onboard, wake
        self.insists, self.limits, self.is_limited = insists, limits, is_limited

    def engine(self, **options: Any) -> Any:
        return engine_in_memory(registry=self.registry, start=START, **options)


@pytest.fixture
def days() -> Days:
    return Days()


async def test_i56_two_days_pass_in_no_time_and_a_run_sees_them_pass(days: Days) -> None:
    """A durable time is not waited for in a test; what it sets off runs before `advance` returns."""
    began = time.monotonic()
    async with days.engine() as (engine, clock):
        run = await engine.start(days.onboard, "u1")
        await clock.advance(days=1, hours=23, minutes=59, seconds=59)
        assert await run.status() == "suspended"
        await clock.advance(seconds=1)
        assert await run.status() == "completed"
        assert await run.result(REAL_SECONDS) == "remind u1"
        assert clock.now() == START + timedelta(days=2)
    assert days.journal == [("remind u1", timedelta(days=2))]
    assert time.monotonic() - began < REAL_SECONDS


async def test_everything_on_the_way_runs_in_order_of_time(days: Days) -> None:
    """One jump over many times is the same as many small ones."""
    async with days.engine() as (engine, clock):
        await asyncio.gather(*(engine.start(days.wake, f"{hours} h", hours) for hours in (3.0, 1.0, 2.5, 30.0)))
        await engine.start(days.wake, "1 h after 1.75", 1.0, at=START + timedelta(hours=1.75))
        await clock.advance(timedelta(days=1))
        await clock.advance(weeks=1)
    assert days.journal == [
        ("1.0 h", timedelta(hours=1)),
        ("2.5 h", timedelta(hours=2.5)),
        ("1 h after 1.75", timedelta(hours=2.75)),
        ("3.0 h", timedelta(hours=3)),
        ("30.0 h", timedelta(hours=30)),
    ]


async def test_i3_delays_between_attempts_are_virtual_too(days: Days) -> None:
    """Also of an action that goes through the work table of another queue."""
    async with days.engine() as (engine, clock):
        run = await engine.start(days.insists)
        await clock.advance(minutes=59)
        assert days.failures_left == 1
        await clock.advance(hours=5)
        result, at = await run.result(REAL_SECONDS)
    assert result == "third time"
    assert timedelta(hours=3) <= at - START <= timedelta(hours=5)  # 1 to 2 h, and 2 h


async def test_a_time_passes_while_an_action_hangs(days: Days) -> None:
    """I5 and asyncio.timeout: a deadline of a function, or of an action, does not wait for real seconds."""
    async with days.engine(patience_seconds=0.05) as (engine, clock):
        own, given = await engine.start(days.limits), await engine.start(days.is_limited)
        await clock.advance(seconds=59)
        assert [await run.status() for run in (own, given)] == ["running", "running"]
        await clock.advance(minutes=5)
        assert await own.result(REAL_SECONDS) == "gave up after 0:01:00"
        assert await given.result(REAL_SECONDS) == "TimedOut after 0:01:30"


async def test_an_action_that_takes_real_time_is_waited_for(days: Days) -> None:
    """Virtual time does not run away from code that is merely at work."""
    async with days.engine(patience_seconds=60.0) as (engine, clock):
        run = await engine.start(days.limits)
        asyncio.get_running_loop().call_later(0.05, days.may_end.set)
        await clock.advance(days=1)
        assert await run.result(REAL_SECONDS) == "released"


async def test_i8_a_jump_of_days_costs_no_lease_and_buries_nothing_that_is_known(days: Days) -> None:
    """Workers keep their leases on virtual time, also two of them that could take each other for dead."""
    async with days.engine(patience_seconds=0.05) as (engine, clock), engine.worker():
        ids = {worker.id for worker in engine.local_workers}
        run = await engine.start(days.limits)
        await clock.advance(days=30)
        assert {worker.id for worker in engine.local_workers} == ids == {row.id for row in await engine.workers()}
        assert await run.result(REAL_SECONDS) == "gave up after 0:01:00"
        assert await engine.dead() == []


async def test_i52_an_event_expires_in_virtual_time(days: Days) -> None:
    """What nobody took in time is gone, from the store as well."""
    async with days.engine() as (engine, clock):
        await engine.broadcast(days.approved, "Ada")
        await clock.advance(hours=2)
        assert await (await engine.start(days.onboard, "early")).result(REAL_SECONDS) == "approved by Ada"
        await engine.broadcast(days.approved, "Eve")
        await clock.advance(hours=4)
        assert await row_count(engine, "events") == 0
        run = await engine.start(days.onboard, "late")
        await engine.settle()
        assert await run.status() == "suspended"


async def row_count(engine: hf.Engine, table: str) -> int:
    store: Any = engine.store
    return next(len(rows) for each, rows in store.tables.items() if each.name == table)


async def test_every_queue_is_served_also_one_that_a_start_names_first(days: Days) -> None:
    """In a test there is nobody else who would serve it."""
    async with days.engine() as (engine, clock):
        run = await engine.start(days.wake, "woken", 1.0, queue="nightly")
        await clock.advance(hours=1)
        assert await run.result(REAL_SECONDS) == "woken"


async def test_the_same_seed_gives_the_same_ids_and_times(days: Days) -> None:
    """A failing test can be repeated as it was; engines of other seeds differ, also side by side."""

    async def lived(seed: int) -> tuple[str, str, datetime]:
        async with engine_in_memory(registry=days.registry, seed=seed) as (engine, clock):
            run = await engine.start(days.onboard, "u1")
            await clock.advance(days=2)
            second = await engine.start(days.onboard, "u2")
            return run.id, second.id, clock.now()

    one, same, other = await asyncio.gather(lived(1), lived(1), lived(2))
    assert one == same
    assert one[:2] != other[:2]
    assert one[2] == other[2] == datetime(2030, 1, 3, tzinfo=UTC)


async def test_two_engines_have_two_times(days: Days) -> None:
    async with days.engine() as (first, clock), days.engine() as (second, still):
        here, there = await first.start(days.onboard, "u1"), await second.start(days.onboard, "u1")
        await clock.advance(days=2)
        await second.settle()
        assert (await here.status(), await there.status()) == ("completed", "suspended")
        assert (clock.now(), still.now()) == (START + timedelta(days=2), START)


def test_it_works_in_a_loop_that_somebody_else_runs(days: Days) -> None:
    """As under plugins that keep one loop for several tests."""
    with asyncio.Runner() as runner:
        for number in range(2):

            async def test(user: str) -> str:
                async with days.engine() as (engine, clock):
                    run = await engine.start(days.onboard, user)
                    await clock.advance(days=2)
                    result: str = await run.result(REAL_SECONDS)
                    return result

            assert runner.run(test(f"u{number}")) == f"remind u{number}"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": "1"}, "seed='1'"),
        ({"seed": True}, "seed=True"),
        ({"start": datetime(2031, 1, 1)}, "time zone"),
        ({"patience_seconds": 0}, "patience_seconds is 0"),
        ({"lease_secnds": 3}, "lease_secnds"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(hf.UsageError, match=named):
        engine_in_memory(**options)


async def test_time_passes_once_at_a_time_forward_and_only_from_outside(days: Days) -> None:
    """Whatever cannot be meant is refused before a second has passed."""
    clocks: list[Any] = []

    @hf.action(registry=days.registry)
    async def turns_time() -> None:
        await clocks[0].advance(days=1)

    async with days.engine(patience_seconds=0.05) as (engine, clock):
        clocks.append(clock)
        for bad in ({}, {"days": -1}, {"days": 1, "seconds": float("nan")}):
            with pytest.raises(hf.UsageError, match=r"clock\.advance"):
                await clock.advance(**bad)
        with pytest.raises(hf.RunFailed, match=r"turns_time.*wait for itself"):
            await engine.run(turns_time, timeout=REAL_SECONDS)
        await engine.start(days.limits)
        first = asyncio.ensure_future(clock.advance(seconds=1))
        await asyncio.sleep(0)
        with pytest.raises(hf.UsageError, match="already"):
            await clock.advance(days=1)
        await first
        assert clock.now() == START + timedelta(seconds=1)
    with pytest.raises(hf.UsageError, match="no open engine"):
        await clock.advance(days=1)
