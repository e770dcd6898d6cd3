"""The order of seed 001, and the inventory beside it, in our syntax. `Shop` makes both with a registry of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Never

import holdfast as hf

HOUR = timedelta(hours=1)
KEY = "payment-timeout"


@dataclass(frozen=True)
class Create:
    id: str


@dataclass(frozen=True)
class Pay:
    id: str
    cents: int


@hf.idempotent(key="charge_id")
@dataclass(frozen=True)
class Charge:
    """An input that carries its own idempotency key."""

    id: str
    charge_id: str


@dataclass(frozen=True)
class Timeout:
    id: str


@dataclass(frozen=True)
class Cancel:
    id: str


@dataclass(frozen=True)
class EmailSent:
    """What the handler of SendEmail may return."""

    id: str
    to: str


@dataclass(frozen=True)
class Created:
    pass


@dataclass(frozen=True)
class PaymentReceived:
    cents: int


@dataclass(frozen=True)
class Charged:
    charge_id: str


@dataclass(frozen=True)
class TimedOut:
    pass


@dataclass(frozen=True)
class Cancelled:
    pass


@dataclass(frozen=True)
class CancelRejected:
    reason: str


@dataclass(frozen=True)
class InputIgnored:
    input: str


@dataclass(frozen=True)
class Emailed:
    to: str


@dataclass(frozen=True)
class SendEmail:
    to: str


Input = Create | Pay | Charge | Timeout | Cancel | EmailSent
Event = Created | PaymentReceived | Charged | TimedOut | Cancelled | CancelRejected | InputIgnored | Emailed
Decision = hf.Decision[Event, SendEmail, Input]
Handler = Callable[[SendEmail, hf.EffectContext], Awaitable[Input | None]]


@dataclass(frozen=True)
class State:
    status: str = "new"
    emails: tuple[str, ...] = ()
    charges: tuple[str, ...] = ()


class OrderCode:
    """The pure part, so that a test can deploy it a second time with something changed."""

    def workflow_id(self, input: Any) -> str:
        return str(input.id)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Created():
                return replace(state, status="created")
            case PaymentReceived():
                return replace(state, status="paid")
            case TimedOut() | Cancelled():
                return replace(state, status="cancelled")
            case Emailed(to=to):
                return replace(state, emails=(*state.emails, to))
            case Charged(charge_id=charge_id):
                return replace(state, charges=(*state.charges, charge_id))
        return state

    def decide(self, now: datetime, state: State, input: Input) -> Decision:
        match input:
            case Create(id=id) if state.status == "new":
                return (
                    hf.Decision.event(Created())
                    .with_effect(SendEmail("created"))
                    .with_timer_after(HOUR, Timeout(id), key=KEY)
                )
            case Pay(cents=cents) if state.status == "created":
                return hf.Decision.event(PaymentReceived(cents)).cancel_timer(KEY)
            case Timeout() if state.status == "created":
                return hf.Decision.event(TimedOut())
            case Cancel() if state.status == "created":
                return hf.Decision.event(Cancelled())
            case Cancel():
                return hf.Decision.event(CancelRejected(f"the order is {state.status}"))
            case EmailSent(to=to):
                return hf.Decision.event(Emailed(to))
            case Charge(charge_id=charge_id):
                return hf.Decision.event(Charged(charge_id))
        return hf.Decision.event(InputIgnored(type(input).__name__))

    def is_terminal(self, state: State) -> bool:
        return state.status == "cancelled"


@dataclass(frozen=True)
class Stock:
    id: str
    pieces: int


@dataclass(frozen=True)
class Stocked:
    pieces: int


class Shop:
    """One registry with two deciders, and what becomes of an order's effects."""

    def __init__(self, **options: Any) -> None:
        self.registry = hf.Registry()
        self.handled: list[tuple[str, str, int]] = []  # instance, effect, attempt
        self.handler: Handler = answer_nothing
        self.gate: asyncio.Event | None = None
        self.on_input: Callable[[Input], None] = lambda _: None  # called by decide: what it raises, decide raises
        self.Order = self._order(**options)

        class Inventory(hf.Decider[int, Stock, Stocked, Never], name="inventory", registry=self.registry):
            def workflow_id(self, input: Stock) -> str:
                return input.id

            def initial(self) -> int:
                return 0

            def evolve(self, state: int, event: Stocked) -> int:
                return state + event.pieces

            def decide(self, now: datetime, state: int, input: Stock) -> hf.Decision[Stocked, Never, Never]:
                return hf.Decision.event(Stocked(input.pieces))

        self.Inventory = Inventory

    def _order(self, **options: Any) -> Any:
        shop = self
        options = {"retry": hf.Retry(attempts=3, base=0.01, cap=0.02), **options}

        class Order(
            OrderCode, hf.Decider[State, Input, Event, SendEmail], name="order", registry=self.registry, **options
        ):
            def decide(self, now: datetime, state: State, input: Input) -> Decision:
                shop.on_input(input)
                return super().decide(now, state, input)

            async def handle(self, effect: SendEmail, ctx: hf.EffectContext) -> Input | None:
                shop.handled.append((ctx.workflow_id, effect.to, ctx.attempt))
                if shop.gate is not None:
                    await shop.gate.wait()
                return await shop.handler(effect, ctx)

        return Order

    async def events(self, engine: hf.Engine, id: str = "123") -> list[object]:
        return [each.event for each in await engine.stream(self.Order, id)]


async def answer_nothing(effect: SendEmail, ctx: hf.EffectContext) -> Input | None:
    return None


async def confirm(effect: SendEmail, ctx: hf.EffectContext) -> Input | None:
    return EmailSent(ctx.workflow_id, effect.to)
