"""The thread behind the blocking front: calls from anywhere, and nobody left waiting."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from holdfast.core.errors import EngineClosed, UsageError
from holdfast.runtime.loop_thread import LoopThread

DEADLINE_SECONDS = 20.0


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    made = LoopThread()
    made.start()
    yield made
    made.stop()


async def answer() -> int:
    return 42


def test_a_coroutine_runs_in_another_thread_and_its_value_comes_back(loop_thread: LoopThread) -> None:
    """The caller has no event loop and gets the value itself."""

    async def which_thread() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert loop_thread.run(which_thread()) == "holdfast-loop"


def test_an_exception_comes_through_as_the_same_object(loop_thread: LoopThread) -> None:
    """Its type, its attributes and its cause are those it was raised with."""
    raised = KeyError("missing")

    async def fail() -> None:
        raise raised from ValueError("why")

    with pytest.raises(KeyError) as caught:
        loop_thread.run(fail())
    assert caught.value is raised
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_caller_inside_a_running_loop_of_its_own_is_served(loop_thread: LoopThread) -> None:
    """A notebook's cell runs inside a loop; the blocking front works there as everywhere."""
    assert asyncio.get_running_loop().is_running()
    assert loop_thread.run(answer()) == 42


def test_a_call_on_the_loop_itself_is_refused_instead_of_waiting_for_itself(loop_thread: LoopThread) -> None:
    async def call_again() -> None:
        loop_thread.run(answer())

    with pytest.raises(UsageError, match="own event loop") as caught:
        loop_thread.run(call_again())
    assert "plain def action" in caught.value.hint

    async def stop_here() -> None:
        loop_thread.stop()

    with pytest.raises(UsageError, match="own event loop"):
        loop_thread.run(stop_here())


def test_many_threads_call_at_once(loop_thread: LoopThread) -> None:
    """Every caller gets its own answer."""
    answers: dict[int, int] = {}
    together = threading.Barrier(8)

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    def call(number: int) -> None:
        together.wait(DEADLINE_SECONDS)
        answers[number] = loop_thread.run(double(number))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert answers == {number: number * 2 for number in range(8)}


def test_stopping_may_be_repeated_and_a_call_afterwards_says_that_it_is_closed() -> None:
    made = LoopThread()
    with pytest.raises(EngineClosed, match="not open"):
        made.run(answer())
    made.start()
    made.start()
    assert made.run(answer()) == 42
    made.stop()
    made.stop()
    with pytest.raises(EngineClosed) as caught:
        made.run(answer())
    assert "with engine" in caught.value.hint
    made.start()
    assert made.run(answer()) == 42
    made.stop()


def test_who_waits_while_the_loop_is_stopped_gets_an_error_and_does_not_wait_for_ever() -> None:
    made = LoopThread()
    made.start()
    waiting, errors = threading.Event(), []

    async def forever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            made.run(forever())
        except EngineClosed as error:
            errors.append(error)

    caller = threading.Thread(target=wait)
    caller.start()
    assert waiting.wait(DEADLINE_SECONDS)
    made.stop()
    caller.join(DEADLINE_SECONDS)
    assert not caller.is_alive()
    assert "closed while this call was waiting" in str(errors[0])


def test_code_that_exits_on_the_loop_ends_its_own_call_and_not_the_loop(
    loop_thread: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    """sys.exit() in an action must not leave every other caller waiting for a loop that is gone."""

    async def leave() -> None:
        sys.exit(3)

    with caplog.at_level(logging.ERROR, "holdfast.engine"), pytest.raises(SystemExit):
        loop_thread.run(leave())
    assert loop_thread.run(answer()) == 42
    assert "SystemExit(3)" in caplog.text


def test_an_asynchronous_context_is_entered_and_left_on_the_loop(loop_thread: LoopThread) -> None:
    """Also when the body raises; what was raised goes on to the caller."""
    seen: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[str]:
        seen.append(f"enter {threading.current_thread().name}")
        try:
            yield "value"
        finally:
            seen.append(f"leave {threading.current_thread().name}")

    def interrupted() -> None:
        with loop_thread.entered(context()) as value:
            assert value == "value"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen == ["enter holdfast-loop", "leave holdfast-loop"]
    assert loop_thread.run(answer()) == 42


INTERRUPTED = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever runs the tests ignores it
from holdfast.runtime.loop_thread import LoopThread

thread = LoopThread()
thread.start()

ended = []

async def forever():
    print("waiting", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("cancelled")

async def how_it_ended():
    return ended

try:
    thread.run(forever())
except KeyboardInterrupt:
    print("interrupted", *thread.run(how_it_ended()), flush=True)
thread.stop()
"""


def test_ctrl_c_interrupts_the_wait_and_cancels_what_was_waited_for() -> None:
    """The program gets its KeyboardInterrupt at once, and the loop goes on."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)
    assert program.returncode == 0, output
    assert output == "interrupted cancelled\n"


def test_ctrl_c_in_the_moment_before_the_wait_ends_the_wait_as_well() -> None:
    """Python only notes such a signal, and nothing wakes the thread that has gone to wait meanwhile."""
    unheard = INTERRUPTED.replace("import asyncio, ", "import asyncio, threading, time, _thread, ").replace(
        'print("waiting", flush=True)', "threading.Thread(target=note_once_it_waits).start()"
    )
    note = """
def note_once_it_waits():
    seen = []
    while len(seen) < 20 or seen[-1][0] != "wait" or len(set(seen[-20:])) > 1:
        time.sleep(0.005)
        frame = sys._current_frames()[threading.main_thread().ident]
        seen.append((frame.f_code.co_name, frame.f_lasti))
    _thread.interrupt_main()
"""
    program = subprocess.run(
        [sys.executable, "-c", note + unheard], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert (program.returncode, program.stdout) == (0, "interrupted cancelled\n"), program.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_is_told_to_open_its_own_engine_instead_of_hanging(loop_thread: LoopThread) -> None:
    """A server that loads the application before it forks is the usual way to get there."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # should it hang after all, it must not outlive the test
        try:
            loop_thread.run(answer())
        except UsageError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert f"opened in process {os.getpid()}" in said
    assert "after the fork" in said
