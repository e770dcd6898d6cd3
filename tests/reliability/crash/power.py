"""Power cuts on SQLite: a life is recorded write by write, and every state that its files could be left in is tried."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from holdfast.runtime.system import InlineExecutor, System
from holdfast.store.contract import Store
from tests.reliability.crash import oracle
from tests.reliability.crash.disk import Disk, Policy, StoreOnWatchedDisk, watched_disk
from tests.reliability.crash.in_process import Stage
from tests.reliability.crash.ledger import Ledger, Line
from tests.reliability.crash.lives import Life, buried
from tests.reliability.crash.places import SqlitePlace
from tests.reliability.crash.scenario import Scenario

LEASE_SECONDS = 5.0  # now and then it must be waited for, in virtual time


class PowerStage(Stage):
    """A scenario whose first life was recorded; the power can be cut after each of its writes and syncs."""

    place: SqlitePlace

    def __init__(self, scenario: Scenario, place: SqlitePlace, folder: Path) -> None:
        settings = {"lease_seconds": LEASE_SECONDS, **scenario.settings}
        super().__init__(replace(scenario, settings=settings), place, folder)
        self._disk = Disk()
        self._lines: list[str] = []
        self._seconds = 0.0

    @property
    def length(self) -> int:
        """How many deeds there were."""
        return len(self._disk.deeds)

    def watch(self) -> None:
        """Live the life that all power cuts are cuts of."""
        self._begin()
        if self.place.path.exists():
            self._disk.before[self.place.path.name] = self.place.path.read_bytes()
        vfs = watched_disk()
        vfs.disk = self._disk

        def store(system: System) -> Store:
            return StoreOnWatchedDisk(
                self.place.path,
                vfs,
                clock=system.clock,
                inline=InlineExecutor(),
                threaded=InlineExecutor(),
                sleep=system.sleep,
            )

        ledger = Ledger(self._ledger, 1, mark=lambda: len(self._disk.deeds))
        with buried():
            lived = Life(self.scenario, self.place, ledger, self.scenario.name, make_store=store).live()
        self._seconds = lived.seconds
        self._judge_the_end(deaths=0)
        self._lines = self._ledger.read_text().splitlines(keepends=True)

    def cut_at(self, length: int, policy: Policy) -> None:
        """The power fails after so many deeds; then somebody goes on with what is left."""
        chance = random.Random(f"{self.scenario.name} {length} {policy}")
        self._begin()
        marks = [line.mark for line in _parsed(self._lines, self._ledger)]
        self._ledger.write_text("".join(text for text, mark in zip(self._lines, marks, strict=True) if mark <= length))
        self.place.put(self._disk.image(length, policy, chance))
        left = self.place.rows()
        oracle.as_left(left)
        self._left.append((1, left))
        self._is_provable = chance.random() < 0.9
        if self._is_provable:  # else the names of the small files beside it are gone too, and leases decide
            for worker in left["workers"]:
                self.place.path.with_name(f"{self.place.path.name}-worker-{worker['id']}").touch()
        self._live(2, (), self._seconds)
        self._judge_the_end(deaths=1)


def _parsed(texts: list[str], path: Path) -> list[Line]:
    path.write_text("".join(texts))
    ledger = Ledger(path)
    ledger.close()
    return ledger.lines()
