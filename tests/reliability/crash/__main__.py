"""`python -m tests.reliability.crash`: crash points, as many as asked for, and their totals.

--figure killed         one figure, of in-process, killed, double, stops and power; all of them without
--count 40              so many points of each scenario and store, chosen by the seed; all of them without
--seed 7                which points are chosen; today's date without
--scenario linear       one scenario
--store sqlite          one store
--point …               one point, as a failure prints it
--jobs 2                processes
--record                add the totals to docs/reliability.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context

from tests.reliability.crash.grounds import own_grounds
from tests.reliability.crash.programme import FIGURES, Part, Tally, Task, parse_point, run_part
from tests.reliability.crash.table import SCENARIOS
from tools import reliability_totals


def _one(text: str) -> int:
    point = parse_point(text)
    part = Part(point.figure, point.scenario, point.store, own_grounds())
    part.attempt(point)
    print(*part.tally.failures or [f"{point}: {'held' if part.tally.happened else 'not reached'}"], sep="\n")
    return int(bool(part.tally.failures))


def _tasks(chosen: argparse.Namespace) -> Iterator[Task]:
    for figure, stores in FIGURES.items():
        for store in stores:
            for scenario in SCENARIOS:
                wanted = (
                    chosen.figure in (None, figure),
                    chosen.store in (None, store),
                    chosen.scenario in (None, scenario),
                )
                if all(wanted):
                    yield figure, scenario, store


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.crash", description=__doc__.splitlines()[0])
    parser.add_argument("--figure", choices=list(FIGURES))
    parser.add_argument("--store", choices=["sqlite", "postgresql"])
    parser.add_argument("--scenario", choices=list(SCENARIOS))
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", default=date.today().isoformat())
    parser.add_argument("--point")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    if chosen.point:
        return _one(chosen.point)
    totals: dict[str, Tally] = {figure: Tally() for figure in FIGURES}
    stores: dict[str, dict[str, int]] = {figure: {} for figure in FIGURES}
    began = time.monotonic()
    # Spawned and not forked: each has a server and a nursery of its own, and ends them itself.
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(run_part, task, chosen.count, chosen.seed) for task in _tasks(chosen)]:
            (figure, scenario, store), tally = done.result()
            totals[figure].add(tally)
            stores[figure][store] = stores[figure].get(store, 0) + tally.happened
            print(f"{figure:<11} {store:<11} {scenario:<22} {tally.happened:>6} {tally.seconds:>7.1f} s", flush=True)
            print(*tally.failures, sep="\n", end="\n" if tally.failures else "")
    for figure, tally in totals.items():
        if not tally.happened and not tally.failures:
            continue
        print(f"{figure}: {tally.happened} points, {len(tally.failures)} failures, {tally.missed} not reached")
        if chosen.record:
            reliability_totals.append(
                f"crash, {figure}",
                count=tally.happened,
                failures=len(tally.failures),
                seconds=tally.seconds,
                seeds=f"{chosen.seed}, {chosen.count or 'all'} of each scenario",
                more=stores[figure],
            )
    print(f"{time.monotonic() - began:.0f} s")
    return int(any(tally.failures for tally in totals.values()))


if __name__ == "__main__":
    sys.exit(main())
