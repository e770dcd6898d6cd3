"""The running totals of the reliability programme: docs/reliability.json, a list of runs per figure that only grows.

A programme calls `append` when it is done. `python tools/reliability_totals.py` prints the sum of every figure.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOTALS = ROOT / "docs" / "reliability.json"


def append(
    figure: str,
    *,
    count: int,
    failures: int,
    seconds: float,
    seeds: str = "",
    more: dict[str, int] | None = None,
    path: Path = TOTALS,
) -> dict[str, Any]:
    """Add what a run of a programme counted; the entry. Two programmes that end at once both get in."""
    entry: dict[str, Any] = {
        "count": count,
        "failures": failures,
        "commit": _commit(),
        "seeds": seeds,
        "seconds": round(seconds, 1),
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
    } | (more or {})
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        totals: dict[str, list[Any]] = json.loads(file.read() or "{}")
        totals.setdefault(figure, []).append(entry)
        file.truncate(0)
        file.write(json.dumps(totals, indent=1, sort_keys=True) + "\n")
    return entry


def sums(path: Path = TOTALS) -> dict[str, dict[str, float]]:
    """For every figure: how many runs, and everything that they counted, added up."""
    totals: dict[str, list[dict[str, Any]]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found: dict[str, dict[str, float]] = {}
    for figure, entries in totals.items():
        into = found.setdefault(figure, {"runs": len(entries)})
        for entry in entries:
            for name, value in entry.items():
                if isinstance(value, int | float):
                    into[name] = into.get(name, 0) + value
    return found


def _commit() -> str:
    """Of the code that was tried; with a + if files differ from it."""
    told = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def main() -> None:
    for figure, counted in sorted(sums().items()):
        sys.stdout.write(f"{figure}: {', '.join(f'{name} {value:,.0f}' for name, value in counted.items())}\n")


if __name__ == "__main__":
    main()
