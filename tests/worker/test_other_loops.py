"""An engine belongs to the event loop that opened it: elsewhere it is refused, before anything is written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from tests.worker.support import engine_on

USES: dict[str, Callable[[hf.Engine, hf.Handle[Any]], Awaitable[Any]]] = {
    "start": lambda engine, handle: engine.start("pay", 2),
    "result": lambda engine, handle: handle.result(timeout=5),
    "status": lambda engine, handle: handle.status(),
    "send": lambda engine, handle: engine.send("paid", 1, to=handle),
    "close": lambda engine, handle: engine.close(),
}


@pytest.mark.parametrize("use", USES)
async def test_g9_on_another_loop_an_engine_says_where_it_belongs(url: str, use: str) -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    async with engine_on(url, registry) as engine:
        handle = await engine.start(pay, 1)

        def as_a_request() -> None:
            async def using() -> None:
                await USES[use](engine, handle)

            asyncio.run(using())

        with pytest.raises(hf.UsageError, match=r"another event loop.*blocking"):
            await asyncio.to_thread(as_a_request)
        async with engine.worker():
            assert await handle.result(timeout=10) == 1
        assert len(await engine.find()) == 1


def test_g9_it_may_be_opened_again_on_the_next_loop() -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    engine = hf.Engine("memory://", registry=registry)

    async def use() -> int:
        async with engine, engine.worker():
            return await engine.run(pay, 3, timeout=10)

    assert [asyncio.run(use()) for _ in range(2)] == [3, 3]


@pytest.mark.parametrize("use", USES)
def test_g9_on_another_loop_of_the_same_thread_it_is_refused_as_well(use: str) -> None:
    """The loop that it was opened on is there and does not run: only the thread is the same."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    engine = hf.Engine("memory://", registry=registry)
    with asyncio.Runner() as first:
        first.run(engine.open())
        handle = first.run(engine.start(pay, 1))

        async def using() -> None:
            await USES[use](engine, handle)

        with asyncio.Runner() as second, pytest.raises(hf.UsageError, match=r"another event loop.*blocking"):
            second.run(using())
        first.run(engine.close())


@pytest.mark.parametrize("then", ["open", "close"])
def test_g9_one_that_was_left_open_can_be_opened_or_closed_when_its_loop_is_gone(tmp_path: Path, then: str) -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    engine = hf.Engine(f"sqlite:///{tmp_path / 'left.db'}", registry=registry)
    asyncio.run(engine.open())

    async def use() -> int:
        if then == "close":
            await engine.close()
        async with engine, engine.worker():
            return await engine.run(pay, 3, timeout=10)

    assert asyncio.run(use()) == 3


async def test_g9_a_fork_is_told_to_open_an_engine_of_its_own(url: str) -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    async with engine_on(url, registry) as engine:
        child = os.fork()
        if child == 0:
            try:
                engine.store  # noqa: B018
            except hf.UsageError as refused:
                os._exit(0 if "forked" in str(refused) else 2)
            os._exit(1)
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once
        assert os.waitstatus_to_exitcode(status) == 0
