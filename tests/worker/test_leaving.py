"""Slots that are claimed for while the completions that leave them are written, where the store does both at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast as hf
from holdfast.batches import Submitted
from holdfast.core.operations import RECORDED, CompleteWork, Settled
from holdfast.core.rows import COMPLETED
from holdfast.core.view import Changes
from holdfast.runtime.leaving import Leaving
from tests.worker.support import counted, engine_on, statuses, until
from tests.worker.test_slots import Gauge


class HeldFlush:
    """The next flush of an engine's store that completes something, held until it is let go."""

    def __init__(self, engine: hf.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._flush = engine.store.flush
        self.held, self.go = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(engine.store, "flush", self.flush)

    async def flush(self, changes: Changes) -> frozenset[str]:
        if changes.updates and not self.held.is_set():
            self.held.set()
            await self.go.wait()
        return await self._flush(changes)


async def test_others_begin_while_what_has_ended_is_written(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slots are left by two that have ended, and two others begin there; never more than two run at once."""
    registry, gauge = hf.Registry(), Gauge()
    begun: list[int] = []

    @hf.action(registry=registry)
    async def work(number: int) -> int:
        begun.append(number)
        with gauge:
            await asyncio.sleep(0)
        return number

    engine = engine_on(postgres_url, registry, poll_seconds=60.0)
    async with engine:
        handles = [await engine.start(work, number) for number in range(6)]
        held = HeldFlush(engine, monkeypatch)
        async with engine.worker(concurrency=2):
            await held.held.wait()
            await until(lambda: len(begun) == 4, "two more begin")
            held.go.set()
            assert [await handle.result(timeout=20) for handle in handles] == list(range(6))
    assert gauge.most == 2


async def test_what_is_handed_over_to_a_slot_that_was_claimed_for_is_given_back(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was decided that nothing follows, and decided again when another worker had settled the other half."""
    registry, gauge = hf.Registry(), Gauge()
    halves = asyncio.Event()
    ran: list[str] = []

    class Joined(hf.Dag, registry=registry):
        @hf.step
        async def here(self) -> None:
            ran.append("here")

        @hf.step(depends_on=None, queue="there")
        async def there(self) -> None:
            await halves.wait()
            ran.append("there")

        @hf.step(depends_on=["here", "there"])
        async def both(self) -> None:
            with gauge:
                ran.append("both")

    finish = asyncio.Event()

    @hf.action(registry=registry)
    async def long() -> None:
        with gauge:
            ran.append("long")
            await finish.wait()

    ours, theirs = (engine_on(postgres_url, registry, poll_seconds=60.0) for _ in range(2))
    async with ours, theirs:
        joined = await ours.start(Joined())
        others = [await ours.start(long) for _ in range(2)]
        held = HeldFlush(ours, monkeypatch)
        async with ours.worker(concurrency=1), theirs.worker(queues=["there"]):
            await held.held.wait()
            await until(lambda: "long" in ran, "its slot is claimed for")
            halves.set()

            async def other_half_is_settled() -> bool:
                return await statuses(theirs, joined.id, "there") == [COMPLETED]

            await until(other_half_is_settled, "the other half is settled")
            held.go.set()

            async def first_half_is_settled() -> bool:
                return await statuses(theirs, joined.id, "here") == [COMPLETED]

            await until(first_half_is_settled, "what was held is settled")
            finish.set()
            await asyncio.gather(*(handle.result(timeout=20) for handle in (joined, *others)))
    assert sorted(ran) == ["both", "here", "long", "long", "there"]
    assert gauge.most == 1
    assert counted(ours, "handed_over") == 0


async def completions(*runs: str) -> list[Submitted]:
    """Completions of one item each that are about to be written."""
    future = asyncio.get_running_loop().create_future()
    made = [Submitted(CompleteWork(run=run, node="a", attempt=1, token=1), future, 1) for run in runs]
    for each in made:
        each.result = Settled(verdict=RECORDED)
    return made


async def test_no_more_slots_are_claimed_for_than_there_are() -> None:
    """Completions may be held up for long by whoever has locked their runs, and each would let another one in."""
    running: dict[Any, Any] = {(f"r{number}", "a", 1): None for number in range(9)}
    leaving = Leaving(running, 2, lambda run: False)
    assert leaving.note(await completions("r0", "r1", "r2"))
    assert len(leaving) == 2
    assert not leaving.note(await completions("r3", "r4"))
    assert leaving.has_left(("r0", "a", 1))
    assert leaving.note(await completions("r5"))
    assert len(leaving) == 2


async def test_a_function_whose_calls_still_run_does_not_leave_its_slot() -> None:
    leaving = Leaving({("busy", "a", 1): None, ("quiet", "a", 1): None}, 9, lambda run: run == "busy")  # type: ignore[dict-item]
    assert leaving.note(await completions("busy", "quiet"))
    assert leaving.has_left(("quiet", "a", 1))
    assert not leaving.has_left(("busy", "a", 1))


async def test_calls_that_a_function_left_behind_keep_its_slot(postgres_url: str) -> None:
    registry, gauge = hf.Registry(), Gauge()

    @hf.action(registry=registry)
    async def slow() -> None:
        with gauge:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.02)

    @hf.workflow(registry=registry)
    async def leaves_it_behind() -> None:
        behind = asyncio.ensure_future(slow())
        await hf.sleep(0.01)
        assert not behind.done()

    async with engine_on(postgres_url, registry, sweep_seconds=60.0) as engine:
        handles = [await engine.start(leaves_it_behind) for _ in range(6)]
        async with engine.worker(concurrency=1):
            for handle in handles:
                await handle.result(timeout=20)
    assert gauge.most == 1
