"""The running totals of the reliability programme: docs/reliability.json, a list of runs per figure that only grows.

A programme calls `append` when it is done, which also brings the table of docs/reliability.md up to date.
`python tools/reliability_totals.py` prints the sum of every figure, with `--page` it writes that table.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOTALS = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- totals: begin -->", "<!-- totals: end -->"
Entries = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table."""

    key: str
    shown: str
    in_ci: int
    """How many with every commit; tests/reliability/test_quotas.py sees to it."""
    wanted: str
    parts: tuple[str, ...] = ()
    """What its entries count besides."""


FIGURES = (
    Figure("crash, in-process", "in-process crash points", 3_000, "all there are", ("sqlite", "postgresql")),
    Figure("crash, killed", "SIGKILL crash points", 300, "3,000 a store", ("sqlite", "postgresql")),
    Figure("crash, double", "double crashes", 100, "2,000", ("sqlite", "postgresql")),
    Figure("crash, stops", "PostgreSQL immediate stops", 30, "500"),
    Figure("crash, power", "SQLite power-loss points", 500, "15,000"),
    Figure("simulation", "simulation seeds", 2_000, "200,000"),
)
SOAK = {"kills": (20, 500), "server restarts": (5, 100), "cuts": (200, 10_000)}
"""What happens in a soak of a minute and of an hour; 200,000 runs in the latter."""
SOAK_SECONDS_IN_CI, MUTANTS_IN_CI = 60, 5


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
        if path == TOTALS:
            write_page(totals)
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


def table(totals: dict[str, list[Any]] | None = None) -> str:
    """What was done so far, for the page: figure, in CI, on demand so far, wanted, failures, commits."""
    entries: dict[str, list[Any]] = json.loads(TOTALS.read_text("utf-8")) if totals is None else totals
    lines = [
        "| figure | with every commit | on demand so far | wanted | failures | commits |",
        "|---|--:|---|--:|--:|---|",
        *(_line(each, entries.get(each.key, [])) for each in FIGURES),
        _soak_line(entries.get("soak", [])),
        _mutants_line(entries.get("mutants killed", [])),
    ]
    return "\n".join(lines)


def table_on_page() -> str:
    return PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def write_page(totals: dict[str, list[Any]] | None = None) -> None:
    head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(totals)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def _line(figure: Figure, entries: Entries) -> str:
    so_far = f"{_sum(entries, 'count'):,}"
    parts = [f"{name} {count:,}" for name in figure.parts if (count := _sum(entries, name))]
    if parts:
        so_far += f" ({', '.join(parts)})"
    return _cells(figure.shown, f"{figure.in_ci:,}", so_far, figure.wanted, entries)


def _soak_line(entries: Entries) -> str:
    in_ci = ", ".join(f"{least} {name}" for name, (least, _) in SOAK.items())
    wanted = ", ".join(f"{much:,} {name}" for name, (_, much) in SOAK.items())
    done = ", ".join(f"{_sum(entries, name):,} {name}" for name in SOAK)
    minutes = sum(entry["seconds"] for entry in entries) / 60
    so_far = f"{minutes:.0f} min: {done}, {_sum(entries, 'count'):,} runs"
    return _cells("soak", f"{SOAK_SECONDS_IN_CI} s: {in_ci}", so_far, f"60 min: {wanted}, 200,000 runs", entries)


def _mutants_line(entries: Entries) -> str:
    """Of the last run of all of them: one that lived and got its test is dead."""
    last = entries[-1:]
    return _cells("mutants killed", f"{MUTANTS_IN_CI}, in turn", f"{_sum(last, 'count'):,}", "all", last)


def _cells(shown: str, in_ci: str, so_far: str, wanted: str, entries: Entries) -> str:
    commits = list(dict.fromkeys(entry["commit"] for entry in entries))
    between = " to ".join(dict.fromkeys([*commits[:1], *commits[-1:]])) or "none yet"
    return f"| {shown} | {in_ci} | {so_far} | {wanted} | {_sum(entries, 'failures'):,} | {between} |"


def _sum(entries: Entries, name: str) -> int:
    return sum(entry.get(name, 0) for entry in entries)


def _commit() -> str:
    """Of the code that was tried; with a + if files differ from it."""
    told = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def main() -> None:
    if "--page" in sys.argv[1:]:
        write_page()
        return
    for figure, counted in sorted(sums().items()):
        sys.stdout.write(f"{figure}: {', '.join(f'{name} {value:,.0f}' for name, value in counted.items())}\n")


if __name__ == "__main__":
    main()
