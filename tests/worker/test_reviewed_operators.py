"""Operators' verbs in awkward order and with awkward words: a run is never stuck without saying why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.codec import encode_error
from holdfast.core.operations import KillWork
from holdfast.core.rows import COMPLETED, Run
from holdfast.store.contract import ClaimRequest
from tests.worker.support import engine_on, statuses, until


async def run_row(engine: hf.Engine, handle: hf.Handle[Any]) -> Run:
    (row,) = await engine.store.runs([handle.id])
    found: Run = row
    return found


async def test_g9_after_discard_and_retry_a_run_is_paused_and_not_running_with_nothing_to_run(url: str) -> None:
    """G9: a discarded dead letter leaves a node that nobody will run; the run says so instead of looking busy."""
    registry = hf.Registry()
    failing = {"b"}

    class Wide(hf.Dag, registry=registry, on_failure="pause"):
        @hf.task
        async def a(self) -> None: ...

        @hf.task
        async def b(self) -> None:
            if "b" in failing:
                raise ValueError("b")

    engine = engine_on(url, registry)
    async with engine:
        handle = await engine.start(Wide())
        (claimed,) = await engine.store.claim(
            ClaimRequest(worker="w", queue="default", limit=9, workflows=("Wide",), actions=("Wide.a",))
        )
        error = encode_error(ValueError("undecodable"))
        await engine.coordinator.submit(
            KillWork(run=handle.id, node="a", attempt=1, token=claimed.work.token, error=error)
        )
        async with engine.worker():
            with pytest.raises(hf.RunPaused):
                await handle.result(timeout=5)
            assert await engine.discard_dead(handle.id, "a")
            failing.clear()
            assert await handle.retry() == ["b"]
            with pytest.raises(hf.RunPaused):
                await handle.result(timeout=5)
            assert await handle.resume()

            async def paused() -> bool:
                row = await run_row(engine, handle)
                return (row.status, row.active) == ("paused", 0)

            await until(paused, "the run is paused again", 5)
            assert "none can start" in str(await handle.explain())


async def test_i11_the_reason_of_a_pause_is_that_of_the_node_that_still_fails(url: str) -> None:
    """I11: a reattempt that mends one node leaves the other's failure as the reason."""
    registry = hf.Registry()
    failing = {"a", "b"}

    class Wide(hf.Dag, registry=registry, on_failure="pause"):
        @hf.task
        async def a(self) -> None:
            if "a" in failing:
                raise ValueError("a")

        @hf.task
        async def b(self) -> None:
            if "b" in failing:
                raise ValueError("b")

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(Wide())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=5)
        failing.discard("a")
        await handle.reattempt("a")

        async def mended() -> bool:
            return (await statuses(engine, handle.id, "a"))[-1] == COMPLETED

        await until(mended, "the reattempt completes")
        row = await run_row(engine, handle)
        assert (row.status, row.reason) == ("paused", "node b gave up after 1 attempt: ValueError: b")


async def test_i11_a_run_resumed_after_its_first_step_completed_is_running(url: str) -> None:
    """I11: a pause in the middle does not make a run that has begun look as if it had not."""
    registry = hf.Registry()
    begun, go = asyncio.Event(), asyncio.Event()

    class Chain(hf.Dag, registry=registry):
        @hf.step
        async def one(self) -> None:
            begun.set()
            await go.wait()

        @hf.step
        async def two(self) -> None: ...

    engine = engine_on(url, registry, hand_over=False)
    async with engine, engine.worker():
        handle = await engine.start(Chain())
        await begun.wait()
        await handle.pause()
        go.set()

        async def completed() -> bool:
            return await statuses(engine, handle.id, "one") == [COMPLETED]

        await until(completed, "the first step completes in a paused run")
        await engine.maintenance(True)
        await handle.resume()
        assert (await run_row(engine, handle)).status == "running"


async def test_i8_a_queue_that_no_worker_serves_is_named_although_another_is_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: a worker for one queue is no answer for another, whether the start or the action names it."""
    monkeypatch.setattr("holdfast.runtime.unserved.NO_WORKER_SECONDS", 0.05)
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    @hf.action(registry=registry, queue="payments")
    async def pay() -> int:
        return 2

    engine = engine_on("memory://", registry)
    async with engine, engine.worker(queues=["default"]):
        with caplog.at_level(logging.WARNING):
            await engine.start(quick, queue="other")
            await until(lambda: "queue 'other'" in caplog.text, "the start's queue is named", 5)
            await engine.start(pay)
            await until(lambda: "queue 'payments'" in caplog.text, "the action's queue is named", 5)


async def test_g9_an_operation_that_is_refused_harms_none_of_those_beside_it(sqlite_url: str) -> None:
    """G9: operations that arrive together share a commit, and only the wrong one is told so."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    async with engine_on(sqlite_url, registry) as engine:
        nobody: Any = None
        refused, *started = await asyncio.gather(
            engine.maintenance(True, by=nobody), engine.start(quick), engine.start(quick), return_exceptions=True
        )
        assert isinstance(refused, hf.HoldfastError)
        assert [isinstance(handle, hf.Handle) for handle in started] == [True, True]


Verb = Callable[[hf.Engine, hf.Handle[Any]], Awaitable[Any]]

UNPRINTABLE: dict[str, Verb] = {
    "pause": lambda engine, handle: handle.pause(reason="a\0"),
    "cancel": lambda engine, handle: handle.cancel(by="a\0"),
    "skip": lambda engine, handle: handle.skip("a\0"),
    "reattempt": lambda engine, handle: handle.reattempt("a\0"),
    "maintenance": lambda engine, handle: engine.maintenance(True, workflow="a\0"),
    "maintenance by": lambda engine, handle: engine.maintenance(True, by="\0"),
    "drain": lambda engine, handle: engine.drain("a\0"),
    "discard": lambda engine, handle: engine.discard_dead(handle.id, "a\0"),
}


@pytest.mark.parametrize("verb", UNPRINTABLE)
async def test_i14_what_an_operator_says_is_refused_when_it_cannot_be_stored(url: str, verb: str) -> None:
    """I14: NUL is refused before anything is written, the same on every store, with the fix in the message."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    async with engine_on(url, registry) as engine:
        handle = await engine.start(pay, 1)
        before = await run_row(engine, handle)
        with pytest.raises(hf.HoldfastError, match="use printable ones only"):
            await UNPRINTABLE[verb](engine, handle)
        assert await run_row(engine, handle) == before


async def test_g9_who_waits_for_a_run_that_was_pruned_is_told(shared_url: str) -> None:
    """G9: a result that will never come is an error, and not a wait until the timeout."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    ours, theirs = engine_on(shared_url, registry, notify=False), engine_on(shared_url, registry, notify=False)
    async with ours, theirs:
        handle = await ours.start(pay, 1)
        waiting = asyncio.ensure_future(handle.result(timeout=10))
        await theirs.get(handle.id).cancel()
        await theirs.prune(older_than_seconds=0)
        with pytest.raises(hf.HoldfastError) as caught:
            await waiting
    assert not isinstance(caught.value, TimeoutError)


async def test_g3_a_child_is_not_pruned_while_its_parent_is_open(url: str) -> None:
    """G3: a parent that has not been told of its end yet would find no run, or start it once more."""
    registry, made = hf.Registry(), list[int]()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        made.append(amount)
        return amount

    @hf.workflow(registry=registry)
    async def child(amount: int) -> int:
        return await pay(amount)

    @hf.workflow(registry=registry)
    async def parent(amount: int) -> int:
        started = await hf.start_child(child, amount)
        await hf.wait_for("go on")
        return await started.result()

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(parent, 3)
        await engine.settle(timeout=10)
        assert await engine.prune(older_than_seconds=0) == 0
        await engine.send("go on", None, to=handle)
        assert await handle.result(timeout=10) == 3
        assert made == [3]
        assert await engine.prune(older_than_seconds=0) == 2
