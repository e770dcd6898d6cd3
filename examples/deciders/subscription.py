"""A subscription that is billed again and again, by a timer that sets itself anew.

    python examples/deciders/subscription.py

A month lasts a fifth of a second here. In March the card is declined; it is asked once more after a while, and then
the subscription is ended. One timer, called "billing", does it all: each bill sets it for the next one. There is never
a second timer under the same key, so nobody is billed twice a month, whoever crashes when.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import holdfast as hf

MONTH = timedelta(seconds=0.2)
GRACE = timedelta(seconds=0.1)
BILLING = "billing"
MONTHS = ("January", "February", "March", "April", "May")


@dataclass(frozen=True)
class Subscribe:
    member: str
    cents: int


@dataclass(frozen=True)
class BillNow:
    """What the timer says."""

    member: str


@dataclass(frozen=True)
class CardCharged:
    """What the bank says, for the month that it was asked for."""

    member: str
    month: int


@dataclass(frozen=True)
class CardDeclined:
    member: str
    month: int


@dataclass(frozen=True)
class Subscribed:
    cents: int


@dataclass(frozen=True)
class Billed:
    month: int


@dataclass(frozen=True)
class Received:
    month: int


@dataclass(frozen=True)
class Declined:
    month: int


@dataclass(frozen=True)
class Reminded:
    month: int


@dataclass(frozen=True)
class Ended:
    reason: str


@dataclass(frozen=True)
class Ignored:
    what: str


@dataclass(frozen=True)
class Charge:
    month: int
    cents: int


Input = Subscribe | BillNow | CardCharged | CardDeclined
Event = Subscribed | Billed | Received | Declined | Reminded | Ended | Ignored


@dataclass(frozen=True)
class State:
    status: str = "new"
    cents: int = 0
    month: int = 0  # how many were billed
    open: bool = False  # whether the last bill waits for the bank
    reminders: int = 0


class Subscription(hf.Decider[State, Input, Event, Charge], name="subscription"):
    def workflow_id(self, input: Input) -> str:
        return input.member

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Subscribed(cents=cents):
                return State("active", cents)
            case Billed(month=month):
                return replace(state, month=month, open=True)
            case Received():
                return replace(state, status="active", open=False, reminders=0)
            case Declined():
                return replace(state, status="overdue")
            case Reminded():
                return replace(state, reminders=state.reminders + 1)
            case Ended():
                return replace(state, status="ended", open=False)
            case Ignored():
                return state

    def decide(self, now: datetime, state: State, input: Input) -> hf.Decision[Event, Charge, Input]:
        member, again = input.member, BillNow(input.member)
        match input:
            case Subscribe(cents=cents) if state.status == "new":
                return hf.Decision.event(Subscribed(cents)).with_timer_after(MONTH, again, key=BILLING)
            case BillNow() if state.open:  # the reminder: the same bill again, and no new month
                return hf.Decision.event(Reminded(state.month)).with_effect(Charge(state.month, state.cents))
            case BillNow():
                # The timer that is firing sets itself anew, and stays set.
                month = state.month + 1
                return (
                    hf.Decision.event(Billed(month))
                    .with_effect(Charge(month, state.cents))
                    .with_timer_after(MONTH, again, key=BILLING)
                )
            case CardCharged(month=month) if state.open and month == state.month:
                return hf.Decision.event(Received(month))
            case CardDeclined(month=month) if state.open and month == state.month:
                if state.reminders == 0:  # setting the key moves the timer that is there
                    return hf.Decision.event(Declined(month)).with_timer_after(GRACE, again, key=BILLING)
                ended = Ended(f"{MONTHS[month - 1]} was never paid")
                return hf.Decision.event(Declined(month), ended).cancel_timer(BILLING)
            case _:
                return hf.Decision.event(Ignored(f"{type(input).__name__} of {member}"))

    def is_terminal(self, state: State) -> bool:
        return state.status == "ended"

    async def handle(self, effect: Charge, ctx: hf.EffectContext) -> Input:
        """A refusal is an answer, so it is returned. What is raised instead, say for a lost connection, is retried."""
        month = MONTHS[effect.month - 1]
        # A bank is asked under the member and the month, and charges each of them once, however often this runs.
        if month == "March":
            print(f"  {month}: declined", flush=True)
            return CardDeclined(ctx.workflow_id, effect.month)
        print(f"  {month}: {effect.cents} cents charged", flush=True)
        return CardCharged(ctx.workflow_id, effect.month)


async def main() -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        await engine.execute(Subscription, Subscribe("Ada", 900), command_id="subscribe")
        instance = await engine.snapshot(Subscription, "Ada")
        for timer in instance.timers:
            print(f"  {timer.key} is set for {timer.due:%H:%M:%S.%f}"[:-4], flush=True)
        await engine.get(instance.run_id).result()
        for each in await engine.stream(Subscription, "Ada"):
            print(f"{each.at:%H:%M:%S.%f}"[:-4], each.event)


if __name__ == "__main__":
    asyncio.run(main())
