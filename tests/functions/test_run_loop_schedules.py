"""Functions over every supported construct, under random schedules with crashes: each replay is the same run."""

from __future__ import annotations

import os
import time

import pytest

from tests.functions.programs import PROGRAMS
from tests.functions.schedules import Schedule

# RUN_LOOP_SCHEDULES=1000 plays that many of each program; without it, as many as fit into the seconds CI has.
ON_DEMAND = int(os.environ.get("RUN_LOOP_SCHEDULES", "0"))
CI_SECONDS = 40.0
CI_SCHEDULES = 1_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_i49_the_same_journal_gives_the_same_run_under_every_schedule(name: str) -> None:
    """I49: same addresses, same results, and no recorded or withdrawn call starts again, whatever crashed when."""
    until = time.monotonic() + CI_SECONDS / len(PROGRAMS)
    played = crashes = entries = 0
    for seed in range(ON_DEMAND or CI_SCHEDULES):
        if not ON_DEMAND and played >= 20 and time.monotonic() > until:
            break
        schedule = Schedule(name, seed, cancel_chance=0.04 if seed % 4 == 0 else 0.0)
        schedule.play()
        played, crashes, entries = played + 1, crashes + schedule.crashes, entries + len(schedule.journal)
    print(f"{name}: {played} schedules, {crashes} crashes, {entries} entries")
