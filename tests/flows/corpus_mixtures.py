# ruff: noqa: B905
"""Flows as people write them: a bit of everything."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.flows.actions import (
    Order,
    Receipt,
    ShippingError,
    add,
    charge,
    double,
    echo,
    fail_if,
    is_even,
    make_order,
    numbers,
    ship,
    total_of,
)
from tests.flows.corpus import case


@case((0,), (2,), (5,))
async def checkout(n: int) -> list[Any]:
    order = await make_order(n)
    stock, fraud = await asyncio.gather(add(n), double(n))
    if fraud > 8:
        return ["rejected", order.id]
    receipts = await asyncio.gather(*[charge(item.id, item.cents) for item in order.items])
    try:
        await ship("bad" if n == 2 else order.id)
    except ShippingError as e:
        await echo(str(e))
        return ["refunded", total_of(receipts), str(e)]
    total = sum(r.cents for r in receipts)
    return ["done", total, stock]


@case(([5, 1, 4],), ([],))
async def bubble_sort(items: list[int]) -> list[int]:
    n = len(items)
    for i in range(n):
        swapped = False
        for j in range(n - i - 1):
            if items[j] > await add(items[j + 1], 0):
                upper = items[j]
                items[j] = items[j + 1]
                items[j + 1] = upper
                swapped = True
        if not swapped:
            break
    return items


@case((4,))
async def pages(n: int) -> list[int]:
    page = 0
    found: list[int] = []
    while True:
        batch = await numbers(n - page)
        if not batch:
            break
        results = await asyncio.gather(*[double(x) for x in batch if x % 2 == 0])
        found.extend(results)
        page += 1
    return found


@case((3,), (0,))
async def saga(n: int) -> dict[str, Any]:
    done: list[str] = []
    undone: list[str] = []
    try:
        for i in range(4):
            await fail_if(i, n)
            done.append(f"step{i}")
    except KeyError:
        for name in reversed(done):
            undone.append(await echo(f"undo {name}"))
    return {"done": done, "undone": undone}


@case((20,))
async def sieve(n: int) -> list[int]:
    flags = [True for _ in range(n)]
    for i in range(2, n):
        if flags[i] and i * i < n:
            for j in range(i * i, n, i):
                flags[j] = False
    primes = [i for i in range(2, n) if flags[i]]
    checked = await asyncio.gather(*[is_even(p) for p in primes])
    return [p for p, even in zip(primes, checked) if not even]


@case((3,))
async def report(n: int) -> str:
    lines = []
    orders = await asyncio.gather(*[make_order(k) for k in range(n)])
    for number, order in enumerate(orders, 1):
        total = sum(item.cents for item in order.items)
        lines.append(f"{number}. {order.id:<4} {total:>6.2f} {'*' * order.size}")
    return "\n".join(lines)


@case((2,))
async def binary_search(wanted: int) -> list[Any]:
    items = await numbers(16)
    low, high, steps = 0, len(items), 0
    while low < high:
        middle = (low + high) // 2
        steps += 1
        value = await add(items[middle], 0)
        if value == wanted:
            return ["found", middle, steps]
        if value < wanted:
            low = middle + 1
        else:
            high = middle
    return ["missing", low, steps]


@case((1,), (3,))
async def state_machine(limit: int) -> list[str]:
    state, seen, tries = "new", [], 0
    while state != "end":
        seen.append(state)
        if state == "new":
            state = "paid" if await is_even(tries) else "failed"
        elif state == "paid":
            tries = await add(tries)
            state = "new" if tries < limit else "end"
        else:
            tries += 1
            state = "end" if tries > limit else "new"
    return seen


@case(("abc",))
async def histogram(text: str) -> dict[str, int]:
    counts = {}
    for character in text * 2:
        counts[character] = counts.get(character, 0) + 1
    doubled = {key: await double(value) for key, value in counts.items()}
    return dict(sorted(doubled.items(), key=lambda pair: (-pair[1], pair[0])))


@case((3,))
async def partial_failures(n: int) -> list[Any]:
    results: list[Any] = []
    for attempt in range(3):
        found = await asyncio.gather(*[fail_if(i, attempt) for i in range(n)], return_exceptions=True)
        bad = [x for x in found if isinstance(x, BaseException)]
        results.append([attempt, len(bad)])
        if not bad:
            return [*results, "clean"]
    return results


@case((4,))
async def matrix(n: int) -> list[Any]:
    rows = []
    for i in range(n):
        row = await asyncio.gather(*[add(i, j) for j in range(n)])
        if sum(row) % 3 == 0:
            continue
        rows.append(row)
    columns = [[row[j] for row in rows] for j in range(n)]
    return [rows, columns, max(max(row) for row in rows)]


@case((5,))
async def best_of(n: int) -> list[Any]:
    best: Receipt | None = None
    for i in range(n):
        receipt = await charge(f"i{i}", (i * 7) % 5)
        if best is None or receipt.cents > best.cents:
            best = receipt
    assert best is not None
    return [best.item, best.cents]


@case((2,))
async def orders_of_orders(n: int) -> list[Any]:
    orders: list[Order] = []
    for k in range(n):
        orders.append(await make_order(k + 1))
    charged = await asyncio.gather(*[charge(item.id, item.cents) for order in orders for item in order.items])
    return [len(charged), [o.id for o in orders], sum(r.cents for r in charged)]
