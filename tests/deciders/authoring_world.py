"""Deciders for tests of what authors write: an order, a small one, and a way to make more. Registries are their own."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Never, assert_never

import holdfast as hf
from holdfast.core.rows import Fact

REGISTRY = hf.Registry()


class Status(enum.Enum):
    NEW = "new"
    OPEN = "open"
    PAID = "paid"
    SHIPPED = "shipped"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class OrderState:
    status: Status = Status.NEW
    total: Decimal = Decimal(0)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Create:
    order_id: str
    total: Decimal


@hf.idempotent(key="payment_id")
@dataclass(frozen=True)
class Pay:
    order_id: str
    payment_id: str | None = None


@dataclass(frozen=True)
class PaymentTimeout:
    order_id: str


@dataclass(frozen=True)
class Shipped:
    order_id: str


@dataclass(frozen=True)
class Created:
    total: Decimal
    at: datetime


@dataclass(frozen=True)
class Paid:
    payment_id: str | None


@dataclass(frozen=True)
class Refused:
    reason: str


@dataclass(frozen=True)
class Cancelled:
    pass


@dataclass(frozen=True)
class Sent:
    pass


@dataclass(frozen=True)
class SendEmail:
    to: str


@dataclass(frozen=True)
class Ship:
    order_id: str


OrderInput = Create | Pay | PaymentTimeout | Shipped
OrderEvent = Created | Paid | Refused | Cancelled | Sent
OrderEffect = SendEmail | Ship
OrderDecision = hf.Decision[OrderEvent, OrderEffect, OrderInput]


class Order(hf.Decider[OrderState, OrderInput, OrderEvent, OrderEffect], name="order", registry=REGISTRY):
    def workflow_id(self, input: OrderInput) -> str:
        return input.order_id

    def initial(self) -> OrderState:
        return OrderState()

    def evolve(self, state: OrderState, event: OrderEvent) -> OrderState:
        match event:
            case Created():
                return replace(state, status=Status.OPEN, total=event.total)
            case Paid():
                return replace(state, status=Status.PAID)
            case Refused():
                return replace(state, notes=(*state.notes, event.reason))
            case Cancelled():
                return replace(state, status=Status.CANCELLED)
            case Sent():
                return replace(state, status=Status.SHIPPED)
            case _:
                assert_never(event)

    def decide(self, now: datetime, state: OrderState, input: OrderInput) -> OrderDecision:
        match input:
            case Create() if state.status is Status.NEW:
                return (
                    hf.Decision.event(Created(input.total, now))
                    .with_effect(SendEmail("ada"))
                    .with_timer_after(timedelta(minutes=30), PaymentTimeout(input.order_id), key="payment")
                )
            case Pay() if state.status is Status.OPEN:
                return (
                    hf.Decision.event(Paid(input.payment_id)).with_effect(Ship(input.order_id)).cancel_timer("payment")
                )
            case PaymentTimeout() if state.status is Status.OPEN:
                return hf.Decision.event(Cancelled())
            case Shipped() if state.status is Status.PAID:
                return hf.Decision.event(Sent())
            case _:
                return hf.Decision.event(Refused(f"{type(input).__name__} when {state.status.value}"))

    def is_terminal(self, state: OrderState) -> bool:
        return state.status in (Status.SHIPPED, Status.CANCELLED)

    async def handle(self, effect: OrderEffect, ctx: hf.EffectContext) -> OrderInput | None:
        return Shipped(effect.order_id) if isinstance(effect, Ship) else None

    def definition(self) -> hf.StateMachineDefinition:
        return hf.StateMachineDefinition(
            initial="new",
            transitions=(
                hf.TransitionInfo("new", Create, "open", effects=(SendEmail,), timers=("payment",)),
                hf.TransitionInfo("open", Pay, "paid", effects=(Ship,)),
                hf.TransitionInfo("open", PaymentTimeout, "cancelled"),
                hf.TransitionInfo("paid", Shipped, "shipped"),
            ),
            terminals=("shipped", "cancelled"),
        )


# --- a small one


@dataclass(frozen=True)
class Poke:
    id: str
    how: str = "well"


@dataclass(frozen=True)
class Poked:
    value: float


class Poking(hf.Decider[int, Poke, Poked, Never], registry=hf.Registry()):
    def workflow_id(self, input: Poke) -> str:
        return input.id

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Poked) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Poke) -> hf.Decision[Poked, Never, Poke]:
        if input.how == "raise":
            raise ValueError("too hard")
        if input.how == "empty":
            return hf.Decision()
        return hf.Decision.event(Poked(float("nan") if input.how == "nan" else 1))


# --- any, made of types and methods


@dataclass(frozen=True)
class Add:
    id: str
    n: int = 1


@dataclass(frozen=True)
class Added:
    n: int


class Body:
    """The methods that most classes here share."""

    def workflow_id(self, input: Any) -> str:
        return str(input.id)

    def initial(self) -> Any:
        return 0

    def evolve(self, state: Any, event: Any) -> Any:
        return state + getattr(event, "n", 0)

    def decide(self, now: datetime, state: Any, input: Any) -> Any:
        return hf.Decision.event(Added(input.n))

    async def handle(self, effect: Any, ctx: hf.EffectContext) -> Any:
        return None


def made(*types: Any, bases: tuple[type, ...] = (Body,), members: dict[str, Any] | None = None, **options: Any) -> Any:
    """A decider of these types with the shared methods, in a registry of its own."""
    written = hf.Decider[types] if types else hf.Decider
    namespace = {"__module__": __name__, "__orig_bases__": (*bases, written), **(members or {})}
    options.setdefault("registry", hf.Registry())
    return type("Made", (*bases, hf.Decider), namespace, **options)


class EchoBody:
    """Records every input as an event of the same value."""

    def workflow_id(self, input: Any) -> str:
        return str(input.id)

    def initial(self) -> Any:
        return ()

    def evolve(self, state: Any, event: Any) -> Any:
        return (*state, event)

    def decide(self, now: datetime, state: Any, input: Any) -> Any:
        return hf.Decision.event(input).with_effect(input).with_timer_after(1, input)

    def handle(self, effect: Any, ctx: Any) -> Any:
        return None


def fact(event_type: str, data: bytes, version: int = 1, codec: str = "json", sequence: int = 3) -> Fact:
    return Fact(
        run="r", sequence=sequence, workflow="order", key="17", type=event_type, version=version, data=data, codec=codec
    )
