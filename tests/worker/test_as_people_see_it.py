"""What listings and waiting programs show while things happen."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.core.rows import PENDING, RUNNING
from tests.endtoend.programs import app, journal
from tests.worker.support import Processes, engine_on, until


async def test_i1_a_run_is_listed_as_running_from_its_first_claim(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I1: not only when its first node has ended; and it says when that was."""
    async with engine_on(shared_url, app.registry) as engine:
        handle = await engine.start(app.hold, journal_path)
        assert [run.status for run in await engine.find()] == [PENDING]
        await processes.serving(engine, shared_url)
        await until(lambda: journal.begun(journal_path), "the other process has begun")
        assert [run.id for run in await engine.find(status=RUNNING)] == [handle.id]
        (row,) = await engine.store.runs([handle.id])
        (attempt,) = await handle.step_executions()
        assert attempt.started_at is not None
        assert row.started == round(attempt.started_at.timestamp() * 1e6)
        assert row.version == 1  # a claim's columns are guarded by the token, not by the version (K4)


async def test_i7_a_worker_that_was_killed_is_not_listed_as_live(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I7: its lease may be good for long, but everybody can know that it is dead."""
    async with engine_on(shared_url, app.registry) as engine:
        process, _ = await processes.serving(engine, shared_url)
        handle = await engine.start(app.hold, journal_path)
        await until(lambda: journal.begun(journal_path), "it has begun")
        process.kill()

        async def nobody_is_live() -> bool:
            return all(row.lease_until < engine.store.now() for row in await engine.workers())

        await until(nobody_is_live, "the dead worker is known to be dead", 1.5)
        assert "ran out" in str(await handle.explain())


async def test_i10_a_cancel_reaches_what_a_stopping_worker_still_runs(shared_url: str) -> None:
    """I10: a worker that was asked to stop finishes what runs, but not what was cancelled meanwhile."""
    registry = hf.Registry()
    begun, stopped = [], []

    @hf.action(registry=registry)
    async def endless() -> None:

        begun.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)

    engine, other = engine_on(shared_url, registry, shutdown_seconds=60.0), engine_on(shared_url, registry)
    async with engine, other:
        async with engine.worker() as worker:
            handle = await other.start(endless)
            await until(lambda: begun, "it runs")

            stopping = asyncio.ensure_future(worker.stop())
            await until(lambda: worker._stopping, "it is stopping")
            assert not stopped
            assert await handle.cancel()
            await asyncio.wait_for(stopping, 10)
        assert stopped


async def test_i5_waiting_too_long_names_the_run_and_start_names_unknown_options(url: str) -> None:
    """Errors are part of the product: an empty TimeoutError helps nobody."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def greet(name: str) -> str:
        return name

    async with engine_on(url, registry) as engine:
        handle = await engine.start(greet, "Ada")
        with pytest.raises(TimeoutError, match=handle.id):
            await handle.result(timeout=0.01)
        with pytest.raises(hf.UsageError, match="no option name"):
            await engine.start(greet, name="Ada")  # type: ignore[call-overload]
