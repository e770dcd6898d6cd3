"""What a step is made of must not creep up: statements, commits and bytes of the log, counted by the databases.

The bounds of lone runs are a tenth to a fifth above what was counted when they were set; how many share a commit
depends on the machine, so that there is more room where many do. `python -m benchmarks.prices` counts anew: a change
that makes something cheaper should lower its bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.prices import WORKLOADS, Price, price_of
from holdfast.runtime.postgres_server import PostgresServer

# For each step: statements, commits, bytes of the log.
ON_SQLITE = {
    "W1 dag": (7.2, 1.05, 27_000),
    "W1 function": (5.6, 1.05, 13_000),
    "W1 flow": (7.2, 1.05, 15_500),
    "W1 graph": (8.4, 1.05, 29_000),
    "W2 dag": (3.2, 0.15, 3_500),
    "W2 function": (3.0, 0.15, 2_200),
    "W2 flow": (3.3, 0.15, 2_900),
    "W3 dag": (3.0, 0.15, 3_600),
    "W3 flow": (3.2, 0.15, 2_800),
    "W5 function": (9.0, 0.2, 4_300),
}
ON_POSTGRESQL = {
    "W1 dag": (1.05, 1.05, 2_200),
    "W1 function": (1.05, 1.05, 800),
    "W1 flow": (1.05, 1.05, 1_200),
    "W1 graph": (1.05, 1.05, 2_300),
    "W2 dag": (0.15, 0.15, 3_100),
    "W2 function": (0.15, 0.15, 2_100),
    "W2 flow": (0.15, 0.15, 2_800),
    "W3 dag": (0.15, 0.15, 3_100),
    "W3 flow": (0.15, 0.15, 2_500),
    "W5 function": (0.3, 0.25, 4_400),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Of our own: the server counts the log and the transactions of all who use it."""
    # Pages that are logged whole after a checkpoint are no cost of a step.
    with PostgresServer(fsync=False, settings={"autovacuum": "off"}) as server:
        yield server


def test_every_workload_has_its_bounds() -> None:
    assert set(ON_SQLITE) == set(ON_POSTGRESQL) == set(WORKLOADS)


@pytest.mark.parametrize("name", ON_SQLITE)
def test_k1_a_step_on_sqlite_stays_within_its_price(name: str, tmp_path: Path) -> None:
    """K1: one commit for a lone step, a shared one in a crowd; the log holds the pages of its rows and few others."""
    price = asyncio.run(price_of(f"sqlite:///{tmp_path / 'prices.db'}", WORKLOADS[name]))
    _assert_within(price, ON_SQLITE[name])


@pytest.mark.parametrize("name", ON_POSTGRESQL)
def test_k1_a_step_on_postgresql_stays_within_its_price(name: str, server: PostgresServer) -> None:
    """K1: one round trip and one commit for a lone step, shared ones in a crowd."""
    price = asyncio.run(price_of(server.create_database(name.replace(" ", "_").lower()), WORKLOADS[name]))
    _assert_within(price, ON_POSTGRESQL[name])


def _assert_within(price: Price, bound: tuple[float, float, float]) -> None:
    statements, commits, wal_bytes = bound
    assert price.statements <= statements
    assert price.commits <= commits
    assert price.wal_bytes <= wal_bytes
    assert price.wal_bytes > 0, "nothing was counted, so this test shows nothing"
