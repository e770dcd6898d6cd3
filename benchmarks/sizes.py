"""How much is done in a round."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of our own workloads; peers have theirs in benchmarks/peers/adapters.py, divided by `peers_part`."""

    commits: int
    batches: int
    w1_steps: int
    w2_runs: int
    w3_few: int
    w3_many: int
    w4_samples: int
    waiting_runs: int
    steady_runs: int
    w7_short: int
    w7_long: int
    crowd: int
    weighed: int
    inputs: int
    stream: int
    graph_steps: int
    peers_part: int = 1


FULL = Sizes(
    commits=1000,
    batches=100,
    w1_steps=100,
    w2_runs=2000,
    w3_few=1000,
    w3_many=10_000,
    w4_samples=300,
    waiting_runs=1000,
    steady_runs=300,
    w7_short=1000,
    w7_long=10_000,
    crowd=100_000,
    weighed=8000,
    inputs=8000,
    stream=100_000,
    graph_steps=1000,
)
# Every part runs, and no figure means anything.
QUICK = Sizes(
    commits=20,
    batches=4,
    w1_steps=10,
    w2_runs=20,
    w3_few=20,
    w3_many=40,
    w4_samples=5,
    waiting_runs=20,
    steady_runs=5,
    w7_short=20,
    w7_long=100,
    crowd=200,
    weighed=200,
    inputs=64,
    stream=1000,
    graph_steps=20,
    peers_part=20,
)
