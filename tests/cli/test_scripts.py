"""`python hello.py` with nothing else: a script that is killed, run again, and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast as hf

HELLO = """
import asyncio
from pathlib import Path

import holdfast as hf


@hf.action
async def greet(name: str) -> str:
    print("greeting", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return f"Hello, {name}!"


@hf.workflow
async def hello(name: str) -> str:
    first = await greet(name)
    await hf.sleep(seconds=1)
    return first + " Welcome back."


if __name__ == "__main__":
    print(hf.run(hello, "Ada", key="hello-ada"))
"""
LEASE_SECONDS = 30.0


def _hears_interrupts() -> None:
    """A shell starts what it puts into the background with Ctrl-C ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Script:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "hello.py").write_text(HELLO, encoding="utf-8")
        source = str(Path(hf.__file__).parents[1])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self._environment = {**kept, "PYTHONPATH": source}

    def begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "hello.py"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_hears_interrupts,
        )

    def finish(self) -> tuple[str, str]:
        with self.begin() as process:
            out, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
        return out, errors

    def go(self) -> None:
        (self.folder / "go").touch()

    def until_it_sleeps(self) -> None:
        async def until_suspended() -> None:
            async with hf.Engine(f"sqlite:///{self.folder / 'holdfast.db'}", poll_seconds=0.02) as engine:
                (found,) = await engine.find(workflow="hello")
                await engine.watch.wait(found.id, lambda row: row.status == "suspended", 30)

        asyncio.run(until_suspended())


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.mark.parametrize("moment", ["in its action", "while it sleeps"])
def test_g1_a_script_that_was_killed_and_is_run_again_goes_on_without_waiting_for_a_lease(
    script: Script, moment: str
) -> None:
    with script.begin() as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "greeting\n"
        if moment == "while it sleeps":
            script.go()
            script.until_it_sleeps()
        killed.kill()
    script.go()
    began = time.monotonic()
    out, errors = script.finish()
    assert time.monotonic() - began < LEASE_SECONDS / 2
    greeted = "" if moment == "while it sleeps" else "greeting\n"  # recorded, or never finished
    assert out == f"{greeted}Hello, Ada! Welcome back.\n"
    assert "Traceback" not in errors
    assert script.finish() == ("Hello, Ada! Welcome back.\n", "")  # stored: nothing runs


def test_a_script_that_is_interrupted_says_that_nothing_is_lost(script: Script) -> None:
    with script.begin() as interrupted:
        assert interrupted.stdout is not None
        assert interrupted.stdout.readline() == "greeting\n"
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.stderr is not None
        assert "interrupted: finishing what is running" in interrupted.stderr.readline()
        script.go()
        _, errors = interrupted.communicate(timeout=60)
    assert errors.endswith("KeyboardInterrupt: what was recorded is kept; run it again to go on\n")
    assert errors.count("Traceback") == 1
    assert script.finish()[0] == "Hello, Ada! Welcome back.\n"


QUEUES = """
import holdfast as hf


@hf.action
async def double(number: int) -> int:
    return 2 * number


@hf.flow
async def by_flow(number: int) -> int:
    return await double.options(queue="of flows")(number)


@hf.workflow
async def by_function(number: int) -> int:
    return await double.options(queue="of functions")(number)


@hf.workflow
async def by_child(number: int) -> int:
    child = await hf.start_child(by_function, number, queue="of children")
    return await child.result()


if __name__ == "__main__":
    print([hf.run(each, number, timeout=20) for number, each in enumerate((by_flow, by_function, by_child), 1)])
"""


def test_g9_hf_run_serves_the_queues_that_its_code_names(tmp_path: Path) -> None:
    """Nobody else would: there is no worker but the script."""
    script = Script(tmp_path)
    (tmp_path / "hello.py").write_text(QUEUES, encoding="utf-8")
    done = script.begin()
    told, _ = done.communicate(timeout=60)
    assert told == "[2, 4, 6]\n"


BUSY = """
import pathlib
import holdfast as hf


@hf.action
async def compute() -> int:
    print("computing", flush=True)
    while not pathlib.Path("go").exists():
        pass
    return 7


if __name__ == "__main__":
    print(hf.run(compute, key="once"))
"""


def test_a_second_ctrl_c_stops_a_script_in_the_middle_of_an_action_that_never_awaits(script: Script) -> None:
    """It is the program that is interrupted: the action has not failed, and is run again."""
    (script.folder / "hello.py").write_text(BUSY, encoding="utf-8")
    with script.begin() as interrupted:
        assert interrupted.stdout is not None
        assert interrupted.stdout.readline() == "computing\n"
        interrupted.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # it was heard, and waits for the action to await something
            interrupted.wait(0.5)
        interrupted.send_signal(signal.SIGINT)
        _, errors = interrupted.communicate(timeout=60)
    assert "KeyboardInterrupt: what was recorded is kept; run it again to go on\n" in errors
    script.go()
    assert script.finish()[0] == "computing\n7\n"


OWN = """
import holdfast as hf


@hf.action
async def stop() -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        hf.run(stop, key="once")
    except hf.RunFailed as failed:
        print(failed.cause)
"""


def test_i8_an_action_that_raises_keyboard_interrupt_by_itself_fails_in_a_script(script: Script) -> None:
    (script.folder / "hello.py").write_text(OWN, encoding="utf-8")
    assert script.finish()[0] == "the action raised KeyboardInterrupt(), which is no Exception\n"
