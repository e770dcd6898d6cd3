"""Two orders: one is paid in time and shipped, one is not and expires.

    python examples/deciders/order.py

An order is a stream of events. What may happen next is decided from them by a function without side effects; whatever
touches the world is an effect, carried out by `handle`, and comes back as an input. The half second in which an order
has to be paid is a timer: a row, not a sleeping process. Kill the program meanwhile and run it again. Once the orders
have ended, running it again changes nothing: what an ended order is told is accepted and ignored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import holdfast as hf

TIME_TO_PAY = timedelta(seconds=3)


# What an order can be told …


@dataclass(frozen=True)
class Place:
    order: str
    article: str


@dataclass(frozen=True)
class Pay:
    order: str
    cents: int


@dataclass(frozen=True)
class NotPaidInTime:
    order: str


@dataclass(frozen=True)
class HandedOver:
    order: str
    tracking: str


# … what has happened to it …


@dataclass(frozen=True)
class Placed:
    article: str


@dataclass(frozen=True)
class Paid:
    cents: int


@dataclass(frozen=True)
class Expired:
    pass


@dataclass(frozen=True)
class Shipped:
    tracking: str


@dataclass(frozen=True)
class Refused:
    what: str


# … and what somebody has to do about it.


@dataclass(frozen=True)
class Mail:
    text: str


@dataclass(frozen=True)
class Ship:
    article: str


Input = Place | Pay | NotPaidInTime | HandedOver
Event = Placed | Paid | Expired | Shipped | Refused
Effect = Mail | Ship


@dataclass(frozen=True)
class State:
    status: str = "new"
    article: str = ""


class Order(hf.Decider[State, Input, Event, Effect], name="order"):
    def workflow_id(self, input: Input) -> str:
        return input.order

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Placed(article=article):
                return State("placed", article)
            case Paid():
                return replace(state, status="paid")
            case Expired():
                return replace(state, status="expired")
            case Shipped():
                return replace(state, status="shipped")
            case Refused():
                return state

    def decide(self, now: datetime, state: State, input: Input) -> hf.Decision[Event, Effect, Input]:
        match input:
            case Place(order=order, article=article) if state.status == "new":
                return (
                    hf.Decision.event(Placed(article))
                    .with_effect(Mail(f"thank you for ordering a {article}"))
                    .with_timer_after(TIME_TO_PAY, NotPaidInTime(order), key="payment")
                )
            case Pay(cents=cents) if state.status == "placed":
                return hf.Decision.event(Paid(cents)).with_effect(Ship(state.article)).cancel_timer("payment")
            case NotPaidInTime() if state.status == "placed":
                return hf.Decision.event(Expired()).with_effect(Mail("too late: your order has expired"))
            case HandedOver(tracking=tracking) if state.status == "paid":
                return hf.Decision.event(Shipped(tracking)).with_effect(Mail(f"on its way: {tracking}"))
            case _:  # a refusal is an event as well: it happened
                return hf.Decision.event(Refused(f"{type(input).__name__} of an order that is {state.status}"))

    def is_terminal(self, state: State) -> bool:
        return state.status in ("shipped", "expired")

    async def handle(self, effect: Effect, ctx: hf.EffectContext) -> Input | None:
        """At least once. A carrier that is given `ctx.idempotency_key` recognises a parcel that it has already."""
        match effect:
            case Mail(text=text):
                print(f"  {ctx.workflow_id}: mail: {text}", flush=True)
                return None
            case Ship(article=article):
                print(f"  {ctx.workflow_id}: {article} handed over", flush=True)
                return HandedOver(ctx.workflow_id, tracking=f"track-{ctx.workflow_id}")


async def main() -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        # Command ids: a program that was killed and is run again repeats itself, and each of these applies once.
        await engine.execute(Order, Place("order-1", "lamp"), command_id="place")
        await engine.execute(Order, Place("order-2", "chair"), command_id="place")
        await engine.execute(Order, Pay("order-1", 4900), command_id="pay")
        for name in ("order-1", "order-2"):
            instance = await engine.snapshot(Order, name)
            await engine.get(instance.run_id).result()  # an instance is a run: it completes when its state is terminal
        await engine.settle()
        for name in ("order-1", "order-2"):
            print(f"{name} is {(await engine.state(Order, name)).status}:")
            for each in await engine.stream(Order, name):
                print(f"  {each.sequence} {each.event}")


if __name__ == "__main__":
    asyncio.run(main())
