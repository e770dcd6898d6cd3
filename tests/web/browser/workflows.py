"""What happens in the world that the page is tried on: a small shop, with something of every model."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import holdfast as hf

PLACE = "SCENE_DIRECTORY"  # a directory in which steps tell the scene that they have begun


class BankBusy(Exception):
    """The bank asks to be called again."""


class OutOfStock(Exception):
    """There is none left."""


async def take(seconds: float) -> None:
    """Somebody outside is asked, and that takes a moment: bars of a timeline should be seen."""
    await asyncio.sleep(seconds)


class Order(hf.Dag, name="order", on_failure="fail"):
    """One order, from the basket to the mail that says it is on its way."""

    number: int
    note: str = ""

    @hf.step
    async def validate(self) -> None:
        await take(0.03)

    @hf.step
    async def reserve_stock(self) -> None:
        await take(0.05)

    @hf.task(depends_on="validate", retry=hf.Retry(attempts=3, base=0.05, cap=0.2, retry_on=(BankBusy,)))
    async def charge_card(self) -> None:
        attempt = hf.current().attempt
        await take(0.04)
        if self.number % 5 == 0 and attempt == 1:
            raise BankBusy(f"order {self.number}: call again")
        if self.number % 100 == 13 and attempt <= 3:
            raise BankBusy(f"order {self.number}: the bank is closed")

    @hf.step(also_depends_on="charge_card")
    async def pack(self) -> None:
        await take(0.03)

    @hf.step
    async def ship(self) -> None:
        await take(0.03)


class Restock(hf.Dag, name="restock", on_failure="pause"):
    """Asks a supplier for more; pauses when one does not answer, so that somebody can look."""

    article: str

    @hf.step
    async def count(self) -> None:
        await take(0.02)

    @hf.step
    async def ask_supplier(self) -> None:
        if hf.current().attempt == 1:
            raise OutOfStock(f"no {self.article} left at the supplier")

    @hf.step
    async def book_delivery(self) -> None:
        await take(0.02)


class Inventory(hf.Dag, name="inventory"):
    """Its worker is killed in the middle of the counting."""

    shop: str

    @hf.step
    async def lock_shop(self) -> None:
        await take(0.02)

    @hf.step
    async def count_shelves(self) -> None:
        if hf.current().attempt == 1:
            (Path(os.environ[PLACE]) / "counting").touch()
            await asyncio.Event().wait()
        await take(0.05)

    @hf.step
    async def unlock_shop(self) -> None:
        await take(0.02)


@hf.action
async def import_shop(shop: int) -> None:
    if shop == 77 and hf.current().attempt == 1:
        raise ConnectionError(f"shop {shop} does not answer")


@hf.action
async def report() -> None:
    await take(0.02)


def nightly(shops: int) -> hf.BuiltDag:
    dag = hf.DagBuilder("nightly")
    dag.node("open", job=report)
    dag.fan_out(range(shops), name=lambda shop: f"import_{shop:04}", job=import_shop, args=lambda shop: {"shop": shop})
    dag.node("report", job=report)
    return dag.build()


@dataclass(frozen=True)
class Decision:
    by: str
    reason: str = ""


approved = hf.event("membership-approved", Decision)
rejected = hf.event("membership-rejected", Decision)


@hf.action
async def create_account(member: str) -> str:
    await take(0.05)
    return f"account-{member.lower()}"


@hf.action(retry=hf.Retry(attempts=3, base=0.05))
async def ask(member: str) -> None:
    if hf.current().attempt == 1:
        raise ConnectionError("the mail server is busy")
    await take(0.03)


@hf.action
async def welcome(member: str, by: str) -> None:
    await take(0.03)


@hf.workflow
async def onboard(member: str) -> str:
    """A new member, and a person who decides."""
    account = await create_account(member)
    await ask(member)
    match await hf.wait_for(approved | rejected):
        case hf.Received(event="membership-approved", value=decision):
            await welcome(member, decision.by)
            return account
        case hf.Received(value=decision):
            return f"refused by {decision.by}: {decision.reason}"


@hf.workflow
async def remind(member: str, hours: int) -> None:
    """Sleeps in the database, and asks again."""
    await ask(member)
    await hf.sleep(hours=hours)
    await ask(member)


@hf.workflow
async def household(members: list[str]) -> int:
    """Waits for runs of its own."""
    children = [remind(member, 5) for member in members]
    await asyncio.gather(*children)
    return len(members)


@hf.action
async def ping(number: int) -> int:
    """Answers at once."""
    return number


@hf.workflow(name="ponder" * 40)
async def ponder() -> int:
    """Calls nothing, and has a name that is longer than a line."""
    return 42


@hf.action
async def watch_prices() -> None:
    """Never ends by itself."""
    await asyncio.Event().wait()


@hf.action
async def render(frames: int) -> None:
    """On a queue that nobody serves."""


@hf.action
async def price_of(article: str) -> int:
    await take(0.02)
    return 10 * len(article)


@hf.action
async def accept(total: int) -> bool:
    await take(0.02)
    return total < 150


@hf.flow
async def negotiate(articles: list[str]) -> int:
    """Asks for prices until somebody accepts."""
    discount = 0
    while True:
        prices = await asyncio.gather(*[price_of(article) for article in articles])
        total = sum(prices) - discount
        if await accept(total):
            return total
        discount = discount + 40


class Talk(TypedDict):
    question: str
    messages: Annotated[list[dict[str, Any]], hf.reducers.append]


agent = hf.StateGraph(Talk, name="agent", max_steps=20)


@agent.node(goes_to=["look_up", "send_mail"])
async def think(state: Talk) -> Any:
    """A model without a network: looks two prices up, then wants to send a mail."""
    await take(0.02)
    found = [message for message in state["messages"] if message["role"] == "tool"]
    if not found:
        return hf.Many([hf.Send("look_up", {"question": name}) for name in ("lamp", "chair")])
    if len(found) == 2:
        return hf.Goto("send_mail", {"messages": [{"role": "model", "text": "I mail the sum."}]})
    return {"messages": [{"role": "model", "text": "Done."}]}


@agent.node
async def look_up(state: Talk) -> dict[str, Any]:
    await take(0.03)
    return {"messages": [{"role": "tool", "text": f"{state['question']}: {10 * len(state['question'])}"}]}


@agent.node
async def send_mail(state: Talk, ctx: hf.NodeContext) -> dict[str, Any]:
    answer = await ctx.interrupt({"may I send this": "lamp and chair: 90", "to": "<b>ada@example.org</b>"})
    return {"messages": [{"role": "tool", "text": f"mail: {answer}"}]}


agent.start_at("think")
agent.finish("think")
agent.edge("look_up", "think")
agent.edge("send_mail", "think")


@dataclass(frozen=True)
class Deposit:
    owner: str
    cents: int


@dataclass(frozen=True)
class Withdraw:
    owner: str
    cents: int


@dataclass(frozen=True)
class Remind:
    owner: str


@dataclass(frozen=True)
class Deposited:
    cents: int


@dataclass(frozen=True)
class Withdrawn:
    cents: int


@dataclass(frozen=True)
class Refused:
    cents: int


@dataclass(frozen=True)
class Letter:
    text: str


@dataclass(frozen=True)
class Balance:
    cents: int = 0
    movements: int = 0
    status: str = "open"


Input = Deposit | Withdraw | Remind
Event = Deposited | Withdrawn | Refused


class Account(hf.Decider[Balance, Input, Event, Letter], name="account"):
    """What is on an account follows from what happened to it."""

    def workflow_id(self, input: Input) -> str:
        return input.owner

    def initial(self) -> Balance:
        return Balance()

    def evolve(self, state: Balance, event: Event) -> Balance:
        match event:
            case Deposited(cents=cents):
                return replace(state, cents=state.cents + cents, movements=state.movements + 1)
            case Withdrawn(cents=cents):
                return replace(state, cents=state.cents - cents, movements=state.movements + 1)
            case Refused():
                return replace(state, movements=state.movements + 1)

    def decide(self, now: datetime, state: Balance, input: Input) -> hf.Decision[Event, Letter, Input]:
        match input:
            case Deposit(owner=owner, cents=cents):
                return hf.Decision.event(Deposited(cents)).with_timer_after(
                    timedelta(days=30), Remind(owner), key="reminder"
                )
            case Withdraw(cents=cents) if cents <= state.cents:
                return hf.Decision.event(Withdrawn(cents))
            case Withdraw(cents=cents):
                return hf.Decision.event(Refused(cents)).with_effect(Letter(f"too little for {cents}"))
            case Remind():
                return hf.Decision()

    async def handle(self, effect: Letter, ctx: hf.EffectContext) -> Input | None:
        if ctx.attempt == 1:
            raise hf.NonRetryable("the printer is on fire")
        return None


@hf.projection(Account, name="balances")
async def balances(event: hf.Recorded[Event], tx: hf.Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS balance (owner TEXT PRIMARY KEY, movements INTEGER)")
    await tx.execute(
        "INSERT INTO balance VALUES (?, 1) ON CONFLICT (owner) DO UPDATE SET movements = movements + 1",
        event.workflow_id,
    )


@hf.projection(Account, name="refusals", retry=hf.Retry(attempts=2, base=0.1))
async def refusals(event: hf.Recorded[Event], tx: hf.Tx) -> None:
    if isinstance(event.event, Refused):
        raise ValueError(f"a refusal of {event.event.cents} cents has no column")
