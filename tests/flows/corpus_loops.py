# ruff: noqa: B007, B905, F841, RUF005
"""for and while, with break, continue, else, return; loops in loops."""

from __future__ import annotations

from typing import Any

from tests.flows.actions import Item, add, double, echo, fail_if, is_even, make_order, numbers, pair
from tests.flows.corpus import case


@case((0,), (1,), (4,))
async def for_over_range(n: int) -> int:
    total = 0
    for i in range(n):
        total += await double(i)
    return total


@case(([],), ([3, 1, 2],))
async def for_over_list(items: list[int]) -> list[int]:
    out = []
    for item in items:
        out.append(await add(item))
    return out


@case((3,))
async def for_over_result(n: int) -> list[int]:
    out = []
    for x in await numbers(n):
        out.append(x)
    return out


@case((3,))
async def for_with_enumerate_and_zip(n: int) -> list[Any]:
    out = []
    for i, x in enumerate(await numbers(n), 1):
        out.append([i, await add(x)])
    for a, b in zip("abc", range(n)):
        out.append([a, await double(b)])
    return out


@case(({"a": 1, "b": 2},), ({},))
async def for_over_dict(data: dict[str, int]) -> list[Any]:
    out = []
    for key, value in data.items():
        out.append([key, await add(value)])
    for key in data:
        out.append(key)
    for value in data.values():
        out.append(await double(value))
    return out


@case(([[1, [2, 3]], [4, [5, 6]]],))
async def for_unpacks_deeply(rows: list[Any]) -> int:
    total = 0
    for a, (b, c) in rows:
        total += a * b * await add(c)
    return total


@case(([1, 2],))
async def for_unpacking_fails(items: list[int]) -> int:
    total = 0
    for a, b in items:
        total += a
    return total


@case((5,))
async def for_over_a_number(n: int) -> int:
    m = await echo(n)
    for _ in m:
        await double(1)
    return m


@case((0,), (3,), (10,))
async def while_loop(n: int) -> int:
    total = 0
    while total < n:
        total = await add(total, 2)
    return total


@case((3,))
async def while_true_break(n: int) -> int:
    i = 0
    while True:
        i = await add(i)
        if i >= n:
            break
    return i


@case((3,))
async def while_with_await(n: int) -> int:
    while not await is_even(n):
        n = await add(n)
    return n


@case((6,))
async def continue_skips(n: int) -> list[int]:
    out = []
    for i in range(n):
        if i % 2:
            continue
        out.append(await double(i))
        if i == 2:
            continue
        out.append(-1)
    return out


@case((2,), (9,))
async def for_else(n: int) -> str:
    for i in range(5):
        if await add(i) == n:
            found = f"found at {i}"
            break
    else:
        found = await echo("none")
    return found


@case((2,), (9,))
async def while_else(n: int) -> str:
    i = 0
    while i < 5:
        if i == n:
            break
        i += 1
    else:
        return "exhausted"
    return f"broke at {i}"


@case((2,), (9,), (0,))
async def return_inside_loop(n: int) -> str:
    for i in range(4):
        m = await add(i)
        if m > n:
            return f"{m} at {i}"
    return "none"


@case((3,))
async def loops_in_loops(n: int) -> list[Any]:
    out = []
    for i in range(n):
        for j in range(i):
            out.append([i, j, await add(i, j)])
        out.append(await double(i))
    return out


@case((4,))
async def inner_break_outer_continue(n: int) -> list[Any]:
    out = []
    for i in range(n):
        if i == 1:
            continue
        for j in range(n):
            if j > i:
                break
            out.append(await add(i * 10, j))
        else:
            out.append(-1)
    return out


@case((3,))
async def while_in_for(n: int) -> list[int]:
    out = []
    for i in range(n):
        k = i
        while k < 3:
            k = await add(k)
        out.append(k)
    return out


@case((3,))
async def three_loops(n: int) -> int:
    total = 0
    for i in range(n):
        for j in range(n):
            k = 0
            while k < j:
                total += await add(i + j, k)
                k += 1
    return total


@case((100,))
async def loop_without_action(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    await double(1)
    while total > 1000:
        total //= 2
    return total


@case((5,))
async def value_carried_from_pass_to_pass(n: int) -> list[int]:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, await add(a, b)
    return [a, b]


@case((6,))
async def value_carried_only_sometimes(n: int) -> list[Any]:
    last = None
    seen = []
    for i in range(n):
        await double(i)
        if i % 3 == 0:
            last = i
        await double(i)
        seen.append(last)
    return [last, seen]


@case((4,))
async def variable_of_an_earlier_pass(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(n):
        if i > 0:
            out.append(previous)  # noqa: F821
        previous = await double(i)
    return out


@case((4,))
async def variable_of_an_earlier_pass_read_after_an_action(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(n):
        await double(i)
        if i > 0:
            out.append(earlier)  # noqa: F821
        earlier = i * 2
    return out


@case((0,), (2,))
async def loop_variable_afterwards(n: int) -> int:
    for i in range(n):
        await double(i)
    return i


@case((3,))
async def list_rebound_while_walked(n: int) -> list[int]:
    items = await numbers(n)
    for x in items:
        items = items + [x]
        await double(x)
    return items


@case((3,))
async def loop_over_items_of_record(n: int) -> int:
    order = await make_order(n)
    total = 0
    for item in order.items:
        total += await add(item.cents, 1)
    return total


@case((3,))
async def two_loops_one_variable(n: int) -> list[int]:
    out = []
    for i in range(n):
        out.append(await add(i))
    for i in range(n):
        out.append(await double(i))
    return out


@case((200,))
async def long_sequence(n: int) -> int:
    found = await numbers(n)
    total = 0
    for x in found:
        if x % 20 == 0:
            total += await add(x)
    return total


@case((3,))
async def records_in_loops(n: int) -> list[Any]:
    items = [Item(f"i{k}", k) for k in range(n)]
    out = []
    for item in items:
        a, b = await pair(item.cents)
        out.append([item.id, a, b])
    return out


@case((3,))
async def loop_ends_with_failure(n: int) -> int:
    total = 0
    for i in range(10):
        total += await fail_if(i, n)
    return total


@case((2,))
async def inner_list_is_fresh_in_each_pass(n: int) -> list[Any]:
    rows = []
    for i in range(n):
        row = []
        for j in range(n):
            row.append(await add(i, j))
        rows.append(row)
    return rows


@case((3,), (0,))
async def else_after_await(n: int) -> list[Any]:
    out = []
    while n > 0:
        n = await add(n, -1)
        out.append(n)
    else:
        out.append("done")
    return out


@case((7,))
async def collatz(n: int) -> list[int]:
    path = [n]
    while n != 1:
        if await is_even(n):
            n = n // 2
        else:
            n = 3 * n + 1
        path.append(n)
    return path


@case((4,))
async def break_out_of_the_inner_loop(n: int) -> list[Any]:
    out = []
    for i in range(n):
        j = 0
        while True:
            j = await add(j)
            if j > i:
                break
        out.append(j)
        if i == 2:
            break
    return out


@case((3,))
async def empty_inner_loops(n: int) -> int:
    count = 0
    for _ in range(n):
        for _ in []:
            await double(1)
        count += 1
    return await add(count)


@case(([1, 2], [3, 4]), ([1, 2], [3, 4, 5]))
async def strict_zip_before_the_loop(ids: list[int], sizes: list[int]) -> list[Any]:
    found: list[Any] = []
    try:
        for a, b in list(zip(ids, sizes, strict=True)):
            found.append(await add(a, b))
    except ValueError as e:
        found.append(str(e))
    return found
