"""Policies for one call: what is returned does not depend on them."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from tests.flows.actions import add, child, double, fail_if
from tests.flows.corpus import case

patient = add.options(timeout=60)
TWICE = hf.Retry(attempts=2, base=0.0)


@case((3,))
async def options_of_one_call(n: int) -> int:
    first = await add.options(timeout=5, retry=hf.Retry(attempts=2, base=0.01))(n, 2)
    return first + await add(n)


@case((3,))
async def options_of_a_name(n: int) -> list[int]:
    return [await patient(n), await patient.options(retry=TWICE)(n, y=4)]


@case((3,))
async def options_in_a_gather(n: int) -> list[int]:
    return await asyncio.gather(double.options(retry=TWICE)(n), *[patient(i) for i in range(n)], add(n))


@case((4,))
async def failure_under_options_is_caught(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(n):
        try:
            out.append(await fail_if.options(retry=TWICE, timeout=None)(i, 1))
        except KeyError as error:
            out.append(str(error))
    return out


@case((2,))
async def options_of_a_child(n: int) -> int:
    return await child.options(queue=None)(n)
