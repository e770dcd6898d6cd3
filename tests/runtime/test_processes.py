"""Actions in processes that can be killed: real processes, real deaths."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.core.codec import JSON, MSGPACK, decode_error, encode_error
from holdfast.core.errors import EngineClosed, NonRetryable, UsageError
from holdfast.runtime.processes import ProcessDied, ProcessSlots, RemoteFailure

DEADLINE_SECONDS = 60.0
CONTEXT = {
    "run_id": "run-1",
    "workflow_name": "orders",
    "node": "charge",
    "attempt": 2,
    "idempotency_key": "orders:run-1:charge",
    "worker": "worker-a",
}

JOBS = """
import asyncio, ctypes, datetime, os, subprocess, sys, threading
from holdfast.authoring.actions import action
from holdfast.authoring.context import current
from holdfast.authoring.registry import Registry
from holdfast.core.errors import NonRetryable

class Refused(Exception):
    pass

class Picky(NonRetryable):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")

@action
def add(a: int, b: int = 10) -> int:
    return a + b

@action
def tomorrow(day: datetime.date) -> datetime.date:
    return day + datetime.timedelta(days=1)

@action
def who() -> dict[str, str | int]:
    me = current()
    me.note("first")
    asyncio.run(me.heartbeat())
    me.note("second")
    return {"run": me.run_id, "workflow": me.workflow_name, "node": str(me.node), "attempt": me.attempt,
            "key": me.idempotency_key, "worker": me.worker, "pid": os.getpid()}

@action
def pid() -> int:
    return os.getpid()

@action
def noisy() -> str:
    print("a print of the user's")
    os.write(1, b"raw bytes on standard output\\n")
    subprocess.run([sys.executable, "-c", "print('a program of the user')"], check=True)
    return "quiet"

@action
def refuse() -> None:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        raise Refused("card 42") from inner

@action
def be_picky() -> None:
    raise Picky("this", object())

@action
def leave() -> None:
    sys.exit(3)

@action
def echo(data: bytes) -> bytes:
    return data

@action
def odd() -> object:
    return object()

@action
def die(code: int) -> None:
    current().note("dying")
    os._exit(code)

@action
def crash() -> None:
    ctypes.string_at(0)

@action
def fork_and_die() -> None:
    if os.fork() == 0:
        threading.Event().wait()
    os._exit(7)

@action
def close_everything() -> None:
    os.closerange(3, 256)

@action
def hang() -> None:
    current().note(str(os.getpid()))
    threading.Event().wait()

@action
def hang_with_program() -> None:
    program = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    current().note(str(program.pid))
    program.wait()

@action
def hold_the_interpreter() -> None:
    current().note(str(os.getpid()))
    ctypes.PyDLL(None).pause()

@action
def environment() -> dict[str, str | None]:
    return {"path": os.environ.get("PYTHONPATH"), "cwd": os.getcwd()}

@action
def chatter_after_the_end() -> int:
    me, turn = current(), threading.Event()
    def late() -> None:
        turn.wait()
        me.note("too late")
        answered.set()
    threading.Thread(target=late, daemon=True).start()
    waiting.append(turn)
    return os.getpid()

answered, waiting = threading.Event(), []

@action
def let_it_chatter() -> None:
    waiting.pop().set()
    answered.wait()

def plain() -> str:
    return "an action under another name"

other_name = action(name="plain-as-action")(plain)

def nothing() -> None:
    pass

class Group:
    @staticmethod
    def not_this() -> None:
        pass

    @action(registry=Registry())
    def inside() -> str:
        return "inside a class"
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "jobs_of_test_processes.py").write_text(JOBS)
    (folder / "broken_of_test_processes.py").write_text("raise ImportError('the database driver is not installed')")
    return folder


@pytest.fixture(autouse=True)
def _on_the_path(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(jobs))


@asynccontextmanager
async def opened(limit: int) -> AsyncIterator[ProcessSlots]:
    slots = ProcessSlots(limit)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield slots
    finally:
        slots.close()
        assert slots.pids == frozenset()


async def call(slots: ProcessSlots, name: str, *args: Any, module: str = "jobs_of_test_processes", **more: Any) -> Any:
    result = await slots.run(f"{module}:{name}", JSON.encode([args, {}]) if args else b"", "json", CONTEXT, **more)
    return json.loads(result)


class Heard:
    """Collects an action's notes and lets a test wait for the next one."""

    def __init__(self) -> None:
        self.notes: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, text: str) -> None:
        self.notes.put_nowait(text)

    async def next(self) -> str:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.notes.get()


def gone(pid: int) -> bool:
    """Wait until the process has ended; whether its new parent reaps it is that one's business."""
    try:
        if not hasattr(os, "pidfd_open"):
            psutil.Process(pid).wait(DEADLINE_SECONDS)
            return True
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return True
    try:
        readable, _, _ = select.select([descriptor], [], [], DEADLINE_SECONDS)
        return bool(readable)
    finally:
        os.close(descriptor)


def kill_behind_the_loops_back(pid: int) -> None:
    """Return when it is dead but not reaped, without giving the event loop a turn to hear of it."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


# --- calls and results -------------------------------------------------------------------------------------------


async def test_a_call_is_decoded_run_and_its_result_encoded_in_another_process() -> None:
    async with opened(1) as slots:
        assert await call(slots, "add", 1, 2) == 3
        assert await call(slots, "add", 1) == 11
        assert await call(slots, "tomorrow", "2024-02-28") == "2024-02-29"
        assert await call(slots, "pid") != os.getpid()
        assert slots.busy == 0


async def test_i14_a_call_is_read_with_the_codec_that_wrote_it() -> None:
    """I14: every row carries its codec's tag, and the process reads it by that tag."""
    async with opened(1) as slots:
        data = MSGPACK.encode([[20], {"b": 3}])
        assert await slots.run("jobs_of_test_processes:add", data, "msgpack", CONTEXT) == b"23"


async def test_an_idle_process_serves_the_next_call_and_no_more_are_started_than_needed() -> None:
    async with opened(3) as slots:
        assert slots.pids == frozenset()
        first = await call(slots, "pid")
        assert await call(slots, "pid") == first
        assert slots.pids == {first}


async def test_no_more_processes_run_than_the_limit() -> None:
    async with opened(2) as slots:
        pids = await asyncio.gather(*(call(slots, "pid") for _ in range(8)))
        assert len(set(pids)) <= 2
        assert slots.pids == set(pids)


async def test_an_action_knows_its_run_and_its_notes_and_heartbeats_arrive() -> None:
    async with opened(1) as slots:
        notes: list[str] = []
        beats: list[int] = []
        told = await call(slots, "who", on_note=notes.append, on_heartbeat=lambda: beats.append(1))
        assert slots.pids == {told.pop("pid")}
        assert told == {
            "run": "run-1",
            "workflow": "orders",
            "node": "charge",
            "attempt": 2,
            "key": "orders:run-1:charge",
            "worker": "worker-a",
        }
        assert notes == ["first", "second"]
        assert beats == [1]


async def test_what_an_action_prints_does_not_disturb_its_result(capfd: pytest.CaptureFixture[str]) -> None:
    async with opened(1) as slots:
        assert await call(slots, "noisy") == "quiet"
    out = capfd.readouterr().out
    assert "a print of the user's" in out
    assert "raw bytes on standard output" in out
    assert "a program of the user" in out


async def test_a_large_value_passes_both_ways() -> None:
    async with opened(1) as slots:
        data = MSGPACK.encode([[bytes(1_500_000)], {}])
        with_msgpack = await slots.run("jobs_of_test_processes:echo", data, "msgpack", CONTEXT)
        assert len(with_msgpack) > 1_500_000


async def test_actions_are_found_by_their_place_whatever_their_name_and_registry() -> None:
    async with opened(1) as slots:
        assert await call(slots, "plain") == "an action under another name"
        assert await call(slots, "Group.inside") == "inside a class"


async def test_the_users_environment_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    async with opened(1) as slots:
        assert await call(slots, "environment") == {"path": None, "cwd": os.getcwd()}
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    async with opened(1) as slots:
        assert (await call(slots, "environment"))["path"] == "somewhere"


async def test_a_note_of_a_thread_that_outlived_its_call_reaches_no_other_call() -> None:
    async with opened(1) as slots:
        await call(slots, "chatter_after_the_end")
        notes: list[str] = []
        await call(slots, "let_it_chatter", on_note=notes.append)
        await call(slots, "who", on_note=notes.append)
        assert notes == ["first", "second"]


# --- failures ----------------------------------------------------------------------------------------------------


async def test_an_exception_comes_back_as_a_record_with_its_cause_and_traceback() -> None:
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure, match="Refused: card 42") as caught:
            await call(slots, "refuse")
        record = caught.value.record
        assert record == decode_error(caught.value.error)
        assert record.qualified == "jobs_of_test_processes.Refused"
        assert record.cause is not None
        assert record.cause.type == "KeyError"
        assert "raise Refused" in record.traceback
        assert await call(slots, "add", 1) == 11, "the process is still good"


async def test_i3_the_record_continues_the_chain_of_earlier_attempts() -> None:
    """I3: the final error keeps the chain of attempts, also across processes."""
    earlier = encode_error(TimeoutError("first attempt"))
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure) as caught:
            await call(slots, "refuse", earlier=earlier)
    assert [link.message for link in caught.value.record.earlier] == ["first attempt"]


async def test_i3_an_exception_that_cannot_be_rebuilt_still_decides_about_retries_by_its_class() -> None:
    """I3: NonRetryable always stops, also one whose class is not loaded here and whose arguments are no JSON."""
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure) as caught:
            await call(slots, "be_picky")
    rebuilt = caught.value.to_exception()
    assert isinstance(rebuilt, NonRetryable)
    assert "this and <object" in str(rebuilt)


def test_a_failure_of_a_known_class_is_rebuilt_as_itself() -> None:
    rebuilt = RemoteFailure(encode_error(ConnectionResetError(104, "reset by peer"))).to_exception()
    assert type(rebuilt) is ConnectionResetError
    assert rebuilt.errno == 104


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("leave", "SystemExit", "3"),
        ("odd", "PayloadRefused", "the result of action odd"),
        ("missing", "UsageError", "jobs_of_test_processes:missing is no action"),
        ("nothing", "UsageError", "jobs_of_test_processes:nothing is no action"),
        ("Group.not_this", "UsageError", "is no action"),
    ],
)
async def test_whatever_goes_wrong_around_an_action_is_its_failure_and_not_the_slots(
    name: str, kind: str, text: str
) -> None:
    """I8: nothing poisonous stops a worker."""
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure) as caught:
            await call(slots, name)
        assert caught.value.record.type == kind
        assert text in caught.value.record.message
        pids = slots.pids
        assert await call(slots, "add", 1) == 11
        assert slots.pids == pids


async def test_a_module_that_cannot_be_imported_is_a_failure_that_says_why() -> None:
    async with opened(1) as slots:
        for _ in range(2):
            with pytest.raises(RemoteFailure, match="ImportError: the database driver is not installed"):
                await call(slots, "anything", module="broken_of_test_processes")
        with pytest.raises(RemoteFailure, match="ModuleNotFoundError"):
            await call(slots, "anything", module="no_such_module_of_test_processes")


@pytest.mark.parametrize("target", ["", "jobs", "jobs:", ":add"])
async def test_a_target_that_is_no_address_is_refused_before_a_process_starts(target: str) -> None:
    async with opened(1) as slots:
        with pytest.raises(UsageError, match="names no action"):
            await slots.run(target, b"", "json", CONTEXT)
        assert slots.busy == 0
        assert slots.pids == frozenset()


async def test_a_context_with_a_missing_or_wrong_field_is_refused_by_its_name() -> None:
    async with opened(1) as slots:
        for wrong in ({"run_id": "r"}, {**CONTEXT, "attempt": "two"}, {**CONTEXT, "surprise": 1}):
            with pytest.raises(UsageError, match=r"workflow_name|attempt|surprise"):
                await slots.run("jobs_of_test_processes:add", b"", "json", wrong)


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


# --- the parent's own program ------------------------------------------------------------------------------------

SCRIPT = """
import asyncio, os, sys, threading
from holdfast.authoring.actions import action
from holdfast.authoring.context import current
from holdfast.runtime.processes import ProcessSlots, RemoteFailure
import neighbour

class Refused(Exception):
    pass

@action(isolation="process")
def double(x: int) -> int:
    if x < 0:
        raise Refused("negative")
    import __main__
    assert __main__.double is double
    return neighbour.twice(x)

@action(isolation="process")
def {hang}() -> None:
    current().note(str(os.getpid()))
    {body}

CONTEXT = dict(run_id="r", workflow_name="w", node="n", attempt=1, idempotency_key="k")

async def main():
    os.chdir("/")
    slots = ProcessSlots(1)
    if sys.argv[1:] == ["hang"]:
        await slots.run("__main__:{hang}", b"", "json", CONTEXT, on_note=lambda pid: print(pid, flush=True))
    print((await slots.run("__main__:double", b"[[21],{{}}]", "json", CONTEXT)).decode())
    try:
        await slots.run("__main__:double", b"[[-1],{{}}]", "json", CONTEXT)
    except RemoteFailure as failure:
        print(type(failure.to_exception()) is Refused, failure)
    slots.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "neighbour.py").write_text("def twice(x):\n    return 2 * x\n")
    (folder / "program.py").write_text(SCRIPT.format(hang="hang", body="threading.Event().wait()"))
    (folder / "stubborn").write_text(
        SCRIPT.format(hang="hang", body="import ctypes; ctypes.PyDLL(None).pause()")  # no suffix, as bin/ scripts have
    )
    return folder


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ":".join(sys.path)}


@pytest.mark.parametrize("file", ["program.py", "stubborn"])
def test_i15_an_action_of_the_script_itself_is_found_and_its_main_part_is_not_run(program: Path, file: str) -> None:
    """I15: the program that was started and the one that is imported agree on what an action is."""
    done = subprocess.run(
        [sys.executable, file],
        cwd=program,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert done.stdout.splitlines() == ["42", "True Refused: negative"]
    assert done.stderr == ""


def test_i15_an_action_of_a_module_started_with_m_is_found(program: Path) -> None:
    """I15: `python -m app.program` is the same program as `python app/program.py`."""
    done = subprocess.run(
        [sys.executable, "-m", "app.program"],
        cwd=program.parent,
        env={**environment(), "PYTHONPATH": f"{program}:{environment()['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert done.stdout.splitlines() == ["42", "True Refused: negative"]
    assert done.stderr == ""


@pytest.mark.parametrize("file", ["program.py", "stubborn"])
def test_a_process_does_not_outlive_a_parent_that_was_killed(program: Path, file: str) -> None:
    """Work that is taken over must not still be running, whether its code waits or holds the interpreter."""
    if file == "stubborn" and sys.platform != "linux":
        pytest.skip("only Linux signals the death of a parent to a process that listens to nothing")
    with subprocess.Popen(
        [sys.executable, file, "hang"], cwd=program, env=environment(), stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert psutil.pid_exists(child)
        parent.kill()
        parent.wait(DEADLINE_SECONDS)
        assert gone(child)


def test_a_parent_that_ends_without_closing_leaves_no_process(program: Path) -> None:
    script = program / "careless.py"
    script.write_text(
        (program / "program.py").read_text().replace("    slots.close()\n", "    print(*slots.pids, flush=True)\n")
    )
    done = subprocess.run(
        [sys.executable, script],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert gone(int(done.stdout.split()[-1]))
