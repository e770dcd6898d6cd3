"""What the tests of isolated processes share: jobs to run in them, and ways to see one die."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil

from holdfast.core.codec import JSON
from holdfast.runtime.processes import ProcessSlots

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
def fork_a_copy(how: str) -> list[int]:
    copy = os.fork()
    if copy == 0:
        current().note("of the copy")
        if how == "return":
            return []
        raise {"raise": ValueError("in the copy"), "exit": SystemExit(3), "message": SystemExit("goodbye")}[how]
    return [copy, os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])]

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
