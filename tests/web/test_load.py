"""What a server beside a worker costs it, and how late its clients hear of a change while work goes on."""

from __future__ import annotations

import pytest

from benchmarks.web import LATEST_SECONDS, LEAST_SHARE, measure
from tests.support.second_try import TooSlow

CLIENTS = 20
TRIES = 3


@pytest.mark.timing
async def test_twenty_idle_streams_cost_a_worker_less_than_a_tenth(sqlite_url: str) -> None:
    """Server, clients and worker have a process each; changes are told within a second under load."""
    tried = []
    for _ in range(TRIES):  # a neighbour makes a figure worse and never better
        found = await measure(sqlite_url, CLIENTS, seconds=1.0, rounds=3)
        if found["told_within_seconds"] <= LATEST_SECONDS and found["share"] >= LEAST_SHARE:
            return
        tried.append(found)
    raise TooSlow(f"allowed are {LATEST_SECONDS:g} s and a share of {LEAST_SHARE:g}: {tried}")
