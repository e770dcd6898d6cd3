"""Every registered failpoint is reached by the scenarios, so that somebody dies there."""

from __future__ import annotations

import re
from pathlib import Path

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
    ("migration", "migrate.before"),
    ("migration", "migrate.between"),
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


def test_every_failpoint_of_the_code_is_registered_and_every_registered_one_is_in_the_code() -> None:
    """One that is only registered is reached by nobody, one that is not is an error where it is reached."""
    sources = Path(failpoints.__file__).parents[1]
    named = {
        name
        for file in sources.rglob("*.py")
        if file != Path(failpoints.__file__)
        for name in re.findall(r'failpoints\.(?:hit|reach)\("([^"]+)"\)', file.read_text(encoding="utf-8"))
    }
    assert named == failpoints.NAMES


@pytest.mark.parametrize("name", sorted(ONLY_POSTGRESQL))
def test_g1_g9_k11_a_crash_around_an_announcement(grounds: Grounds, name: str) -> None:
    """G1, G9, K11: what was committed and announced to nobody is found by who looks."""
    lives = Stage(SCENARIOS["fan"], grounds.postgres, grounds.folder).crash_at(Hit(name, 1))
    assert [life.crashed for life in lives] == [True, False]


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
