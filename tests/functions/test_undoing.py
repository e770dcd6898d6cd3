"""When a function's run fails or is cancelled: what counts as that, and that everything is undone then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.coordinator import Commit
from holdfast.core.operations import CancelRun
from holdfast.core.rows import HISTORY
from tests.worker.support import assert_sound, engine_on, until


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


class Hotel:
    """Actions that note what was done and undone, and workflows that end in all kinds of ways."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.done: list[str] = []
        self.held = asyncio.Event()  # what undoes "held" hangs until it is cancelled, the first time
        self.keys: set[str] = set()
        registry, done = self.registry, self.done

        @hf.action(registry=registry)
        async def book(room: str) -> str:
            done.append(room)
            return room

        @hf.action(registry=registry)
        async def free(room: str) -> None:
            done.append(f"free {room}")

        @hf.action(registry=registry)
        async def hold(room: str) -> None:
            done.append(f"hold {room}, attempt {hf.current().attempt}")
            self.keys.add(hf.current().idempotency_key)
            if not self.held.is_set():
                self.held.set()
                await asyncio.Event().wait()
            done.append(f"free {room}")

        @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=30))
        async def free_in_the_end(room: str) -> None:
            done.append(f"try to free {room}, attempt {hf.current().attempt}")
            if hf.current().attempt == 1:
                raise OSError("the hotel does not answer")

        self.book, self.free, self.hold, self.free_in_the_end = book, free, hold, free_in_the_end

    def workflow(self, fn: Callable[..., Any]) -> Any:
        return hf.workflow(registry=self.registry)(fn)

    async def reserve(self, *rooms: str) -> None:
        for room in rooms:
            await self.book(room)
            hf.on_rollback(self.free, room)


def cancelled_tasks(hotel: Hotel) -> dict[str, Any]:
    @hotel.workflow
    async def awaits_a_task_that_it_cancelled() -> str:
        await hotel.reserve("a")
        task = asyncio.create_task(hotel.book("b"))
        await asyncio.sleep(0)
        task.cancel("not needed")
        return await task

    @hotel.workflow
    async def raises_it() -> None:
        await hotel.reserve("a")
        raise asyncio.CancelledError("not needed")

    @hotel.workflow
    async def gathers_a_cancelled_task() -> None:
        await hotel.reserve("a")
        task = asyncio.create_task(hf.wait_for("never"))
        await asyncio.sleep(0)
        task.cancel("not needed")
        await asyncio.gather(task, hotel.book("c"))

    return {each.name: each for each in (awaits_a_task_that_it_cancelled, raises_it, gathers_a_cancelled_task)}


@pytest.mark.parametrize("name", ["awaits_a_task_that_it_cancelled", "raises_it", "gathers_a_cancelled_task"])
async def test_i10_a_function_that_cancelled_something_itself_has_failed_if_that_ends_it(url: str, name: str) -> None:
    """I10: only who was asked to stop is cancelled, and nobody asked: least of all it has completed."""
    hotel = Hotel()
    wanted = cancelled_tasks(hotel)[name]

    @hotel.workflow
    async def travels() -> str:
        try:
            return str(await wanted())
        except hf.RunFailed as failed:
            return f"{type(failed.cause).__name__}"

    async with engine_on(url, hotel.registry) as engine, engine.worker():
        handle = await engine.start(wanted)
        with pytest.raises(hf.RunFailed, match="CancelledError") as failed:
            await handle.result(timeout=20)
        assert type(failed.value.cause) is asyncio.CancelledError
        assert await handle.status() == "failed"
        assert hotel.done[-1] == "free a"
        assert await engine.run(travels, timeout=20) == "CancelledError"
        await assert_sound(engine)


async def test_i10_a_function_that_let_a_task_of_its_own_be_cancelled_fails_in_a_replay_too(shared_url: str) -> None:
    """Whoever takes it up after the crash comes to the same end."""
    hotel = Hotel()

    @hotel.workflow
    async def waits() -> None:
        await hotel.reserve("a")
        await hf.wait_for("come")
        raise asyncio.CancelledError

    async with engine_on(shared_url, hotel.registry) as engine:
        async with engine.worker():
            handle = await engine.start(waits)
            await engine.settle()
        await engine.send("come", to=handle)
        async with engine.worker():
            with pytest.raises(hf.RunFailed):
                await handle.result(timeout=20)
        assert hotel.done == ["a", "free a"]


async def test_i10_a_cancel_while_it_rolls_back_leaves_nothing_undone(url: str) -> None:
    """I10: what was being undone is, under its key, and so is what is left; then the run is cancelled."""
    hotel = Hotel()

    @hotel.workflow
    async def fails() -> None:
        await hotel.reserve("a", "b")
        hf.on_rollback(hotel.hold, "c")
        raise LookupError("no room")

    async with engine_on(url, hotel.registry) as engine, engine.worker():
        handle = await engine.start(fails)
        await asyncio.wait_for(hotel.held.wait(), 20)
        await handle.cancel()
        with pytest.raises(hf.RunCancelled, match="an operator"):
            await handle.result(timeout=20)
        await assert_sound(engine)
    held = ["hold c, attempt 1", "hold c, attempt 2"]
    assert hotel.done == ["a", "b", *held, "free c", "free b", "free a"]
    assert len(hotel.keys) == 1


async def test_i10_a_cancel_while_a_rollback_is_in_the_work_table_leaves_nothing_undone(url: str) -> None:
    """The cancel ends the row that it waits for, and it is asked for again: also by one that rests in memory."""
    hotel = Hotel()

    @hotel.workflow
    async def fails() -> None:
        await hotel.reserve("a")
        hf.on_rollback(hotel.free_in_the_end, "b")
        raise LookupError("no room")

    async with engine_on(url, hotel.registry) as engine, engine.worker():
        handle = await engine.start(fails)

        async def is_suspended() -> bool:
            return await handle.status() == "suspended"

        await until(is_suspended, "it waits for the second attempt")
        await handle.cancel()
        with pytest.raises(hf.RunCancelled):
            await handle.result(timeout=20)
        await assert_sound(engine)
    tried = ["try to free b, attempt 1", "try to free b, attempt 3"]
    assert hotel.done == ["a", *tried, "free a"], "the second one was cancelled before it was begun"


@pytest.mark.parametrize("then", ["returns", "goes on"])
async def test_i10_a_function_that_makes_light_of_a_cancel_is_cancelled_and_undone(url: str, then: str) -> None:
    hotel = Hotel()

    @hotel.workflow
    async def stubborn() -> str:
        await hotel.reserve("a", "b")
        try:
            await hf.wait_for("never")
        except asyncio.CancelledError:
            if then == "goes on":
                hf.continue_as(stubborn)
        return "bye"

    async with engine_on(url, hotel.registry) as engine, engine.worker():
        handle = await engine.start(stubborn)
        await engine.settle()
        await handle.cancel()
        with pytest.raises(hf.RunCancelled):
            await handle.result(timeout=20)
        await assert_sound(engine)
    assert hotel.done == ["a", "b", "free b", "free a"]


@pytest.mark.parametrize("then", ["returns", "goes on"])
async def test_i10_a_cancel_that_comes_between_the_last_entry_and_the_end_undoes_everything(
    url: str, then: str
) -> None:
    """Its code has ended, and nobody has recorded that: the cancel is first, and the run is cancelled."""
    hotel = Hotel()

    @hotel.workflow
    async def ends() -> str:
        await hotel.reserve("a", "b")
        if then == "goes on":
            hf.continue_as(ends)
        return "done"

    async with engine_on(url, hotel.registry) as engine:
        asked: list[asyncio.Future[Any]] = []

        def on_commit(commit: Commit) -> None:
            if not asked and any(row.sequence == 2 for row in commit.changes.inserts.get(HISTORY, ())):
                asked.append(engine.coordinator.submit(CancelRun(run=handle.id, by="ann")))

        engine.coordinator.observers.insert(0, on_commit)
        handle = await engine.start(ends)
        async with engine.worker():
            with pytest.raises(hf.RunCancelled, match="ann"):
                await handle.result(timeout=20)
        assert (await asked[0]).changed
        await assert_sound(engine)
    assert hotel.done == ["a", "b", "free b", "free a"]


def refused_ends(hotel: Hotel) -> dict[str, Any]:
    @hotel.workflow
    async def of_another_type() -> int:
        await hotel.reserve("a", "b")
        return "no number"  # type: ignore[return-value]

    @hotel.workflow
    async def no_data() -> object:
        await hotel.reserve("a", "b")
        return object()

    @hotel.workflow
    async def too_large() -> str:
        await hotel.reserve("a", "b")
        return "x" * 2_000

    @hotel.workflow
    async def goes_on_with_too_much(text: str = "") -> str:
        await hotel.reserve("a", "b")
        hf.continue_as(goes_on_with_too_much, "x" * 2_000)

    return {each.name: each for each in (of_another_type, no_data, too_large, goes_on_with_too_much)}


@pytest.mark.parametrize("name", ["of_another_type", "no_data", "too_large", "goes_on_with_too_much"])
async def test_i10_a_result_that_is_refused_is_a_failure_like_any_other(url: str, name: str) -> None:
    hotel = Hotel()
    async with engine_on(url, hotel.registry, payload_limit_bytes=1_000) as engine, engine.worker():
        handle = await engine.start(refused_ends(hotel)[name])
        with pytest.raises(hf.RunFailed, match=r"PayloadRefused|PayloadTooLarge"):
            await handle.result(timeout=20)
        await assert_sound(engine)
    assert hotel.done == ["a", "b", "free b", "free a"]


async def test_i10_a_run_that_raised_while_it_was_cancelled_says_who_cancelled_it(url: str) -> None:
    hotel = Hotel()

    @hotel.workflow
    async def clumsy() -> None:
        try:
            await hf.wait_for("never")
        finally:
            raise ValueError("on the way out")

    async with engine_on(url, hotel.registry) as engine, engine.worker():
        handle = await engine.start(clumsy)
        await engine.settle()
        await handle.cancel(by="ann")
        with pytest.raises(hf.RunCancelled, match="of clumsy was cancelled by ann") as cancelled:
            await handle.result(timeout=20)
        assert cancelled.value.by == "ann"
        (row,) = await engine.store.runs([handle.id])
        assert b"on the way out" in (row.error or b"")
