"""The program that a process belongs to: found again by its child, and never outlived by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.runtime.process_support import DEADLINE_SECONDS, gone

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
