"""Flows: a few, which between them have branches, loops, gathers, sleeps, errors and children."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import holdfast as hf
from holdfast.core.rows import COMPLETED
from tests.reliability.simulation.actions import Failing, number, refuse, registry
from tests.reliability.simulation.ledger import must
from tests.reliability.simulation.programs import Basis


@hf.flow(registry=registry)
async def gathered(label: str, items: list[int]) -> int:
    first = await number(f"{label} first", 1)
    parts = await asyncio.gather(*[number(f"{label} item {item}", item) for item in items])
    return first + sum(parts)


@hf.flow(registry=registry)
async def looped(label: str, items: list[int]) -> list[int]:
    found: list[int] = []
    for item in items:
        if item % 2:
            continue
        found.append(await number(f"{label} item {item}", item))
        await asyncio.sleep(0.2)
    return found


@hf.flow(registry=registry)
async def caught(label: str, items: list[int]) -> str:
    total = 0
    try:
        for item in items:
            total += await number(f"{label} item {item}", item)
        await refuse(f"{label} refused")
    except Failing as error:
        return f"{error} after {total}"
    finally:
        total = await number(f"{label} last", 2)
    return f"never {total}"


@hf.flow(registry=registry)
async def branched(label: str, items: list[int]) -> int:
    left, right = await asyncio.gather(number(f"{label} left", len(items)), number(f"{label} right", 3))
    if left > right:
        return await number(f"{label} more", left - right)
    while left < right:
        left += await number(f"{label} up {left}", 1)
    return left


FLOWS: tuple[tuple[Any, Callable[[str, list[int]], Any]], ...] = (
    (gathered, lambda label, items: 1 + sum(items)),
    (looped, lambda label, items: [item for item in items if item % 2 == 0]),
    (caught, lambda label, items: f"{label} refused after {sum(items)}"),
    (branched, lambda label, items: len(items) - 3 if len(items) > 3 else 3),
)


class Flows(Basis):
    """One run of one of them, against what Python would compute."""

    def __init__(self, world: Any, number: int) -> None:
        super().__init__(world, number)
        self.flow, self.meaning = self.dice.choice(FLOWS)
        self.items = self.dice.sample(range(8), self.dice.randint(0, 5))

    async def drive(self) -> None:
        await self.start(self.flow, self.name, self.items)

    async def check(self, engine: hf.Engine) -> None:
        run = self.runs[self.name]
        row = (await engine.store.runs([run]))[0]
        must(row.status == COMPLETED, "G9", f"{self.name} {run} of {row.workflow} is {row.status}: {row.reason}")
        result, expected = await engine.get(run).result(), self.meaning(self.name, self.items)
        must(result == expected, "G8", f"{self.name} {run} of {row.workflow} returned {result!r}, not {expected!r}")
