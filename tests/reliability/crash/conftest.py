"""One set of grounds for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reliability.crash.grounds import Grounds
from tests.support.postgres import EXTERNAL_URL_VARIABLE, external_url


@pytest.fixture(scope="session")
def grounds(request: pytest.FixtureRequest) -> Iterator[Grounds]:
    """A folder, a nursery and databases; servers are stopped and started here, so an external one is not used."""
    if external_url() is not None:
        pytest.skip(
            f"{EXTERNAL_URL_VARIABLE} is set, and these tests stop and start their server; unset it to run them"
        )
    with Grounds(request.getfixturevalue("postgres")) as made:
        yield made
