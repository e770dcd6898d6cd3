"""Stores to be refused by: every one that a test asks for gets an address of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    if request.param == "memory":
        return "memory://"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind that can be damaged from outside."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found
