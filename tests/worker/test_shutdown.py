"""How a worker process stops: politely, at once, or when its time is up; and what becomes of its work."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.rows import COMPLETED, LEASED, READY
from holdfast.runtime.stop_requests import ONE_WISH_SECONDS
from tests.endtoend.programs import app, journal
from tests.worker.support import Processes, assert_sound, engine_on, statuses, until, work_of

AT_ONCE_SECONDS = 3.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl_c"])
async def test_asked_once_a_worker_finishes_what_runs_and_takes_nothing_new(
    shared_url: str, journal_path: str, processes: Processes, number: signal.Signals
) -> None:
    """The step that runs is completed and recorded; the next one of its chain is left for others."""
    async with engine_on(shared_url, app.registry) as engine:
        process, row = await processes.serving(engine, shared_url)
        handle = await engine.start(app.hold, journal_path)
        await until(lambda: journal.begun(journal_path), "the process has begun")
        process.send_signal(number)
        await until(lambda: _log_says(journal_path, "waits up to"), "the worker is stopping")
        queued = await engine.start(app.square, 3, f"{journal_path}-2")
        assert process.poll() is None
        Path(f"{journal_path}.go").touch()
        assert await handle.result(timeout=5) == 1
        await until(lambda: process.poll() is not None, "the process ends")
        assert process.returncode == 0
        assert await statuses(engine, queued.id) == [READY]
        assert row.id not in [worker.id for worker in await engine.workers()]
        async with engine.worker():
            assert await queued.result(timeout=5) == 9
        assert await statuses(engine, handle.id) == [COMPLETED]
        await assert_sound(engine)


async def test_asked_twice_a_worker_stops_at_once_and_its_work_goes_on_elsewhere(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I6: what was given back was no attempt: it is attempt 1 again, at once, with nothing counted."""
    async with engine_on(shared_url, app.registry, lease_seconds=30.0) as engine:
        process, _ = await processes.serving(engine, shared_url)
        handle = await engine.start(app.hold, journal_path)
        await until(lambda: journal.begun(journal_path), "the process has begun")
        process.send_signal(signal.SIGINT)
        await until(lambda: _log_says(journal_path, "waits up to"), "the worker is stopping")
        earliest = time.monotonic() + ONE_WISH_SECONDS
        await until(lambda: time.monotonic() > earliest, "another signal is another wish")
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        await until(lambda: process.poll() is not None, "the process ends")
        assert time.monotonic() - asked < AT_ONCE_SECONDS
        assert process.returncode == 0
        await _goes_on_here(engine, handle, journal_path)


async def test_a_worker_whose_time_to_stop_is_up_gives_its_work_back(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """The grace time is a limit: here half a second, for code that never ends."""
    async with engine_on(shared_url, app.registry, lease_seconds=30.0) as engine:
        process, _ = await processes.serving(engine, shared_url, settings={"shutdown_seconds": 0.5})
        handle = await engine.start(app.hold, journal_path)
        await until(lambda: journal.begun(journal_path), "the process has begun")
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None, "the process ends")
        assert 0.5 <= time.monotonic() - asked < 0.5 + AT_ONCE_SECONDS
        await _goes_on_here(engine, handle, journal_path)


async def test_a_thread_that_cannot_be_interrupted_does_not_keep_a_worker_from_stopping(
    sqlite_url: str, journal_path: str, processes: Processes
) -> None:
    """Threads are daemons: the process ends, and the work goes on elsewhere."""
    async with engine_on(sqlite_url, app.registry, lease_seconds=30.0) as engine:
        process, _ = await processes.serving(engine, sqlite_url, settings={"shutdown_seconds": 0.3})
        handle = await engine.start(app.hold_in_thread, journal_path)
        await until(lambda: journal.begun(journal_path), "the process has begun")
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None, "the process ends")
        await _goes_on_here(engine, handle, journal_path)


async def _goes_on_here(engine: hf.Engine, handle: hf.Handle[int], journal_path: str) -> None:
    (given_back,) = await work_of(engine, handle.id)
    assert (given_back.status, given_back.attempt, given_back.worker) == (READY, 1, None)
    async with engine.worker():
        await until(lambda: len(journal.begun(journal_path)) == 2, "the work goes on here", seconds=2.0)
        Path(f"{journal_path}.go").touch()
        assert await handle.result(timeout=5) == 1, "it is attempt 1 again"
    (done,) = await work_of(engine, handle.id)
    assert (done.status, done.failures, done.losses) == (COMPLETED, 0, 0)
    await assert_sound(engine)


async def test_closing_an_engine_in_the_middle_gives_its_work_back(url: str, journal_path: str) -> None:
    """The end of the context is a polite stop, and nothing stays leased to a worker that is gone."""
    engine = engine_on(url, app.registry, shutdown_seconds=0.2)
    async with engine:
        async with engine.worker():
            handle = await engine.start(app.hold, journal_path)
            await until(lambda: journal.begun(journal_path), "it runs")
            assert await statuses(engine, handle.id) == [LEASED]
        assert await statuses(engine, handle.id) == [READY]
        assert await engine.workers() == []
        await _goes_on_here(engine, handle, journal_path)


def _log_says(journal_path: str, words: str) -> bool:
    return any(words in path.read_text(errors="replace") for path in Path(journal_path).parent.glob("worker-*.err"))
