"""What has to be known about the machine and the code to compare two reports."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.runtime.postgres_server import find_binaries

ROOT = Path(__file__).resolve().parents[1]


def circumstances() -> dict[str, object]:
    return {
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "commit": _said("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgresql": _postgres_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": load(),
    }


def load() -> float:
    return round(os.getloadavg()[0], 2)


def _postgres_version() -> str:
    try:
        said = _said(str(find_binaries() / "postgres"), "--version")
    except HoldfastError:
        return ""
    return said.removeprefix("postgres (PostgreSQL) ").partition(" ")[0]


def _said(*command: str) -> str:
    """Nothing where the program is missing or fails: a copy without its history can be measured too."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
