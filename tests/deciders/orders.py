"""The deciders that tests of deciders share: a puppet that does what its input says, and an order as people write one.

`World` makes them with a registry of their own, so that each test can say what becomes of an effect.
`python -m tests.deciders.orders URL` is a process that asks for an effect and is killed by carrying it out.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

import holdfast as hf

QUICK = hf.Retry(attempts=3, base=0.01, cap=0.02)
"""Retries that no test has to wait for."""


# -- the puppet: an input carries what is to be decided


class Alarm(msgspec.Struct, frozen=True):
    """A timer that the puppet is to set; `again` makes it set itself anew, so many times."""

    after: float
    word: str
    key: str | None = None
    again: int = 0
    raises: bool = False


class Act(msgspec.Struct, frozen=True):
    """Decide this: a word for each event, an errand for each effect."""

    id: str
    words: tuple[str, ...] = ("acted",)
    errands: tuple[str, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    cancel: tuple[str, ...] = ()
    end: bool = False
    raises: str = ""


class Ring(msgspec.Struct, frozen=True):
    """What a timer gives."""

    id: str
    alarm: Alarm


class Reply(msgspec.Struct, frozen=True):
    """What an effect's handler returns."""

    id: str
    word: str
    raises: str = ""


class Spoke(msgspec.Struct, frozen=True):
    word: str


class Ended(msgspec.Struct, frozen=True):
    pass


class Errand(msgspec.Struct, frozen=True):
    what: str


class Puppetry(msgspec.Struct, frozen=True):
    words: tuple[str, ...] = ()
    status: str = "open"


PuppetInput = Act | Ring | Reply
PuppetEvent = Spoke | Ended
PuppetDecision = hf.Decision[PuppetEvent, Errand, PuppetInput]
Handler = Callable[[Errand, hf.EffectContext], Awaitable[PuppetInput | None]]


class Refusal(Exception):
    """What the puppet raises when it is told to."""


class World:
    """A registry with a puppet in it, and a journal of what its handler was asked to do."""

    def __init__(self, **options: Any) -> None:
        self.registry = hf.Registry()
        self.journal: list[str] = []  # "errand attempt" of each call of the handler
        self.contexts: list[hf.EffectContext] = []
        self.evolved: list[str] = []
        self.decided: list[str] = []
        self.clocks: list[datetime] = []
        self.handler: Handler = do_nothing
        self.gates: dict[str, asyncio.Event] = {}  # by errand: its handler waits there
        self.mended = False  # once set, what was told to raise does not
        world = self

        class Puppet(
            hf.Decider[Puppetry, PuppetInput, PuppetEvent, Errand],
            name="puppet",
            registry=self.registry,
            **{"retry": QUICK, **options},
        ):
            def workflow_id(self, input: PuppetInput) -> str:
                return input.id

            def initial(self) -> Puppetry:
                return Puppetry()

            def evolve(self, state: Puppetry, event: PuppetEvent) -> Puppetry:
                if isinstance(event, Ended):
                    world.evolved.append("ended")
                    return msgspec.structs.replace(state, status="ended")
                world.evolved.append(event.word)
                return msgspec.structs.replace(state, words=(*state.words, event.word))

            def decide(self, now: datetime, state: Puppetry, input: PuppetInput) -> PuppetDecision:
                world.decided.append(type(input).__name__)
                world.clocks.append(now)
                return world.decide(input)

            def is_terminal(self, state: Puppetry) -> bool:
                return state.status == "ended"

            async def handle(self, effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
                world.journal.append(f"{effect.what} {ctx.attempt}")
                world.contexts.append(ctx)
                if effect.what in world.gates:
                    await world.gates[effect.what].wait()
                return await world.handler(effect, ctx)

        self.Puppet = Puppet

    def decide(self, input: PuppetInput) -> PuppetDecision:
        if isinstance(input, Reply):
            if input.raises and not self.mended:
                raise Refusal(input.raises)
            return hf.Decision.event(Spoke(input.word))
        if isinstance(input, Ring):
            return self._rung(input)
        if input.raises and not self.mended:
            raise Refusal(input.raises)
        decision: PuppetDecision = hf.Decision(events=tuple(Spoke(word) for word in input.words))
        if input.end:
            decision = decision.with_event(Ended())
        decision = decision.with_effects([Errand(what) for what in input.errands])
        for alarm in input.alarms:
            decision = _with_alarm(decision, input.id, alarm)
        for key in input.cancel:
            decision = decision.cancel_timer(key)
        return decision

    def _rung(self, input: Ring) -> PuppetDecision:
        alarm = input.alarm
        if alarm.raises and not self.mended:
            raise Refusal(alarm.word)
        decision: PuppetDecision = hf.Decision.event(Spoke(alarm.word))
        if alarm.again:
            again = msgspec.structs.replace(alarm, again=alarm.again - 1)
            decision = _with_alarm(decision, input.id, again)
        return decision

    async def words(self, engine: hf.Engine, id: str = "p") -> tuple[str, ...]:
        state: Puppetry = await engine.state(self.Puppet, id)
        return state.words


def _with_alarm(decision: PuppetDecision, id: str, alarm: Alarm) -> PuppetDecision:
    return decision.with_timer_after(timedelta(seconds=alarm.after), Ring(id, alarm), key=alarm.key)


async def do_nothing(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
    return None


async def always_fail(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
    raise ConnectionError(f"{effect.what} did not work")


async def reply(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
    return Reply(ctx.workflow_id, f"{effect.what} done")


# -- an order, as people write one


class Create(msgspec.Struct, frozen=True):
    order_id: str
    cents: int = 100


@hf.idempotent(key="payment_id")
class Pay(msgspec.Struct, frozen=True):
    order_id: str
    payment_id: str


class PaymentTimeout(msgspec.Struct, frozen=True):
    order_id: str


class Delivered(msgspec.Struct, frozen=True):
    order_id: str


class Created(msgspec.Struct, frozen=True):
    cents: int


class Paid(msgspec.Struct, frozen=True):
    payment_id: str


class Expired(msgspec.Struct, frozen=True):
    pass


class Arrived(msgspec.Struct, frozen=True):
    pass


class Refused(msgspec.Struct, frozen=True):
    why: str


class Ship(msgspec.Struct, frozen=True):
    cents: int


class OrderState(msgspec.Struct, frozen=True):
    status: str = "new"
    cents: int = 0
    refused: int = 0


OrderInput = Create | Pay | PaymentTimeout | Delivered
OrderEvent = Created | Paid | Expired | Arrived | Refused
PAYMENT_TIME = timedelta(minutes=30)


class OrderBase:
    """The pure part of an order, so that a test can register it under whatever name and options it needs."""

    def workflow_id(self, input: OrderInput) -> str:
        return input.order_id

    def initial(self) -> OrderState:
        return OrderState()

    def evolve(self, state: OrderState, event: OrderEvent) -> OrderState:
        match event:
            case Created(cents=cents):
                return msgspec.structs.replace(state, status="open", cents=cents)
            case Paid():
                return msgspec.structs.replace(state, status="paid")
            case Expired():
                return msgspec.structs.replace(state, status="expired")
            case Arrived():
                return msgspec.structs.replace(state, status="done")
        return msgspec.structs.replace(state, refused=state.refused + 1)

    def decide(self, now: datetime, state: OrderState, input: OrderInput) -> hf.Decision[OrderEvent, Ship, OrderInput]:
        match state.status, input:
            case "new", Create(order_id=order_id, cents=cents):
                made = hf.Decision.event(Created(cents))
                return made.with_timer_after(PAYMENT_TIME, PaymentTimeout(order_id), key="payment")
            case "open", Pay(payment_id=payment_id):
                return hf.Decision.event(Paid(payment_id)).with_effect(Ship(state.cents)).cancel_timer("payment")
            case "open", PaymentTimeout():
                return hf.Decision.event(Expired())
            case "paid", Delivered():
                return hf.Decision.event(Arrived())
        return hf.Decision.event(Refused(f"{type(input).__name__} when {state.status}"))

    def is_terminal(self, state: OrderState) -> bool:
        return state.status in ("done", "expired")

    async def handle(self, effect: Ship, ctx: hf.EffectContext) -> OrderInput | None:
        return Delivered(ctx.workflow_id)


def order_class(registry: hf.Registry, name: str = "order", **options: Any) -> Any:
    """An order registered under this name. Its type is Any: a class that a function makes has none to name."""

    class Order(
        OrderBase, hf.Decider[OrderState, OrderInput, OrderEvent, Ship], name=name, registry=registry, **options
    ):
        pass

    return Order


# -- a process that does not survive its effect


async def die(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
    os.kill(os.getpid(), signal.SIGKILL)
    return None


async def main(url: str) -> None:
    world = World()
    world.handler = die
    async with hf.Engine(url, registry=world.registry) as engine, engine.worker():
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
