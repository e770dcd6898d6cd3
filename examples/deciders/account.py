"""Accounts, and a table of balances that is kept beside them.

    python examples/deciders/account.py

An account's own events say how much is on it; for a list of all accounts they are the wrong shape. A projection is
given every event once, in order, and keeps a table of its own: what it writes through `tx` commits together with how
far it has come. In the end the table is thrown away and built again from the events.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Never

import holdfast as hf


@hf.idempotent(key="slip")  # the same slip twice is one deposit, whoever sends it
@dataclass(frozen=True)
class Deposit:
    owner: str
    cents: int
    slip: str


@hf.idempotent(key="slip")
@dataclass(frozen=True)
class Withdraw:
    owner: str
    cents: int
    slip: str


@dataclass(frozen=True)
class Deposited:
    cents: int


@dataclass(frozen=True)
class Withdrawn:
    cents: int


@dataclass(frozen=True)
class TooLittle:
    cents: int


Input = Deposit | Withdraw
Event = Deposited | Withdrawn | TooLittle


class Account(hf.Decider[int, Input, Event, Never], name="account"):
    """The state is a number, and there are no effects: nothing to handle."""

    def workflow_id(self, input: Input) -> str:
        return input.owner

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Event) -> int:
        match event:
            case Deposited(cents=cents):
                return state + cents
            case Withdrawn(cents=cents):
                return state - cents
            case TooLittle():
                return state

    def decide(self, now: datetime, state: int, input: Input) -> hf.Decision[Event, Never, Input]:
        match input:
            case Deposit(cents=cents):
                return hf.Decision.event(Deposited(cents))
            case Withdraw(cents=cents) if cents <= state:
                return hf.Decision.event(Withdrawn(cents))
            case Withdraw(cents=cents):
                return hf.Decision.event(TooLittle(cents))


@hf.projection(Account, name="balances")
async def balances(event: hf.Recorded[Event], tx: hf.Tx) -> None:
    change = {Deposited: 1, Withdrawn: -1}.get(type(event.event), 0) * event.event.cents
    await tx.execute("CREATE TABLE IF NOT EXISTS balance (owner TEXT PRIMARY KEY, cents INTEGER, movements INTEGER)")
    await tx.execute(
        "INSERT INTO balance VALUES (?, ?, 1)"
        " ON CONFLICT (owner) DO UPDATE SET cents = cents + excluded.cents, movements = movements + 1",
        event.workflow_id,
        change,
    )


@balances.reset
async def empty(tx: hf.Tx) -> None:
    """Called by a rebuild, in the transaction that begins it."""
    await tx.execute("DROP TABLE IF EXISTS balance")


@hf.action(transactional=True)
async def read_balances() -> list[list[str | int]]:
    rows = await hf.current().tx.fetch("SELECT owner, cents, movements FROM balance ORDER BY cents DESC")
    return [list(row) for row in rows]


async def main() -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        for number, (owner, cents) in enumerate([("Ada", 5000), ("Grace", 700), ("Linus", 900), ("Ada", 1000)]):
            await engine.execute(Account, Deposit(owner, cents, slip=f"slip-{number}"))
        await engine.execute(Account, Deposit("Ada", 1000, slip="slip-3"))  # known already, so nothing happens
        await engine.execute(Account, Withdraw("Grace", 800, slip="slip-4"))
        await engine.execute(Account, Withdraw("Linus", 800, slip="slip-5"))
        await show(engine, "the table")
        await engine.rebuild_projection("balances")
        await show(engine, "built again")
        for owner in ("Ada", "Grace", "Linus"):
            cents = await engine.state(Account, owner)
            print(f"  by its own events {owner} has {cents} cents")


async def show(engine: hf.Engine, title: str) -> None:
    await engine.settle()
    print(f"{title}:")
    for owner, cents, movements in await (await engine.start(read_balances)).result():
        print(f"  {owner}: {cents} cents after {movements} movements")
    for each in await engine.projections():
        print(f"  {each.name} is at position {each.position}, {each.lag_events} events behind")


if __name__ == "__main__":
    asyncio.run(main())
