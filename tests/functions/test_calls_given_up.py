"""Calls in the work table that the code gives up: nobody begins them any more, and who has begun is asked to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.function_operations import TURN, Stepped, TakeTurn
from holdfast.core.operations import STALE, CompleteWork
from holdfast.testing import engine_in_memory
from tests.functions.kernel_moves import queued_call, start, turn, unsound
from tests.kernel.kernels import opened_kernel
from tests.support.stores import Site, every_row
from tests.worker.support import assert_sound, engine_on, statuses, until


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


class Till:
    """A charge that is given up after a moment; then its workflow waits for an event."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.charged: list[str] = []
        self.begun, self.stopped = asyncio.Event(), asyncio.Event()
        charged, registry = self.charged, self.registry

        @hf.action(registry=registry, retry=hf.Retry(attempts=5, base=10))
        async def flaky() -> None:
            charged.append("flaky")
            raise OSError("no answer")

        @hf.action(registry=registry, queue="far")
        async def far() -> None:
            charged.append("far")

        @hf.action(registry=registry, queue="held")
        async def held() -> None:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()

        actions = {"flaky": flaky, "far": far, "held": held}

        @hf.workflow(registry=registry)
        async def impatient(name: str, seconds: float) -> str:
            try:
                async with asyncio.timeout(seconds):
                    await actions[name]()
            except TimeoutError:
                charged.append("gave up")
            await hf.wait_for("go")
            return "done"

        self.impatient = impatient


async def waits(handle: hf.Handle[Any]) -> bool:
    return [row.topic for row in await handle.waits()] == ["event:go"]


async def test_g3_a_call_that_was_given_up_is_not_tried_again() -> None:
    """G3: its later attempts are rows in the work table, and they go with it."""
    till = Till()
    async with engine_in_memory(registry=till.registry) as (engine, clock):
        handle = await engine.start(till.impatient, "flaky", 1)
        await clock.advance(hours=2)
        assert till.charged == ["flaky", "gave up"]
        assert await statuses(engine, handle.id, "#1") == ["cancelled"]
        await engine.send("go", to=handle)
        assert await handle.result(timeout=20) == "done"


async def test_g3_a_call_for_another_queue_that_was_given_up_is_not_begun_there(url: str) -> None:
    till = Till()
    async with engine_on(url, till.registry) as engine, engine.worker():
        handle = await engine.start(till.impatient, "far", 0.05)
        await until(lambda: waits(handle), "it waits for its event")
        async with engine.worker(queues=["far"]):
            await engine.send("go", to=handle)
            assert await handle.result(timeout=20) == "done"
        assert await statuses(engine, handle.id, "#1") == ["cancelled"]
        await assert_sound(engine)
    assert till.charged == ["gave up"]


async def test_g3_a_call_that_runs_on_another_queue_when_it_is_given_up_is_asked_to_stop(url: str) -> None:
    till = Till()
    async with engine_on(url, till.registry) as engine, engine.worker(), engine.worker(queues=["held"]):
        handle = await engine.start(till.impatient, "held", 0.5)
        await asyncio.wait_for(till.begun.wait(), 20)
        await asyncio.wait_for(till.stopped.wait(), 20)
        await engine.send("go", to=handle)
        assert await handle.result(timeout=20) == "done"
        assert await statuses(engine, handle.id, "#1") == ["cancelled"]
        await assert_sound(engine)


async def test_g3_a_call_that_was_given_up_before_a_crash_is_withdrawn_by_who_goes_on(shared_url: str) -> None:
    """The time had come and was recorded; that the code gives the call up follows from that in every replay."""
    till = Till()
    async with engine_on(shared_url, till.registry) as engine:
        submit, cut_off = engine.coordinator.submit, asyncio.Event()

        async def unheard(operation: TakeTurn) -> Stepped:
            cut_off.set()
            return Stepped(verdict=STALE)

        def submit_until_it_withdraws(operation: Any) -> Any:
            return unheard(operation) if isinstance(operation, TakeTurn) and operation.withdraws else submit(operation)

        engine.coordinator.submit = submit_until_it_withdraws  # type: ignore[method-assign]
        handle = await engine.start(till.impatient, "far", 0.05)
        async with engine.worker():
            await asyncio.wait_for(cut_off.wait(), 20)
        engine.coordinator.submit = submit  # type: ignore[method-assign]
        assert await statuses(engine, handle.id, "#1") == ["ready"]
        async with engine.worker():
            await until(lambda: waits(handle), "it waits for its event")
        async with engine.worker(), engine.worker(queues=["far"]):
            await until(lambda: waits(handle), "it waits for its event")
            await engine.send("go", to=handle)
            assert await handle.result(timeout=20) == "done"
        assert await statuses(engine, handle.id, "#1") == ["cancelled"]
        await assert_sound(engine)
    assert "far" not in till.charged


async def test_k8_withdrawing_a_call_is_one_commit_and_harmless_to_repeat(site: Site) -> None:
    """K8, I50: its row is cancelled, its answer is stale, and the other calls stay."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        await coordinator.submit(turn("r", calls=(queued_call("0#1", "far"), queued_call("0#2", "far"))))
        await coordinator.submit(turn("r", withdraws=("0#1", "0#9")))
        rows = await every_row(store)
        assert {row.node: row.status for row in rows["work"]} == {TURN: "leased", "0#1": "cancelled", "0#2": "ready"}
        assert not unsound(rows)
        await coordinator.submit(turn("r", withdraws=("0#1", "0#9")))
        assert [row for row in (await every_row(store))["work"]] == rows["work"]
        late = await coordinator.submit(CompleteWork(run="r", node="0#1", attempt=1, token=0, result=b"1"))
        assert late.verdict == "stale"
        assert not unsound(await every_row(store))
