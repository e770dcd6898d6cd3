"""The stores on which functions are checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core import failpoints
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


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()
