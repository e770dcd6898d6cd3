"""Compiled flows: branches, a spread, a loop, handlers, sleeps and a child."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from tests.reliability.crash.ledger import Doing
from tests.reliability.crash.scenario import Scenario, Scene

flows = hf.Registry()


class Broken(Exception): ...


@hf.action(registry=flows)
async def price(item: int) -> int:
    with Doing(f"price {item}"):
        return item * 10


@hf.action(registry=flows)
async def ship(item: int) -> int:
    with Doing(f"ship {item}"):
        if item == 2:
            raise Broken("in transit")
        return item


@hf.action(registry=flows)
async def mend(item: int, why: str) -> int:
    with Doing(f"mend {item}"):
        return -item


@hf.workflow(registry=flows)
async def wrap(item: int) -> int:
    await hf.sleep(0.005)
    return await price(item + 100)


@hf.flow(registry=flows)
async def spreads(items: list[int]) -> int:
    prices = await asyncio.gather(*[price(item) for item in items])
    return sum(prices)


@hf.flow(registry=flows)
async def loops(count: int) -> int:
    total = 0
    for item in range(count):
        total += await price(item)
    return total


@hf.flow(registry=flows)
async def handles(items: list[int]) -> list[int]:
    done = []
    for item in items:
        try:
            done.append(await ship(item))
        except Broken as error:
            done.append(await mend(item, why=str(error)))
    return done


@hf.flow(registry=flows)
async def waits(item: int) -> int:
    before = await price(item)
    await asyncio.sleep(0.02)
    wrapped = await wrap(item)
    if wrapped > 100:
        return before + await price(item + 1)
    return before


def _plays(flow: Any, *args: Any) -> Any:
    async def play(scene: Scene) -> None:
        await (await scene.start(flow, *args, key=flow.name)).result()

    return play


def scenarios() -> list[Scenario]:
    def made(name: str, play: Any, **fields: Any) -> Scenario:
        return Scenario(name=name, registry=flows, play=play, **fields)

    return [
        made(
            "spread",
            _plays(spreads, [1, 2, 3]),
            results={"spreads": 60},
            does={f"price {item}": 1 for item in (1, 2, 3)},
        ),
        made(
            "loop",
            _plays(loops, 4),
            results={"loops": 60},
            does={f"price {item}": 1 for item in range(4)},
            order=(("price 0", "price 1"), ("price 2", "price 3")),
        ),
        made(
            "flow with handlers",
            _plays(handles, [1, 2, 3]),
            results={"handles": [1, -2, 3]},
            does={"ship 1": 1, "ship 2": 1, "mend 2": 1, "ship 3": 1},
            order=(("ship 1", "ship 2"), ("mend 2", "ship 3")),
        ),
        made(
            "flow that waits",
            _plays(waits, 1),
            results={"waits": 30},
            does={"price 1": 1, "price 101": 1, "price 2": 1},
            order=(("price 1", "price 2"),),
        ),
    ]
