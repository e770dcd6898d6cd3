"""How much slower this machine is than the one on which deadlines were set: here they are longer by as much.

Some promises are about time: what a dead worker held goes on within two seconds, and not when a lease has run out. On a
machine that computes at a tenth of that speed, a process takes ten times as long to notice anything at all.

`python -m tests.support.pace` prints it as a whole number, which `.ci/run` uses.
"""

from __future__ import annotations

from benchmarks.limits import computing_ms
from benchmarks.measures import REFERENCE_COMPUTING_MS

MOST = 10.0


def slower() -> float:
    """Measured now, since others use the machine too; 1 where it is as fast as the reference, or faster."""
    return min(MOST, max(1.0, min(computing_ms() for _ in range(3)) / REFERENCE_COMPUTING_MS))


def longer(seconds: float) -> float:
    """As many seconds of this machine."""
    return seconds * slower()


if __name__ == "__main__":
    print(int(slower()))
