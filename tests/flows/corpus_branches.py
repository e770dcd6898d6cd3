"""if, elif, else, early returns: exclusive ways that meet again."""

from __future__ import annotations

from typing import Any

from tests.flows.actions import add, double, echo, is_even, numbers
from tests.flows.corpus import case


@case((1,), (5,))
async def if_else(n: int) -> int:
    if n > 3:
        x = await double(n)
    else:
        x = await add(n)
    return x + 1


@case((1,), (5,))
async def if_without_else(n: int) -> int:
    x = n
    if n > 3:
        x = await double(n)
    return x + await add(1)


@case((1,), (2,), (3,), (4,))
async def elif_chain(n: int) -> str:
    if n == 1:
        word = "one"
    elif n == 2:
        word = await echo("two")
    elif n == 3:
        await double(n)
        word = "three"
    else:
        word = "many"
    return word + "!"


@case((1,), (2,), (3,), (4,))
async def elif_without_else(n: int) -> list[Any]:
    found: list[Any] = []
    if n == 1:
        found = [1]
    elif n == 2:
        found = await numbers(n)
    return [found, await add(n)]


@case((1,), (4,), (9,))
async def nested_ifs(n: int) -> str:
    result = "low"
    if n > 2:
        if n > 5:
            result = await echo("high")
        elif await is_even(n):
            result = "even"
        else:
            result = await echo("odd")
        result += "!"
    return result


@case((1,), (4,))
async def early_return_of_action(n: int) -> int:
    if n > 2:
        return await double(n)
    m = await add(n)
    return m


@case((1,), (4,))
async def returns_in_both(n: int) -> int:
    if n > 2:
        return await double(n)
    else:
        return await add(n)


@case((1,), (4,))
async def return_without_value(n: int) -> None:
    if n > 2:
        return
    await double(n)


@case((0,), (1,))
async def guard_raises(n: int) -> str:
    m = await echo(n)
    if 1 / m > 0:
        return "fine"
    return "never"


@case(({},), ({"a": 1},))
async def guard_misses_a_key(data: dict[str, int]) -> str:
    kept = await echo(data)
    if kept["a"] > 0:
        return "yes"
    else:
        return "no"


@case((2,), (3,))
async def await_as_guard(n: int) -> str:
    if await is_even(n):
        return "even"
    elif await is_even(n + 1):
        return "odd"
    return "?"


@case((1,), (6,))
async def empty_branches(n: int) -> int:
    if n > 3:
        pass
    else:
        ...
    return await add(n)


@case((1,), (6,))
async def code_after_return(n: int) -> int:
    return n
    return await double(n)


@case((1,), (6,))
async def variable_of_one_branch(n: int) -> int:
    if n > 3:
        extra = await double(n)
    if n > 3:
        return extra
    return 0


@case((1, 1), (1, 9), (9, 1), (9, 9))
async def two_ifs_in_a_row(a: int, b: int) -> list[int]:
    x, y = 0, 0
    if a > 5:
        x = await double(a)
    if b > 5:
        y = await double(b)
    return [x, y, a, b]


@case((1,), (9,))
async def branch_changes_what_was_stored(n: int) -> int:
    x = await add(n)
    await double(1)
    if n > 5:
        x = x * 100
    await double(2)
    return x


@case((1,), (9,))
async def both_branches_assign_in_line(n: int) -> list[Any]:
    label = "small" if n < 5 else "big"
    if label == "small":
        size, price = 1, 2.5
    else:
        size, price = 2, 5.0
    await double(size)
    return [label, size, price]


@case((0,), (1,), (2,), (3,))
async def many_ways_out(n: int) -> str:
    if n == 0:
        return "zero"
    a = await add(n)
    if a == 2:
        return f"a={a}"
    b = await add(a)
    if b == 4:
        raise ValueError("four")
    return "end"


@case((1,))
async def only_raises(n: int) -> None:
    raise RuntimeError(f"no {n}")


@case((True, False), (False, True), (False, False))
async def not_and_or(a: bool, b: bool) -> str:
    x = await echo(a)
    if not x and b:
        return "b"
    if x or b:
        return "a"
    return "none"
