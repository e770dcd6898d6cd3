"""Policies that a flow gives to one call: stored with its node, and kept by whoever runs it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.queries import AllWork, ChildrenOf
from tests.support.stores import KINDS, Site, site_for
from tests.worker.support import assert_sound, engine_on

registry = hf.Registry()
tried: Counter[str] = Counter()


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    tried.clear()
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@hf.action(registry=registry)
async def flaky(name: str, times: int) -> int:
    tried[name] += 1
    if tried[name] < times:
        raise ConnectionError(f"{name} failed {tried[name]} times")
    return tried[name]


@hf.action(registry=registry)
async def endless() -> None:
    await asyncio.Event().wait()


@hf.workflow(registry=registry)
async def nested(number: int) -> int:
    return number


persistent = flaky.options(retry=hf.Retry(attempts=3, base=0.0))


@hf.flow(registry=registry)
async def stubborn() -> list[Any]:
    first = await flaky.options(retry=hf.Retry(attempts=2, base=0.0))("first", 2)
    others = await asyncio.gather(persistent("a", 3), flaky("b", 2), return_exceptions=True)
    try:
        await endless.options(timeout=0.02)()
    except Exception as error:
        late = str(error)
    return [first, others[0], str(others[1]), late]


@hf.flow(registry=registry)
async def elsewhere() -> int:
    await flaky.options(queue="side")("c", 1)
    return await nested.options(queue="side")(7)


async def test_i3_options_of_one_call_decide_about_its_attempts_and_its_time(site: Site) -> None:
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        first, a, b, late = await engine.run(stubborn, timeout=20)
        await assert_sound(engine)
    assert (first, a, b) == (2, 3, "b failed 1 times")
    assert "longer than its timeout of 0.02 s" in late


async def test_i8_options_send_one_call_and_one_child_to_another_queue(site: Site) -> None:
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker(queues=("default", "side")):
        handle = await engine.start(elsewhere)
        assert await handle.result(timeout=20) == 7
        queues = {work.node: work.queue for work in await engine.store.rows(AllWork(handle.id))}
        (child,) = await engine.store.rows(ChildrenOf(handle.id))
    assert queues["flaky"] == "side"
    assert queues["nested"] == "default"
    assert child.queue == "side"


def test_i24_options_belong_to_the_graph_and_change_its_signature() -> None:
    async def plain() -> int:
        return await flaky("x", 1)

    async def hurried() -> int:
        return await flaky.options(timeout=5)("x", 1)

    one, other = hf.flow(registry=hf.Registry())(plain), hf.flow(registry=hf.Registry(), name="plain")(hurried)
    assert one.graph.signature != other.graph.signature
    assert "flaky" in one.graph.difference(other.graph).changed
