"""What actions return, raise and note, however odd: every attempt executes once and ends with a status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.operations import CompleteWork
from holdfast.core.rows import COMPLETED, FAILED, TIMED_OUT
from tests.worker import process_jobs
from tests.worker.support import counted, engine_on, statuses, until


async def test_g3_a_note_that_no_store_can_hold_costs_no_second_execution(url: str) -> None:
    """G3: a lone surrogate in a note is no reason to run the action again."""
    registry = hf.Registry()
    executions: list[int] = []

    @hf.action(registry=registry)
    async def notes() -> int:
        executions.append(hf.current().attempt)
        hf.current().note("\ud800")
        return 1

    engine = engine_on(url, registry, sweep_seconds=0.02)
    async with engine, engine.worker():
        handle = await engine.start(notes)
        assert await handle.result(timeout=5) == 1
        assert await statuses(engine, handle.id) == [COMPLETED]
    assert executions == [1]


@pytest.mark.parametrize("message", ["a\0b", "a\ud800b"], ids=["nul", "surrogate"])
async def test_i3_an_error_message_that_no_store_can_hold_uses_the_budget_like_any_other(
    url: str, message: str
) -> None:
    """I3: two attempts are two executions, and both are recorded as failed."""
    registry = hf.Registry()
    executions: list[int] = []

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.01))
    async def complains() -> None:
        executions.append(hf.current().attempt)
        raise ValueError(message)

    engine = engine_on(url, registry, sweep_seconds=0.02)
    async with engine, engine.worker():
        handle = await engine.start(complains)
        with pytest.raises(hf.RunFailed, match="gave up after 2 attempts"):
            await handle.result(timeout=5)
        assert await statuses(engine, handle.id) == [FAILED, FAILED]
    assert executions == [1, 2]


async def test_i5_an_action_that_swallows_its_timeout_has_timed_out(url: str) -> None:
    """I5: what it returns after its deadline counts for nothing, although it took the cancellation for its own."""
    registry = hf.Registry()

    @hf.action(registry=registry, timeout=0.05)
    async def late() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 1
        return 2

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(late)
        with pytest.raises(hf.RunFailed, match="took longer than its timeout"):
            await handle.result(timeout=5)
        assert await statuses(engine, handle.id) == [TIMED_OUT]


async def test_g3_a_hand_over_whose_answer_is_slow_executes_once(shared_url: str) -> None:
    """G3: a sweep takes the step for an orphan and runs it; the answer that comes later starts it no second time."""
    registry = hf.Registry()
    executions: list[str] = []
    answer, finish = asyncio.Event(), asyncio.Event()

    class Chain(hf.Dag, registry=registry):
        @hf.step
        async def one(self) -> None:
            executions.append("one")

        @hf.step
        async def two(self) -> None:
            executions.append("two")
            await finish.wait()

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    def hold_the_answer(name: str) -> Awaitable[bool] | None:
        return answer.wait() if name == "handover.received" else None

    engine = engine_on(shared_url, registry, sweep_seconds=0.05)
    async with engine, engine.worker():
        failpoints.arm(hold_the_answer)
        try:
            handle = await engine.start(Chain())
            await until(lambda: "two" in executions, "a sweep finds the second step")
            answer.set()
            # A whole run on the same loop: time enough for the answer to do its harm.
            assert await engine.run(quick, timeout=5) == 2
            finish.set()
            await handle.result(timeout=5)
        finally:
            failpoints.disarm()
    assert executions == ["one", "two"]


async def test_counters_of_retries_and_completions_count_only_those(url: str) -> None:
    """A failure without another attempt is no retry, and a stale completion completes nothing."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def bad() -> None:
        raise ValueError("always")

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        with pytest.raises(hf.RunFailed):
            await engine.run(bad, timeout=5)
        await engine.coordinator.submit(CompleteWork(run="none", node="n", attempt=1, token=1))
        assert (counted(engine, "retries"), counted(engine, "completions")) == (0, 0)


async def test_g9_a_task_whose_job_runs_in_a_process_and_takes_nothing_completes(url: str) -> None:
    """G9: a job without parameters is called without the workflow's own."""
    engine = engine_on(url, process_jobs.registry)
    async with engine, engine.worker():
        handle = await engine.start(process_jobs.WithJob())
        await handle.result(timeout=15)
        assert await statuses(engine, handle.id) == [COMPLETED]


async def test_a_job_in_a_process_of_its_own_has_the_instance_that_it_belongs_to(sqlite_url: str) -> None:
    """As one in a thread has; where the class can't be imported by another process there is None."""

    class Local(hf.Dag, registry=process_jobs.registry):
        go = hf.task(job=process_jobs.whose, depends_on=None)

    engine = engine_on(sqlite_url, process_jobs.registry)
    async with engine, engine.worker():
        for dag, told in (
            (process_jobs.Order(number=7, lines=["tea"]), "Order(number=7, lines=['tea'])"),
            (Local(), "None"),
        ):
            handle = await engine.start(dag)
            await handle.result(timeout=15)
            (execution,) = await handle.step_executions()
            assert execution.outcome is not None
            assert execution.outcome["notes"] == [told]


async def test_i32_the_outcome_of_an_attempt_in_a_process_has_what_was_used_there(sqlite_url: str) -> None:
    """What it took and returned is measured where it ran, and also told of one that fails."""
    engine = engine_on(sqlite_url, process_jobs.registry)
    async with engine, engine.worker():
        handle = await engine.start(process_jobs.whose)
        await handle.result(timeout=15)
        (execution,) = await handle.step_executions()
        assert execution.outcome is not None
        assert execution.outcome["cpu_seconds"] >= 0.04
        assert execution.outcome["returned"] == "42"
        handle = await engine.start(process_jobs.compute_and_fail)
        with pytest.raises(hf.RunFailed, match="no"):
            await handle.result(timeout=15)
        (execution,) = await handle.step_executions()
        assert execution.outcome is not None
        assert execution.outcome["cpu_seconds"] >= 0.04
        assert "returned" not in execution.outcome
