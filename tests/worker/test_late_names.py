"""Definitions that are made after the worker has enrolled: it runs them, and others see that it would."""

from __future__ import annotations

import asyncio

import holdfast as hf
from holdfast.core.rows import READY
from tests.worker.support import engine_on, statuses, until


async def test_i8_a_worker_is_known_to_know_what_was_defined_after_it_enrolled(url: str) -> None:
    """I8: neither `explain` nor the burial of unknown work goes by what a worker knew at its start."""
    registry, go = hf.Registry(), asyncio.Event()

    @hf.action(registry=registry)
    async def hold() -> None:
        await go.wait()

    engine = engine_on(url, registry, sweep_seconds=0.02)
    async with engine, engine.worker(concurrency=1):
        held = await engine.start(hold)
        await until(lambda: _is_running(engine, held.id), "the only slot is taken")

        @hf.action(registry=registry)
        async def late(number: int) -> int:
            return number

        class LateDag(hf.Dag, registry=registry):
            @hf.step
            async def only(self) -> None: ...

        waiting, dag = await engine.start(late, 7), await engine.start(LateDag())
        await until(lambda: _all_known(engine), "no work is unknown")
        for handle in (waiting, dag):
            assert await statuses(engine, handle.id) == [READY]
            assert "waits for a free slot" in str(await handle.explain())
        (row,) = await engine.workers()
        assert {"hold", "late"} <= set(row.actions)
        assert {"hold", "late", "LateDag"} <= set(row.workflows)
        go.set()
        assert await waiting.result(timeout=10) == 7
        await dag.result(timeout=10)


async def _is_running(engine: hf.Engine, run: str) -> bool:
    return await engine.get(run).status() == "running"


async def _all_known(engine: hf.Engine) -> bool:
    return not await engine.store.unknown(engine.store.now() + 1, 10)
