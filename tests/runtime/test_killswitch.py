"""Crashes on order."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core import failpoints
from holdfast.core.errors import UsageError
from holdfast.runtime.killswitch import (
    FILE_VARIABLE,
    REACHED_SUFFIX,
    VARIABLE,
    Crash,
    Order,
    counting,
    install_from_environment,
    parse_order,
)

DEADLINE_SECONDS = 30.0

PROGRAM = """
import os
from holdfast.core import failpoints
from holdfast.runtime.killswitch import install_from_environment

install_from_environment(os.environ)
for number in range(1, 6):
    print(number, flush=True)
    failpoints.hit("flush.before")
    failpoints.hit("flush.before_commit")
print("survived", flush=True)
"""


@pytest.fixture(autouse=True)
def _nothing_stays_armed() -> Iterator[None]:
    yield
    failpoints.disarm()


def start(order: str, **more: str) -> subprocess.Popen[str]:
    environ = {"PYTHONPATH": ":".join(sys.path), VARIABLE: order, **more}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ, stdout=subprocess.PIPE, text=True)


def test_without_the_variable_nothing_is_armed() -> None:
    assert install_from_environment({}) is None
    assert install_from_environment({VARIABLE: ""}) is None
    assert not failpoints.armed


def test_the_process_is_killed_at_exactly_the_hit_that_was_ordered() -> None:
    with start("flush.before_commit:3") as process:
        out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == -signal.SIGKILL
    assert out.split() == ["1", "2", "3"]


def test_an_order_beyond_the_last_hit_kills_nobody() -> None:
    """The crash programme counts on this to know that it has tried every hit."""
    with start("flush.before_commit:6:kill") as process:
        out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    assert out.split()[-1] == "survived"


def test_a_played_crash_is_raised_once_and_no_handler_of_errors_survives_it() -> None:
    order = install_from_environment({VARIABLE: "claim.after:2:raise"})
    assert order == Order("claim.after", 2, "raise")
    failpoints.hit("claim.after")
    failpoints.hit("claim.before")
    with pytest.raises(Crash, match=r"hit 2 of claim\.after"):
        failpoints.hit("claim.after")
    failpoints.hit("claim.after")
    assert not issubclass(Crash, Exception)


def test_a_paused_process_says_so_and_goes_on_when_its_file_appears(tmp_path: Path) -> None:
    file = tmp_path / "go"
    # A pipe with a name in place of the marker: reading it waits for the pause without polling.
    os.mkfifo(f"{file}{REACHED_SUFFIX}")
    with start("flush.before:2:pause", **{FILE_VARIABLE: str(file)}) as process:
        with open(f"{file}{REACHED_SUFFIX}") as reached:
            assert int(reached.read()) == process.pid
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"1\n2\n"
        readable, _, _ = select.select([process.stdout], [], [], 0)
        assert not readable, "it went on without its file"
        file.touch()
        out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert out.split() == ["3", "4", "5", "survived"]
    assert process.returncode == 0


def test_an_unknown_failpoint_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        install_from_environment({VARIABLE: "flush.sideways:1"})
    assert "flush.sideways" in str(caught.value)
    assert all(name in str(caught.value) for name in failpoints.NAMES)
    assert not failpoints.armed


@pytest.mark.parametrize(
    "text",
    ["flush.before", "flush.before:", "flush.before:0", "flush.before:-1", "flush.before:x", "flush.before:1:explode"],
)
def test_an_order_that_makes_no_sense_is_refused_and_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_order(text)
    assert repr(text) in str(caught.value)


def test_a_pause_without_a_file_would_be_for_ever_and_is_refused() -> None:
    with pytest.raises(UsageError, match=FILE_VARIABLE):
        install_from_environment({VARIABLE: "flush.before:1:pause"})
    assert not failpoints.armed


def test_counting_says_which_crashes_there_are_to_try() -> None:
    with counting() as hits:
        assert failpoints.armed
        for _ in range(3):
            failpoints.hit("flush.before")
        failpoints.hit("claim.after")
        with pytest.raises(UsageError, match="armed already"), counting():
            pass
    assert hits == {"flush.before": 3, "claim.after": 1}
    assert not failpoints.armed


async def test_hits_from_async_code_count_too() -> None:
    with counting() as hits:
        await failpoints.reach("action.before")
    assert hits == {"action.before": 1}
