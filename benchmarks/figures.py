"""Measured values: medians with their spread, beside the limit of the machine and the best peer of the same rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

OURS = "holdfast"
BARE = "limit"  # whose figure the bare database's is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measure:
    """What is measured, and what it should come to.

    `limit` names the figure of the bare database that it is compared with, `commits` how many of those a perfect engine
    would need for it, or `steps` how many steps, whose time the bare database's rate tells. Measures of one `quantity`
    are compared with each other, whoever was measured.
    """

    name: str
    what: str
    unit: str
    quantity: str | None = None
    more_is_better: bool = False
    limit: str | None = None
    commits: int = 1
    steps: int = 0
    targets: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measure of one engine on one store; samples and limits by the number of their round."""

    measure: Measure
    store: str
    who: str = OURS
    samples: Mapping[int, float]
    limits: Mapping[int, float] = field(default_factory=dict)
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples.values())

    @property
    def spread(self) -> float:
        """From the lowest to the highest sample, as a part of the median: how far the figure can be trusted."""
        values = self.samples.values()
        return (max(values) - min(values)) / self.median if self.median else 0.0

    @property
    def times_the_limit(self) -> float | None:
        """How many times what the bare database needs; 1 would be an engine that costs nothing."""
        steps, commits = self.measure.steps, self.measure.commits
        needed = {number: steps / limit if steps else limit * commits for number, limit in self.limits.items()}
        worse = _times(self.samples, needed)
        if worse is None:
            return None
        return 1 / worse if self.measure.more_is_better else worse

    @property
    def target(self) -> float | None:
        return self.measure.targets.get(self.store) if self.who == OURS else None

    @property
    def times_the_target(self) -> float | None:
        """1 or less: the target is met."""
        if self.target is None:
            return None
        return self.target / self.median if self.measure.more_is_better else self.median / self.target

    def better_than(self, other: Figure) -> float | None:
        """How many times better this figure is than another of the same rounds: 2 is twice as fast, or half as much."""
        worse = _times(self.samples, other.samples)
        if worse is None or worse == 0:
            return None
        return worse if self.measure.more_is_better else 1 / worse

    def best_peer(self, figures: Iterable[Figure]) -> Figure | None:
        """The best figure of another engine for the same quantity on the same store; only ours are compared."""
        if self.measure.quantity is None or self.who != OURS:
            return None
        peers = [
            each
            for each in figures
            if each.who not in (OURS, BARE)
            and each.store == self.store
            and each.measure.quantity == self.measure.quantity
        ]
        best = max if self.measure.more_is_better else min
        return best(peers, key=lambda each: each.median) if peers else None

    def as_json(self, figures: Iterable[Figure] = ()) -> dict[str, Any]:
        peer = self.best_peer(figures)
        return {
            "workload": self.measure.name,
            "what": self.measure.what,
            "who": self.who,
            "quantity": self.measure.quantity,
            "store": self.store,
            "unit": self.measure.unit,
            "more_is_better": self.measure.more_is_better,
            "median": self.median,
            "spread": self.spread,
            "samples": dict(self.samples),
            "limit": self.measure.limit,
            "limits": dict(self.limits),
            "times_the_limit": self.times_the_limit,
            "target": self.target,
            "times_the_target": self.times_the_target,
            "best_peer": peer.who if peer is not None else None,
            "times_the_best_peer": self.better_than(peer) if peer is not None else None,
            "note": self.note,
        }


def _times(samples: Mapping[int, float], others: Mapping[int, float]) -> float | None:
    """The median of the samples' ratios to the others, within the rounds that have both."""
    ratios = [samples[number] / others[number] for number in samples if others.get(number)]
    return statistics.median(ratios) if ratios else None
