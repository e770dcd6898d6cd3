"""What the page says is done with every commit is done: the tests' numbers add up to it, and the page is current."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.reliability.crash.disk import POLICIES
from tests.reliability.crash.grounds import Grounds
from tests.reliability.crash.in_process import Stage
from tests.reliability.crash.shares import SHARES
from tests.reliability.crash.stops import COMMITS
from tests.reliability.crash.table import SCENARIOS
from tests.reliability.mutants.catalogue import ROTATING
from tests.reliability.simulation.test_simulation import SEEDS
from tests.reliability.soak.plan import Plan
from tools import reliability_totals
from tools.reliability_totals import FIGURES, MUTANTS_IN_CI, SOAK, SOAK_SECONDS_IN_CI

FEWEST_SCENARIOS = 25


@pytest.fixture
def grounds() -> Iterator[Grounds]:
    with Grounds() as made:
        yield made


@pytest.mark.timeout(300)
def test_the_crash_points_of_a_commit_are_as_many_as_the_page_says(grounds: Grounds) -> None:
    """A figure is what its shares of all scenarios add up to; a scenario has the points that its life on SQLite has."""
    assert len(SCENARIOS) >= FEWEST_SCENARIOS
    tried: Counter[str] = Counter()
    for scenario in SCENARIOS.values():
        hits = Stage(scenario, grounds.sqlite, grounds.folder).record()
        for (figure, _), share in SHARES.items():
            there_are = {"stops": sum(hits[name] for name in COMMITS), "power": sum(hits.values()) * len(POLICIES)}
            tried[figure] += min(share, there_are.get(figure, sum(hits.values())))
    print(", ".join(f"{figure} {count:,}" for figure, count in tried.items()))
    wanted = {each.key.removeprefix("crash, "): each.in_ci for each in FIGURES if each.key.startswith("crash")}
    assert {figure: tried[figure] >= count for figure, count in wanted.items()} == dict.fromkeys(wanted, True)


def test_the_seeds_the_soak_and_the_mutants_of_a_commit_are_as_many_as_the_page_says() -> None:
    (seeds,) = [each.in_ci for each in FIGURES if each.key == "simulation"]
    assert seeds == SEEDS
    assert ROTATING == MUTANTS_IN_CI
    minute, hour = Plan(seed=0), Plan.for_minutes(60, seed=0)
    assert minute.seconds == SOAK_SECONDS_IN_CI
    for plan, place in ((minute, 0), (hour, 1)):
        enough = {"kills": plan.enough_kills, "server restarts": plan.enough_restarts, "cuts": plan.enough_cuts}
        assert enough == {name: counts[place] for name, counts in SOAK.items()}


def test_the_table_of_the_page_is_that_of_the_totals() -> None:
    """Fix: `python tools/reliability_totals.py --page`."""
    assert reliability_totals.table_on_page() == reliability_totals.table()
