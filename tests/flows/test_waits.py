"""Flows that wait for events and times: the same rules as for functions, and nothing is held meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.queries import AllWork, WaitsOf
from tests.support.stores import KINDS, Site, site_for
from tests.worker.support import assert_sound, engine_on, until

registry = hf.Registry()


@dataclass(frozen=True)
class Approval:
    by: str


approved = hf.event("flow-approved", Approval, registry=registry)
rejected = hf.event("flow-rejected", str, registry=registry)


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@hf.action(registry=registry)
async def note(text: str) -> str:
    return f"noted {text}"


async def decided(days: float) -> list[Any]:
    got = await hf.wait_for(approved | rejected | hf.after(days=days))
    if isinstance(got, hf.TimeReached):
        return ["late", got.value]
    if isinstance(got.value, Approval):
        return [await note(got.value.by), got.event, got.id]
    return ["rejected", got.value, got.id]


async def twice(days: float) -> list[Any]:
    seen = []
    for _ in range(2):
        got = await hf.wait_for(hf.any_of([rejected, hf.after(timedelta(days=days))]))
        seen.append(got.value)
    return seen


async def both(days: float) -> list[Any]:
    first, text, second = await asyncio.gather(hf.wait_for(approved), note("x"), hf.wait_for("flow-plain"))
    return [first.value.by, text, second.value, second.event]


flows = {each.__name__: hf.flow(registry=registry)(each) for each in (decided, twice, both)}
functions = {
    each.__name__: hf.workflow(registry=registry, name=f"{each.__name__} as a workflow")(each)
    for each in (decided, twice, both)
}


async def status_is(handle: hf.Handle[Any], status: str) -> bool:
    return await handle.status() == status


@pytest.mark.parametrize("forms", [flows, functions], ids=["flow", "workflow"])
async def test_i50_an_event_a_time_and_what_was_queued_before_end_a_wait(site: Site, forms: dict[str, Any]) -> None:
    """I50, I51: flows and functions are told the same."""
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(forms["decided"], 1)
        await until(lambda: status_is(handle, "suspended"), "it waits")
        assert {wait.topic for wait in await handle.waits()} == {"event:flow-approved", "event:flow-rejected"}
        assert isinstance(await engine.send(approved, Approval("ada"), to=handle, id="m1"), hf.Delivered)
        assert isinstance(await engine.send(approved, Approval("ada"), to=handle, id="m1"), hf.Delivered)
        assert await handle.result(timeout=20) == ["noted ada", "flow-approved", "m1"]
        assert await engine.run(forms["decided"], 0, timeout=20) == ["late", None]

        early = await engine.start(forms["twice"], 1, paused=True)
        for number in range(2):
            assert isinstance(await engine.send(rejected, f"no {number}", to=early), hf.Queued)
        await early.resume()
        assert await early.result(timeout=20) == ["no 0", "no 1"]

        mixed = await engine.start(forms["both"], 1)
        await until(lambda: status_is(mixed, "suspended"), "both branches wait")
        assert isinstance(await engine.broadcast("flow-plain", {"a": 1}), hf.Delivered)
        await engine.send(approved, Approval("bob"), to=mixed)
        assert await mixed.result(timeout=20) == ["bob", "noted x", {"a": 1}, "flow-plain"]
        for run in (handle, early, mixed):
            assert not await engine.store.rows(WaitsOf(run.id))
        await assert_sound(engine)


async def test_i50_a_wait_that_nobody_serves_takes_its_event_and_goes_on_later(site: Site) -> None:
    """Delivering needs no worker and no code of the flow: the event is the run's from that transaction on."""
    async with (
        site.opened() as store,
        hf.Engine(store=store, registry=registry) as engine,
        hf.Engine(store=store, registry=hf.Registry()) as sender,
    ):
        handle = await engine.start(flows["decided"], 1)
        async with engine.worker():
            await until(lambda: status_is(handle, "suspended"), "it waits")
        assert isinstance(await sender.send("flow-rejected", "no", to=handle.id, id="n"), hf.Delivered)
        assert isinstance(await engine.send(rejected, "again", to=handle), hf.Queued)
        (item,) = [work for work in await store.rows(AllWork(handle.id)) if work.kind == "wait"]
        assert (item.status, item.worker) == ("ready", None)
        async with engine.worker():
            assert await handle.result(timeout=20) == ["rejected", "no", "n"]
        await assert_sound(engine)


async def test_i51_an_event_of_the_wrong_type_is_a_dead_letter_and_the_flow_waits_on(site: Site) -> None:
    async with (
        site.opened() as store,
        hf.Engine(store=store, registry=registry) as engine,
        hf.Engine(store=store, registry=hf.Registry()) as stranger,
        engine.worker(),
    ):
        handle = await engine.start(flows["decided"], 1)
        await until(lambda: status_is(handle, "suspended"), "it waits")
        await stranger.send("flow-approved", 7, to=handle.id, id="wrong")
        await until(engine.dead, "the event is a dead letter")
        await engine.send(approved, Approval("eve"), to=handle, id="right")
        assert await handle.result(timeout=20) == ["noted eve", "flow-approved", "right"]
        await assert_sound(engine)


async def test_i10_cancelling_a_flow_that_waits_takes_its_waits_away(site: Site) -> None:
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(flows["both"], 1)
        await until(lambda: status_is(handle, "suspended"), "it waits")
        told = await handle.explain()
        assert "flow-plain" in str(told)
        await handle.cancel()
        assert await handle.status() == "cancelled"
        assert not await engine.store.rows(WaitsOf(handle.id))
        assert isinstance(await engine.broadcast("flow-plain", 1), hf.Queued)
        await assert_sound(engine)
