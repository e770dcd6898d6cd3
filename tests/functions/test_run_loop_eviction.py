"""A run leaves memory without a trace: nothing asked for, nothing started, nothing said by Python on standard error."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import subprocess
import sys
import textwrap
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.runtime import run_eviction
from holdfast.runtime.run_calls import RESULT
from holdfast.runtime.run_loop import Entry, RunLoop
from holdfast.runtime.run_task import RequestFuture
from tests.functions.programs import PROGRAMS, Notes, Program, act, chain
from tests.functions.schedules import STARTED_US, Schedule

EVICTED: dict[str, Program] = {}


def evicted(function: Program) -> Program:
    EVICTED[function.__name__] = function
    return function


async def helper(notes: Notes, name: str) -> None:
    try:
        await act("help", name)
        notes.append(("after", name))
    finally:
        await act("helped", name)
        notes.append(("after", name))


@evicted
async def finally_that_calls_twice(notes: Notes) -> None:
    try:
        await act("work")
    finally:
        try:
            await act("undo")
            notes.append("after")
        finally:
            await helper(notes, "inner")
            notes.append("after")


@evicted
async def finally_that_gathers_coroutines(notes: Notes) -> None:
    try:
        await act("work")
    finally:
        await asyncio.gather(helper(notes, "a"), helper(notes, "b"), act("c"))
        notes.append("after")


@evicted
async def finally_that_makes_tasks(notes: Notes) -> None:
    try:
        await act("work")
    finally:
        task = asyncio.create_task(helper(notes, "a"))
        async with asyncio.TaskGroup() as group:
            group.create_task(helper(notes, "b"), name="b")
            group.create_task(act("c"))
        await task
        notes.append("after")


@evicted
async def finally_with_timers(notes: Notes) -> None:
    try:
        await act("work")
    finally:
        try:
            await asyncio.wait_for(helper(notes, "a"), timeout=5)
            notes.append("after")
        finally:
            async with asyncio.timeout(3):
                await asyncio.sleep(1)
            notes.append("after")


@evicted
async def except_everything(notes: Notes) -> None:
    for number in range(5):
        try:
            await act("work", number)
        except BaseException:
            await act("undo", number)
            notes.append("after")


@evicted
async def nested_groups(notes: Notes) -> None:
    async def child(number: int) -> None:
        async with asyncio.TaskGroup() as inner:
            inner.create_task(helper(notes, f"x{number}"))
            inner.create_task(helper(notes, f"y{number}"))
            await helper(notes, f"z{number}")
        notes.append("after")

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(child(number))
    finally:
        await act("end")
        notes.append("after")


@evicted
async def locks_and_context_managers(notes: Notes) -> None:
    guard, changed = asyncio.Lock(), asyncio.Condition()

    @contextlib.contextmanager
    def plain() -> Iterator[None]:
        try:
            yield
        finally:
            asyncio.get_running_loop().call_soon(notes.append, "after")

    @contextlib.asynccontextmanager
    async def held(name: str) -> AsyncIterator[None]:
        await act("acquire", name)
        try:
            async with guard:
                yield
        finally:
            await act("release", name)
            notes.append("after")

    async def waiter() -> None:
        async with changed:
            await changed.wait()

    waiting = [asyncio.create_task(waiter()) for _ in range(2)]
    with plain():
        async with held("a"), contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(helper, notes, "pushed")
            stack.push_async_callback(helper, notes, "also pushed")
            await asyncio.shield(act("work"))
    async with changed:
        changed.notify_all()
    await asyncio.gather(*waiting)


async def numbers(notes: Notes, name: str) -> AsyncIterator[Any]:
    try:
        for number in range(2):
            await helper(notes, f"{name}{number}")
            yield await act(name, number)
    finally:
        try:
            await helper(notes, f"{name} closing")
            notes.append("after")
        finally:
            await act("close", name)
            notes.append("after")


@evicted
async def generators(notes: Notes) -> None:
    async with contextlib.aclosing(numbers(notes, "x")) as source:
        async for _ in source:
            await act("use")
            break
    async for _ in numbers(notes, "y"):
        await act("use")


@evicted
async def generator_of_generators(notes: Notes) -> None:
    async def outer() -> AsyncIterator[Any]:
        try:
            async for value in numbers(notes, "x"):
                yield value
        finally:
            await helper(notes, "outer")

    async for _ in outer():
        break  # abandoned, with calls in its end
    await act("more")
    await asyncio.gather(helper(notes, "a"), helper(notes, "b"))


@pytest.fixture
def silence() -> Iterator[list[str]]:
    """What Python says behind everyone's back: unraisable exceptions and warnings."""
    heard: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: heard.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield heard
        gc.collect()
    sys.unraisablehook = before


@pytest.mark.parametrize("name", [*EVICTED, *PROGRAMS])
def test_i49_eviction_at_every_await_calls_records_and_starts_nothing(
    name: str, silence: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """I49: eviction calls no action, whatever `finally`, `async with`, groups and generators the code is in."""
    caplog.set_level(logging.ERROR)
    monkeypatch.setitem(PROGRAMS, name, EVICTED.get(name) or PROGRAMS[name])
    for seed in range(3 if name in EVICTED else 1):
        whole = Schedule(name, seed, crash_chance=0)
        whole.play()
        for length in range(len(whole.journal) + 1):
            notes: Notes = []
            loop = RunLoop(whole.run_id, now_us=STARTED_US)
            loop.begin(functools.partial(whole.program, notes))
            for entry in whole.journal[:length]:
                loop.deliver(entry)
            requests = spied_requests(loop)
            seen = len(notes)
            loop.evict()
            gc.collect(0)
            assert requests == []
            assert loop.is_closed()
            assert not loop.pending
            assert not loop.new_requests()
            assert not loop.withdrawn_requests()
            assert loop.next_timer() is None
            if name in EVICTED:
                # No line after an await ran: of each `finally` only what stands before its first await.
                assert not [note for note in notes[seen:] if "after" in note]
            del loop
            gc.collect(0)
            assert silence == [], (length, silence)
    gc.collect()
    assert silence == []


def test_i49_requests_that_the_driver_still_holds_keep_no_code_alive(silence: list[str]) -> None:
    """I49: an action in flight outlives the eviction of its run, and so does the driver's record of it."""
    kept = len(run_eviction._unclosable)
    for name in ("generators", "generator_of_generators"):
        loop = RunLoop("r", now_us=STARTED_US)
        loop.begin(functools.partial(EVICTED[name], []))
        requests = []
        for _ in range(6):
            requests += loop.new_requests()
            pending = next(iter(loop.pending.values()))
            loop.deliver(Entry(pending.address, RESULT, pending.name, pending.digest))
            requests += loop.new_requests()
            assert all(request.line for request in requests)
        loop.evict()
        assert len(run_eviction._unclosable) == kept
        assert {request.line for request in requests} == {"an unknown line"}
    assert silence == []


def spied_requests(loop: RunLoop) -> list[str]:
    """Requests that were registered, not merely asked for on a dead loop."""
    made: list[str] = []
    request = loop.request

    def spy(kind: str, name: str, digest: str, payload: Any) -> Any:
        future = request(kind, name, digest, payload)
        if isinstance(future, RequestFuture):
            made.append(name)
        return future

    loop.request = spy  # type: ignore[method-assign]
    return made


def test_i49_user_code_sees_neither_cancellation_nor_an_ordinary_exception() -> None:
    """I49: what undoes things after a failure or a cancel must not run because memory was short."""
    seen = []

    async def main() -> None:
        try:
            await act("work")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        except Exception:
            seen.append("exception")
        finally:
            seen.append(asyncio.current_task() is not None)

    loop = RunLoop("r", now_us=STARTED_US)
    loop.begin(main)
    loop.evict()
    assert seen == [True]


def test_an_evicted_run_refuses_entries_and_says_what_to_do() -> None:
    """A result that arrives late must not look as if it had been delivered."""
    loop = RunLoop("r", now_us=STARTED_US)
    loop.begin(lambda: chain([], "a", 1))
    loop.evict()
    loop.evict()
    with pytest.raises(RuntimeError, match=r"run r is not in memory; begin a new RunLoop"):
        loop.deliver(Entry("#1", RESULT, "a", "(0,)"))
    with pytest.raises(RuntimeError, match="begun already"):
        loop.begin(lambda: chain([], "a", 1))


def test_a_function_that_never_lets_go_is_kept_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """Freeing it would run its code outside of any run, where an action is an ordinary function."""

    async def stubborn() -> None:
        while True:
            try:
                await act("work")
            except BaseException:  # noqa: S112
                continue

    loop = RunLoop("r-stubborn", now_us=STARTED_US)
    loop.begin(stubborn)
    loop.evict()
    assert "run r-stubborn can't be taken out of memory" in caplog.text
    assert "test_run_loop_eviction.py" in caplog.text
    assert "catch Exception instead of BaseException" in caplog.text


def test_a_function_that_never_lets_go_neither_runs_nor_hangs_at_exit() -> None:
    """The interpreter frees everything when it exits; this one thing it must not."""
    program = """
        import asyncio
        from holdfast.runtime.run_loop import DurableCall, RunLoop

        def act():
            try:
                return DurableCall(asyncio.get_running_loop(), "call", "refund", "", None)
            except RuntimeError:
                print("refunded outside of any run", flush=True)
                raise

        async def stubborn():
            while True:
                try:
                    await act()
                except BaseException:
                    continue

        loop = RunLoop("r", now_us=1)
        loop.begin(stubborn)
        loop.evict()
        print("evicted", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.stdout.split("\n") == ["evicted", ""]
    assert "Exception ignored" not in done.stderr


async def test_a_run_leaves_memory_anywhere() -> None:
    """If all of its code has ended there is nothing to close; else closing it is a turn, also inside a task."""

    async def ends() -> str:
        return "done"

    async def leaves_a_branch() -> str:
        asyncio.get_running_loop().create_task(act("left"))
        await asyncio.sleep(0)
        return "done"

    for program, over in ((ends, True), (leaves_a_branch, False)):
        loop = RunLoop("r", now_us=STARTED_US)
        loop.begin(program)
        assert loop.done
        assert loop.over is over
        loop.evict()
        assert loop.is_closed()
        assert loop.outcome().value == "done"
