"""Context variables that a function's code sets when it is taken out of memory: nobody else's are changed."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

import holdfast as hf
from tests.worker.support import engine_on, until

mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="unset")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    if request.param == "memory":
        return "memory://"
    address: str = request.getfixturevalue("sqlite_url")
    return address


def programs(registry: hf.Registry) -> dict[str, Any]:
    @hf.workflow(registry=registry)
    async def tidy() -> None:
        def exposed() -> str:
            mark.set("by the exposed function")
            return "seen"

        hf.expose("progress", exposed)
        try:
            await hf.wait_for("go")
        finally:
            mark.set("by a finally")

    @hf.action(registry=registry)
    async def look(number: int) -> str:
        return mark.get()

    @hf.workflow(registry=registry)
    async def again(number: int) -> list[str]:
        seen = mark.get()

        async def beside() -> None:
            try:
                await hf.wait_for("never")
            finally:
                mark.set(f"left by call {number}")

        kept = asyncio.create_task(beside())
        found = await look(number)
        assert not kept.done()
        if number < 3:
            hf.continue_as(again, number + 1)
        return [seen, found]

    return {"tidy": tidy, "again": again}


async def test_a_query_and_a_check_leave_the_callers_variables_alone(url: str) -> None:
    registry = hf.Registry()
    made = programs(registry)
    async with engine_on(url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(made["tidy"])

            async def waits() -> bool:
                return (await handle.status()) == "suspended"

            await until(waits, "it waits")
        mark.set("mine")
        assert await handle.query("progress") == "seen"
        assert mark.get() == "mine"
        await engine.check()
        assert mark.get() == "mine"


async def test_what_the_call_before_left_behind_does_not_reach_the_next_one(url: str) -> None:
    registry = hf.Registry()
    made = programs(registry)
    async with engine_on(url, registry) as engine, engine.worker():
        assert await (await engine.start(made["again"], 1)).result(timeout=20) == ["unset", "unset"]


async def test_a_check_of_many_runs_lets_others_work(url: str) -> None:
    registry = hf.Registry()
    made = programs(registry)
    async with engine_on(url, registry) as engine:
        async with engine.worker():
            handles = [await engine.start(made["tidy"]) for _ in range(20)]

            async def all_wait() -> bool:
                return all([(await handle.status()) == "suspended" for handle in handles])

            await until(all_wait, "they wait")
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        assert all(checked.ok for checked in await engine.check())
        counting.cancel()
        assert turns > len(handles) // 2
