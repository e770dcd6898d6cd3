"""All points of all figures: which there are, how one is tried, and how some of them are chosen.

A point is a text, such as `in-process/linear/sqlite/flush.between:3`, and can be tried again by it:
`python -m tests.reliability.crash --point in-process/linear/sqlite/flush.between:3`.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tests.reliability.crash.disk import POLICIES
from tests.reliability.crash.grounds import Grounds, own_grounds
from tests.reliability.crash.in_process import Hit, Stage, hits_of, parse_hit
from tests.reliability.crash.killed import KilledStage
from tests.reliability.crash.power import PowerStage
from tests.reliability.crash.stops import COMMITS, StoppedStage
from tests.reliability.crash.table import SCENARIOS

T = TypeVar("T")
Task = tuple[str, str, str]
"""A figure, a scenario and a store."""
FIGURES: Final = {
    "in-process": ("sqlite", "postgresql"),
    "killed": ("sqlite", "postgresql"),
    "double": ("sqlite", "postgresql"),
    "stops": ("postgresql",),
    "power": ("sqlite",),
}
"""Each with the stores that it is about."""


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to try."""

    figure: str
    scenario: str
    store: str
    at: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join((self.figure, self.scenario, self.store, *self.at))

    @property
    def command(self) -> str:
        return f'python -m tests.reliability.crash --point "{self}"'


def parse_point(text: str) -> Point:
    figure, scenario, store, *at = text.split("/")
    return Point(figure, scenario, store, tuple(at))


@dataclass(slots=True)
class Tally:
    """What came of some points."""

    happened: int = 0
    missed: int = 0
    """Places that were not reached this time: real time is never quite the same."""
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    reached: set[str] = field(default_factory=set)
    """Failpoints that were hit, by whomever."""

    def add(self, other: Tally) -> None:
        self.happened += other.happened
        self.missed += other.missed
        self.failures += other.failures
        self.seconds += other.seconds
        self.reached |= other.reached


class Part:
    """The points of one figure, one scenario and one store."""

    def __init__(self, figure: str, scenario: str, store: str, grounds: Grounds) -> None:
        self._figure, self._scenario, self._store = figure, scenario, store
        self._grounds = grounds
        self.tally = Tally()
        found = SCENARIOS[scenario]
        self._stage = Stage(found, grounds.place(store), grounds.folder)
        if figure == "killed":
            self._stage = KilledStage(found, grounds.place(store), grounds.folder, grounds.nursery)
        elif figure == "stops":
            self._stage = StoppedStage(found, grounds.postgres, grounds.folder, grounds.server)
        elif figure == "power":
            self._stage = PowerStage(found, grounds.sqlite, grounds.folder)

    def run(self, count: int | None, seed: str) -> Tally:
        """Try so many of them, or all, and go on after a failure."""
        began = time.monotonic()
        chance = random.Random(f"{seed} {self._figure} {self._scenario} {self._store}")
        for point in self._chosen(count, chance):
            self.attempt(point)
        self.tally.seconds = time.monotonic() - began
        return self.tally

    def attempt(self, point: Point) -> None:
        try:
            happened = self._try(point)
        except Exception as error:
            told = "".join(traceback.format_exception_only(error)).strip()
            self.tally.failures.append(f"{told}\n    {point.command}")
        else:
            self.tally.happened += happened
            self.tally.missed += not happened

    # -- which there are

    def _chosen(self, count: int | None, chance: random.Random) -> Iterator[Point]:
        if isinstance(self._stage, PowerStage):
            self._stage.watch()
            cuts = [(str(length), policy) for length in range(self._stage.length + 1) for policy in POLICIES]
            yield from (self._point(*cut) for cut in _some(cuts, count, chance))
            return
        counted = Stage(SCENARIOS[self._scenario], self._grounds.place(self._store), self._grounds.folder).record()
        self.tally.reached |= set(counted)
        if self._figure == "stops":
            counted = Counter({name: counted[name] for name in COMMITS})
        hits = hits_of(counted)
        if self._figure == "double":
            yield from self._doubled(hits, count, chance)
        else:
            yield from (self._point(str(hit)) for hit in _some(hits, count, chance))

    def _doubled(self, hits: Sequence[Hit], count: int | None, chance: random.Random) -> Iterator[Point]:
        """A first crash, and then each place that its recovery reaches; of all pairs some, by chance."""
        for first in hits if count is None else [chance.choice(hits) for _ in range(count)]:
            recovery = self._stage.crash_at(first)[-1].hits
            self.tally.reached |= set(recovery)
            again = hits_of(recovery)
            for second in again if count is None else [chance.choice(again)]:
                yield self._point(str(first), str(second))

    def _point(self, *at: str) -> Point:
        return Point(self._figure, self._scenario, self._store, at)

    # -- how one is tried

    def _try(self, point: Point) -> bool:
        stage = self._stage
        if isinstance(stage, PowerStage):
            if not stage.length:
                stage.watch()
            stage.cut_at(int(point.at[0]), next(policy for policy in POLICIES if policy == point.at[1]))
            return True
        hits = [parse_hit(text) for text in point.at]
        if isinstance(stage, StoppedStage):
            return stage.stop_at(*hits)
        lives = stage.crash_at(*hits)
        for life in lives:
            self.tally.reached |= set(life.hits)
        return sum(life.crashed for life in lives) == len(hits)


def run_part(task: Task, count: int | None, seed: str) -> tuple[Task, Tally]:
    """For a process of a pool."""
    return task, Part(*task, own_grounds()).run(count, seed)


def _some(all_of: Sequence[T], count: int | None, chance: random.Random) -> Sequence[T]:
    return all_of if count is None or count >= len(all_of) else chance.sample(list(all_of), count)
