"""LangGraph with its own savers, in `.cache/langgraph`, which is made at the first use.

It is called in the way that is fastest for it, with its synchronous or its asynchronous interface; both when a step
waits for its checkpoint ("sync") and when it does not ("async", its default: a crash loses what was not written yet).
Ours always waits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.stored import stored_bytes

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = Path(os.environ.get("LANGGRAPH_ENVIRONMENT", ROOT / ".cache" / "langgraph"))
PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary]", "aiosqlite")
PROGRAM = Path(__file__).with_name("langgraph_program.py")


def python() -> Path:
    """The interpreter of LangGraph's environment."""
    found = ENVIRONMENT / "bin" / "python"
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(found), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return found


def measure(url: str, workload: str, durability: str, size: int) -> float:
    """Milliseconds of a step of a chain, or of a run with a wide step: the better of its two interfaces."""
    return min(_program(url, workload, durability, interface, size) for interface in ("sync", "async"))


def measure_stored(url: str, *, steps: int = 1000) -> float:
    """Megabytes that a long run with a large state leaves behind."""
    _program(url, "setup", "sync", "sync", 0)
    before = stored_bytes(url)
    _program(url, "talk", "sync", "sync", steps)
    return (stored_bytes(url) - before) / 1e6


def _program(url: str, workload: str, durability: str, interface: str, size: int) -> float:
    done = subprocess.run(
        [str(python()), str(PROGRAM), url, workload, durability, interface, str(size)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{workload} of LangGraph failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["ms"])
