"""G6, I10, I11, I56: what is claimed ahead of its time is prepared then, and begins at it (decision 0033)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Never

import pytest

import holdfast as hf
from holdfast.coordinator import Commit
from holdfast.core import ahead
from holdfast.core.function_operations import TIMER, TURN
from holdfast.core.operations import LapseWork
from holdfast.core.rows import HISTORY, LEASED, READY, SLEEP, WORK, Work
from holdfast.runtime import delayed, function_driver
from tests.worker.support import assert_sound, engine_on, until, work_of

AHEAD_US = 400_000  # longer than in life, so that there is time to do things in it
SLEEPS = 1.0


@pytest.fixture(autouse=True)
def far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if commits took very long, from the first one on."""
    monkeypatch.setattr(ahead, "MOST_AHEAD_US", AHEAD_US)
    monkeypatch.setattr(function_driver, "MOST_AHEAD_US", AHEAD_US)
    monkeypatch.setattr(delayed, "COMMITS_AHEAD", 1_000_000)


class Watched:
    """An engine's commits, with the store's time at which each was known."""

    def __init__(self, engine: hf.Engine) -> None:
        self._engine = engine
        self.commits: list[tuple[int, Commit]] = []
        engine.coordinator.observers.append(lambda commit: self.commits.append((self.now(), commit)))

    def now(self) -> int:
        return self._engine.store.now()

    def recorded(self, kind: str) -> tuple[int, int] | None:
        """When the first entry of this kind was committed, and the time that it bears."""
        for known, commit in self.commits:
            for row in commit.changes.inserts.get(HISTORY, ()):
                if row.kind == kind:
                    return known, row.at
        return None

    def settled(self, kind: str) -> tuple[int, Work] | None:
        """When the first item of this kind was settled, and as what."""
        for known, commit in self.commits:
            for _, row in commit.changes.updates.get(WORK, ()):
                if row.kind == kind and row.finished is not None:
                    return known, row
        return None


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


@pytest.mark.parametrize("hand_over", [True, False])
async def test_g6_i56_a_sleeper_is_told_at_its_time_what_was_recorded_before(url: str, hand_over: bool) -> None:
    registry = hf.Registry()
    began: list[int] = []

    @hf.action(registry=registry)
    async def note() -> None:
        began.append(watched.now())

    @hf.workflow(registry=registry)
    async def sleeps() -> tuple[datetime, datetime, int]:
        before = hf.now()
        await hf.sleep(seconds=SLEEPS)
        told = time.time_ns() // 1000
        await note()
        return before, hf.now(), told

    async with engine_on(url, registry, hand_over=hand_over) as engine, engine.worker():
        watched = Watched(engine)
        handle = await engine.start(sleeps)
        before, after, told = await handle.result()
        due = micros(before) + int(SLEEPS * 1e6)
        recorded = watched.recorded(TIMER)
        await assert_sound(engine)
    assert recorded is not None
    known, at = recorded
    assert known < due  # that it was recorded ahead is what is tested here
    assert at == due <= told <= began[0]
    assert micros(after) >= due


async def test_g6_what_follows_a_flows_sleep_begins_at_its_time(url: str) -> None:
    registry = hf.Registry()
    began: list[int] = []

    @hf.action(registry=registry)
    async def note(number: int) -> int:
        began.append(watched.now())
        return number

    @hf.flow(registry=registry)
    async def sleeps() -> int:
        await hf.sleep(seconds=SLEEPS)
        first = await note(1)
        return await note(first + 1)

    async with engine_on(url, registry) as engine, engine.worker():
        watched = Watched(engine)
        handle = await engine.start(sleeps)
        assert await handle.result() == 2
        settled = watched.settled(SLEEP)
        works = await work_of(engine, handle.id)
        await assert_sound(engine)
    assert settled is not None
    known, sleep = settled
    assert known < sleep.due
    assert sleep.due <= min(began)
    assert all((work.started or 0) >= work.due >= sleep.due for work in works if work.kind != SLEEP)


@pytest.mark.parametrize("shape", ["ends", "joins", "fails"])
async def test_g6_a_flow_that_ends_with_a_sleep_or_joins_others_does_so_at_its_time(url: str, shape: str) -> None:
    """There is nothing that could wait for the time: everybody would see that it has ended, or the join be early."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def slow() -> int:
        await asyncio.sleep(SLEEPS - AHEAD_US / 2e6)  # while the sleep is about to be over
        return 1

    @hf.flow(registry=registry)
    async def ends() -> int:
        await hf.sleep(seconds=SLEEPS)
        return 1

    @hf.flow(registry=registry)
    async def joins() -> int:
        _, number = await asyncio.gather(hf.sleep(seconds=SLEEPS), slow())
        return number

    @hf.flow(registry=registry)
    async def fails(divisor: int) -> float:
        await hf.sleep(seconds=SLEEPS)
        return 1 / divisor

    async with engine_on(url, registry) as engine, engine.worker():
        starts: dict[str, Any] = {"ends": (ends,), "joins": (joins,), "fails": (fails, 0)}
        handle = await engine.start(*starts[shape])
        try:
            await handle.result()
        except hf.RunFailed:
            assert shape == "fails"
        seen = engine.store.now()
        (run,) = await engine.store.runs([handle.id])
        (sleep,) = [work for work in await work_of(engine, handle.id) if work.kind == SLEEP]
        await assert_sound(engine)
    assert run.finished is not None
    assert sleep.due <= run.finished <= seen


@pytest.mark.parametrize("what", ["a start for later", "a retry"])
async def test_g6_i3_i5_an_action_that_is_claimed_ahead_begins_at_its_time(url: str, what: str) -> None:
    registry = hf.Registry()
    began: list[int] = []

    class Later(hf.Dag, registry=registry):
        @hf.step(retry=hf.Retry(attempts=2, base=SLEEPS, cap=2 * SLEEPS), timeout=30.0)
        async def note(self) -> None:
            began.append(engine.store.now())
            if what == "a retry" and len(began) == 1:
                raise ValueError("the first time")

    async with engine_on(url, registry) as engine, engine.worker():
        later = datetime.now(UTC) + timedelta(seconds=SLEEPS)
        handle = await engine.start(Later(), at=later if what == "a start for later" else None)
        await handle.result()
        attempts = await work_of(engine, handle.id)
        await assert_sound(engine)
    last = max(attempts, key=lambda work: work.due)
    assert last.started == last.due  # claimed ahead, and started then
    assert last.due <= began[-1]


async def test_k11_only_what_is_claimed_ahead_of_its_time_waits_for_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the rest of its chain, which by a clock that is read twice can seem to be due a little later."""
    registry = hf.Registry()
    waits: list[int] = []
    until_then = delayed.Delayed.until

    async def noted(self: delayed.Delayed, due: int) -> None:
        waits.append(due)
        await until_then(self, due)

    monkeypatch.setattr(delayed.Delayed, "until", noted)

    class Later(hf.Dag, registry=registry):
        @hf.step
        async def first(self) -> None: ...

        @hf.step
        async def second(self) -> None: ...

        @hf.step
        async def third(self) -> None: ...

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(Later(), at=datetime.now(UTC) + timedelta(seconds=SLEEPS))
        await handle.result()
        first = (await work_of(engine, handle.id, "first"))[0]
    assert waits == [first.due]


async def claimed_ahead(engine: hf.Engine, run: str, node: str | None = None) -> Work:
    """The item that is leased before its time."""

    async def look() -> Work | None:
        found = [work for work in await work_of(engine, run, node) if work.status == LEASED]
        return found[0] if found and found[0].due > engine.store.now() else None

    found: Work = await until(look, "it is claimed ahead of its time")
    return found


@pytest.mark.parametrize("model", ["function", "flow", "dag"])
@pytest.mark.parametrize("verb", ["cancel", "pause"])
async def test_g7_i10_i11_what_is_cancelled_before_its_time_does_not_begin(url: str, model: str, verb: str) -> None:
    """And what is paused then begins at most what had been claimed, as ever."""
    registry = hf.Registry()
    began: list[str] = []
    woke: list[int] = []

    @hf.action(registry=registry)
    async def note() -> None:
        began.append(model)

    @hf.workflow(registry=registry)
    async def sleeping_function() -> None:
        await hf.sleep(seconds=SLEEPS)
        woke.append(time.time_ns() // 1000)
        await note()
        await note()

    @hf.flow(registry=registry)
    async def sleeping_flow() -> None:
        await hf.sleep(seconds=SLEEPS)
        await note()
        await note()

    class Later(hf.Dag, registry=registry):
        @hf.step
        async def first(self) -> None:
            began.append(model)

        @hf.step
        async def second(self) -> None:
            began.append(model)

    async with engine_on(url, registry) as engine, engine.worker():
        at = datetime.now(UTC) + timedelta(seconds=SLEEPS) if model == "dag" else None
        target: Any = {"function": sleeping_function, "flow": sleeping_flow, "dag": Later}[model]
        handle = await engine.start(target() if model == "dag" else target, at=at)
        early = await claimed_ahead(engine, handle.id)
        if verb == "cancel":
            await handle.cancel()
            with pytest.raises(hf.RunCancelled):
                await handle.result()
        else:
            await handle.pause()
        await until(lambda: engine.store.now() > early.due + 100_000, "its time has come and gone")
        assert min(woke, default=early.due) >= early.due
        if verb == "cancel":
            assert began == []
        else:
            assert len(began) <= 1
            await handle.resume()
            await handle.result()
            assert len(began) == 2
        await assert_sound(engine)


async def test_i50_an_event_that_comes_before_the_time_wins_also_when_the_turn_was_claimed_ahead(url: str) -> None:
    registry = hf.Registry()
    go = hf.event("go", int, registry=registry)

    @hf.workflow(registry=registry)
    async def waits() -> int | None:
        match await hf.wait_for(hf.any_of(go, hf.after(seconds=SLEEPS))):
            case hf.Received(value=value):
                return int(value)
            case _:
                return None

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(waits)
        early = await claimed_ahead(engine, handle.id, TURN)
        await engine.send(go, 7, to=handle)
        assert await handle.result() == 7
        assert engine.store.now() < early.due  # and does not wait for the time that was claimed for
        await assert_sound(engine)


async def test_k11_a_function_that_waits_for_an_event_as_well_is_not_parked_once_more(url: str) -> None:
    """Its own commits are no news to it: it would go to sleep again in the moment in which it is to wake."""
    registry = hf.Registry()
    go = hf.event("go", int, registry=registry)

    @hf.action(registry=registry)
    async def quick() -> None: ...

    @hf.workflow(registry=registry)
    async def waits() -> None:
        await quick()
        await hf.wait_for(hf.any_of(go, hf.after(seconds=SLEEPS)))

    async with engine_on(url, registry) as engine, engine.worker():
        watched = Watched(engine)
        handle = await engine.start(waits)
        await handle.result()
    parked = [
        row
        for _, commit in watched.commits
        for _, row in commit.changes.updates.get(WORK, ())
        if row.node == TURN and row.status == READY
    ]
    assert len(parked) == 1


async def test_i7_a_worker_that_stops_gives_back_what_it_has_not_begun(shared_url: str) -> None:
    registry = hf.Registry()
    began: list[int] = []

    @hf.action(registry=registry)
    async def note() -> int:
        began.append(1)
        return 1

    async with engine_on(shared_url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(note, at=datetime.now(UTC) + timedelta(seconds=SLEEPS))
            early = await claimed_ahead(engine, handle.id)
        assert began == []
        (work,) = await work_of(engine, handle.id)
        assert (work.status, work.due, work.losses, work.attempt) == (READY, early.due, 0, 1)
        async with engine.worker():
            assert await handle.result() == 1
        await assert_sound(engine)


async def test_g9_a_sleep_that_may_end_its_flow_holds_no_slots_of_others_meanwhile(url: str) -> None:
    """A completion lends the free slots to what it makes ready: not one that has to wait for its time first."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick(number: int) -> int:
        return number

    @hf.flow(registry=registry)
    async def ends(number: int) -> int:
        await hf.sleep(seconds=SLEEPS)
        if number:
            number = await quick(number)
        return number

    async with engine_on(url, registry) as engine, engine.worker(concurrency=4):
        handle = await engine.start(ends, 0)
        early = await claimed_ahead(engine, handle.id)
        assert await (await engine.start(quick, 7)).result() == 7
        assert engine.store.now() < early.due
        assert await handle.result() == 0


async def test_g6_g3_who_takes_over_what_was_recorded_ahead_goes_on_at_its_time(shared_url: str) -> None:
    """The first is taken for dead and is not: both may begin, as ever (I7), and neither before."""
    registry = hf.Registry()
    began: list[int] = []

    @hf.action(registry=registry)
    async def note() -> None:
        began.append(second.store.now())

    @hf.workflow(registry=registry)
    async def sleeps() -> int:
        await hf.sleep(seconds=SLEEPS)
        await note()
        return 1

    first, second = (engine_on(shared_url, registry) for _ in range(2))
    async with first, second:
        watched = Watched(first)
        async with first.worker():
            handle = await first.start(sleeps)
            await until(lambda: watched.recorded(TIMER), "its waking is recorded")
            early = await claimed_ahead(first, handle.id, TURN)
            lapse = LapseWork(run=early.run, node=early.node, attempt=early.attempt, token=early.token, lost_limit=10)
            assert (await second.coordinator.submit(lapse)).verdict == "recorded"
            async with second.worker():
                assert await second.get(handle.id).result() == 1
        await assert_sound(second)
    assert 1 <= len(began) <= 2
    assert min(began) >= early.due


@dataclass(frozen=True)
class Set:
    pass


@dataclass(frozen=True)
class Ring:
    pass


async def test_g6_a_timer_of_a_decider_is_decided_at_its_time(url: str) -> None:
    registry = hf.Registry()
    decided: list[int] = []

    class Alarm(hf.Decider[int, Set | Ring, Set | Ring, Never], registry=registry):
        def workflow_id(self, input: Set | Ring) -> str:
            return "alarm"

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Set | Ring) -> int:
            return state + 1

        def decide(self, now: datetime, state: int, input: Set | Ring) -> hf.Decision[Set | Ring, Never, Ring]:
            decided.append(micros(now))
            if isinstance(input, Set):
                return hf.Decision.event(input).with_timer_after(SLEEPS, Ring())
            return hf.Decision.event(input)

    async with engine_on(url, registry) as engine, engine.worker():
        await engine.execute(Alarm, Set())
        await until(lambda: len(decided) >= 2, "it rings")
        await assert_sound(engine)
    assert decided[-1] >= decided[0] + int(SLEEPS * 1e6)


async def test_g9_while_work_waits_for_slots_none_is_let_in_ahead(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is due goes before what is not."""
    registry = hf.Registry()
    asked: list[int] = []

    @hf.action(registry=registry)
    async def holds_a_slot() -> None:
        await asyncio.sleep(0.02)

    async with engine_on(sqlite_url, registry, hand_over=False) as engine:
        promote = engine.store.promote

        async def noted(queues: Any, ahead_us: int = 0) -> int | None:
            asked.append(ahead_us)
            return await promote(queues, ahead_us)

        monkeypatch.setattr(engine.store, "promote", noted)
        async with engine.worker(concurrency=2):
            handles = [await engine.start(holds_a_slot) for _ in range(20)]
            await asyncio.gather(*(handle.result() for handle in handles))
            assert 0 in asked[1:]
            await until(lambda: asked[-1] == AHEAD_US, "it has room again")
