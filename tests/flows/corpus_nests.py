"""Gathers inside of gathers, calls that are chosen, and flows that run beside others."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.flows.actions import add, child, double, doubled_twice, echo, fail, fail_if, numbers, same
from tests.flows.corpus import case


@case(([[1, 2], [], [3]],), ([],))
async def nested_spreads(rows: list[list[int]]) -> list[list[int]]:
    return await asyncio.gather(*[asyncio.gather(*[double(x) for x in row]) for row in rows])


@case(([[[1], [2, 3]], [[]], []],))
async def three_levels_of_spreads(cube: list[list[list[int]]]) -> list[Any]:
    return await asyncio.gather(
        *[asyncio.gather(*[asyncio.gather(*[add(x, len(row)) for x in row]) for row in rows]) for rows in cube]
    )


@case((3,))
async def gathers_beside_calls(n: int) -> list[Any]:
    both, one, many = await asyncio.gather(
        asyncio.gather(double(n), add(n)), add(n, 10), asyncio.gather(*[double(i) for i in range(n)], add(n))
    )
    return [both, one, many, await double(one)]


@case((4,))
async def two_calls_for_each_element(n: int) -> list[list[int]]:
    offset = await double(n)
    return await asyncio.gather(*(asyncio.gather(double(i), add(i, offset)) for i in range(n) if i != 1))


@case((4,))
async def chosen_calls(n: int) -> list[int]:
    return await asyncio.gather(*[double(i) if i % 2 else add(i, 100) for i in range(n)], add(n) if n else double(n))


@case((3,))
async def nested_spreads_in_a_loop(n: int) -> list[Any]:
    out = []
    for i in range(n):
        found = await asyncio.gather(*[asyncio.gather(*[add(i, j) for j in range(k)]) for k in range(i + 1)])
        out.append([sum(part) for part in found])
    return out


@case((5,))
async def failure_in_a_nested_spread(n: int) -> str:
    try:
        await asyncio.gather(*[asyncio.gather(*[fail_if(j, 2) for j in range(i)]) for i in range(n)])
    except KeyError as error:
        return str(error)
    return "never"


@case((5,))
async def inner_failures_as_values(n: int) -> list[Any]:
    found = await asyncio.gather(
        *[asyncio.gather(*[fail_if(j, 2) for j in range(i)], return_exceptions=True) for i in range(n)]
    )
    return [[str(x) if isinstance(x, Exception) else x for x in row] for row in found]


@case((3,))
async def outer_failures_as_values(n: int) -> list[Any]:
    found = await asyncio.gather(
        asyncio.gather(double(n), fail("first"), fail("second")), add(n), asyncio.gather(add(1)), return_exceptions=True
    )
    return [str(x) if isinstance(x, Exception) else x for x in found]


@case(([[1], []],))
async def error_in_arguments_of_a_nested_spread(rows: list[list[int]]) -> str:
    await double(1)
    try:
        await asyncio.gather(*[asyncio.gather(double(row[0]), echo({"a": 1}["a"])) for row in rows])
    except IndexError as error:
        return str(error)
    return "never"


@case((3,), (0,))
async def flows_beside_each_other(n: int) -> list[int]:
    return await asyncio.gather(*[doubled_twice(i) for i in range(n)], add(n), doubled_twice(same(n) + 1))


@case((1,), (-1,))
async def flow_that_fails_beside_others(n: int) -> str:
    try:
        found = await asyncio.gather(doubled_twice(n), add(n))
    except ValueError as error:
        return f"refused: {error}"
    return str(found)


@case((2,))
async def children_and_sleeps_in_nested_gathers(n: int) -> list[Any]:
    found = await asyncio.gather(*[asyncio.gather(child(i), asyncio.sleep(0), numbers(i)) for i in range(n)])
    await double(1)
    return found
