"""The deterministic simulation over a range of seeds: `make simulate SEEDS=0:2000`, or one seed, `SEEDS=17`.

Prints every seed that broke a promise with the command that repeats it, then the totals; the exit code is 1 if one did.
A range of more than one seed is added to docs/reliability.json. One seed prints its trace with `--trace`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from reliability_totals import append  # noqa: E402

from tests.reliability.simulation.simulate import Verdict, simulate_all  # noqa: E402

SLICE = 50  # seeds of one process at a time


def main() -> int:
    options = _options()
    first, last = options.seeds
    began = time.monotonic()
    totals: Counter[str] = Counter()
    failures = 0
    for verdict in _verdicts(first, last, options):
        totals += Counter(runs=verdict.runs, commits=verdict.commits, **{"virtual seconds": int(verdict.seconds)})
        totals["faults"] += sum(verdict.met.values())
        if verdict.broken:
            failures += 1
            _tell(verdict, " ARGS=--late" if options.late else "")
        elif last - first == 1:
            sys.stdout.write("\n".join([*verdict.trace, f"seed {first}, {verdict.store}: sound, {verdict.digest}\n"]))
    seconds, count = time.monotonic() - began, last - first
    told = ", ".join(f"{value:,} {name}" for name, value in totals.items())
    sys.stdout.write(f"{count:,} seeds in {seconds:.0f} s, {failures} broken: {told}\n")
    if count > 1 and not options.late:
        more = {name.replace(" ", "_"): value for name, value in totals.items()}
        append("simulation", count=count, failures=failures, seconds=seconds, seeds=f"{first}:{last}", more=more)
    return 1 if failures else 0


def _tell(verdict: Verdict, more: str) -> None:
    lines = [
        *verdict.trace,
        f"seed {verdict.seed} on {verdict.store} ({verdict.faults}): {verdict.broken}",
        f"    make simulate SEEDS={verdict.seed}{more}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _verdicts(first: int, last: int, options: argparse.Namespace) -> Iterator[Verdict]:
    processes = options.processes
    slices = [
        (at, min(at + SLICE, last), options.store, options.trace, options.late) for at in range(first, last, SLICE)
    ]
    if processes < 2 or len(slices) < 2:
        for each in slices:
            yield from _slice(each)
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=20) as pool:
        for verdicts in pool.imap(_slice, slices):
            yield from verdicts


def _slice(order: tuple[int, int, str | None, bool, bool]) -> list[Verdict]:
    first, last, store, trace, late = order
    return list(simulate_all(range(first, last), store=store, trace=trace, late=late))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seeds", type=_range, help="17, or 0:2000 without its end")
    parser.add_argument("--store", choices=("memory", "sqlite"), help="instead of one seed in ten on SQLite")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--trace", action="store_true", help="print every commit, claim and action")
    parser.add_argument("--late", action="store_true", help="a slow store, functions that are cancelled, no deaths")
    return parser.parse_args()


def _range(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    return (int(first), int(last)) if colon else (int(first), int(first) + 1)


if __name__ == "__main__":
    sys.exit(main())
