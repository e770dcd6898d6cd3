"""Calls of other flows, which are inlined, and of workflows, which are children."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from holdfast.authoring.flows import flow
from tests.flows.actions import add, child, double, echo, fail_if, numbers, registry
from tests.flows.corpus import case

logger = logging.getLogger("tests.flows")


@flow(registry=registry)
async def add_twice(x: int, step: int = 1) -> int:
    x = await add(x, step)
    return await add(x, step)


@flow(registry=registry)
async def first_above(limit: int, items: list[int]) -> int | None:
    for item in items:
        if await add(item, 0) > limit:
            return item
    return None


@flow(registry=registry)
async def maybe_unbound(flag: bool) -> int:
    if flag:
        inner = await add(1)
    return inner


@flow(registry=registry)
async def guarded(x: int) -> str:
    try:
        await fail_if(x)
    except KeyError as e:
        return f"no {e}"
    finally:
        await double(x)
    return "fine"


@flow(registry=registry)
async def fails(x: int) -> int:
    return await fail_if(x)


@flow(registry=registry)
async def outermost(x: int) -> int:
    y = await add_twice(x)
    return y * await add_twice(x, step=10)


@case((1,))
async def call_a_flow(n: int) -> int:
    x = 100
    y = await add_twice(n)
    return x + y


@case((1,))
async def call_a_flow_with_keywords(n: int) -> int:
    return await add_twice(step=n + 1, x=5)


@case((1,))
async def call_a_flow_twice(n: int) -> list[int]:
    a = await add_twice(n)
    b = await add_twice(a, 3)
    return [a, b, n]


@case((1,))
async def flows_in_flows(n: int) -> int:
    return await outermost(n) + 1


@case((3,))
async def flow_in_a_loop(n: int) -> list[int]:
    out = []
    for i in range(n):
        out.append(await add_twice(i, i))
    return out


@case((1,), (9,))
async def early_return_of_a_flow(limit: int) -> list[Any]:
    found = await first_above(limit, [0, 1, 2, 3])
    return [found, await double(limit)]


@case((3,))
async def flow_with_a_loop_in_a_loop(n: int) -> list[Any]:
    return [await first_above(i, await numbers(n)) for i in range(n)]


@case(([True, False],), ([True],))
async def second_call_starts_afresh(flags: list[bool]) -> list[int]:
    out = []
    for flag in flags:
        out.append(await maybe_unbound(flag))
    return out


@case((0,), (5,))
async def try_inside_of_a_flow(n: int) -> list[str]:
    return [await guarded(n), await guarded(0)]


@case((0,), (5,))
async def failure_leaves_a_flow(n: int) -> str:
    try:
        return f"got {await fails(n)}"
    except KeyError as e:
        return f"caught {e}"


@case((5,))
async def failure_leaves_all_flows(n: int) -> int:
    return await fails(n)


@case((1,), (2,))
async def same_names_inside_and_outside(x: int) -> list[int]:
    step = 50
    y = await add_twice(x)
    return [x, step, y]


@case((1,))
async def calls_a_child(n: int) -> list[int]:
    a = await child(n)
    b, c = await asyncio.gather(child(a), add(n))
    return [a, b, c, *await asyncio.gather(*[child(i) for i in range(2)])]


@case((2,))
async def logs(n: int) -> int:
    logger.info("starting %s", n)
    m = await add(n)
    logger.warning("got %s", m)
    logging.debug("root")
    return m


@case((3,))
async def flow_as_argument(n: int) -> int:
    return await add(await add_twice(n), await add_twice(n))


@case((0,), (1,))
async def flow_in_a_branch(n: int) -> Any:
    result = await add_twice(n) if n else await echo("none")
    return result
