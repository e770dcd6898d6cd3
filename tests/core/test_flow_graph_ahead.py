"""Which sleeps of a flow lead to work alone, so that they can be over ahead of their time (decision 0033)."""

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
    await hf.sleep(seconds=number)  # sleep_2: whatever the condition says, an action follows
    if number > 1:
        number = await act(number)
    else:
        number = await act(-number)
    for each in numbers:
        number += await act(each)
        await hf.sleep(seconds=1)  # sleep_3: the last pass ends the flow, if it is not to go on
    if again:
        number = await act(number)
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
    ids=["on every way", "a join", "the end"],
)
def test_g6_a_sleep_leads_to_work_alone_if_no_way_from_it_leads_anywhere_else(
    flow: Any, expected: dict[str, bool]
) -> None:
    found = {node.id: flow.graph.leads_to_work(node.id) for node in flow.graph.nodes if node.category == "timer"}
    assert found == expected
