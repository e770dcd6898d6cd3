"""asyncio.TaskGroup: tasks that are results after the block."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.flows.actions import add, child, double, doubled_twice, echo, fail, fail_if, numbers
from tests.flows.corpus import case


@case((3,))
async def group_of_two(n: int) -> list[int]:
    async with asyncio.TaskGroup() as tg:
        a = tg.create_task(double(n))
        b = tg.create_task(add(n, y=5), name="b")
    return [a.result(), b.result()]


@case((3,))
async def group_without_results(n: int) -> int:
    async with asyncio.TaskGroup() as tg:
        tg.create_task(double(n))
        tg.create_task(asyncio.sleep(0))
    return await add(n)


@case()
async def empty_group() -> str:
    async with asyncio.TaskGroup() as tg:  # noqa: F841
        pass
    return await echo("done")


@case((4,), (0,))
async def group_of_a_list(n: int) -> list[Any]:
    offset = await double(n)
    async with asyncio.TaskGroup() as tg:
        tasks = [tg.create_task(add(i, offset)) for i in range(n) if i != 1]
        last: asyncio.Task[int] = tg.create_task(double(n))
    await double(1)
    total = 0
    for task in tasks:
        total += task.result()
    return [len(tasks), [t.result() for t in tasks], sum(t.result() for t in tasks), last.result(), total, await last]


@case(([3, 1, 2],))
async def group_filled_by_a_loop(items: list[int]) -> int:
    async with asyncio.TaskGroup() as tg:
        for item in items:
            tg.create_task(double(item))
        for x in items:
            for y in range(x):
                if y != 1:
                    tg.create_task(add(x, y))
    return await add(len(items))


@case((3,))
async def groups_in_a_loop(n: int) -> list[Any]:
    out = []
    for i in range(n):
        async with asyncio.TaskGroup() as tg:
            many = [tg.create_task(add(i, j)) for j in range(i)]
            one = tg.create_task(double(i))
        out.append([one.result(), [task.result() for task in many], many[0].result() if len(many) else None])
    return out


@case((3,))
async def one_group_after_the_other(n: int) -> int:
    async with asyncio.TaskGroup() as tg:
        first = tg.create_task(double(n))
    async with asyncio.TaskGroup() as tg:
        second = tg.create_task(add(first.result()))
        third = tg.create_task(child(n))
    return second.result() + third.result()


@case((3,))
async def results_that_are_changed(n: int) -> list[int]:
    async with asyncio.TaskGroup() as tg:
        found = tg.create_task(numbers(n))
    rows = found.result()
    more = [*rows, await add(n)]
    more.append(len(rows))
    return more


@case((1,))
async def failing_group(n: int) -> int:
    async with asyncio.TaskGroup() as tg:
        a = tg.create_task(double(n))
        tg.create_task(fail("second"))
    return a.result()


@case((1,))
async def failing_group_is_caught(n: int) -> list[Any]:
    try:
        async with asyncio.TaskGroup() as tg:
            tg.create_task(double(n))
            tg.create_task(fail("second"))
    except ExceptionGroup as group:
        kinds = [isinstance(each, ValueError) for each in group.exceptions]
        return [str(group), group.message, [str(each) for each in group.exceptions], kinds]
    return []


@case((1,))
async def group_is_an_exception(n: int) -> str:
    try:
        async with asyncio.TaskGroup() as tg:
            tg.create_task(fail("alone"))
    except ValueError:
        return "never"
    except Exception as error:
        await double(n)
        return f"{type(error).__name__}: {error}"
    return "never"


@case(([1, 2],), ([],))
async def error_in_arguments_of_a_group(items: list[int]) -> Any:
    try:
        async with asyncio.TaskGroup() as tg:
            a = tg.create_task(double(1))
            b = tg.create_task(double(items[0]))
        return [a.result(), b.result()]
    except ExceptionGroup as group:
        return [str(each) for each in group.exceptions]


@case((4,))
async def group_with_cleanup(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(n):
        try:
            async with asyncio.TaskGroup() as tg:
                task = tg.create_task(fail_if(i, 2))
            out.append(task.result())
        except ExceptionGroup as group:
            out.append(str(group))
        finally:
            out.append(await echo("cleanup"))
    return out


@case((2,))
async def group_of_flows(n: int) -> list[int]:
    async with asyncio.TaskGroup() as tg:
        tasks = [tg.create_task(doubled_twice(i)) for i in range(n)]
    return [each.result() for each in tasks]
