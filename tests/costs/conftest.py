"""Durable databases: what is timed here must sync its commits, which the other tests' server does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.databases import Databases
from benchmarks.measures import POSTGRES, SQLITE


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[Databases]:
    with Databases(POSTGRES) as databases:
        yield databases


@pytest.fixture(scope="session")
def durable_sqlite() -> Iterator[Databases]:
    with Databases(SQLITE) as databases:
        yield databases
