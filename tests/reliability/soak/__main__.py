"""`python -m tests.reliability.soak MINUTES [SEED]`: a soak, printed, and added to the running totals."""

from __future__ import annotations

import sys
import time

from tests.reliability.soak.plan import Plan
from tests.reliability.soak.soak import soak
from tools import reliability_totals


def main(minutes: float, seed: int) -> int:
    report = soak(Plan.for_minutes(minutes, seed))
    print(report)
    more = {name: count for name, count in report.did.items() if not name.startswith("client")}
    more |= {"cuts": report.cuts, "executions": report.deeds}
    reliability_totals.append(
        "soak", count=report.runs, failures=int(bool(report.broken)), seconds=report.seconds, seeds=str(seed), more=more
    )
    return 1 if report.broken else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(float(arguments[0]), int(arguments[1]) if len(arguments) > 1 else int(time.time())))
