"""The stores on which functions are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core import failpoints
from tests.functions.lives import Lives
from tests.support.postgres import Databases
from tests.support.stores import KINDS, Site, site_for


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@pytest.fixture
def postgres_site(databases: Databases, tmp_path: Path) -> Iterator[Site]:
    with site_for("postgresql", databases, tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database that several processes can share, of each kind in turn."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture(scope="session")
def mother(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """The process that forks those that drive functions: Python starts once."""
    made = Lives(tmp_path_factory.mktemp("lives"))
    yield made
    made.close()


@pytest.fixture
def lives(mother: Lives) -> Iterator[Lives]:
    """Processes that drive functions and do not outlive the test."""
    yield mother
    asyncio.run(mother.end_all())


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()
