"""Waits that the code gives up, and times that have come already: no event is taken for a wait that nobody is at."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast as hf
from holdfast.coordinator import Commit
from holdfast.core.function_operations import TIMER, SendEvent
from holdfast.core.rows import HISTORY
from tests.worker.support import assert_sound, engine_on, until


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    if request.param == "memory":
        return "memory://"
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


def patience(registry: hf.Registry) -> dict[str, Any]:
    @hf.workflow(registry=registry)
    async def impatient() -> str:
        """Gives a wait up, and waits again for the same."""
        try:
            async with asyncio.timeout(0.05):
                return str((await hf.wait_for("news")).value)
        except TimeoutError:
            return f"at last {(await hf.wait_for('news')).value}"

    @hf.workflow(registry=registry)
    async def at_once() -> list[str]:
        """Takes what is there, and does not wait."""
        found = []
        for _ in range(3):
            match await hf.wait_for(hf.event("news", str, registry=hf.Registry()) | hf.after(seconds=0)):
                case hf.Received(value=value):
                    found.append(value)
                case hf.TimeReached():
                    found.append("nothing")
        await hf.wait_for("end")
        return found

    @hf.workflow(registry=registry)
    async def hands_on() -> str:
        """Gives a wait up and goes on as another, which waits for the same."""
        waiting = asyncio.create_task(hf.wait_for("news"))
        await hf.sleep(0.05)
        assert not waiting.done()
        hf.continue_as(takes_on)

    @hf.workflow(registry=registry)
    async def takes_on() -> str:
        return f"taken on: {(await hf.wait_for('news')).value}"

    return {"impatient": impatient, "at_once": at_once, "hands_on": hands_on}


def send_when_a_time_comes(engine: hf.Engine, run: str) -> list[asyncio.Future[Any]]:
    """An event that arrives when the code has given its wait up, and before the store was told."""
    sent: list[asyncio.Future[Any]] = []

    def on_commit(commit: Commit) -> None:
        if not sent and any(row.kind == TIMER for row in commit.changes.inserts.get(HISTORY, ())):
            operation = SendEvent(run=run, event="e1", name="news", payload=b'"spring"')
            sent.append(engine.coordinator.submit(operation))

    engine.coordinator.observers.insert(0, on_commit)
    return sent


@pytest.mark.parametrize("name", ["impatient", "hands_on"])
async def test_g5_i50_an_event_for_a_wait_that_was_just_given_up_is_for_the_next_one(url: str, name: str) -> None:
    """G5, I50: delivered is delivered; the run gets it once, where it waits now."""
    registry = hf.Registry()
    world = patience(registry)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world[name], paused=True)
        sent = send_when_a_time_comes(engine, handle.id)
        await handle.resume()
        expected = "at last spring" if name == "impatient" else "taken on: spring"
        assert await handle.result(timeout=10) == expected
        assert await sent[0] == hf.Delivered(handle.id)
        await assert_sound(engine)


async def test_g5_an_event_for_a_wait_that_was_given_up_survives_a_restart(shared_url: str) -> None:
    """G5, K8: whoever replays finds it unread again, and it is given back once."""
    registry = hf.Registry()
    world = patience(registry)
    async with engine_on(shared_url, registry) as engine:
        handle = await engine.start(world["impatient"], paused=True)
        sent = send_when_a_time_comes(engine, handle.id)
        async with engine.worker():
            await handle.resume()
            await until(lambda: sent and sent[0].done(), "the event was sent")
            await handle.pause()
        await handle.resume()
        async with engine.worker():
            assert await handle.result(timeout=10) == "at last spring"
        assert await engine.send("news", "again", to=handle) == hf.TargetEnded("completed")
        await assert_sound(engine)


async def test_i51_a_wait_whose_time_has_come_takes_what_is_there_first_and_leaves_no_wait_behind(url: str) -> None:
    """I50, I51: an event that is sent later finds nobody waiting, and is kept."""
    registry = hf.Registry()
    world = patience(registry)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["at_once"], paused=True)
        for value in ("one", "two"):
            assert isinstance(await engine.send("news", value, to=handle), hf.Queued)
        await handle.resume()

        async def only_the_end() -> bool:
            return [row.topic for row in await handle.waits()] == ["event:end"]

        await until(only_the_end, "it waits for its end, and for nothing else")
        assert isinstance(await engine.send("news", "three", to=handle), hf.Queued)
        await engine.send("end", to=handle)
        assert await handle.result(timeout=10) == ["one", "two", "nothing"]
        await assert_sound(engine)
