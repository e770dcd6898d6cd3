"""Plain functions in a bounded number of threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from holdfast.core.errors import EngineClosed, UsageError
from holdfast.runtime.threads import Slots, ThreadSlots

DEADLINE_SECONDS = 30.0

colour: ContextVar[str] = ContextVar("colour", default="none")


class Gate:
    """A function that says when it is entered and leaves when it is let."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._entered = asyncio.Event()
        self._open = threading.Event()

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self._entered.set)
        assert self._open.wait(DEADLINE_SECONDS)
        return "through"

    async def wait_entered(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self._entered.wait()

    def open(self) -> None:
        self._open.set()

    @property
    def is_entered(self) -> bool:
        return self._entered.is_set()


async def test_a_function_gets_its_arguments_and_its_callers_context() -> None:
    slots = ThreadSlots(2)
    colour.set("green")

    def function(a: int, /, b: int, *, c: int) -> tuple[int, str, bool]:
        seen = colour.get()
        colour.set("changed in the thread")
        return a + b + c, seen, threading.current_thread() is threading.main_thread()

    assert await slots.run(function, 1, 2, c=3) == (6, "green", False)
    assert colour.get() == "green"
    assert slots.close(DEADLINE_SECONDS) == 0


async def test_a_function_raises_to_its_caller_and_its_thread_is_used_again() -> None:
    slots = ThreadSlots(1)

    def fail() -> None:
        raise LookupError("no such customer")

    with pytest.raises(LookupError, match="no such customer"):
        await slots.run(fail)
    first = await slots.run(threading.get_ident)
    assert await slots.run(threading.get_ident) == first
    assert slots.busy == 0
    slots.close()


@pytest.mark.parametrize("kind", [StopIteration, SystemExit, GeneratorExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_what_a_coroutine_would_misunderstand_arrives_as_a_runtime_error(kind: type[BaseException]) -> None:
    """I8: nothing poisonous stops a worker, sys.exit() in an action included."""
    slots = ThreadSlots(1)

    def fail() -> None:
        raise kind("odd")

    with pytest.raises(RuntimeError, match=kind.__name__) as caught:
        await slots.run(fail)
    assert type(caught.value.__cause__) is kind
    assert await slots.run(lambda: "alive") == "alive"
    slots.close()


async def test_no_more_functions_run_at_once_than_the_limit_and_the_rest_come_in_order() -> None:
    slots = ThreadSlots(2)
    gates = [Gate() for _ in range(4)]
    tasks = [asyncio.create_task(slots.run(gate)) for gate in gates]
    await gates[0].wait_entered()
    await gates[1].wait_entered()
    assert slots.busy == 2
    assert not gates[2].is_entered
    gates[1].open()
    await gates[2].wait_entered()
    assert not gates[3].is_entered
    for gate in gates:
        gate.open()
    assert await asyncio.gather(*tasks) == ["through"] * 4
    assert slots.busy == 0
    slots.close()


async def test_an_abandoned_function_keeps_its_slot_until_it_returns() -> None:
    """A thread can't be killed, so a timeout must not make room for one more."""
    slots = ThreadSlots(1)
    gate = Gate()
    caller = asyncio.create_task(slots.run(gate))
    await gate.wait_entered()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert (slots.busy, slots.abandoned) == (1, 1)
    next_one = asyncio.create_task(slots.run(lambda: "next"))
    await asyncio.wait([next_one], timeout=0)
    assert not next_one.done()
    gate.open()
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await next_one == "next"
    assert (slots.busy, slots.abandoned) == (0, 0)
    slots.close()


async def test_a_caller_cancelled_while_it_waits_for_a_slot_takes_none() -> None:
    slots = ThreadSlots(1)
    gate, never = Gate(), Gate()
    running = asyncio.create_task(slots.run(gate))
    await gate.wait_entered()
    waiting = asyncio.create_task(slots.run(never))
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()
    gate.open()
    assert await running == "through"
    assert await slots.run(lambda: "free") == "free"
    assert waiting.cancelled()
    assert not never.is_entered
    assert slots.busy == 0
    slots.close()


async def test_a_slot_given_in_the_moment_of_a_cancel_is_passed_on() -> None:
    slots = Slots(1, "test")
    await slots.take()
    unlucky, lucky = asyncio.create_task(slots.take()), asyncio.create_task(slots.take())
    await asyncio.wait([unlucky], timeout=0)
    slots.give_back()
    unlucky.cancel()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await lucky
    assert unlucky.cancelled()
    assert slots.busy == 1
    slots.give_back()
    assert slots.busy == 0


async def test_i54_closing_refuses_those_who_wait_and_those_who_come() -> None:
    """I54: after shutdown nothing waits for ever."""
    slots = ThreadSlots(1)
    gate = Gate()
    running = asyncio.create_task(slots.run(gate))
    await gate.wait_entered()
    waiting = asyncio.create_task(slots.run(lambda: None))
    await asyncio.wait([waiting], timeout=0)
    assert slots.close() == 1
    with pytest.raises(EngineClosed):
        await waiting
    with pytest.raises(EngineClosed):
        await slots.run(lambda: None)
    gate.open()
    assert await running == "through"
    assert slots.close(DEADLINE_SECONDS) == 0


async def test_closing_waits_for_functions_that_end_in_time() -> None:
    slots = ThreadSlots(2)
    gate = Gate()
    running = asyncio.create_task(slots.run(gate))
    await gate.wait_entered()
    gate.open()
    assert slots.close(DEADLINE_SECONDS) == 0
    assert await running == "through"


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "4"])
def test_a_limit_that_is_no_count_is_refused_with_its_value(limit: object) -> None:
    make: Callable[..., object] = ThreadSlots
    with pytest.raises(UsageError, match="limit"):
        make(limit)


def test_a_function_that_never_returns_does_not_keep_the_interpreter() -> None:
    program = """
import asyncio, threading
from holdfast.runtime.threads import ThreadSlots

async def main():
    slots = ThreadSlots(1)
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def forever():
        loop.call_soon_threadsafe(started.set)
        threading.Event().wait()

    task = asyncio.create_task(slots.run(forever))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    print(slots.close(0.01), "left behind")

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert done.stdout == "1 left behind\n"
    assert done.stderr == ""


async def test_a_function_that_returns_after_its_loop_is_gone_harms_nobody() -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    before = set(threading.enumerate())  # what other tests have left to itself

    def function() -> None:
        entered.set()
        leave.wait(DEADLINE_SECONDS)
        left.set()

    async def short_life() -> None:
        slots = ThreadSlots(1)
        task = asyncio.create_task(slots.run(function))
        await asyncio.to_thread(entered.wait, DEADLINE_SECONDS)
        task.cancel()
        slots.close()

    await asyncio.to_thread(asyncio.run, short_life())
    started = set(threading.enumerate()) - before
    threads = [thread for thread in started if thread.name.startswith("holdfast-action")]
    leave.set()
    assert left.wait(DEADLINE_SECONDS)
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
