"""Deciders under the type checker: what must pass, and lines that must fail.

Never run, only checked. A line that must fail has an ignore with its code; unused ignores are errors, so a line that
stops failing is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Never, assert_type

import holdfast as hf
from holdfast.testing import Given, given


@dataclass(frozen=True)
class OrderState:
    status: str = "new"


@dataclass(frozen=True)
class Create:
    order_id: str


@dataclass(frozen=True)
class PaymentTimeout:
    order_id: str


@dataclass(frozen=True)
class Created:
    order_id: str


@dataclass(frozen=True)
class Priced:
    cents: int


@dataclass(frozen=True)
class Expired:
    pass


@dataclass(frozen=True)
class SendEmail:
    to: str


@dataclass(frozen=True)
class Ship:
    to: str


OrderInput = Create | PaymentTimeout
OrderEvent = Created | Priced | Expired
OrderEffect = SendEmail | Ship


class Order(hf.Decider[OrderState, OrderInput, OrderEvent, OrderEffect], name="order", queue="orders"):
    def workflow_id(self, input: OrderInput) -> str:
        return input.order_id

    def initial(self) -> OrderState:
        return OrderState()

    def evolve(self, state: OrderState, event: OrderEvent) -> OrderState:
        return state

    def decide(
        self, now: datetime, state: OrderState, input: OrderInput
    ) -> hf.Decision[OrderEvent, OrderEffect, OrderInput]:
        if isinstance(input, PaymentTimeout):
            return hf.Decision.event(Expired())
        return (
            hf.Decision.event(Created(input.order_id), Priced(3))
            .with_effect(SendEmail("ada"))
            .with_timer_after(timedelta(minutes=30), PaymentTimeout(input.order_id), key="payment")
            .with_timer_at(datetime(2031, 1, 1, tzinfo=UTC), PaymentTimeout(input.order_id))
            .cancel_timer("reminder")
        )

    def is_terminal(self, state: OrderState) -> bool:
        return state.status == "done"

    async def handle(self, effect: OrderEffect, ctx: hf.EffectContext) -> OrderInput | None:
        assert_type(ctx.attempt, int)
        assert_type(ctx.idempotency_key, str)
        return None

    def view(self, state: OrderState) -> hf.StateInfo:
        return hf.StateInfo(status=state.status, fields={"n": 1}, terminal=False)

    def definition(self) -> hf.StateMachineDefinition:
        return hf.StateMachineDefinition(transitions=(hf.TransitionInfo(None, Create, "open"),))


class Counter(hf.Decider[int, Create, Created, Never]):
    def workflow_id(self, input: Create) -> str:
        return input.order_id

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Created) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Create) -> hf.Decision[Created, Never, Create]:
        return hf.Decision.event(Created(input.order_id))


class Blocking(Counter):
    def handle(self, effect: Never, ctx: hf.EffectContext) -> Create | None:  # a plain def is welcome too
        return None


def decisions() -> None:
    assert_type(hf.Decision.event(Created("1")), hf.Decision[Created, Never, Never])
    assert_type(hf.Decision.event(Created("1"), Priced(1)), hf.Decision[Created | Priced, Never, Never])
    assert_type(
        hf.Decision.event(Created("1")).with_effect(Ship("x")).with_event(Expired()),
        hf.Decision[Created | Expired, Ship, Never],
    )
    assert_type(
        hf.Decision.event(Created("1")).with_effects(Ship("x"), SendEmail("y")),
        hf.Decision[Created, Ship | SendEmail, Never],
    )
    assert_type(
        hf.Decision.event(Created("1")).with_timer_after(5, Create("1"), key="k"),
        hf.Decision[Created, Never, Create],
    )
    hf.Decision.event()  # type: ignore[call-overload]
    hf.Decision.event(Created("1")).with_timer_after("5", Create("1"))  # type: ignore[arg-type]
    wrong: hf.Decision[Created, Never, Create] = hf.Decision.event(Priced(1))  # type: ignore[arg-type]
    del wrong


def foreign_effect() -> hf.Decision[Created, SendEmail, Never]:
    return hf.Decision.event(Created("1")).with_effect(Ship("x"))  # type: ignore[arg-type]


@hf.projection(Order, name="open-orders")
async def open_orders(event: hf.Recorded[OrderEvent], tx: hf.Tx) -> None:
    assert_type(event.event, Created | Priced | Expired)
    assert_type(event.position, int)
    assert_type(event.at, datetime)
    await tx.execute("…", event.workflow_id)


@hf.projection(Order, batch=True)
async def many(events: list[hf.Recorded[OrderEvent]], tx: hf.Tx) -> None: ...


@hf.projection((Order, Counter))
async def both(event: hf.Recorded[Any], tx: hf.Tx) -> None: ...


@hf.projection(Order)  # type: ignore[arg-type]
async def of_another(event: hf.Recorded[Ship], tx: hf.Tx) -> None: ...


@open_orders.reset
async def empty(tx: hf.Tx) -> None: ...


@hf.upcast(Order, "Created", from_version=1)
def named(event: dict[str, Any]) -> dict[str, Any]:
    return event


@hf.idempotent(key="order_id")
@dataclass(frozen=True)
class Charge:
    order_id: str


assert_type(Charge("1"), Charge)
assert_type(Order.state_machine().mermaid(), str)


def tests() -> None:
    assert_type(given(Counter), Given[int, Create, Created, Never])
    given(Order, [Created("1")]).when(Create("1")).then_events(Expired()).then_effects(Ship("x")).then_no_timers()
    given(Counter).when(Create("1")).then_state(1).then_state(lambda state: state > 0).then_terminal(False)
    given(Counter).when(PaymentTimeout("1"))  # type: ignore[arg-type]
    given(Counter).when(Create("1")).then_events(Priced(1))  # type: ignore[arg-type]
