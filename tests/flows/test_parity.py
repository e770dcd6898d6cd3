"""I24: a function that compiles means as a flow what it means to Python."""

from __future__ import annotations

import pytest

from tests.flows.corpus import Case, all_cases
from tests.flows.parity import ending_of_flow, ending_of_plain

CASES = all_cases()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # plain calls that are never awaited
@pytest.mark.parametrize("case", CASES, ids=[case.name[:80] for case in CASES])
async def test_i24_a_flow_of_the_corpus_ends_as_plain_asyncio_does(case: Case) -> None:
    wanted = await ending_of_plain(case.function, case.args)
    for seed in (1, 2):
        assert await ending_of_flow(case.function, case.args, seed) == wanted


def test_the_corpus_has_the_size_that_was_promised() -> None:
    assert len({case.function.__name__ for case in CASES}) >= 150
