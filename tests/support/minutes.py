"""Where the test time goes: minutes per area, an area being the first folder below tests."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePosixPath

import pytest


class MinutesPerArea:
    """A pytest plugin that adds up what every phase of every test took and prints a table at the end.

    Under xdist the workers' reports reach the controller, which alone prints; the sum may then exceed the wall clock.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        area = area_of(report.nodeid)
        self._seconds[area] += report.duration
        self._tests[area].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        terminalreporter.section("minutes per area")
        for area, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{area:<24}{seconds / 60:8.2f} min {len(self._tests[area]):7d} tests")
        total = sum(self._seconds.values())
        count = sum(len(tests) for tests in self._tests.values())
        terminalreporter.write_line(f"{'all':<24}{total / 60:8.2f} min {count:7d} tests")


def area_of(nodeid: str) -> str:
    """Return the first folder below tests that a test id names."""
    folders = PurePosixPath(nodeid.partition("::")[0]).parts[:-1]
    below = folders[folders.index("tests") + 1 :] if "tests" in folders else folders
    return below[0] if below else "(top)"
