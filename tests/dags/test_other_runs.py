"""A node that depends on another run: it waits without holding a slot, and goes on when that run has ended."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.core.rows import BLOCKED, COMPLETED
from tests.worker.support import assert_sound, engine_on, statuses, until, work_of

GO = "go"


def shop(registry: hf.Registry, gate: asyncio.Event, seen: list[str]) -> tuple[type[hf.Dag], hf.Action[..., object]]:
    @hf.action(registry=registry)
    async def upstream(fail: bool) -> None:
        await gate.wait()
        if fail:
            raise ValueError("no stock")
        seen.append("upstream")

    class Downstream(hf.Dag, registry=registry, on_failure="fail"):
        after: str

        @hf.step
        async def prepare(self) -> None:
            seen.append("prepare")

        @hf.step(depends_on_run="after")
        async def ship(self) -> None:
            seen.append("ship")

    return Downstream, upstream


async def test_i55_a_node_waits_for_another_run_without_a_slot(url: str) -> None:
    """One slot: the node that waits must not hold it, or the run that it waits for could never be run."""
    registry, gate, seen = hf.Registry(), asyncio.Event(), list[str]()
    downstream, upstream = shop(registry, gate, seen)
    async with engine_on(url, registry) as engine, engine.worker(concurrency=1):
        first = await engine.start(upstream, False, paused=True)
        second = await engine.start(downstream(after=first.id))
        await until(lambda: _is(engine, second.id, "ship", BLOCKED), "the node waits")
        assert seen == ["prepare"]
        _, ship = await second.nodes_with_state()
        assert (ship.state, ship.detail) == ("blocked", "by another run")
        gate.set()
        await first.resume()
        await second.result(timeout=10)
        assert seen == ["prepare", "upstream", "ship"]
        assert await statuses(engine, second.id, "ship") == ["cancelled", COMPLETED]
        await assert_sound(engine)


async def test_i55_a_run_that_failed_fails_the_node_that_depends_on_it(url: str) -> None:
    registry, gate, seen = hf.Registry(), asyncio.Event(), list[str]()
    downstream, upstream = shop(registry, gate, seen)
    gate.set()
    async with engine_on(url, registry) as engine, engine.worker():
        first = await engine.start(upstream, True)
        with pytest.raises(hf.RunFailed):
            await first.result(timeout=10)
        second = await engine.start(downstream(after=first.id))
        with pytest.raises(hf.RunFailed, match=f"depends on run {first.id} of upstream, which is failed"):
            await second.result(timeout=10)
        third = await engine.start(downstream(after="nobody"))
        with pytest.raises(hf.RunFailed, match="there is no such run"):
            await third.result(timeout=10)
        await assert_sound(engine)


async def test_i55_a_job_runs_again_when_a_run_that_it_started_has_ended(url: str) -> None:
    """`reattempt(after_run=…)`: children of a node, with the same waits that functions use."""
    registry, seen = hf.Registry(), list[str]()

    @hf.action(registry=registry)
    async def child(number: int) -> int:
        return number * 2

    @hf.action(registry=registry)
    async def parent() -> None:
        handle = await engine.start(child, 21, key=hf.current().idempotency_key)
        if await engine.get(handle.id).status() != COMPLETED:
            hf.current().reattempt(after_run=handle)
        seen.append(str(await handle.result(timeout=1)))

    builder = hf.DagBuilder("family", registry=registry)
    builder.node("parent", job=parent)
    engine = engine_on(url, registry)
    async with engine, engine.worker(concurrency=1):
        run = await engine.start(builder.build())
        await run.result(timeout=10)
        assert seen == ["42"]
        await assert_sound(engine)


async def _is(engine: hf.Engine, run: str, node: str, status: str) -> bool:
    return bool(rows := await work_of(engine, run, node)) and rows[-1].status == status


async def test_g9_a_run_whose_last_node_waits_for_another_run_is_not_stuck(url: str) -> None:
    """G9: nothing of it is active, but something will move it: it is not paused for that."""
    registry, gate, seen = hf.Registry(), asyncio.Event(), list[str]()

    @hf.action(registry=registry)
    async def upstream() -> None: ...

    class Two(hf.Dag, registry=registry):
        after: str

        @hf.task(depends_on_run="after")
        async def waits(self) -> None:
            seen.append("waits")

        @hf.task
        async def other(self) -> None:
            await gate.wait()
            seen.append("other")

    async with engine_on(url, registry) as engine, engine.worker():
        first = await engine.start(upstream, paused=True)
        second = await engine.start(Two(after=first.id))
        await until(lambda: _is(engine, second.id, "waits", BLOCKED), "the node waits")
        gate.set()
        await until(lambda: _is(engine, second.id, "other", COMPLETED), "the other branch is done")
        assert await second.status() == "running"
        await first.resume()
        await second.result(timeout=10)
        assert seen == ["other", "waits"]
        await assert_sound(engine)
