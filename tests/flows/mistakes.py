"""Typical mistakes, one flow each. `mistakes.txt` has the message that each of them must get."""
# ruff: noqa: ASYNC230, F821, F841, SIM105

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import holdfast as hf
from tests.flows.actions import Order, add, double, make_order

SETTINGS = {"limit": 3}
LOCK = asyncio.Lock()


def helper(x: int) -> int:
    return x + 1


async def coroutine(x: int) -> int:
    return x + 1


async def forgot_await(n: int) -> Any:
    total = add(n)
    return total


async def calls_a_plain_function(n: int) -> int:
    m = await add(n)
    return helper(m)


async def awaits_a_plain_coroutine(n: int) -> int:
    return await coroutine(n)


async def asks_for_the_time(n: int) -> str:
    await add(n)
    return datetime.datetime.now().isoformat()


async def uses_a_global_dict(n: int) -> bool:
    return await add(n) > SETTINGS["limit"]


async def gathers_a_variable(n: int) -> list[int]:
    calls = [add(i) for i in range(n)]
    return await asyncio.gather(*calls)


async def hands_a_task_on(n: int) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(add(n))
    return [task]


async def reads_a_task_of_a_failed_group(n: int) -> int:
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(add(n))
    except ExceptionGroup:
        n = 0
    return task.result()


async def computes_in_a_task_group(n: int) -> None:
    async with asyncio.TaskGroup() as group:
        m = n + 1
        group.create_task(add(m))


async def opens_an_async_block(n: int) -> None:
    async with asyncio.timeout(5):
        await add(n)


async def changes_a_shared_list(n: int) -> list[int]:
    rows = [n]
    backup = rows
    rows.append(await add(n))
    return backup


async def changes_the_list_it_walks(items: list[int]) -> None:
    for item in items:
        items.append(await double(item))


async def assigns_to_a_field(n: int) -> Order:
    order = await make_order(n)
    order.id = "new"
    return order


async def prints(n: int) -> None:
    print(await add(n))


async def opens_a_file(path: str) -> str:
    with open(path) as file:
        return file.read()


async def calls_itself(n: int) -> int:
    return 0 if n == 0 else await calls_itself(n - 1)


async def gives_too_many_arguments(n: int) -> int:
    return await add(n, 2, 3)


async def misspells_a_name(n: int) -> int:
    return await dubble(n)


async def keeps_the_failure_too_long(n: int) -> str:
    try:
        await add(n)
    except ValueError as error:
        pass
    return str(error)


async def keeps_a_view(data: dict[str, int]) -> list[str]:
    keys = data.keys()
    await add(1)
    return list(keys)


async def has_a_mutable_default(n: int, rows: list[int] = []) -> list[int]:  # noqa: B006
    return [*rows, await add(n)]


async def computes_a_policy(n: int) -> int:
    return await add.options(timeout=n)(n)


async def misspells_an_option(n: int) -> int:
    return await add.options(timeuot=5)(n)


async def changes_items_of_a_slice(rows: list[list[int]]) -> list[list[int]]:
    rows[0:2][0].append(await add(1))
    return rows


async def awaits_in_a_generator(items: list[int]) -> int:
    return sum(await add(x) for x in items)


async def exposes_a_value(n: int) -> int:
    hf.expose("progress", lambda: n)
    return await add(n)


async def registers_a_rollback(n: int) -> int:
    hf.on_rollback(add, n)
    return await add(n)


async def continues_as_another(n: int) -> int:
    await add(n)
    hf.continue_as(add, n)


async def sends_an_event(n: int) -> int:
    await hf.send("done", n, to="another run")
    return n


async def starts_a_child(n: int) -> Any:
    return await hf.start_child(add, n)


async def draws_a_number(n: int) -> float:
    dice = hf.rng()
    return await add(dice.randint(1, n))


async def makes_a_task(n: int) -> int:
    task = asyncio.create_task(add(n))
    return await task


async def takes_a_lock(n: int) -> int:
    async with LOCK:
        return await add(n)


async def holds_half_a_character(n: int) -> str:
    await add(n)
    return "\ud800"


async def walks_over_an_enumerated_generator(n: int) -> list[int]:
    found = []
    for i, x in enumerate(10 // k for k in range(n)):
        found.append(await add(i, x))
    return found


async def walks_over_a_strict_zip(ids: list[int], sizes: list[int]) -> list[int]:
    found = []
    for i, (a, b) in enumerate(zip(ids, sizes, strict=True)):
        found.append(await add(a, b + i))
    return found


async def awaits_for_a_strict_zip(ids: list[int], sizes: list[int]) -> list[int]:
    return [await add(a, b) for a, b in zip(ids, sizes, strict=len(ids) > 1)]
