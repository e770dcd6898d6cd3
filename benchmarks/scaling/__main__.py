"""`python -m benchmarks.scaling [--only NAME …] [--store S …] [--json FILE]`: one point after another.

Each is in a process of its own. A point that fails or takes too long is shown as such. What was measured is saved after
each.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.circumstances import circumstances, load
from benchmarks.databases import Databases
from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.processes import CellFailed, values_said
from benchmarks.scaling.series import SERIES, TINY_PART, Series
from benchmarks.table import aligned, number

Point = dict[str, Any]
# Thirty-two workers with their pools need more than the hundred connections that a server allows by default.
SERVER = {"max_connections": "400"}


def rendered(series: Series, points: list[Point]) -> str:
    """One table for a series: a line for each size and store."""
    heads = list(dict.fromkeys(head for point in points for head in point["values"]))
    rows = [(series.name, "store", *heads)]
    for point in points:
        values = [number(point["values"][head]) if head in point["values"] else "" for head in heads]
        if point["failure"]:
            values = [point["failure"][:60], *values[1:]] if values else []
        rows.append((f"{point['size']:,}", point["store"], *values))
    return f"{series.what}\n{aligned(rows, left=(1,))}"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(SERIES), help="default: all of them")
    parser.add_argument("--store", action="append", choices=[SQLITE, POSTGRES], help="default: both")
    parser.add_argument("--quick", action="store_true", help="one tiny point of each, to see that everything runs")
    parser.add_argument("--here", action="store_true", help="in this process, without a time limit")
    parser.add_argument("--point-seconds", type=float, default=900.0, help="longest time for a point (default 900)")
    parser.add_argument("--json", type=Path, help="write the points to this file, after each of them")
    given = parser.parse_args(words)
    part = TINY_PART if given.quick else 1
    seconds = None if given.here else given.point_seconds
    report: dict[str, Any] = {
        "conditions": circumstances() | {"quick": given.quick},
        "series": {},
    }
    chosen = [SERIES[name] for name in given.only or SERIES]
    for series in chosen:
        report["series"][series.name] = []
    for store in given.store or (SQLITE, POSTGRES):
        with Databases(store, settings=SERVER) as databases:
            for series in (each for each in chosen if store in each.stores):
                for size in series.tiny if given.quick else series.sizes:
                    point = _point(series, databases, size, part, seconds)
                    report["series"][series.name].append(point)
                    told = point["failure"] or ", ".join(
                        f"{head} {number(value)}" for head, value in point["values"].items()
                    )
                    print(f"{store}: {series.name} {size}: {told}", file=sys.stderr, flush=True)
                    if given.json is not None:
                        _save(given.json, report)
    for series in chosen:
        print(rendered(series, report["series"][series.name]), end="\n\n", flush=True)


def _point(series: Series, databases: Databases, size: int, part: int, seconds: float | None) -> Point:
    url = databases.fresh_url()
    values: dict[str, float] = {}
    failure = ""
    try:
        if seconds is None:
            values = series.point(url, size, part)
        else:
            command = [sys.executable, "-m", "benchmarks.scaling.series", series.name, url, str(size), str(part)]
            values = values_said(command, seconds=seconds)
    except CellFailed as error:
        failure = str(error)
    finally:
        databases.drop(url)
    return {
        "size": size,
        "store": databases.store,
        "values": values,
        "failure": failure,
        "load": load(),
    }


def _save(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
