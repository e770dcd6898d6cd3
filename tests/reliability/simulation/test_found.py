"""Faults that the simulation found, each on its own. The seed is the one that showed it, with the code of that day."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

import holdfast as hf
from holdfast.core.function_operations import QueuedCall, TakeTurn
from holdfast.core.operations import STALE
from holdfast.core.queries import AllWork, Attempts
from holdfast.core.rows import COMPLETED, LEASED, READY, RUNS, WORK, Run, Work
from holdfast.core.view import Changes, RowCache, View
from holdfast.runtime.system import RealClock
from holdfast.store.contract import ClaimRequest, CodeSeen
from holdfast.store.memory import MemoryStore
from holdfast.testing import engine_in_memory
from tests.reliability.simulation.actions import Job, act, enter
from tests.reliability.simulation.faults import Faults
from tests.reliability.simulation.ledger import Broken
from tests.reliability.simulation.shadow import Shadow
from tests.reliability.simulation.simulate import undisturbed
from tests.reliability.simulation.world import World
from tests.support.stores import change

IDLE_SECONDS = 20.0
WAKES_A_SECOND = 15  # of a worker with nothing to do: claims, heartbeats, sweeps and projections


class Flaky:
    """A function that waits for two words while an action of it waits for its second attempt, and another function."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.attempts: list[int] = []
        self.word = hf.event("word", int, registry=self.registry)

        @hf.action(registry=self.registry, retry=hf.Retry(attempts=3, base=10.0, cap=100.0))
        async def flaky() -> str:
            self.attempts.append(hf.current().node.attempt)
            if len(self.attempts) == 1:
                raise ValueError("once")
            return "ok"

        async def hear() -> int:
            return [(await hf.wait_for(self.word)).value for _ in range(2)][-1]

        @hf.workflow(registry=self.registry)
        async def both() -> list[int | str]:
            return list(await asyncio.gather(flaky(), hear()))

        @hf.workflow(registry=self.registry)
        async def other() -> None:
            await hf.wait_for(self.word)

        self.both, self.other = both, other


async def test_g3_a_call_that_waits_for_its_second_attempt_is_not_made_again_by_who_replays_the_function() -> None:
    """Seed 13. It was called at once, as a first attempt, beside the one in the work table; then nothing went on."""
    made = Flaky()
    async with engine_in_memory(registry=made.registry, resident_functions=1) as (engine, clock):
        run = await engine.start(made.both)
        await engine.settle()
        await engine.start(made.other)  # takes the one place in memory: the first is replayed when it is woken
        await engine.settle()
        await engine.send(made.word, 1, to=run)
        await engine.settle(timeout=5)
        assert made.attempts == [1]
        await engine.send(made.word, 2, to=run)
        await clock.advance(seconds=60)
        assert await run.result(timeout=5) == ["ok", 2]
        assert made.attempts == [1, 2]


def test_k5_attempts_that_begin_with_the_second_are_found_among_remembered_rows_as_they_are_in_the_store() -> None:
    """Seed 13. The first attempt of a function's call is made by its driver and has no row."""
    rows = [
        Work(run="r", node="1#1", attempt=2, workflow="w", status="failed"),
        Work(run="r", node="1#1", attempt=3, workflow="w", status=READY),
    ]
    cache = RowCache()
    cache.of_run("r").whole = True
    for row in rows:
        cache.learn(WORK, row)
    assert View(cache, now=0, optimistic=True).find(Attempts("r", frozenset({"1#1"}))) == rows


class Stumbling(MemoryStore):
    """Fails once, when the engine is connected and has not begun."""

    stumbled = False

    async def see_code(self, code: object, *, serve: bool = False, again: bool = False) -> CodeSeen:
        if not self.stumbled:
            self.stumbled = True
            raise hf.StoreUnavailable("gone for a moment")
        return await super().see_code(code, serve=serve, again=again)  # type: ignore[arg-type]


async def test_g9_an_engine_whose_opening_failed_can_be_opened_again() -> None:
    """Seed 24. It stayed half open: it kept its connection, and refused to be opened."""
    registry = hf.Registry()

    class Deployed(hf.Dag, registry=registry):
        @hf.step
        async def only(self) -> None: ...

    engine = hf.Engine("memory://", store=Stumbling(RealClock()), registry=registry)
    with pytest.raises(hf.StoreUnavailable):
        await engine.open()
    await engine.open()
    assert not list(await engine.find())
    await engine.close()


async def test_g9_work_whose_task_was_stopped_before_its_first_step_is_taken_up_again() -> None:
    """Seed 1760. A worker counted it as running for ever, and nobody else could have it."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def act() -> int:
        return 7

    async with engine_in_memory(registry=registry, hand_over=False) as (engine, _):
        (worker,) = engine.local_workers
        worker._stopping = True  # it claims nothing by itself for a moment
        run = await engine.start(act)
        request = ClaimRequest(worker=worker.id, queue="default", limit=1, workflows=("act",), actions=("act",))
        (handed,) = await engine.store.claim(request)
        worker._launch(handed)
        worker._lose_everything("its heartbeats did not get through")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert worker.running == []
        worker._stopping = False
        assert handed.work.status == LEASED
        worker._launch(handed)  # as its next look at what it holds does
        assert await run.result(timeout=5) == 7
        assert (await engine.store.runs([run.id]))[0].status == COMPLETED


async def test_k3_a_claim_whose_answer_comes_after_a_cancel_does_not_undo_the_fence_in_memory() -> None:
    """Seed 5005. The claimed row replaced the newer one, and a function that was being cancelled made one more call."""
    registry = hf.Registry()

    @hf.workflow(registry=registry)
    async def waits() -> None:
        await hf.sleep(60.0)

    async with hf.Engine("memory://", registry=registry) as engine:
        run = await engine.start(waits)
        request = ClaimRequest(worker="w", queue="default", limit=1, workflows=("waits",), actions=("waits",))
        handed = await engine.store.claim(request)
        await run.cancel()
        engine.coordinator.remember(handed)
        call = QueuedCall(address="#1", action="act", name="act", digest="", queue="default", payload=b"", codec="json")
        late = TakeTurn(run=run.id, node="turn", attempt=1, token=1, known=0, calls=(call,))
        assert (await engine.coordinator.submit(late)).verdict == STALE
        assert [work.node for work in await engine.store.rows(AllWork(run.id))] == ["turn"]


async def test_k4_a_claim_whose_answer_comes_late_is_remembered_if_nobody_else_has_had_the_item() -> None:
    """The other half of seed 5005: what was claimed, and only that, is leased in memory too."""
    cache = RowCache()
    cache.learn(RUNS, Run("r", "w", "dag", version=2))
    waiting = Work(run="r", node="n", attempt=1, workflow="w", status=READY, token=4, losses=1)
    cache.learn(WORK, waiting)
    for token, status in ((4, READY), (6, READY), (5, LEASED)):  # another's, of later, and ours
        cache.learn_late_claim(replace(waiting, status=LEASED, token=token, worker="me", losses=0), 1)
        (row,) = cache.runs["r"].rows[WORK].values()
        assert (row.status, row.losses) == (status, 1)
    for started in (1_000, 21_000):  # when it was claimed, or when it is due, if that was ahead of its time
        of_a_sleeper = replace(waiting, status=LEASED, token=1_000, started=started, worker="me", losses=0)
        for token, status in ((4, LEASED), (1_000, READY), (1_001, READY)):  # fenced since, as in seed 4285
            cache.learn(WORK, replace(waiting, token=token))
            cache.learn_late_claim(of_a_sleeper, 1)
            (row,) = cache.runs["r"].rows[WORK].values()
            assert row.status == status


async def test_k4_a_claim_whose_answer_comes_late_is_remembered_if_all_since_was_written_here() -> None:
    """An item that is not remembered may be another's by now, unless this process knows of every change since."""
    cache = RowCache()
    run = Run("r", "w", "dag", version=2)
    claimed = Work(run="r", node="n", attempt=1, workflow="w", status=LEASED, token=1, worker="me")
    cache.learn(RUNS, run)
    changes = Changes()
    changes.updates[RUNS] = [(run, replace(run, version=3))]
    cache.absorb(changes)
    cache.learn_late_claim(claimed, 1)
    assert WORK not in cache.runs["r"].rows
    cache.learn_late_claim(claimed, 2)
    assert list(cache.runs["r"].rows[WORK].values()) == [claimed]


async def test_k4_a_claim_whose_answer_comes_late_is_not_remembered_if_work_was_forgotten_since() -> None:
    """Its own row may have been among it."""
    cache = RowCache()
    run = Run("r", "w", "flow", version=2)
    gone = Work(run="r", node="gone", attempt=1, workflow="w", status=COMPLETED, token=1)
    cache.learn(RUNS, run)
    cache.learn(WORK, gone)
    changes = Changes()
    changes.updates[RUNS] = [(run, replace(run, version=3))]
    changes.deletes[WORK] = [gone]
    cache.absorb(changes)
    cache.learn_late_claim(replace(gone, status=LEASED, worker="me"), 2)
    assert not cache.runs["r"].rows[WORK]


def test_idle_workers_wake_a_few_times_a_second() -> None:
    """Seed 2. Workers that own no projection looked at the streams every 2 ms."""

    async def idle(world: World) -> None:
        for _ in range(3):
            world.begin_host()

    assert _wakes_a_second(idle) < 3 * WAKES_A_SECOND


def test_who_has_taken_a_projection_over_while_something_was_delayed_wakes_a_few_times_a_second() -> None:
    """Seed 13. It remembered when that was due, and once the time had passed it looked for more every millisecond."""

    async def take_over(world: World) -> None:
        first = world.begin_host()
        await _start_later(world, seconds=4.0)
        world.kill(first)
        world.begin_host()

    assert _wakes_a_second(take_over) < WAKES_A_SECOND


def test_a_full_worker_wakes_a_few_times_a_second_while_something_is_overdue() -> None:
    """Seed 0. Without a free slot it could let nothing in, and tried every millisecond."""

    async def fill(world: World) -> None:
        world.begin_host().concurrency = 1
        await world.ask(lambda engine: engine.start(act, Job(label="long", takes=100.0, fails=0), key="long"))
        await _start_later(world, seconds=1.0)

    assert _wakes_a_second(fill) < WAKES_A_SECOND


async def _start_later(world: World, seconds: float) -> None:
    due = datetime.fromtimestamp(world.now_us() / 1e6 + seconds, UTC)
    job = Job(label="later", takes=0.0, fails=0)
    await world.ask(lambda engine: engine.start(act, job, key="later", at=due))


def _wakes_a_second(prepare: Callable[[World], Awaitable[None]]) -> float:
    """How many callbacks run in a second of a world in which nothing happens any more."""
    with undisturbed():
        return _count(prepare)


def _count(prepare: Callable[[World], Awaitable[None]]) -> float:
    world = World(2, faults=Faults())
    enter(world)
    counted: list[int] = []

    async def idle() -> None:
        await prepare(world)
        await asyncio.sleep(10.0)
        counted.append(world.loop.callbacks)
        await asyncio.sleep(IDLE_SECONDS)
        counted.append(world.loop.callbacks)

    world.run(idle)
    enter(None)
    assert counted[1] > counted[0] + IDLE_SECONDS, "nobody was awake at all"
    return (counted[1] - counted[0]) / IDLE_SECONDS


def test_i11_the_second_look_sees_a_lease_in_a_paused_run_and_lets_a_lease_before_the_pause_pass() -> None:
    """Seed 18563. One batch handed a node over and then paused its run: what was wrong was the look at it."""
    run = Run("r", "w", "dag", status="running", version=1)
    paused = replace(run, status="paused", version=2)
    work = Work(run="r", node="n", attempt=1, workflow="w", status=READY)
    leased = replace(work, status=LEASED, token=1, worker="me")
    together, apart = Shadow(), Shadow()
    for shadow in (together, apart):
        shadow.on_commit(change(insert=(run, work)), now=1)
    together.on_commit(change(update=((run, paused), (work, leased))), now=2)
    apart.on_commit(change(update=((run, paused),)), now=2)
    with pytest.raises(Broken, match="I11"):
        apart.on_commit(change(update=((paused, replace(paused, version=3)), (work, leased))), now=3)
    with pytest.raises(Broken, match="I11"):
        apart.on_commit(change(update=((work, leased),)), now=3)
