"""Every number that the engine declares is recorded, where it says."""

from __future__ import annotations

import ast
import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.runtime import telemetry as t
from tests.worker import process_jobs
from tests.worker.support import engine_on, until


def numbers(engine: hf.Engine, kind: str) -> dict[str, Any]:
    snapshot: dict[str, Any] = engine.metrics.snapshot()  # type: ignore[attr-defined]
    found: dict[str, Any] = snapshot[kind]
    return found


def test_every_declared_number_is_recorded_somewhere() -> None:
    """A name that nothing records shows zero for ever, and people believe it."""
    package = Path(hf.__file__).parent
    used = {
        node.attr
        for path in (package / "runtime").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "t"
    }
    declared = {constant for constant, name in vars(t).items() if constant.isupper() and name in list(t.MEANINGS)}
    assert declared - used == set()


async def test_the_time_of_a_batch_is_split_into_reading_deciding_and_writing(url: str) -> None:
    """Each batch was decided and written; only one on the locked path, such as a cancel, has read anything."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> None: ...

    async with engine_on(url, registry) as engine:
        handle = await engine.start(quick, paused=True)
        before = numbers(engine, "distributions")
        await handle.cancel()
        after = numbers(engine, "distributions")
    assert after[t.LOAD_SECONDS]["count"] == before.get(t.LOAD_SECONDS, {"count": 0})["count"] + 1
    batches = numbers(engine, "counters")[t.BATCHES]
    assert after[t.DECIDE_SECONDS]["count"] == after[t.COMMIT_SECONDS]["count"] == batches
    for name in (t.LOAD_SECONDS, t.DECIDE_SECONDS, t.COMMIT_SECONDS):
        assert 0 <= after[name]["min"] <= after[name]["max"] < 10
    assert after[t.DECIDE_SECONDS]["sum"] > 0


async def test_a_batch_on_the_fast_path_reads_nothing_and_counts_no_reading() -> None:
    """A zero for each of them would hide what reading costs when there is some."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> None: ...

    engine = engine_on("memory://", registry)
    async with engine, engine.worker():
        await engine.run(quick, timeout=10)  # locked: the first start of all has nothing remembered to go by
        loads = numbers(engine, "distributions").get(t.LOAD_SECONDS, {"count": 0})["count"]
        batches = numbers(engine, "counters")[t.BATCHES]
        for _ in range(5):
            await engine.run(quick, timeout=10)
        assert numbers(engine, "counters")[t.BATCHES] >= batches + 10
        assert numbers(engine, "distributions").get(t.LOAD_SECONDS, {"count": 0})["count"] == loads


async def test_each_execution_of_user_code_is_timed_however_it_ends() -> None:
    """Completed, failed and retried, timed out, and cancelled from outside."""
    registry, begun = hf.Registry(), asyncio.Event()

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.001, cap=0.001))
    async def fails() -> None:
        raise ValueError("no")

    @hf.action(registry=registry, timeout=0.01)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @hf.action(registry=registry)
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    engine = engine_on("memory://", registry)
    async with engine, engine.worker():
        for action, executions_so_far in ((fails, 2), (hangs, 3)):
            with pytest.raises(hf.RunFailed):
                await engine.run(action, timeout=10)
            told = numbers(engine, "distributions")[t.ACTION_SECONDS]
            assert told["count"] == executions_so_far
        assert told["max"] >= 0.01
        handle = await engine.start(waits)
        await begun.wait()
        await handle.cancel()
        await until(
            lambda: numbers(engine, "distributions")[t.ACTION_SECONDS]["count"] == 4, "the cancelled one counts"
        )
        assert numbers(engine, "gauges")[t.RUNNING_ACTIONS] == 0


async def test_running_actions_are_those_of_all_workers_of_the_process() -> None:
    """Two workers of one engine share a gauge, and neither overwrites what the other runs."""
    registry, go = hf.Registry(), asyncio.Event()

    @hf.action(registry=registry)
    async def hold() -> None:
        await go.wait()

    engine = engine_on("memory://", registry, hand_over=False)
    async with engine, engine.worker(concurrency=2), engine.worker(concurrency=1):
        handles = [await engine.start(hold) for _ in range(3)]
        await until(lambda: numbers(engine, "gauges").get(t.RUNNING_ACTIONS) == 3, "three run, by two workers")
        go.set()
        for handle in handles:
            await handle.result(timeout=10)
        assert numbers(engine, "gauges")[t.RUNNING_ACTIONS] == 0


async def test_a_thread_that_goes_on_after_its_time_counts_as_abandoned_until_it_returns() -> None:
    """A thread cannot be killed; whoever looks at the numbers sees where the slots went."""
    registry, go = hf.Registry(), threading.Event()

    @hf.action(registry=registry, timeout=0.02)
    def stubborn() -> None:
        go.wait(20)

    engine = engine_on("memory://", registry)
    async with engine, engine.worker():
        with pytest.raises(hf.RunFailed, match="took longer than its timeout"):
            await engine.run(stubborn, timeout=10)
        assert numbers(engine, "gauges")[t.ABANDONED_THREADS] == 1
        go.set()
        await until(lambda: numbers(engine, "gauges")[t.ABANDONED_THREADS] == 0, "the thread has returned")


async def test_processes_that_die_are_counted_and_those_that_are_ended_are_not() -> None:
    """A crash of user code's process, and one of an idle process; a timeout and the end of the engine are ours."""
    engine = engine_on("memory://", process_jobs.registry)
    async with engine, engine.worker():
        with pytest.raises(hf.RunFailed, match="died"):
            await engine.run(process_jobs.crash, timeout=20)
        assert numbers(engine, "counters")[t.PROCESS_DEATHS] == 1
        os.kill(await engine.run(process_jobs.own_process, timeout=20), 9)
        await until(lambda: numbers(engine, "counters")[t.PROCESS_DEATHS] == 2, "the idle one's death is noticed")
        with pytest.raises(hf.RunFailed, match="took longer than its timeout"):
            await engine.run(process_jobs.hang, timeout=20)
        await engine.run(process_jobs.own_process, timeout=20)
    assert numbers(engine, "counters")[t.PROCESS_DEATHS] == 2
