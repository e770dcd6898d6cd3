"""Set tests on mutants: is the bug noticed, by which test, and how long does that take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.mutants.mutant import ROOT, Mutant, applied

PASSED, FAILED = 0, 1  # of pytest; whatever else it says is no verdict
HANGS_AFTER_SECONDS = 30
GIVEN_UP_AFTER_SECONDS = 120
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hunted:
    """What became of one mutant."""

    killed: bool
    verdict: str
    by: str
    seconds: float
    output: str


def hunt(bug: Mutant, sources: Path, *, healthy: bool = False) -> Hunted:
    """Run the mutant's tests against a copy of the sources: with the bug in it, or `healthy` without."""
    if healthy:
        return _run(bug, sources)
    with applied(bug, sources):
        return _run(bug, sources)


def _run(bug: Mutant, sources: Path) -> Hunted:
    # Compiled files are not written: those of the copy must stay those of the healthy code.
    environment = {**os.environ, "PYTHONPATH": f"{sources}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "--no-header"]
    options += ["-o", f"pythonpath={sources} .", "--timeout", str(HANGS_AFTER_SECONDS)]
    options += ["--timeout-method", "thread"]  # a signal may be swallowed by the very code that hangs
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *bug.tests],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=GIVEN_UP_AFTER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Hunted(True, "hangs", "nobody waits so long", time.monotonic() - started, "")
    output = done.stdout + done.stderr
    found = _FAILURE.search(output)
    verdict = {PASSED: "passed", FAILED: "failed"}.get(done.returncode, f"no verdict ({done.returncode})")
    if done.returncode == FAILED and found is None:
        verdict = "hangs"  # noticed too; but a machine that is very busy looks the same, so it is told apart
    by = found[1] if found else ""
    return Hunted(done.returncode == FAILED, verdict, by, time.monotonic() - started, output[-6000:])
