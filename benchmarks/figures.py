"""Measured values: medians with their spread, beside the limit of the machine that was measured in the same round."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measure:
    """What is measured, and what it should come to.

    `limit` names the figure of the bare database that it is compared with, `commits` how many of those a
    perfect engine would need for it.
    """

    name: str
    what: str
    unit: str
    more_is_better: bool = False
    limit: str | None = None
    commits: int = 1
    targets: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measure on one store, over several rounds."""

    measure: Measure
    store: str
    samples: tuple[float, ...]
    limits: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """From the lowest to the highest sample, as a part of the median: how far the figure can be trusted."""
        return (max(self.samples) - min(self.samples)) / self.median if self.median else 0.0

    @property
    def times_the_limit(self) -> float | None:
        """How many times what the bare database needs; 1 would be an engine that costs nothing."""
        if not self.limits:
            return None
        needed = [limit * self.measure.commits for limit in self.limits]
        pairs = zip(self.samples, needed, strict=True)
        if self.measure.more_is_better:
            return statistics.median(limit / sample for sample, limit in pairs)
        return statistics.median(sample / limit for sample, limit in pairs)

    @property
    def target(self) -> float | None:
        return self.measure.targets.get(self.store)

    @property
    def times_the_target(self) -> float | None:
        """1 or less: the target is met."""
        if self.target is None:
            return None
        return self.target / self.median if self.measure.more_is_better else self.median / self.target

    def as_json(self) -> dict[str, Any]:
        return {
            "workload": self.measure.name,
            "what": self.measure.what,
            "store": self.store,
            "unit": self.measure.unit,
            "more_is_better": self.measure.more_is_better,
            "median": self.median,
            "spread": self.spread,
            "samples": list(self.samples),
            "limit": self.measure.limit,
            "limits": list(self.limits),
            "times_the_limit": self.times_the_limit,
            "target": self.target,
            "times_the_target": self.times_the_target,
        }
