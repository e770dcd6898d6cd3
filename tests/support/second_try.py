"""Slow is not wrong: a test that only missed a deadline is tried once more, alone, when everything else has run.

Tests wait for rows and signals with a deadline, and machines are shared. A wrong result is never tried again, nor are
more missed deadlines than a busy moment explains. What needed its second try is named at the end: somebody should look
at it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / ".cache" / "missed_deadlines.json"
MOST = 4

_NAMES = {"TimeoutError", "TimeoutExpired", "ReadTimeout", "ConnectTimeout", "PoolTimeout"}


class TooSlow(AssertionError):
    """Something took longer than it may, and nothing else was wrong."""


def is_a_missed_deadline(error: BaseException) -> bool:
    """Whether an error says only that time was up; libraries have their own classes, by much the same names."""
    if isinstance(error, (TimeoutError, TooSlow, subprocess.TimeoutExpired)):
        return True
    if isinstance(error, pytest.fail.Exception):
        return str(error).startswith("Timeout (>")  # pytest-timeout's
    return any(each.__name__ in _NAMES for each in type(error).__mro__)


class MissedDeadlines:
    """A pytest plugin that leaves in a file which tests may be tried again: all that failed, or none of them."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._failed: set[str] = set()
        self._wrong = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if report.failed and call.excinfo is not None:
            report.missed_deadline = is_a_missed_deadline(call.excinfo.value)  # xdist passes attributes on
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
            self._wrong += not getattr(report, "missed_deadline", False)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._wrong += report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return  # The controller writes for all.
        again = sorted(self._failed) if not self._wrong and len(self._failed) <= MOST else []
        self._file.parent.mkdir(exist_ok=True)
        self._file.write_text(json.dumps(again))
