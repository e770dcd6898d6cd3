"""Processes that die and processes that are killed: real ones, and what their callers are told."""

from __future__ import annotations

import asyncio
import os
import signal

import psutil
import pytest

from holdfast.core.errors import EngineClosed
from holdfast.runtime.processes import ProcessDied, ProcessSlots
from tests.runtime.process_support import DEADLINE_SECONDS, Heard, call, gone, kill_behind_the_loops_back, opened

pytestmark = pytest.mark.usefixtures("process_jobs")


# --- deaths of the child -----------------------------------------------------------------------------------------


async def test_a_process_that_ends_itself_is_reported_with_its_exit_code() -> None:
    async with opened(1) as slots:
        for code in (0, 5):
            with pytest.raises(ProcessDied, match=f"jobs_of_test_processes:die ended by itself.*{code}") as caught:
                await call(slots, "die", code)
            assert caught.value.exit_code == code
            assert slots.busy == 0
        assert await call(slots, "add", 1) == 11


async def test_a_crash_in_c_is_reported_with_its_signal() -> None:
    async with opened(1) as slots:
        with pytest.raises(ProcessDied, match="SIGSEGV") as caught:
            await call(slots, "crash")
        assert caught.value.exit_code == -signal.SIGSEGV
        assert await call(slots, "add", 1) == 11


async def test_a_kill_from_outside_is_reported_with_a_hint_at_memory() -> None:
    async with opened(1) as slots:
        heard = Heard()
        task = asyncio.create_task(call(slots, "hang", on_note=heard))
        os.kill(int(await heard.next()), signal.SIGKILL)
        with pytest.raises(ProcessDied, match="out-of-memory") as caught:
            await task
        assert caught.value.exit_code == -signal.SIGKILL


async def test_a_death_is_noticed_even_if_a_grandchild_keeps_the_socket_open() -> None:
    async with opened(1) as slots:
        with pytest.raises(ProcessDied) as caught:
            await call(slots, "fork_and_die")
        assert caught.value.exit_code == 7


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 1), ("exit", 3), ("message", 1)])
async def test_i8_a_copy_that_an_action_forked_ends_where_the_action_does(how: str, code: int) -> None:
    """It is not the action, so it answers for none: neither for the one that forked it nor for those that follow."""
    async with opened(1) as slots:
        notes: list[str] = []
        copy, ended_with = await call(slots, "fork_a_copy", how, on_note=notes.append)
        assert (ended_with, notes) == (code, [])
        assert gone(copy)
        assert [await call(slots, "add", number) for number in range(3)] == [10, 11, 12]


async def test_a_process_that_closes_its_socket_is_ended() -> None:
    async with opened(1) as slots:
        with pytest.raises(ProcessDied):
            await call(slots, "close_everything")
        assert await call(slots, "add", 1) == 11


async def test_g3_a_call_given_to_an_idle_process_that_just_died_runs_in_another_one() -> None:
    """G3: an action that no user code was run of is not failed for the death of a process that waited for it."""
    async with opened(1) as slots:
        first = await call(slots, "pid")
        kill_behind_the_loops_back(first)
        assert first in slots.pids
        second = await call(slots, "pid")
        assert second != first
        assert slots.pids == {second}


async def test_sigterm_for_all_processes_of_a_worker_lets_the_parent_decide() -> None:
    async with opened(1) as slots:
        pid = await call(slots, "pid")
        os.kill(pid, signal.SIGTERM)
        assert await call(slots, "pid") == pid


# --- being killed ------------------------------------------------------------------------------------------------


async def test_cancelling_kills_the_process_at_once_and_frees_the_slot() -> None:
    async with opened(1) as slots:
        heard = Heard()
        task = asyncio.create_task(call(slots, "hang", on_note=heard))
        pid = int(await heard.next())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not psutil.pid_exists(pid), "reaped, not only killed"
        assert slots.busy == 0
        assert await call(slots, "add", 1) == 11


async def test_a_timeout_reaches_code_that_holds_the_interpreter() -> None:
    async with opened(1) as slots:
        pids: list[int] = []

        async def impatient() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS) as limit:

                def note(text: str) -> None:
                    pids.append(int(text))
                    limit.reschedule(0)

                await call(slots, "hold_the_interpreter", on_note=note)

        with pytest.raises(TimeoutError):
            await impatient()
        assert [psutil.pid_exists(pid) for pid in pids] == [False]
        assert slots.busy == 0


async def test_what_an_action_started_is_killed_with_it() -> None:
    async with opened(1) as slots:
        heard = Heard()
        task = asyncio.create_task(call(slots, "hang_with_program", on_note=heard))
        program = int(await heard.next())
        task.cancel()
        await asyncio.wait([task])
        assert gone(program)


async def test_a_caller_cancelled_twice_still_gives_its_slot_back() -> None:
    async with opened(1) as slots:
        heard = Heard()
        task = asyncio.create_task(call(slots, "hang", on_note=heard))
        await heard.next()
        task.cancel()
        await asyncio.wait([task], timeout=0)
        task.cancel()
        await asyncio.wait([task])
        assert await call(slots, "add", 1) == 11
        assert slots.busy == 0


async def test_i54_closing_kills_all_processes_and_ends_all_calls() -> None:
    """I54: after shutdown every call has a result or EngineClosed."""
    slots = ProcessSlots(2)
    heard = Heard()
    running = [asyncio.create_task(call(slots, "hang", on_note=heard)) for _ in range(2)]
    pids = [int(await heard.next()) for _ in running]
    waiting = asyncio.create_task(call(slots, "pid"))
    await asyncio.wait([waiting], timeout=0)
    slots.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    for task in (*running, waiting):
        with pytest.raises(EngineClosed):
            await task
    with pytest.raises(EngineClosed):
        await call(slots, "pid")
    slots.close()


async def test_an_action_stopped_by_a_raising_note_handler_is_killed() -> None:
    async with opened(1) as slots:

        def refuse(text: str) -> None:
            raise LookupError("the handler is broken")

        with pytest.raises(LookupError):
            await call(slots, "hang", on_note=refuse)
        assert slots.pids == frozenset()
