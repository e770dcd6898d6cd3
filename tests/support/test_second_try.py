"""Which failures are tried again, through real pytest runs, with and without workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = f"""
import pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.second_try import MissedDeadlines

def pytest_configure(config):
    config.pluginmanager.register(MissedDeadlines(pathlib.Path(__file__).with_name("missed.json")), "missed-deadlines")
"""

SLOW = """
import asyncio, subprocess, pytest
def test_fine(): pass
def test_patience():
    async def wait():
        async with asyncio.timeout(0): await asyncio.Event().wait()
    asyncio.run(wait())
def test_process(): raise subprocess.TimeoutExpired("x", 1)
class TimeoutError(Exception): pass
@pytest.fixture
def slow_fixture(): raise TimeoutError
def test_with_a_library_of_its_own(slow_fixture): pass
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("more", "tried_again"),
    [
        (
            "",
            [
                "test_them.py::test_patience",
                "test_them.py::test_process",
                "test_them.py::test_with_a_library_of_its_own",
            ],
        ),
        ("def test_wrong(): assert 1 == 2", []),
        ("def test_broken(): {}['x']", []),
        ("@pytest.mark.parametrize('i', range(2))\ndef test_many(i): raise TimeoutError", []),
    ],
    ids=["only slow", "one wrong", "one broken", "too many"],
)
def test_only_missed_deadlines_are_tried_again(
    tmp_path: Path, options: list[str], more: str, tried_again: list[str]
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_them.py").write_text(SLOW + more)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(tmp_path / "none.ini"), "--rootdir", str(tmp_path)]
    (tmp_path / "none.ini").write_text("")
    assert subprocess.run([*command, *options, str(tmp_path)], capture_output=True, check=False).returncode == 1
    assert json.loads((tmp_path / "missed.json").read_text()) == tried_again
