"""What is not durable is refused, always with the line of the user's program, and before it happens where it can be."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pickle
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from holdfast.core.errors import UsageError
from holdfast.runtime.run_calls import CANCEL, RESULT
from holdfast.runtime.run_loop import DurableCall, Entry, NotDurable, RunLoop
from holdfast.runtime.run_refusals import DurableOnly
from tests.functions.programs import act
from tests.functions.schedules import STARTED_US

Main = Callable[[], Coroutine[Any, Any, Any]]


def begun(main: Main, **options: Any) -> RunLoop:
    loop = RunLoop("r-7", now_us=STARTED_US, **options)
    loop.begin(main)
    return loop


def refusal(main: Main) -> NotDurable:
    """Run the function up to its end and return what it was refused with."""
    loop = begun(main)
    error = loop.outcome().error
    loop.evict()
    assert isinstance(error, NotDurable), error
    assert "r-7" in error.message
    return error


def line_with(text: str, function: Callable[..., Any]) -> str:
    """Return file and number of the one line of the function that holds the text."""
    lines, first = inspect.getsourcelines(function)
    [found] = [first + number for number, line in enumerate(lines) if text in line]
    return f"{__file__}:{found} in "


async def connect() -> None:
    await asyncio.open_connection("localhost", 9)  # refused


async def thread() -> None:
    await asyncio.to_thread(print, "never")  # refused


async def executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print, "never")  # refused


async def process() -> None:
    await asyncio.create_subprocess_exec("true")  # refused


async def shell() -> None:
    await asyncio.create_subprocess_shell("true")  # refused


async def server() -> None:
    await asyncio.start_server(lambda *_: None, "localhost", 0)  # refused


async def resolve() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 9)  # refused


async def read_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        await asyncio.get_running_loop().sock_recv(ours, 1)  # refused


async def watch_file() -> None:
    asyncio.get_running_loop().add_reader(0, print)  # refused


async def from_a_thread() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(print)  # refused


async def other_factory() -> None:
    asyncio.get_running_loop().set_task_factory(None)  # refused


async def run_inside() -> None:
    asyncio.get_running_loop().run_until_complete(act_later())  # refused


async def own_task() -> None:
    asyncio.Task(act_later())  # refused


async def completed_coroutines() -> None:
    for each in asyncio.as_completed([act_later(), act_later()]):  # refused
        await each


async def wait_for_gathers() -> None:
    tasks = [asyncio.create_task(act("a")) for _ in range(2)]
    gathered = [asyncio.gather(task) for task in tasks]
    await asyncio.wait(gathered)  # refused


async def act_later() -> None:
    await act("later")


@pytest.mark.filterwarnings("ignore:coroutine 'act_later' was never awaited")
@pytest.mark.parametrize(
    "main",
    [
        connect,
        thread,
        executor,
        process,
        shell,
        server,
        resolve,
        read_socket,
        watch_file,
        from_a_thread,
        other_factory,
        run_inside,
        own_task,
        completed_coroutines,
        wait_for_gathers,
    ],
)
def test_what_the_loop_does_not_have_is_refused_with_the_line(main: Main) -> None:
    """An effect outside of actions would happen again in every replay, so it does not happen even once."""
    assert line_with("# refused", main) in refusal(main).message
    gc.collect()  # the second coroutine of as_completed: asyncio never came to it


def test_a_library_task_is_named_by_the_line_that_awaits_it() -> None:
    """A task that holds only library code is started by a line of the user's, and that one can be changed."""

    async def main() -> None:
        opening = asyncio.create_task(asyncio.open_connection("localhost", 9))
        await opening  # this line

    assert line_with("# this line", main) in refusal(main).message


def test_every_method_of_an_event_loop_is_either_durable_or_refused() -> None:
    """A method that a later Python adds must not slip through as NotImplementedError."""
    durable = {name for name in vars(RunLoop) if not name.startswith("__")}
    refused = {name for name in vars(DurableOnly) if not name.startswith("__")}
    public = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    assert not public - durable - refused
    loop = RunLoop("r-7", now_us=STARTED_US)
    assert (loop.get_debug(), loop.get_task_factory(), loop.get_exception_handler()) == (False, None, None)
    for name in sorted(refused & public - durable - {"get_debug", "get_task_factory", "get_exception_handler"}):
        with pytest.raises(NotDurable, match=name):
            getattr(loop, name)()


def test_another_loops_future_is_refused_where_it_is_awaited() -> None:
    """A future of the program can't be completed by the run's history."""
    outer = asyncio.new_event_loop()

    async def main() -> None:
        await outer.create_future()  # this line

    error = refusal(main)
    assert line_with("# this line", main) in error.message
    assert "another event loop" in error.message
    assert isinstance(error.__cause__, RuntimeError)

    async def in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(main())

    assert line_with("# this line", main) in refusal(in_a_group).message

    async def waiting() -> None:
        await asyncio.wait([outer.create_future()])  # that line

    assert line_with("# that line", waiting) in refusal(waiting).message
    outer.close()


def test_a_lock_of_another_run_is_refused() -> None:
    """A lock at module level would let one run's order decide another's."""
    guard = asyncio.Lock()

    async def holder() -> None:
        async with guard:
            second = asyncio.create_task(guard.acquire())
            await act("hold")
            await second

    async def main() -> None:
        async with guard:  # this line
            await act("never")

    loop = begun(holder)
    assert line_with("# this line", main) in refusal(main).message
    loop.evict()


def test_asyncio_run_inside_is_refused() -> None:
    """A second loop inside the run would be a real one."""

    async def main() -> None:
        later = act_later()
        try:
            asyncio.run(later)  # this line
        finally:
            later.close()

    assert line_with("# this line", main) in refusal(main).message


def test_a_wake_up_from_a_thread_fails_the_run_and_tells_the_driver() -> None:
    """A thread's moment is in no history."""
    futures: list[asyncio.Future[None]] = []

    async def main() -> None:
        futures.append(asyncio.get_running_loop().create_future())
        await asyncio.gather(act("a"), futures[0])  # this line

    loop = begun(main)
    told: list[bool] = []
    raised: list[BaseException] = []
    loop.on_fault = lambda: told.append(True)

    def wake() -> None:
        try:
            futures[0].set_result(None)  # woken here
        except NotDurable as error:
            raised.append(error)

    thread = threading.Thread(target=wake)
    thread.start()
    thread.join()
    assert told == [True]
    assert loop.fault is raised[0]
    assert line_with("# woken here", wake) in str(loop.fault)
    assert line_with("# this line", main) in str(loop.fault)
    with pytest.raises(NotDurable, match="woken from outside"):
        loop.deliver(Entry("1#1", RESULT, "a", "()"))
    loop.evict()


def test_a_wake_up_through_another_loop_fails_the_run() -> None:
    """What another loop's callback completes is no entry of the history."""

    async def outside() -> None:
        futures: list[asyncio.Future[None]] = []

        async def main() -> None:
            futures.append(asyncio.get_running_loop().create_future())
            await asyncio.gather(act("a"), futures[0])

        loop = RunLoop("r-7", now_us=STARTED_US)
        complaints: list[dict[str, Any]] = []
        outer = asyncio.get_running_loop()
        outer.set_exception_handler(lambda _, context: complaints.append(context))
        told = asyncio.Event()
        loop.on_fault = told.set
        outer.call_soon(loop.begin, main)
        outer.call_soon(lambda: futures[0].set_result(None))
        await told.wait()
        assert "woken from outside" in str(loop.fault)
        outer.call_soon(loop.evict)
        await asyncio.sleep(0)
        assert isinstance(complaints[0]["exception"], NotDurable)

    asyncio.run(outside())


def test_a_loop_that_spins_is_an_error_with_its_line() -> None:
    """Polling with sleep(0) would keep the worker busy for ever and write nothing."""

    async def main() -> None:
        while True:  # noqa: ASYNC110 - the mistake that is meant
            await asyncio.sleep(0)  # spins here

    loop = RunLoop("r-7", now_us=STARTED_US, quota=1_000)
    with pytest.raises(NotDurable, match=r"ran 1,000 callbacks without asking for anything: it spins") as caught:
        loop.begin(main)
    assert line_with("# spins here", main) in caught.value.message
    assert loop.fault is caught.value
    loop.evict()


def test_a_wide_fan_out_is_not_taken_for_a_spin() -> None:
    """Every request pays for the callbacks that it takes."""

    async def main() -> None:
        await asyncio.gather(*[act("a", number) for number in range(3_000)])

    loop = begun(main, quota=1_000)
    assert len(loop.pending) == 3_000
    loop.evict()


def test_a_run_that_nothing_durable_can_wake_says_where_it_waits() -> None:
    """A run that can never go on must fail with its lines, not wait for ever."""

    async def other(event: asyncio.Event) -> None:
        await event.wait()  # other line

    async def main() -> None:
        event = asyncio.Event()
        task = asyncio.create_task(other(event), name="other")
        await act("a")
        await task  # main line

    loop = begun(main)
    assert loop.stuck() is None
    loop.deliver(Entry("#1", RESULT, "a", "()"))
    stuck = loop.stuck()
    assert stuck is not None
    assert f"the function at {line_with('# main line', main)}" in stuck
    assert f"task other at {line_with('# other line', other)}" in stuck
    loop.evict()
    assert loop.stuck() is None


def test_what_a_callback_does_wrong_fails_the_run() -> None:
    """Nobody awaits a callback, so its refusal would otherwise be lost."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().run_in_executor(None, print))
        await act("a")

    loop = RunLoop("r-7", now_us=STARTED_US)
    with pytest.raises(NotDurable, match="run_in_executor"):
        loop.begin(main)
    loop.evict()


def test_a_callback_that_raises_is_kept_as_a_complaint() -> None:
    """asyncio reports such errors to the loop; the driver decides what to say, and when (not in every replay)."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await act("a")

    loop = begun(main)
    assert [type(each.error) for each in loop.complaints] == [ZeroDivisionError]
    loop.evict()


def test_a_call_of_one_run_awaited_in_another_is_refused() -> None:
    """A call belongs to the run in which it was made: its address would be in the wrong history."""
    leaked: list[DurableCall[Any]] = []

    async def first() -> None:
        leaked.append(act("mine"))
        await act("a")

    async def second() -> None:
        await leaked[0]

    loop = begun(first)
    other = RunLoop("r-8", now_us=STARTED_US)
    other.begin(second)
    error = other.outcome().error
    assert isinstance(error, NotDurable)
    assert "run r-7 was used from outside" in error.message
    loop.evict()
    other.evict()


def test_a_turn_inside_a_task_sets_that_task_aside() -> None:
    """One current task a thread: a step inside a step fails silently on some versions, so there is none."""
    seen: list[object] = []

    async def function() -> None:
        seen.append(asyncio.current_task(outer))
        try:
            await act_later()
        finally:
            seen.append(asyncio.current_task(outer))

    async def outside() -> None:
        nonlocal outer
        outer, task = asyncio.get_running_loop(), asyncio.current_task()
        for answered in (True, False):
            loop = RunLoop("r-7", now_us=STARTED_US)
            loop.begin(function)
            assert (asyncio.get_running_loop(), asyncio.current_task()) == (outer, task)
            asked = loop.pending["#1"]
            if answered:
                loop.deliver(Entry("#1", RESULT, asked.name, asked.digest, None))
            else:
                loop.evict()
            assert (asyncio.get_running_loop(), asyncio.current_task()) == (outer, task)
        await asyncio.sleep(0)  # the task goes on as any other

    outer: asyncio.AbstractEventLoop | None = None
    asyncio.run(outside())
    assert seen == [None] * 4


def test_a_turn_inside_a_turn_of_another_run_is_refused() -> None:
    """What a run does must not depend on which other run it happens in."""

    async def main() -> None:
        other.begin(act_later)

    loop, other = RunLoop("r-7", now_us=STARTED_US), RunLoop("r-8", now_us=STARTED_US)
    loop.begin(main)
    assert "a turn of run r-8 was started inside a turn of run r-7" in str(loop.outcome().error)
    loop.evict()


def test_a_turn_inside_a_turn_of_the_same_run_is_refused() -> None:
    """A run can't be delivered to, or evicted, by its own code."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(loop.evict)
        await act("a")

    loop = RunLoop("r-7", now_us=STARTED_US)
    loop.begin(main)
    assert "inside its own turn" in str(loop.complaints[0].error)
    assert not loop.is_closed()
    loop.evict()


def test_a_call_that_a_cancelled_function_had_not_come_to_was_not_forgotten() -> None:
    """The collector may find it before the function is evicted."""

    async def main() -> None:
        later = [act("later")]
        later.append(later)  # type: ignore[arg-type]
        await act("a")
        await later[0]

    loop = RunLoop("r-7", now_us=STARTED_US)
    loop.begin(main)
    loop.deliver(Entry("", CANCEL, at_us=STARTED_US))
    assert isinstance(loop.outcome().error, asyncio.CancelledError)
    said: list[str] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: said.append(str(unraisable.exc_value))
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert said == []
    assert not loop.is_closed()
    loop.evict()


def test_a_forgotten_await_is_reported_like_a_coroutines() -> None:
    """A call that is never awaited is never made, which is hardly what was meant."""

    async def main() -> None:
        act("forgotten")
        await act("a")

    loop = RunLoop("r-7", now_us=STARTED_US)
    said: list[str] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: said.append(str(unraisable.exc_value))
    try:
        loop.begin(main)
    finally:
        sys.unraisablehook = hook
    assert said == ["the call of forgotten was never awaited, so it was not made"]
    loop.evict()


def test_a_call_can_be_awaited_once() -> None:
    """Like a coroutine: a second await would be a second request under the same call."""

    async def main() -> None:
        call = act("a")
        await call
        with pytest.raises(RuntimeError, match=r"call of a was already awaited; call a again"):
            await call

    loop = begun(main)
    loop.deliver(Entry("#1", RESULT, "a", "()"))
    assert loop.outcome().error is None
    loop.evict()


def test_an_abandoned_generator_that_calls_in_its_end_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Its end comes when the collector finds it, which is deterministic only while nothing refers to it in a circle."""

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await act("close the abandoned")

    async def main() -> None:
        async for _ in numbers():
            break
        await act("a")

    for _ in range(2):  # told once, not in every replay
        loop = begun(main)
        assert set(loop.pending) == {"gc-1#1", "#1"}
        loop.evict()
    assert caplog.text.count("run r-7 asks for close the abandoned") == 1
    assert "contextlib.aclosing" in caplog.text


def test_not_durable_is_a_usage_error_and_survives_pickling() -> None:
    """It crosses processes like every other error, with its hint."""
    error = pickle.loads(pickle.dumps(NotDurable("the fact", hint="the fix")))  # noqa: S301
    assert isinstance(error, UsageError)
    assert str(error) == "the fact. Fix: the fix"
    assert "action" in NotDurable("alone").hint
