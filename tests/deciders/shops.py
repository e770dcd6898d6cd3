"""An order as a user writes it in a module of their own, and the command line run beside it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import holdfast as hf
from holdfast.authoring.registry import default_registry
from tests.cli.conftest import Shell

ORDERS = """
from dataclasses import dataclass
from datetime import timedelta

import holdfast as hf


@dataclass(frozen=True)
class Create:
    order_id: str
    cents: int = 100


@dataclass(frozen=True)
class Pay:
    order_id: str


@dataclass(frozen=True)
class Ship:
    order_id: str


@dataclass(frozen=True)
class PaymentTimeout:
    order_id: str


@dataclass(frozen=True)
class Created:
    cents: int


@dataclass(frozen=True)
class Paid: ...


@dataclass(frozen=True)
class Shipped: ...


@dataclass(frozen=True)
class Expired: ...


@dataclass(frozen=True)
class Refused:
    why: str


@dataclass(frozen=True)
class SendEmail:
    to: str


@dataclass(frozen=True)
class Charge:
    cents: int


@dataclass(frozen=True)
class OrderState:
    status: str = "new"
    cents: int = 0


Inputs = Create | Pay | Ship | PaymentTimeout
Events = Created | Paid | Shipped | Expired | Refused


class Order(
    hf.Decider[OrderState, Inputs, Events, SendEmail | Charge],
    name="order",
    snapshot_every=3,
    retry=hf.Retry(attempts=2, base=600.0, cap=600.0, retry_on=(ConnectionError,)),
):
    def workflow_id(self, input):
        return input.order_id

    def initial(self):
        return OrderState()

    def evolve(self, state, event):
        match event:
            case Created(cents=cents):
                return OrderState("created", cents)
            case Paid():
                return OrderState("paid", state.cents)
            case Shipped():
                return OrderState("shipped", state.cents)
            case Expired():
                return OrderState("expired", state.cents)
        return state

    def decide(self, now, state, input):
        match input:
            case Create(order_id=order_id, cents=cents):
                if cents == 666:
                    raise ValueError("cents are evil")
                if state.status != "new":
                    return hf.Decision.event(Refused("it exists"))
                wait = timedelta(0) if cents == 15 else timedelta(minutes=30)
                return (
                    hf.Decision.event(Created(cents))
                    .with_effect(SendEmail(order_id))
                    .with_timer_after(wait, PaymentTimeout(order_id), key="payment")
                )
            case Pay():
                return (
                    hf.Decision.event(Paid())
                    .with_effect(Charge(state.cents))
                    .with_effect(SendEmail("paid"))
                    .cancel_timer("payment")
                )
            case Ship():
                return hf.Decision.event(Shipped())
            case PaymentTimeout():
                if state.cents == 15:
                    raise ValueError("not now")
                return hf.Decision.event(Expired())

    def is_terminal(self, state):
        return state.status in ("shipped", "expired")

    def view(self, state):
        return hf.StateInfo(state.status, {"cents": state.cents})

    def definition(self):
        way = hf.TransitionInfo
        return hf.StateMachineDefinition(
            initial="new",
            transitions=(
                way("new", Create, "created", effects=(SendEmail,), timers=("payment",)),
                way("created", Pay, "paid", effects=(Charge, SendEmail)),
                way("created", PaymentTimeout, "expired"),
                way("paid", Ship, "shipped"),
            ),
            terminals=("shipped", "expired"),
        )

    async def handle(self, effect, ctx):
        if isinstance(effect, Charge) and effect.cents == 13:
            raise ConnectionError("the bank does not answer")
        if isinstance(effect, Charge) and effect.cents == 14:
            raise ValueError("no such card")
"""


class OrderShell(Shell):
    """The command line in a directory with `orders.py`."""

    def prepare(self, *inputs: dict[str, Any], work: bool = True, enqueue: bool = False) -> None:
        """Give these inputs, with a worker at hand, and observe them."""
        import orders  # type: ignore[import-not-found]  # of the test's own directory

        async def give() -> None:
            engine = hf.Engine(self.url, observe_inputs="payload", poll_seconds=0.02)
            async with engine:
                if not work:
                    await self._give(engine, inputs, enqueue)
                    return
                async with engine.worker():
                    await self._give(engine, inputs, enqueue)
                    await engine.settle(timeout=10)

        assert orders.Order.__holdfast__.name == "order"
        asyncio.run(give())

    async def _give(self, engine: hf.Engine, inputs: tuple[dict[str, Any], ...], enqueue: bool) -> None:
        for each in inputs:
            if enqueue:
                await engine.enqueue_input("order", each)
            else:
                await engine.execute_dynamic("order", each)

    def forget_code(self) -> None:
        super().forget_code()
        sys.modules.pop("orders", None)
        assert "order" not in default_registry.workflows


def create(order: str, cents: int = 100) -> dict[str, Any]:
    return {"type": "Create", "order_id": order, "cents": cents}


def pay(order: str) -> dict[str, Any]:
    return {"type": "Pay", "order_id": order}


def ship(order: str) -> dict[str, Any]:
    return {"type": "Ship", "order_id": order}
