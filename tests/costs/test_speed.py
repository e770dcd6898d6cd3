"""Chains of steps at the speed that the project promises itself, and no slower because a run is long.

`python -m benchmarks` gives the figures; these tests only keep them from getting lost.
"""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.limits import batched_steps_per_second, one_commit_ms
from benchmarks.throughput import measure_w1, measure_w2, measure_w7
from tests.costs.attempts import Try, assert_one_is_good, slower_than

FACTOR = 4.0  # keeps a loss from going unseen on a busy machine; `python -m benchmarks` compares with the targets

pytestmark = [pytest.mark.timeout(300), pytest.mark.timing]


@pytest.fixture(params=[m.SQLITE, m.POSTGRES])
def durable(request: pytest.FixtureRequest) -> Databases:
    databases: Databases = request.getfixturevalue(f"durable_{'postgres' if request.param == m.POSTGRES else 'sqlite'}")
    return databases


def test_a_step_of_a_lone_chain_stays_near_its_target(durable: Databases) -> None:
    """W1: a run of 100 steps pays one commit a step and little else."""

    def measured() -> Try:
        commit = asyncio.run(one_commit_ms(durable.fresh_url(), 300))
        allowed = m.W1.targets[durable.store] * slower_than(m.REFERENCE_ONE_COMMIT_MS[durable.store], commit)
        return Try(asyncio.run(measure_w1(durable.fresh_url())).wall_ms, FACTOR * allowed)

    assert_one_is_good("milliseconds a step of one run of 100", measured)


def test_many_chains_at_once_stay_near_their_target(durable: Databases) -> None:
    """W2: 2,000 runs of 3 steps share their commits."""

    def measured() -> Try:
        batched = asyncio.run(batched_steps_per_second(durable.fresh_url(), 50))
        slowness = slower_than(1 / m.REFERENCE_BATCHED[durable.store], 1 / batched)
        allowed = 1000 / m.W2.targets[durable.store] * slowness
        return Try(asyncio.run(measure_w2(durable.fresh_url())).wall_ms, FACTOR * allowed)

    assert_one_is_good("milliseconds a step of 2,000 runs of 3 steps", measured)


@pytest.mark.parametrize("store", [m.SQLITE, m.POSTGRES])
def test_a_step_of_ten_thousand_costs_what_a_step_of_one_thousand_costs(
    store: str, request: pytest.FixtureRequest
) -> None:
    """W7: a step's cost depends on its own edges and not on the size of its graph, nor on what the store holds."""
    # Syncing is left out on PostgreSQL: it costs the same for every step, and would only hide a growth.
    url: str = request.getfixturevalue("postgres_url" if store == m.POSTGRES else "sqlite_url")

    def measured() -> Try:
        _, growth, _ = asyncio.run(measure_w7(url))
        return Try(growth, m.W7_GROWTH.targets[store])

    assert_one_is_good(f"a step of 10,000 to a step of 1,000 on {store}", measured, tries=3)
