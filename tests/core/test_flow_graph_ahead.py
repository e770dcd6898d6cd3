"""Which sleeps of a flow can lead to work, so that they may be over ahead of their time (decision 0033)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast as hf

_REGISTRY = hf.Registry()


@hf.action(registry=_REGISTRY)
async def act(number: int) -> int:
    return number


@hf.flow(registry=_REGISTRY)
async def sleeps(numbers: list[int], again: bool) -> int:
    await hf.sleep(seconds=1)  # sleep
    number = await act(1)
    for each in numbers:
        number += await act(each)
        await hf.sleep(seconds=1)  # sleep_2: the last pass may end the flow, the others do not
    if again:
        number = await act(number)
        await hf.sleep(seconds=number)  # sleep_3: whatever is computed, nothing else is done
    if number > 1:
        number = -number
    return number + 1


@hf.flow(registry=_REGISTRY)
async def joins() -> int:
    _, number = await asyncio.gather(hf.sleep(seconds=1), act(1))
    return await act(number)


@hf.flow(registry=_REGISTRY)
async def ends() -> int:
    await hf.sleep(seconds=1)
    return 1


@pytest.mark.parametrize(
    ("flow", "expected"),
    [(sleeps, {"sleep": True, "sleep_2": True, "sleep_3": False}), (joins, {"sleep": False}), (ends, {"sleep": False})],
    ids=["perhaps", "a join", "the end"],
)
def test_g6_a_sleep_leads_to_work_if_some_way_from_it_does(flow: Any, expected: dict[str, bool]) -> None:
    found = {node.id: flow.graph.leads_to_work(node.id) for node in flow.graph.nodes if node.category == "timer"}
    assert found == expected
