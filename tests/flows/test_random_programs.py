"""I24: random programs of the supported grammar mean as flows what they mean to Python. FLOW_PROGRAMS asks for more."""

from __future__ import annotations

import copy
import linecache
import os
import random
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.authoring.flows import flow
from holdfast.authoring.registry import Registry
from holdfast.core.errors import FlowNotSupported
from tests.flows.parity import comparable
from tests.flows.programs import Writer, function_of
from tests.flows.simulator import Failed, Simulation

PROGRAMS = int(os.environ.get("FLOW_PROGRAMS", "200"))
FIRST = int(os.environ.get("FLOW_FIRST", "0"))
ARGUMENTS = ((1, 4, [3, 0, 2]), (0, 7, []))
NOT_COMPARED = "refused"


async def check(text: str, seed: int) -> str:
    """Compare one program; says whether it was compared or refused."""
    function = function_of(text)
    try:
        try:
            made = flow(registry=Registry())(function)
        except FlowNotSupported:
            return NOT_COMPARED
        for args in ARGUMENTS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # calls whose neighbour raised are never awaited in plain asyncio
                wanted = await _plain(function, args)
            found = await _as_flow(made, args, seed)
            if found[1:2] == ("FlowNotSupported",):
                return NOT_COMPARED
            assert found == wanted, f"{args} in\n{text}"
    finally:
        linecache.cache.pop(function.__code__.co_filename, None)
    return "compared"


async def _plain(function: Any, args: Any) -> tuple[Any, ...]:
    try:
        return ("returned", comparable(await function(*copy.deepcopy(args))))
    except Exception as error:
        return ("raised", type(error).__name__, str(error))


async def _as_flow(made: Any, args: Any, seed: int) -> tuple[Any, ...]:
    try:
        return ("returned", comparable(await Simulation(made, seed).run(*copy.deepcopy(args))))
    except Failed as failed:
        return ("raised", failed.record.type, failed.record.message)


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_i24_random_programs_end_as_plain_asyncio_does() -> None:
    compared = 0
    for seed in range(FIRST, FIRST + PROGRAMS):
        dice = random.Random(seed)
        text = Writer(dice.randrange).text()
        try:
            compared += await check(text, seed) != NOT_COMPARED
        except Exception as trouble:
            raise AssertionError(f"program {seed}:\n{text}") from trouble
    assert compared > PROGRAMS / 2, f"only {compared} of {PROGRAMS} programs were compiled"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_i24_programs_that_can_be_made_smaller_end_as_plain_asyncio_does(data: st.DataObject) -> None:
    import asyncio

    def choose(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    text = Writer(choose, size=6).text()
    asyncio.run(check(text, 0))
