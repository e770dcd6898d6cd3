"""I11: an operator goes on without an item of a graph: what then begins, when, and what cannot be skipped."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.core.rows import READY, Work
from tests.worker.support import assert_sound, engine_on, work_of

SECONDS = 30.0


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


class Log(TypedDict, total=False):
    log: Annotated[list[str], hf.reducers.append]


@pytest.mark.parametrize("max_concurrent", [1, 8])
async def test_i11_what_a_skip_makes_ready_waits_for_the_time_that_the_run_was_started_for(
    url: str, max_concurrent: int
) -> None:
    """The other items of the step, those that were not let in yet, and the next step."""
    registry, began = hf.Registry(), list[str]()
    graph = hf.StateGraph(Log, name="fork", registry=registry, max_concurrent=max_concurrent)

    async def work(state: Log, ctx: hf.NodeContext) -> Any:
        began.append(ctx.node)

    for name in ("left", "right", "last"):
        graph.node(name=name)(work)
    graph.start_at("left", "right")
    graph.edge("left", "last")
    graph.edge("right", "last")
    graph.finish("last")
    async with engine_on(url, registry) as engine, engine.worker():
        later = datetime.now(UTC) + timedelta(hours=1)
        handle = await engine.start(graph, {"log": []}, at=later)
        for _ in range(2):
            (waiting, *_others) = await ready_items(engine, handle)
            await handle.skip(waiting.node)
            await engine.settle(timeout=SECONDS)
            (left,) = await ready_items(engine, handle)
            assert left.due == int(later.timestamp() * 1_000_000)
        assert ([item.node for item in await ready_items(engine, handle)], began) == (["last@2"], [])
        await assert_sound(engine)


async def ready_items(engine: hf.Engine, handle: hf.Handle[Any]) -> list[Work]:
    return [work for work in await work_of(engine, handle.id) if work.status == READY]


async def test_i11_what_follows_a_skipped_retry_does_not_wait_for_its_time(url: str) -> None:
    """The time at which an item would have been tried again is over with the item."""
    registry, tried = hf.Registry(), asyncio.Event()
    graph = hf.StateGraph(Log, name="slow", registry=registry)

    @graph.node(retry=hf.Retry(attempts=2, base=3600.0, cap=3600.0))
    async def broken(state: Log) -> Any:
        tried.set()
        raise ValueError("broken")

    @graph.node
    async def after(state: Log) -> Any:
        return {"log": ["after"]}

    graph.start_at("broken")
    graph.edge("broken", "after")
    graph.finish("after")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"log": []})
        await tried.wait()
        await engine.settle(timeout=SECONDS)
        await handle.skip("broken")
        assert (await handle.result(timeout=SECONDS))["log"] == ["after"]
