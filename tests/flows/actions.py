"""The dozen small actions that the corpus and the generator are written with: deterministic, some of them failing."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec

from holdfast.authoring.actions import action
from holdfast.authoring.flows import flow
from holdfast.authoring.functions import workflow
from holdfast.authoring.pure import pure
from holdfast.authoring.registry import Registry

registry = Registry()


class ShippingError(Exception):
    """No truck today."""


class TruckBroke(ShippingError):
    """A kind of shipping error."""


class Refused(ValueError):
    """With an attribute."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.code})"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Item:
    id: str
    cents: int


@dataclass
class Order:
    id: str
    items: list[Item]
    colour: Colour = Colour.RED
    due: date = date(2026, 1, 2)

    @property
    def size(self) -> int:
        return len(self.items)


class Receipt(msgspec.Struct, frozen=True):
    item: str
    cents: int
    tax: Decimal = Decimal("0.19")


@action(registry=registry)
async def double(x: int) -> int:
    return x * 2


@action(registry=registry)
async def add(x: int, y: int = 1) -> int:
    return x + y


@action(registry=registry)
async def echo(value: Any) -> Any:
    return value


@action(registry=registry)
async def numbers(n: int) -> list[int]:
    return list(range(n))


@action(registry=registry)
async def is_even(x: int) -> bool:
    return x % 2 == 0


@action(registry=registry)
def plain_def(text: str) -> str:
    return text.upper()


@action(registry=registry)
async def charge(item: str, cents: int) -> Receipt:
    if cents < 0:
        raise ValueError(f"can't charge {cents}")
    return Receipt(item, cents)


@action(registry=registry)
async def ship(order_id: str) -> str:
    if order_id.startswith("bad"):
        raise TruckBroke(f"no truck for {order_id}")
    return f"shipped {order_id}"


@action(registry=registry)
async def fail(message: str) -> None:
    raise ValueError(message)


@action(registry=registry)
async def fail_if(x: int, limit: int = 0) -> int:
    if x > limit:
        raise KeyError(x)
    return x


@action(registry=registry)
async def refuse(message: str, code: int) -> None:
    raise Refused(message, code)


@action(registry=registry)
async def make_order(n: int) -> Order:
    return Order(f"o{n}", [Item(f"i{k}", 100 * k) for k in range(n)])


@action(registry=registry)
async def pair(x: int) -> tuple[int, str]:
    return x, str(x)


@workflow(registry=registry)
async def child(x: int) -> int:
    return x + 100


@pure
def total_of(receipts: list[Receipt]) -> int:
    return sum(receipt.cents for receipt in receipts)


@pure
def risky(x: int) -> float:
    return 10 / x


@pure
def same(value: Any) -> Any:
    return value


@flow(registry=registry)
async def doubled_twice(x: int) -> int:
    """A flow for others to await, or to run beside others."""
    if x < 0:
        raise ValueError(f"{x} is negative")
    once = await double(x)
    return await double(once)
