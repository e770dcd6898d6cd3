"""The stores that the worker's promises are checked on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.support import Processes


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    if request.param == "memory":
        return "memory://"
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database that several processes can share, of each kind in turn."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as started:
        yield started


@pytest.fixture
def journal_path(tmp_path: Path) -> str:
    """Where the actions of this test write down what they do."""
    return str(tmp_path / "journal")
