"""Crashes inside one process: at the k-th hit of a failpoint, and perhaps again while somebody recovers."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.crash import oracle
from tests.reliability.crash.ledger import Ledger
from tests.reliability.crash.lives import Life, Lived, buried
from tests.reliability.crash.places import Place
from tests.reliability.crash.scenario import Scenario


@dataclass(frozen=True, order=True, slots=True)
class Hit:
    """The k-th time that a failpoint is reached, counted from 1."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}:{self.number}"


def hits_of(counted: Counter[str]) -> list[Hit]:
    return [Hit(name, number + 1) for name in sorted(counted) for number in range(counted[name])]


def parse_hit(text: str) -> Hit:
    name, _, number = text.rpartition(":")
    return Hit(name, int(number))


class Stage:
    """A scenario on a place."""

    def __init__(self, scenario: Scenario, place: Place, folder: Path) -> None:
        self.scenario = scenario
        self.place = place
        self._ledger = folder / "ledger"
        gc.collect()
        gc.freeze()  # each death is followed by a collection, which need not look at what all lives share

    def record(self) -> Counter[str]:
        """Which failpoints a life reaches that nobody disturbs, and how often."""
        self._begin()
        lived = self._live(1, ())
        self._judge_the_end(deaths=0)
        return lived.hits

    def crash_at(self, *hits: Hit) -> list[Lived]:
        """Die at the first hit, and at the second one in the life that comes after; then finish, and judge."""
        self._begin()
        lives: list[Lived] = []
        deaths = 0
        while True:
            seconds = lives[-1].seconds if lives else 0.0
            lived = self._live(len(lives) + 1, hits[len(lives) :][:1], seconds)
            lives.append(lived)
            deaths += lived.crashed
            if not lived.crashed:
                break
            left = self.place.rows()
            oracle.as_left(left)
            self._left.append((len(lives), left))
        self._judge_the_end(deaths)
        return lives

    def _begin(self) -> None:
        self._ledger.unlink(missing_ok=True)
        self._left: list[tuple[int, oracle.Rows]] = []
        self._is_provable = True  # that somebody is dead
        self.place.renew(blank=self.scenario.blank)

    def _live(self, number: int, order: tuple[Hit, ...], seconds: float = 0.0) -> Lived:
        def dies(name: str, hit: int) -> bool:
            return Hit(name, hit) in order

        ledger = Ledger(self._ledger, number)
        with buried():
            return Life(self.scenario, self.place, ledger, self.scenario.name, seconds, dies).live()

    def _judge_the_end(self, deaths: int) -> None:
        ledger = Ledger(self._ledger)
        lines = ledger.lines()
        ledger.close()
        for life, left in self._left:
            oracle.not_again(left, lines, life)
        rows = self.place.rows()
        oracle.at_the_end(self.scenario, rows, lines, deaths)
        if self._is_provable:
            oracle.nobody_is_enrolled(rows)
