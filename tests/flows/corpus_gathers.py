"""asyncio.gather: of calls, of spreads, in loops, with failures."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.flows.actions import (
    Receipt,
    add,
    charge,
    double,
    echo,
    fail,
    fail_if,
    make_order,
    numbers,
    plain_def,
    total_of,
)
from tests.flows.corpus import case


@case((3,))
async def gather_to_names(n: int) -> list[int]:
    a, b = await asyncio.gather(double(n), add(n))
    return [a, b]


@case((3,))
async def gather_to_list(n: int) -> list[Any]:
    found = await asyncio.gather(double(n), plain_def("x"), add(n, 5))
    return found


@case((3,))
async def gather_returned(n: int) -> list[int]:
    return await asyncio.gather(double(n), add(n))


@case((3,))
async def gather_ignored(n: int) -> int:
    await asyncio.gather(double(n), add(n))
    return await add(n)


@case((3,))
async def gather_of_one(n: int) -> int:
    (a,) = await asyncio.gather(double(n))
    return a


@case()
async def gather_of_nothing() -> list[Any]:
    return await asyncio.gather()


@case((3,))
async def gather_of_the_same_action(n: int) -> list[int]:
    return await asyncio.gather(add(n, 1), add(n, 2), add(n, 3), add(n, 4))


@case((0,), (1,), (5,))
async def spread(n: int) -> list[int]:
    return await asyncio.gather(*[double(i) for i in range(n)])


@case((5,))
async def spread_of_generator(n: int) -> list[int]:
    found = await asyncio.gather(*(add(i, n) for i in range(n)))
    return found


@case((6,), (1,))
async def spread_with_filter(n: int) -> list[int]:
    items = await numbers(n)
    return await asyncio.gather(*[double(i) for i in items if i % 2 if i > 1])


@case(({"a": 1, "b": 2},))
async def spread_with_tuple_names(data: dict[str, int]) -> list[Receipt]:
    return await asyncio.gather(*[charge(key, cents=value) for key, value in data.items()])


@case((3,))
async def spread_with_two_loops(n: int) -> list[int]:
    return await asyncio.gather(*[add(x, y) for x in range(n) for y in range(x)])


@case((3,))
async def spread_over_awaited(n: int) -> list[int]:
    return await asyncio.gather(*[double(x) for x in await numbers(n)])


@case((3,))
async def spread_uses_outer_variables(n: int) -> list[int]:
    offset = await double(n)
    found = await asyncio.gather(*[add(x, offset) for x in range(n)])
    return [offset, *found]


@case((3,))
async def calls_and_spreads_together(n: int) -> list[int]:
    return await asyncio.gather(add(n, 100), *[double(x) for x in range(n)], add(n, 200), *[add(x) for x in range(n)])


@case((3,))
async def starred_list_of_calls(n: int) -> list[int]:
    return await asyncio.gather(*[add(n), double(n)])


@case((3,))
async def gather_then_sum(n: int) -> int:
    receipts = await asyncio.gather(*[charge(f"i{i}", i) for i in range(n)])
    return sum(r.cents for r in receipts) + total_of(receipts)


@case((1,))
async def failure_in_gather(n: int) -> list[Any]:
    return await asyncio.gather(double(n), fail("second"))


@case((1,))
async def failure_in_gather_is_caught(n: int) -> str:
    try:
        await asyncio.gather(double(n), fail("second"), add(n))
    except ValueError as e:
        return f"caught {e}"
    return "never"


@case((5,))
async def lowest_failure_of_a_spread(n: int) -> str:
    try:
        await asyncio.gather(*[fail_if(i, 1) for i in range(n)])
    except KeyError as e:
        return f"{e}"
    return "never"


@case((4,))
async def failures_as_values(n: int) -> list[Any]:
    found = await asyncio.gather(*[fail_if(i, 1) for i in range(n)], return_exceptions=True)
    good = [x for x in found if not isinstance(x, Exception)]
    bad = [str(x) for x in found if isinstance(x, KeyError)]
    return [good, bad, len(found)]


@case((1,))
async def failures_as_values_with_names(n: int) -> list[Any]:
    a, b = await asyncio.gather(double(n), fail("b"), return_exceptions=True)
    await double(1)
    return [a, isinstance(b, ValueError), str(b), isinstance(a, ValueError)]


@case((1,))
async def failure_value_is_raised_later(n: int) -> None:
    found = await asyncio.gather(double(n), fail("later"), return_exceptions=True)
    for each in found:
        if isinstance(each, Exception):
            raise each


@case((4,))
async def return_exceptions_without_failure(n: int) -> list[Any]:
    return await asyncio.gather(*[double(i) for i in range(n)], return_exceptions=True)


@case((3,))
async def gather_in_loop(n: int) -> list[Any]:
    out = []
    for i in range(n):
        a, b = await asyncio.gather(double(i), add(i))
        out.append([a, b])
    return out


@case((3,))
async def spread_in_loop(n: int) -> list[Any]:
    out = []
    for i in range(n):
        out.append(await asyncio.gather(*[add(i, j) for j in range(i)]))
    return out


@case((3,))
async def spread_in_nested_loops(n: int) -> list[Any]:
    out = []
    for i in range(n):
        for j in range(2):
            found = await asyncio.gather(*[add(x, j) for x in range(i + 1)])
            out.append(sum(found))
    return out


@case((4,))
async def failing_spread_in_loop(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(n):
        try:
            out.append(await asyncio.gather(*[fail_if(j, 1) for j in range(i)]))
        except KeyError as e:
            out.append(f"pass {i}: {e}")
    return out


@case((2,), (0,))
async def gather_after_branch(n: int) -> list[int]:
    if n:
        a, b = await asyncio.gather(double(n), add(n))
    else:
        a, b = 0, 0
    return [a, b, await add(a, b)]


@case((3,))
async def spread_after_spread(n: int) -> list[int]:
    first = await asyncio.gather(*[double(i) for i in range(n)])
    second = await asyncio.gather(*[add(x) for x in first])
    return [*first, *second]


@case((3,))
async def spread_of_records(n: int) -> list[Any]:
    order = await make_order(n)
    receipts = await asyncio.gather(*[charge(item.id, item.cents) for item in order.items])
    return [[r.item, r.cents, str(r.tax)] for r in receipts]


@case(([],))
async def error_in_arguments_of_gather(items: list[int]) -> str:
    try:
        await asyncio.gather(double(1), double(items[0]))
    except IndexError:
        return "no branch was started"
    return "never"


@case((3,))
async def error_in_arguments_of_spread(n: int) -> str:
    items = await echo([[1], [], [2]])
    try:
        await asyncio.gather(*[double(x[0]) for x in items])
    except IndexError as e:
        return str(e)
    return "never"


@case((2,))
async def gather_in_try_finally(n: int) -> list[Any]:
    out: list[Any] = []
    try:
        try:
            out.extend(await asyncio.gather(double(n), fail("x")))
        finally:
            out.append(await echo("cleanup"))
    except ValueError:
        out.append("caught")
    return out


@case((150,))
async def wide_spread(n: int) -> int:
    found = await asyncio.gather(*[add(i) for i in range(n)])
    return sum(found)


@case((3,))
async def sleeps(n: int) -> list[Any]:
    await asyncio.sleep(0)
    found = await asyncio.gather(double(n), asyncio.sleep(0), add(n))
    for i in range(2):
        await asyncio.sleep(i * 0)
    return found


@case((2,))
async def unpacking_a_gather_of_wrong_size(n: int) -> int:
    items = await numbers(n + 1)
    a, b = await asyncio.gather(*[double(i) for i in items])
    return a + b


@case((3,))
async def gather_inside_of_expression(n: int) -> list[Any]:
    return [sum(await asyncio.gather(*[double(i) for i in range(n)])), len(await asyncio.gather(add(1)))]
