"""Runs, functions and flows at the speed that the project promises itself, and no slower because a run is long.

`python -m benchmarks` gives the figures; these tests only keep them from getting lost.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.figures import Measure
from benchmarks.flows import measure_w1_flow, measure_w2_flows
from benchmarks.functions import measure_w1_function, measure_w2_functions
from benchmarks.limits import computing_ms, one_commit_ms
from benchmarks.throughput import Cost, measure_w1, measure_w2, measure_w7
from tests.costs.attempts import Try, assert_one_is_good, slower_than

FACTOR = 2.0

pytestmark = [pytest.mark.timeout(300), pytest.mark.timing]


@pytest.fixture(params=[m.SQLITE, m.POSTGRES])
def durable(request: pytest.FixtureRequest) -> Databases:
    databases: Databases = request.getfixturevalue(f"durable_{'postgres' if request.param == m.POSTGRES else 'sqlite'}")
    return databases


@pytest.mark.parametrize(
    ("measure", "measured_by"),
    [(m.W1, measure_w1), (m.W1_FUNCTION, measure_w1_function), (m.W1_FLOW, measure_w1_flow)],
    ids=["dag", "function", "flow"],
)
def test_a_step_of_a_lone_run_stays_near_its_target(
    durable: Databases, measure: Measure, measured_by: Callable[[str], Coroutine[Any, Any, Cost]]
) -> None:
    """W1: a run of 100 steps pays one commit a step and little else."""

    def measured() -> Try:
        commit = asyncio.run(one_commit_ms(durable.fresh_url(), 300))
        allowed = measure.targets[durable.store] * slower_than(m.REFERENCE_ONE_COMMIT_MS[durable.store], commit)
        return Try(asyncio.run(measured_by(durable.fresh_url())).wall_ms, FACTOR * allowed)

    assert_one_is_good("milliseconds a step of one run of 100", measured)


@pytest.mark.parametrize(
    ("measure", "measured_by"),
    [(m.W2, measure_w2), (m.W2_FUNCTIONS, measure_w2_functions), (m.W2_FLOWS, measure_w2_flows)],
    ids=["dag", "function", "flow"],
)
def test_many_runs_at_once_stay_near_their_target(
    durable: Databases, measure: Measure, measured_by: Callable[[str], Coroutine[Any, Any, Cost]]
) -> None:
    """W2: 2,000 runs of 3 steps share their commits, so that computing is what limits them: that is what is compared,
    and what others compute on the same cores meanwhile is left out."""

    def measured() -> Try:
        slowness = slower_than(m.REFERENCE_COMPUTING_MS, min(computing_ms() for _ in range(5)))
        gc.collect()
        gc.freeze()  # what the tests hold is gone through by every collection, and is none of a program's business
        cost = asyncio.run(measured_by(durable.fresh_url()))
        gc.unfreeze()
        return Try(cost.cpu_ms, FACTOR * 1000 / measure.targets[durable.store] * slowness)

    assert_one_is_good("milliseconds of processor time a step of 2,000 runs of 3 steps", measured)


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
