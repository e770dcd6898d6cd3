"""G3: what the simulation found when answers of the store came late, while nobody had died and no lease was lost.

The seeds are those of gentle faults alone, with functions that roll back and are cancelled.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.core.operations import RECORDED, Handed, ReleaseWork
from holdfast.core.rows import CANCELLED, LEASED, RUNNING, Run, Work
from holdfast.runtime.attempt import Attempt
from holdfast.runtime.own_leases import OwnLeases
from holdfast.runtime.system import InlineExecutor, RealClock, ThreadExecutor, sleep
from holdfast.store.contract import ClaimRequest
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import engine_in_memory
from tests.worker.support import until

DEADLINE_SECONDS = 10.0


async def launched(engine: hf.Engine, handed: Handed) -> None:
    """The answer of a claim has come: run what it brings, to its end."""
    (worker,) = engine.local_workers
    worker._launch(handed)
    task = worker._running[handed.work.run, handed.work.node, handed.work.attempt].task
    assert task is not None
    await task


async def claimed(engine: hf.Engine) -> Handed:
    """What the worker is leased next, while the answer is still under way."""
    (worker,) = engine.local_workers
    names = engine.definitions
    request = ClaimRequest(
        worker=worker.id,
        queue="default",
        limit=1,
        workflows=names.known_workflows(),
        actions=names.known_actions(),
    )
    await engine.store.promote(["default"])
    (handed,) = await engine.store.claim(request)
    return handed


async def test_g3_i10_a_cancel_that_overtakes_the_answer_of_a_claim_is_rolled_back_by_the_next_owner_alone() -> None:
    """Seed 10677. Whoever had been fenced read of the cancel in the history, and began to roll back on its own."""
    registry = hf.Registry()
    undone: list[int] = []
    word = hf.event("word", int, registry=registry)

    @hf.action(registry=registry)
    async def undo() -> None:
        undone.append(1)

    @hf.workflow(registry=registry)
    async def waits() -> None:
        hf.on_rollback(undo)
        await hf.wait_for(word)
        await hf.wait_for(word)

    async with engine_in_memory(registry=registry, hand_over=False) as (engine, _):
        run = await engine.start(waits)
        await engine.settle()
        (worker,) = engine.local_workers
        worker._stopping = True  # it claims nothing by itself from here on
        await engine.send(word, 1, to=run)
        late = await claimed(engine)
        await run.cancel()
        await launched(engine, late)
        assert undone == []
        await launched(engine, await claimed(engine))
        assert undone == [1]
        assert (await engine.store.runs([run.id]))[0].status == CANCELLED
        worker._stopping = False


async def test_g3_a_call_that_was_answered_while_a_claim_was_under_way_is_not_made_again() -> None:
    """Seed 2815. The history was not read, because it had been empty when the turn was leased."""
    registry = hf.Registry()
    attempts: list[int] = []

    @hf.action(registry=registry, retry=hf.Retry(attempts=3, base=1.0, cap=1.0))
    async def flaky() -> str:
        attempts.append(hf.current().node.attempt)
        if len(attempts) == 1:
            raise ValueError("once")
        return "ok"

    @hf.workflow(registry=registry)
    async def both() -> list[Any]:
        return list(await asyncio.gather(flaky(), hf.sleep(5.0)))

    async with engine_in_memory(registry=registry, hand_over=False, resident_seconds=1.0) as (engine, clock):
        run = await engine.start(both)
        await engine.settle()
        assert attempts == [1]
        (worker,) = engine.local_workers
        worker._stopping = True
        await clock.advance(seconds=10)
        worker._driver.rest()  # out of memory: it is replayed
        first, second = await claimed(engine), await claimed(engine)
        turn, call = (first, second) if first.work.node == "turn" else (second, first)
        assert turn.run.entries == 0
        await launched(engine, call)
        await launched(engine, turn)
        assert attempts == [1, 2]
        worker._stopping = False
        worker.wake()
        assert await run.result(timeout=DEADLINE_SECONDS) == ["ok", None]


async def test_g3_a_call_that_was_answered_since_a_turn_was_given_back_is_not_made_again() -> None:
    """No time brought that turn, so that its function begins what it asks for without another commit before."""
    registry = hf.Registry()
    attempts: list[int] = []
    may_end = asyncio.Event()

    @hf.action(registry=registry, retry=hf.Retry(attempts=3, base=1.0, cap=1.0))
    async def flaky() -> str:
        attempts.append(hf.current().node.attempt)
        if len(attempts) == 1:
            raise ValueError("once")
        return "ok"

    @hf.action(registry=registry)
    async def slow() -> str:
        await may_end.wait()
        return "late"

    @hf.workflow(registry=registry)
    async def both() -> list[Any]:
        return list(await asyncio.gather(flaky(), slow()))

    async with engine_in_memory(registry=registry, hand_over=False) as (engine, clock):
        run = await engine.start(both)
        (worker,) = engine.local_workers

        def retries() -> bool:
            row = engine.coordinator.cache.run_row(run.id)
            return attempts == [1] and row is not None and row.active == 2

        await until(retries, "the second attempt waits in the work table")
        worker._stopping = True
        held = worker._running[run.id, "turn", 1]
        given_back = ReleaseWork(run=run.id, node="turn", attempt=1, token=held.work.token)
        assert (await engine.coordinator.submit(given_back)).verdict == RECORDED
        may_end.set()
        assert held.task is not None
        await held.task
        await clock.advance(seconds=10)
        first, second = await claimed(engine), await claimed(engine)
        turn, call = (first, second) if first.work.node == "turn" else (second, first)
        assert (turn.run.entries, turn.run.status) == (0, RUNNING)
        await launched(engine, call)
        await launched(engine, turn)
        assert attempts == [1, 2]
        worker._stopping = False
        worker.wake()
        assert await run.result(timeout=DEADLINE_SECONDS) == ["ok", "late"]


class SlowToTell(SqliteStore):
    """The first claim that leases something is answered only when the test says so."""

    def __init__(self, path: Path) -> None:
        executors = {"inline": InlineExecutor(), "threaded": ThreadExecutor("test-sqlite")}
        super().__init__(path, clock=RealClock(), sleep=sleep, timeout_seconds=10.0, **executors)
        self.may_tell = asyncio.Event()
        self.told = asyncio.Event()

    async def claim(self, request: ClaimRequest) -> list[Handed]:
        handed = await super().claim(request)
        if handed and not self.told.is_set():
            await self.may_tell.wait()
            self.told.set()
        return handed


async def test_g3_an_answer_that_comes_after_its_work_was_found_and_done_is_not_followed(tmp_path: Path) -> None:
    """Seed 667. Two looks took it for lost, ran what it had leased, and then it came."""
    registry = hf.Registry()
    done: list[int] = []

    @hf.action(registry=registry)
    async def once(number: int) -> int:
        done.append(number)
        return number

    store = SlowToTell(tmp_path / "late.db")
    engine = hf.Engine(store=store, registry=registry, sweep_seconds=0.02, poll_seconds=0.02, hand_over=False)
    async with engine, engine.worker():
        run = await engine.start(once, 1)
        assert await run.result(timeout=DEADLINE_SECONDS) == 1
        store.may_tell.set()
        await asyncio.wait_for(store.told.wait(), DEADLINE_SECONDS)
        assert await (await engine.start(once, 2)).result(timeout=DEADLINE_SECONDS) == 2
    assert done == [1, 2]


def a_lease(token: int) -> Work:
    return Work(run="r", node="n", attempt=1, workflow="w", status=LEASED, token=token)


def test_g3_what_ran_and_ended_between_two_looks_is_no_orphan() -> None:
    """Seed 1249. The second look was made before the end, and its answer came after it."""
    own, work = OwnLeases(), a_lease(1)
    assert own.compare([work], {}).orphans == []
    own.has_run(work)
    assert own.compare([work], {}).orphans == []


def test_g3_what_ended_while_its_run_was_read_is_not_adopted() -> None:
    own, work = OwnLeases(), a_lease(1)
    own.compare([work], {})
    assert own.compare([work], {}).orphans == [work]
    own.has_run(work)
    assert not own.adopt(work)


def test_g3_what_was_leased_anew_between_two_looks_is_not_stopped() -> None:
    """Seed 1134. The first look saw its turn given up, and the second one, too late, that nobody had it yet."""
    own, run = OwnLeases(), Run("r", "w", "function")
    key = ("r", "n", 1)
    assert own.compare([], {key: Attempt(a_lease(2), run)}).soon
    assert own.compare([], {key: Attempt(a_lease(3), run)}).lost == []
    (lost,) = own.compare([], {key: Attempt(a_lease(3), run)}).lost
    assert lost.work.token == 3
