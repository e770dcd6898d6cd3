"""Corners: where two features meet and one of them could be forgotten."""
# ruff: noqa: B012, F841, RUF005, RUF017, SIM107

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from holdfast.authoring.flows import flow
from tests.flows.actions import (
    Item,
    Order,
    ShippingError,
    add,
    double,
    echo,
    fail,
    fail_if,
    make_order,
    numbers,
    registry,
    ship,
)
from tests.flows.corpus import case
from tests.flows.corpus_calls import add_twice, first_above


@flow(registry=registry)
async def returns_through_finally(n: int) -> list[Any]:
    trail: list[Any] = []
    for i in range(5):
        try:
            if i == n:
                return [*trail, "early", i]
            trail.append(await add(i))
        finally:
            trail.append("f")
    return trail


@flow(registry=registry)
async def swallows(n: int) -> str:
    try:
        await fail_if(n, 1)
        return "fine"
    finally:
        return "swallowed"


@flow(registry=registry)
async def loops_inside(rows: list[list[int]]) -> int:
    total = 0
    for row in rows:
        for x in row:
            if x < 0:
                break
            total += await add(x, 0)
        else:
            total += 100
    return total


@case((0,), (3,), (9,))
async def inlined_return_through_finally(n: int) -> list[Any]:
    out = []
    for k in range(2):
        out.append(await returns_through_finally(n + k))
    return out


@case((0,), (5,))
async def inlined_finally_swallows(n: int) -> list[str]:
    try:
        first = await swallows(n)
    except KeyError:
        first = "never"
    return [first, await swallows(0)]


@case(([[1, 2], [3, -1, 5], []],))
async def inlined_nested_loops(rows: list[list[int]]) -> list[int]:
    return [await loops_inside(rows), await loops_inside(rows[1:])]


@case((3,))
async def inlined_loop_in_a_loop_over_its_result(n: int) -> list[Any]:
    out: list[Any] = []
    for limit in range(n):
        found = await first_above(limit, await numbers(n))
        while found is not None and found < 5:
            found = await add_twice(found)
        out.append(found)
    return out


@case((2,))
async def await_in_comprehension_inside_of_try(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(4):
        try:
            out.append([await fail_if(x, n) for x in range(i + 1)])
        except KeyError as e:
            out.append([str(e), [len(str(e)) for _ in range(2)]])
    return out


@case((1,))
async def failure_used_in_a_comprehension(n: int) -> list[str]:
    try:
        await fail("text")
    except ValueError as e:
        return [f"{e}{i}" for i in range(2) if str(e)]
    return []


@case((3,))
async def changed_before_arguments_fail(n: int) -> list[Any]:
    rows = [1]
    try:
        rows.append(2)
        await asyncio.gather(add(rows[0]), add(rows[5]))
        rows.append(3)
    except IndexError:
        rows.append(await double(4))
    return rows


@case((3,))
async def gather_target_is_kept_when_it_fails(n: int) -> list[Any]:
    a, b = 1, 2
    try:
        a, b = await asyncio.gather(double(n), fail("x"))
    except ValueError:
        await double(1)
    return [a, b]


@case((0,), (2,), (5,))
async def for_else_with_finally(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(3):
        try:
            if i == n:
                break
        finally:
            out.append(await add(i))
    else:
        out.append("else")
    return out


@case((2,))
async def continue_in_finally(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(4):
        try:
            out.append(await fail_if(i, n))
        finally:
            continue
    return out


@case((2,))
async def break_in_finally_swallows(n: int) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            out.append(1)
            await fail("lost")
        finally:
            out.append(await double(2))
            break
    return out


@case((2,))
async def raise_in_finally_replaces(n: int) -> str:
    try:
        try:
            await fail("first")
        finally:
            raise ShippingError("second")
    except ShippingError as e:
        return f"{e}"


@case((1,), (2,))
async def return_in_else_of_try_in_loop(n: int) -> list[Any]:
    seen = []
    for i in range(3):
        try:
            x = await fail_if(i, n)
        except KeyError:
            seen.append("k")
        else:
            seen.append(x)
            if x == n:
                return [*seen, "returned"]
        finally:
            seen = seen + ["f"]
    return seen


@case((4,))
async def records_in_containers(n: int) -> list[Any]:
    orders = [await make_order(k) for k in range(n)]
    by_id = {order.id: order for order in orders}
    await double(1)
    changed = {key: dataclasses.replace(order, items=[*order.items, Item("new", 1)]) for key, order in by_id.items()}
    await double(2)
    return [[len(o.items) for o in changed.values()], [o.size for o in orders], changed["o1"] == by_id["o1"]]


@case((2,))
async def fields_copied_then_changed(n: int) -> list[Any]:
    order = await make_order(n)
    items = list(order.items)
    items.append(Item("x", 5))
    bigger = Order(order.id, items)
    await double(1)
    return [len(order.items), len(bigger.items), bigger.items[-1].id]


@case((3,))
async def dict_of_dicts(n: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for i in range(n):
        key = f"k{i % 2}"
        if key not in table:
            table[key] = {"count": 0, "seen": []}
        table[key]["count"] += await add(0)
        table[key]["seen"].append(i)
        table[key]["last"] = i
    return table


@case((3,))
async def loop_variable_is_reassigned(n: int) -> list[int]:
    out = []
    for i in range(n):
        i = i * 10
        out.append(await add(i))
        i += 1
    return [*out, i]


@case((4,))
async def while_condition_uses_what_the_body_changes(n: int) -> list[Any]:
    left = await numbers(n)
    done: list[int] = []
    while left and len(done) < 3:
        done.append(left.pop(0) + await add(0))
    return [left, done]


@case((4,))
async def two_loops_share_a_name_across_actions(n: int) -> list[Any]:
    x = -1
    for x in range(n):
        if await fail_if(x, 99) == 2:
            break
    await double(x)
    y = x
    for x in range(1):
        await double(x)
    return [x, y]


@case((3,))
async def nested_functions_of_state(n: int) -> list[Any]:
    best, best_at = -1, None
    for i in range(n):
        score = (await add(i, 5)) % 4
        if score > best:
            best, best_at = score, i
    return [best, best_at]


@case((3,))
async def conditional_gather_in_loop(n: int) -> list[Any]:
    kept = []
    for i in range(n):
        if i % 2 == 0:
            a, b = await asyncio.gather(add(i), double(i))
        else:
            a = await add(100, i)
        kept.append([a, b])
    return kept


@case((True,), (False,))
async def deleted_and_set_again(flag: bool) -> Any:
    x = await add(1)
    if flag:
        del x
        await double(1)
        x = 7
    await double(2)
    return x


@case((3,))
async def deleted_in_a_loop(n: int) -> list[Any]:
    out: list[Any] = []
    x = 0
    for i in range(n):
        try:
            out.append(x)
            del x
        except UnboundLocalError:
            out.append("gone")
            x = await add(i)
        await double(1)
    return out


@case(("bad",), ("ok",))
async def handler_in_handler_in_loop(order: str) -> list[Any]:
    out: list[Any] = []
    for attempt in range(3):
        try:
            out.append(await ship(order))
            break
        except ShippingError as outer:
            try:
                await fail_if(attempt, 1)
            except KeyError as inner:
                out.append(f"{outer}|{inner}")
                raise ValueError("gave up") from inner if False else None
            out.append(str(outer))
    return out


@case((2,))
async def swap_and_rotate(n: int) -> list[Any]:
    a, b, c = 1, [2], "c"
    for _ in range(n):
        a, b, c = b, c, a
        await double(1)
    return [a, b, c]


@case((3,))
async def spread_over_changed_list(n: int) -> list[Any]:
    rows: list[int] = []
    for i in range(n):
        rows.append(i)
        found = await asyncio.gather(*[add(x, i) for x in rows])
        rows = found
    return rows


@case((3,))
async def sum_of_lists(n: int) -> list[int]:
    parts = await asyncio.gather(*[numbers(i) for i in range(n)])
    flat = sum(parts, [])
    await double(1)
    return [x for x in flat] + [len(parts)]


@case((3,))
async def string_building(n: int) -> str:
    text = ""
    for i in range(n):
        text += f"{i}:{await echo('x' * i)};"
        if i == 1:
            text = text.upper()
    return text or "empty"


@case((5,))
async def early_exit_from_nested_loops(n: int) -> list[Any]:
    found = None
    for i in range(n):
        for j in range(n):
            if await add(i, j) == 3:
                found = (i, j)
                break
        if found:
            break
    return list(found) if found else []
