"""Hunt mutants: `python -m tests.reliability.mutants`, all of them or those that are named by number.

Killed is good. One that lives is a missing test, or a wrong selection of tests; its own command is printed.
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.reliability.mutants.catalogue import numbered
from tests.reliability.mutants.hunt import Hunted, hunt
from tests.reliability.mutants.mutant import DoesNotApply, copy_of_sources
from tests.reliability.mutants.table import write_table


def main() -> int:
    reading = argparse.ArgumentParser(prog="python -m tests.reliability.mutants", description=__doc__)
    reading.add_argument("numbers", nargs="*", type=int, help="of the mutants; all of them without")
    reading.add_argument("--healthy", action="store_true", help="run the same tests without any bug: all must pass")
    reading.add_argument("--workers", type=int, default=2)
    reading.add_argument("--show", action="store_true", help="show what the tests said")
    reading.add_argument("--table", action="store_true", help="write the table of mutants into docs/reliability.md")
    reading.add_argument("--record", action="store_true", help="add the totals to docs/reliability.json")
    asked = reading.parse_args()
    if asked.table:
        write_table()
        return 0
    everything = numbered()
    numbers = asked.numbers or list(everything)
    if unknown := [number for number in numbers if number not in everything]:
        print(f"there are mutants 1 to {len(everything)}, and no {unknown}", file=sys.stderr)
        return 2
    started = time.monotonic()
    lives: list[int] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.workers) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for worker in range(asked.workers):
            copies.put(copy_of_sources(Path(folder) / str(worker)))

        def hunt_one(number: int) -> Hunted:
            sources = copies.get()
            try:
                return hunt(everything[number], sources, healthy=asked.healthy)
            except DoesNotApply as error:
                return Hunted(False, "does not apply", "", 0.0, str(error))
            finally:
                copies.put(sources)

        for number, hunted in zip(numbers, pool.map(hunt_one, numbers), strict=True):
            as_wanted = hunted.verdict == "passed" if asked.healthy else hunted.killed
            if not as_wanted:
                lives.append(number)
            word = ("healthy" if asked.healthy else "killed") if as_wanted else hunted.verdict.upper()
            word = "killed: hangs" if as_wanted and hunted.verdict == "hangs" else word
            print(f"{number:3} {word:14} {hunted.seconds:5.1f} s  {everything[number].bug}", flush=True)
            print(f"    {hunted.by or ' '.join(everything[number].tests)}", flush=True)
            if asked.show or not as_wanted:
                print(hunted.output[-3000:], flush=True)
    seconds = time.monotonic() - started
    print(f"{len(numbers) - len(lives)} of {len(numbers)} as they should be, in {seconds:.0f} s")
    for number in lives:
        print(f"again: make mutants ONLY={number}")
    if asked.record and not asked.healthy and not asked.numbers:
        from tools.reliability_totals import append

        append("mutants killed", count=len(numbers) - len(lives), failures=len(lives), seconds=seconds)
    return 1 if lives else 0


if __name__ == "__main__":
    raise SystemExit(main())
