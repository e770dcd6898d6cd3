"""Attempts, retries and timeouts of a real worker, on every store."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.codec import decode_error
from holdfast.core.rows import COMPLETED, FAILED, GATE_DUE, READY, TIMED_OUT
from tests.endtoend.programs import app, journal
from tests.worker import process_jobs
from tests.worker.support import engine_on, statuses, until, work_of

SHORT = hf.Retry(attempts=3, base=0.02, cap=0.05)


async def test_i3_attempts_are_executions_in_all_and_the_last_error_keeps_the_earlier_ones(url: str) -> None:
    """I3: `Retry(attempts=3)` executes three times, numbered from 1; the final error carries the chain."""
    registry = hf.Registry()
    seen: list[int] = []

    @hf.action(registry=registry, retry=SHORT)
    async def flaky() -> None:
        seen.append(hf.current().attempt)
        raise ValueError(f"attempt {hf.current().attempt}")

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(flaky)
        with pytest.raises(hf.RunFailed) as caught:
            await handle.result(timeout=10)
        attempts = await work_of(engine, handle.id)
    assert seen == [1, 2, 3]
    assert [(work.attempt, work.status, work.failures) for work in attempts] == [
        (1, FAILED, 1),
        (2, FAILED, 2),
        (3, FAILED, 3),
    ]
    assert repr(caught.value.cause) == "ValueError('attempt 3')"
    assert list(map(repr, caught.value.attempts)) == [f"ValueError('attempt {number}')" for number in (1, 2, 3)]
    assert caught.value.attempts[-1] is caught.value.cause
    assert attempts[-1].error is not None
    last = decode_error(attempts[-1].error)
    assert [earlier.message for earlier in last.earlier] == ["attempt 1", "attempt 2"]


async def test_i3_the_errors_of_a_process_keep_the_earlier_ones_too(sqlite_url: str, journal_path: str) -> None:
    """I3: where an action runs makes no difference to what is known about its failures."""
    engine = engine_on(sqlite_url, app.registry)
    async with engine, engine.worker():
        handle = await engine.start(app.fail_in_process, journal_path)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=15)
        attempts = await work_of(engine, handle.id)
    assert attempts[-1].error is not None
    last = decode_error(attempts[-1].error)
    assert (last.message, [earlier.message for earlier in last.earlier]) == ("attempt 3", ["attempt 1", "attempt 2"])
    assert attempts[0].outcome is not None
    assert msgspec.json.decode(attempts[0].outcome)["notes"] == ["about to fail"]


async def test_i3_a_delay_is_stored_as_a_due_time_and_kept(url: str) -> None:
    """I3: the next attempt is due exactly the policy's delay after the failure, and never starts before that."""
    registry = hf.Registry()

    @hf.action(registry=registry, retry=SHORT)
    async def flaky() -> int:
        if hf.current().attempt < 3:
            raise ValueError("not yet")
        return hf.current().attempt

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(flaky)
        assert await handle.result(timeout=10) == 3
        attempts = await work_of(engine, handle.id)
    for before, after in itertools.pairwise(attempts):
        assert before.finished is not None
        assert after.started is not None
        delay = SHORT.delay_seconds(handle.id, before.node, before.attempt)
        assert after.due == before.finished + int(delay * 1e6)
        assert after.started >= after.due


async def test_i3_a_delayed_attempt_holds_no_slot(url: str) -> None:
    """I3: while one run backs off for a minute, the only slot of the worker serves others."""
    registry = hf.Registry()

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=60, cap=90))
    async def flaky() -> None:
        raise ValueError("down")

    @hf.action(registry=registry)
    async def quick() -> str:
        return "served"

    engine = engine_on(url, registry)
    async with engine, engine.worker(concurrency=1):
        delayed = await engine.start(flaky)
        await until(lambda: _is(engine, delayed, [FAILED, READY]), "the first attempt has failed")
        assert await engine.run(quick, timeout=5) == "served"
        waiting = (await work_of(engine, delayed.id))[-1]
        assert waiting.gate == GATE_DUE
        assert waiting.due > engine.store.now() + 50_000_000
        assert "backing off until" in str(await delayed.explain())


async def test_i3_a_due_time_outlives_the_process_that_set_it(shared_url: str) -> None:
    """I3: the delay goes on counting while nobody is there, and is neither forgotten nor started again."""
    registry = hf.Registry()

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.3, cap=0.6))
    async def flaky() -> int:
        if hf.current().attempt == 1:
            raise ValueError("first")
        return hf.current().attempt

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        handle = await engine.start(flaky)
        await until(lambda: _is(engine, handle, [FAILED, READY]), "the first attempt has failed")
        stored = (await work_of(engine, handle.id))[-1].due
    again = engine_on(shared_url, registry)
    async with again, again.worker():
        assert await again.get(handle.id).result(timeout=10) == 2
        last = (await work_of(again, handle.id))[-1]
    assert last.due == stored
    assert last.started is not None
    assert last.started >= stored


async def test_i3_non_retryable_and_other_types_end_retrying_at_once(url: str) -> None:
    """I3: `NonRetryable` and whatever `retry_on` does not name are final, whatever is left of the budget."""
    registry = hf.Registry()
    policy = hf.Retry(attempts=5, base=0.01, cap=0.01, retry_on=(ConnectionError,))

    @hf.action(registry=registry, retry=policy)
    async def raises(kind: str) -> None:
        raise {"other": ValueError("other"), "never": hf.NonRetryable("never"), "again": ConnectionError("again")}[kind]

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        for kind, count in (("other", 1), ("never", 1), ("again", 5)):
            handle = await engine.start(raises, kind)
            with pytest.raises(hf.RunFailed):
                await handle.result(timeout=10)
            assert len(await work_of(engine, handle.id)) == count, kind


async def test_i3_a_result_that_cannot_be_stored_is_no_reason_to_run_the_action_again(url: str) -> None:
    """I3: it has done all it does, and would only do it once more; by itself and called by a function."""
    registry, seen = hf.Registry(), list[str]()

    @hf.action(registry=registry, retry=SHORT)
    async def odd() -> int:
        seen.append("odd")
        return "seven"  # type: ignore[return-value]

    @hf.action(registry=registry, retry=SHORT, timeout=60)
    async def limited() -> int:
        seen.append("limited")
        return "seven"  # type: ignore[return-value]

    @hf.action(registry=registry, retry=SHORT)
    def long() -> str:
        seen.append("long")
        return "x" * 2000

    @hf.workflow(registry=registry)
    async def call(name: str) -> None:
        await {"odd": odd, "limited": limited, "long": long}[name]()

    engine = engine_on(url, registry, payload_limit_bytes=1000)
    async with engine, engine.worker():
        for action in (odd, limited, long):
            for started in (await engine.start(action), await engine.start(call, action.name)):
                with pytest.raises(hf.RunFailed) as failed:
                    await started.result(timeout=10)
                assert isinstance(failed.value.cause, hf.PayloadRefused | hf.PayloadTooLarge)
    assert sorted(seen) == ["limited", "limited", "long", "long", "odd", "odd"]


async def test_i3_an_action_that_raises_such_an_error_itself_is_tried_again(url: str) -> None:
    """I3: it did not get to its end, and its policy says what follows."""
    registry, seen = hf.Registry(), list[int]()

    @hf.action(registry=registry, retry=SHORT)
    async def ask() -> int:
        seen.append(hf.current().attempt)
        if len(seen) < 3:
            raise hf.PayloadRefused("somebody else's answer")
        return 7

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        assert await engine.run(ask, timeout=10) == 7
    assert seen == [1, 2, 3]


async def test_i5_an_async_action_past_its_deadline_times_out_on_the_same_budget(url: str) -> None:
    """I5: timed_out is retried like failed, and both draw on one budget."""
    registry = hf.Registry()

    @hf.action(registry=registry, timeout=0.15, retry=SHORT)
    async def slow() -> None:
        if hf.current().attempt == 2:
            raise ValueError("an ordinary failure in between")
        await asyncio.Event().wait()

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(slow)
        with pytest.raises(hf.RunFailed, match=r"took longer than its timeout of 0\.15 s"):
            await handle.result(timeout=10)
        attempts = await work_of(engine, handle.id)
    assert [(work.status, work.failures) for work in attempts] == [(TIMED_OUT, 1), (FAILED, 2), (TIMED_OUT, 3)]
    for work in attempts:
        if work.status == TIMED_OUT:
            assert work.started is not None
            assert work.finished is not None
            assert work.finished - work.started >= 150_000


async def test_i5_a_thread_past_its_deadline_is_told_and_its_late_result_counts_for_nothing(url: str) -> None:
    """I5: a thread cannot be interrupted; its attempt ends on time all the same."""
    registry = hf.Registry()
    told = threading.Event()

    @hf.action(registry=registry, timeout=0.1)
    def slow() -> str:
        context = hf.current()
        while not context.cancelled:
            told.wait(0.005)
        told.set()
        return "too late"

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(slow)
        with pytest.raises(hf.RunFailed, match=r"timeout of 0\.1 s"):
            await handle.result(timeout=10)
        await until(told.is_set, "the thread is told that its time is up")
        assert await statuses(engine, handle.id) == [TIMED_OUT]


async def test_i3_the_death_of_a_process_is_told_with_one_fix() -> None:
    engine = engine_on("memory://", process_jobs.registry)
    async with engine, engine.worker():
        with pytest.raises(hf.RunFailed, match="with exit code 3; look at the worker") as failed:
            await engine.run(process_jobs.crash, timeout=20)
    assert str(failed.value).count("Fix:") == 1


async def test_i5_a_process_past_its_deadline_is_killed_and_retried(sqlite_url: str, journal_path: str) -> None:
    """I5: with isolation="process" the code really stops."""
    engine = engine_on(sqlite_url, app.registry)
    async with engine, engine.worker():
        handle = await engine.start(app.hang_in_process, journal_path)
        with pytest.raises(hf.RunFailed, match="timeout of 1 s"):
            await handle.result(timeout=15)
        assert await statuses(engine, handle.id) == [TIMED_OUT, TIMED_OUT]
        pids = {deed.pid for deed in journal.begun(journal_path)}
        assert len(pids) == 2
        assert os.getpid() not in pids
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes are gone")


async def test_g9_an_action_that_ends_by_cancelling_itself_has_failed_and_nothing_hangs(url: str) -> None:
    """G9: a CancelledError that nobody asked for is a failure like any other, within the budget."""
    registry = hf.Registry()

    @hf.action(registry=registry, retry=SHORT)
    async def confused() -> None:
        raise asyncio.CancelledError("a library cancelled its own task")

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(confused)
        with pytest.raises(hf.RunFailed, match="CancelledError"):
            await handle.result(timeout=5)
        assert await statuses(engine, handle.id) == [FAILED, FAILED, FAILED]


async def test_i3_options_of_one_start_beat_the_policy_of_the_code(url: str) -> None:
    """I3, I4: one attempt unless somebody says otherwise; `.options` says it for one run and is stored with it."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def flaky() -> int:
        if hf.current().attempt < 2:
            raise ValueError("once")
        return hf.current().attempt

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        once = await engine.start(flaky)
        with pytest.raises(hf.RunFailed):
            await once.result(timeout=5)
        twice = await engine.start(flaky.options(retry=SHORT))
        assert await twice.result(timeout=5) == 2
        assert await statuses(engine, once.id) == [FAILED]
        assert await statuses(engine, twice.id) == [FAILED, COMPLETED]


async def _is(engine: hf.Engine, handle: hf.Handle[Any], wanted: list[str]) -> bool:
    return await statuses(engine, handle.id) == wanted
