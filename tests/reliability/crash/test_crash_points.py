"""Crash points of all scenarios, a share of each that changes from day to day: the whole is `make crash`.

CRASH_SEED chooses which points (today's date, if it is not set), CRASH_SCALE multiplies how many. A failure prints the
command that tries its point again.
"""

from __future__ import annotations

import os
from datetime import date

import pytest

from tests.reliability.crash.grounds import Grounds
from tests.reliability.crash.programme import Part
from tests.reliability.crash.shares import SHARES
from tests.reliability.crash.table import SCENARIOS

SEED = os.environ.get("CRASH_SEED", date.today().isoformat())
ENOUGH = 5  # points, of which one is surely reached; in real time a life is never quite the same
SCALE = float(os.environ.get("CRASH_SCALE", "1"))

pytestmark = pytest.mark.timeout(600)
both_stores = pytest.mark.parametrize("store", ["sqlite", "postgresql"])
every_scenario = pytest.mark.parametrize("scenario", list(SCENARIOS))


def try_some(grounds: Grounds, figure: str, scenario: str, store: str) -> None:
    print(f"CRASH_SEED={SEED} CRASH_SCALE={SCALE:g}")
    tally = Part(figure, scenario, store, grounds).run(max(1, round(SHARES[figure, store] * SCALE)), SEED)
    print(f"{figure}, {store}: {tally.happened} points, {tally.missed} not reached")
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.happened or tally.missed < ENOUGH, "no point was reached"


@every_scenario
@both_stores
def test_g1_g2_g3_g4_g9_g10_a_process_that_dies_anywhere_breaks_no_promise(
    grounds: Grounds, scenario: str, store: str
) -> None:
    """G1 to G10: everything of a life is gone at the k-th hit of a failpoint, and another life finishes."""
    try_some(grounds, "in-process", scenario, store)


@every_scenario
@both_stores
def test_g1_g3_g9_i7_a_process_that_is_killed_anywhere_breaks_no_promise(
    grounds: Grounds, scenario: str, store: str
) -> None:
    """G1 to G10, I7: the same with SIGKILL, and another process finishes."""
    try_some(grounds, "killed", scenario, store)


@every_scenario
@both_stores
def test_g1_g3_g9_who_recovers_may_die_in_turn(grounds: Grounds, scenario: str, store: str) -> None:
    """G1 to G10: a second crash, anywhere in the life that takes over from the first."""
    try_some(grounds, "double", scenario, store)


@every_scenario
def test_g1_g2_k8_a_server_that_dies_around_a_commit_undoes_nothing(grounds: Grounds, scenario: str) -> None:
    """G1, G2, K8: PostgreSQL stopped with `-m immediate` and started again, while the same processes go on."""
    try_some(grounds, "stops", scenario, "postgresql")


@every_scenario
def test_g1_g10_a_power_cut_loses_nothing_that_was_acknowledged(grounds: Grounds, scenario: str) -> None:
    """G1, G10: after any write or sync, with what was not synced dropped, torn, or there in part, in any order."""
    try_some(grounds, "power", scenario, "sqlite")
