"""The stores that the scenarios are played on. PostgreSQL is one database for all of them, emptied for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dags.side_effects import execute_sql
from tests.support.postgres import Databases
from tests.support.stores import site_for
from tests.worker.support import Processes


@pytest.fixture
def emptied_postgres_url(databases: Databases, tmp_path: Path) -> Iterator[str]:
    """The address of a PostgreSQL database with our tables and nothing in them."""
    with site_for("postgresql", databases, tmp_path) as site:
        # Which code was deployed when is no row of a run, and must not be remembered from one test to the next.
        asyncio.run(execute_sql(site.url, "DELETE FROM code"))
        yield site.url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    return "memory://" if request.param == "memory" else _address(request)


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database that several processes can share, of each kind in turn."""
    return _address(request)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as started:
        yield started


def _address(request: pytest.FixtureRequest) -> str:
    name = "emptied_postgres_url" if request.param == "postgres" else "sqlite_url"
    address: str = request.getfixturevalue(name)
    return address
