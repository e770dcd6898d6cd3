"""The seeds of every commit, and that a simulation is what it says: the same each time, and able to see a bug.

`make simulate SEEDS=0:200000` runs more of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core import ahead
from holdfast.runtime import delayed, function_driver
from tests.reliability.simulation.simulate import simulate, simulate_all

SEEDS = 2_000
SLICES = 10
LATE_SEEDS = 400
FAR_AHEAD = 300


@pytest.mark.parametrize("number", range(SLICES))
def test_g9_no_seed_breaks_a_promise_while_faults_last_or_leaves_anything_stuck_when_they_stop(number: int) -> None:
    first = number * SEEDS // SLICES
    broken = [
        f"{verdict.broken}\n    make simulate SEEDS={verdict.seed}"
        for verdict in simulate_all(range(first, first + SEEDS // SLICES))
        if verdict.broken
    ]
    assert not broken, "\n".join(broken)


def test_g6_nothing_of_what_is_claimed_far_ahead_of_its_time_happens_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if commits took half a second: for what happens in the time that is left until then (decision 0033)."""
    for module in (ahead, function_driver):
        monkeypatch.setattr(module, "MOST_AHEAD_US", 500_000)
    monkeypatch.setattr(delayed, "COMMITS_AHEAD", 10**6)
    broken = [f"seed {verdict.seed}: {verdict.broken}" for verdict in simulate_all(range(FAR_AHEAD)) if verdict.broken]
    assert not broken, "\n".join(broken)


def test_g3_answers_that_come_late_make_nothing_run_twice() -> None:
    """Functions that are cancelled and roll back, while the store is slow and nobody dies."""
    broken = [
        f"{verdict.broken}\n    make simulate SEEDS={verdict.seed} ARGS=--late"
        for verdict in simulate_all(range(LATE_SEEDS), late=True)
        if verdict.broken
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("seed", [3, 9, 14, 29])
def test_the_same_seed_is_the_same_run_to_the_last_commit(seed: int) -> None:
    first, second = simulate(seed, trace=True), simulate(seed, trace=True)
    assert first.trace == second.trace
    assert first.digest == second.digest
    assert len(first.trace) > 10


def test_a_seed_is_the_same_run_in_another_process_where_sets_have_another_order() -> None:
    """So a failure repeats wherever its command is run."""
    seeds = range(20, 30)
    program = "import sys\nfrom tests.reliability.simulation.simulate import simulate_all\n"
    program += f"sys.stdout.write(' '.join(each.digest for each in simulate_all({seeds!r})))"
    root = Path(__file__).resolve().parents[3]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "12345",
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
    }
    other = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.split() == [each.digest for each in simulate_all(seeds)]
