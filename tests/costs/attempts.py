"""Timing on a machine that others use too: try several times, and stop at the first that is good enough.

A noisy neighbour makes a figure worse and never better, so one good try shows what the code can do. And what the bare
database or the bare interpreter can do right now is measured beside it: a slower machine is allowed to be slower by as
much as those are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.second_try import TooSlow

TRIES = 5


@dataclass(frozen=True, slots=True)
class Try:
    """A measured cost and what it was allowed to be; both in the same unit, lower is better."""

    cost: float
    allowed: float

    @property
    def good(self) -> bool:
        return self.cost <= self.allowed


def assert_one_is_good(what: str, measure: Callable[[], Try], tries: int = TRIES) -> None:
    """Fail only when no try was good, and show them all."""
    made = []
    for _ in range(tries):
        made.append(measure())
        if made[-1].good:
            return
    shown = ", ".join(f"{each.cost:.4g} (allowed {each.allowed:.4g})" for each in made)
    raise TooSlow(f"{what}: {shown}")


def slower_than(reference: float, now: float) -> float:
    """How much slower this machine is than the one where the targets were set; never below 1."""
    return max(1.0, now / reference)
