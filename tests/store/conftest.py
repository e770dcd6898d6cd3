"""Each store in turn, empty but for its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core import failpoints
from tests.support.stores import KINDS, SHARED_KINDS, Site, site_for


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores."""
    yield from _site(request, tmp_path)


@pytest.fixture(params=SHARED_KINDS)
def shared_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each store that several processes may use."""
    yield from _site(request, tmp_path)


def _site(request: pytest.FixtureRequest, folder: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()
