"""The list of what grows, and how one point of it is measured.

As a program: `python -m benchmarks.scaling.series NAME URL SIZE PART` measures one point and prints its values.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.scaling import filled, growth, workers

Values = dict[str, float]
TINY_PART = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What is measured at each of some sizes; `tiny` are sizes that only show that it runs."""

    name: str
    what: str
    measuring: Callable[[str, int, int], Values | Coroutine[Any, Any, Values]]
    sizes: tuple[int, ...]
    tiny: tuple[int, ...]
    stores: tuple[str, ...] = (SQLITE, POSTGRES)

    def point(self, url: str, size: int, part: int = 1) -> Values:
        """`part` is what everything else than the size is divided by."""
        found = self.measuring(url, size, part)
        return found if isinstance(found, dict) else asyncio.run(found)


SERIES = {
    each.name: each
    for each in (
        Series(
            name="runs",
            what="runs of three steps, all submitted at once",
            measuring=growth.of_runs,
            sizes=(100, 1000, 5000, 20_000),
            tiny=(5,),
        ),
        Series(
            name="width",
            what="parallel steps and one that waits for them all",
            measuring=growth.of_width,
            sizes=(10, 100, 1000, 10_000, 20_000),
            tiny=(5,),
        ),
        Series(
            name="history",
            what="steps of one function",
            measuring=growth.of_history,
            sizes=(100, 1000, 5000, 20_000),
            tiny=(20,),
        ),
        Series(
            name="payload",
            what="bytes that each step of a function takes and gives",
            measuring=growth.of_payload,
            sizes=(10, 1000, 10_000, 100_000, 1_000_000),
            tiny=(20,),
        ),
        Series(
            name="finished",
            what="finished runs in the same tables",
            measuring=filled.of_finished,
            sizes=(0, 10_000, 100_000, 1_000_000),
            tiny=(10,),
        ),
        Series(
            name="waiting",
            what="waiting runs in the same tables",
            measuring=filled.of_waiting,
            sizes=(1000, 10_000, 100_000),
            tiny=(50,),
        ),
        Series(
            name="processes",
            what="worker processes",
            measuring=workers.of_processes,
            sizes=(1, 2, 4),
            tiny=(1,),
            stores=(POSTGRES,),
        ),
        Series(
            name="hot",
            what="workers that want the same wide run",
            measuring=workers.of_hot_run,
            sizes=(1, 4, 32),
            tiny=(2,),
            stores=(POSTGRES,),
        ),
        Series(
            name="resident",
            what="functions that wait in one process",
            measuring=growth.resident,
            sizes=(1000, 4000, 16_000),
            tiny=(200,),
        ),
        Series(
            name="load",
            what="offered load, in percent of what the engine can do",
            measuring=workers.of_load,
            sizes=(25, 50, 80, 120, 200),
            tiny=(60,),
        ),
    )
}


if __name__ == "__main__":
    _, name, url, size, part = sys.argv
    print(json.dumps({"values": SERIES[name].point(url, int(size), int(part))}))
