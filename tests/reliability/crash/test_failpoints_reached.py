"""Every registered failpoint is reached by the scenarios, so that somebody dies there."""

from __future__ import annotations

import pytest

from holdfast.core import failpoints
from tests.reliability.crash.grounds import Grounds
from tests.reliability.crash.in_process import Hit, Stage
from tests.reliability.crash.table import SCENARIOS

pytestmark = pytest.mark.timeout(300)
ONLY_POSTGRESQL = {"announce.before", "announce.after"}
"""SQLite has nothing to announce: a byte in a file, which nobody needs."""
ONLY_IN_RECOVERY = {"takeover.before", "takeover.retired", "takeover.after"}
RARE = [
    ("linear", "enroll.after"),
    ("timer", "due.let_in"),
    ("cancel", "cancel.requested"),
    ("cancel", "cancel.recorded"),
    ("projection", "projection.before_commit"),
    ("projection", "projection.after_commit"),
    ("migration", "migrate.after"),
    ("prune", "prune.between"),
    ("shutdown", "release.before"),
]


def test_every_failpoint_is_reached_by_a_scenario(grounds: Grounds) -> None:
    """One that nobody reaches is a place where nobody has ever tried a crash."""
    reached: set[str] = set()
    for scenario in SCENARIOS.values():
        reached |= set(Stage(scenario, grounds.sqlite, grounds.folder).record())
    lives = Stage(SCENARIOS["linear"], grounds.sqlite, grounds.folder).crash_at(Hit("action.after", 1))
    reached |= set(lives[-1].hits)
    assert set(lives[-1].hits) >= ONLY_IN_RECOVERY
    reached |= set(Stage(SCENARIOS["fan"], grounds.postgres, grounds.folder).record())
    assert failpoints.NAMES - reached == set()


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
@pytest.mark.parametrize(("scenario", "name"), RARE)
def test_g1_g9_a_crash_at_a_place_that_is_seldom_reached(
    grounds: Grounds, scenario: str, name: str, store: str
) -> None:
    """G1, G9: too few hits to be among the chosen ones every day, so they are tried each time."""
    lives = Stage(SCENARIOS[scenario], grounds.place(store), grounds.folder).crash_at(Hit(name, 1))
    assert [life.crashed for life in lives] == [True, False]


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
@pytest.mark.parametrize("name", sorted(ONLY_IN_RECOVERY))
def test_g9_i7_a_crash_inside_a_take_over_is_taken_over(grounds: Grounds, name: str, store: str) -> None:
    """G9, I7: also when the dead worker's row is gone already, and its leases are not."""
    stage = Stage(SCENARIOS["diamond"], grounds.place(store), grounds.folder)
    lives = stage.crash_at(Hit("action.after", 2), Hit(name, 1))
    assert [life.crashed for life in lives] == [True, True, False]
