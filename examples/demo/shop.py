"""The shop of the demo: what has to happen to an order, as a class.

`validate` comes first, the stock is reserved and the card is charged at the same time, and the parcel is packed when
both are done. Every step asks somebody outside; how long that takes is pretended, the rest is real.
"""

from __future__ import annotations

from world import world

import holdfast as hf

BUSY_EVERY = 5  # of so many orders, one finds the bank busy at its first try


class BankBusy(Exception):
    """The bank asks to be called again."""


class Order(hf.Dag):
    """One order, from the basket to the mail that says it is on its way."""

    number: int
    cents: int

    @hf.step
    async def validate(self) -> None:
        await world.ask(seconds=0.12)

    @hf.step
    async def reserve_stock(self) -> None:
        await world.ask(seconds=0.2)

    @hf.task(depends_on="validate", retry=hf.Retry(attempts=3, base=0.2, cap=2.0, retry_on=(BankBusy,)))
    async def charge_card(self) -> None:
        first_try = hf.current().attempt == 1
        if first_try and self.number % BUSY_EVERY == 0:
            await world.refuse(seconds=0.1)
            raise BankBusy(f"order {self.number}: call again")
        await world.ask(seconds=0.4)

    @hf.step(also_depends_on="charge_card")
    async def pack(self) -> None:
        await world.ask(seconds=0.25)

    @hf.step
    async def ship(self) -> None:
        await world.ask(seconds=0.25)

    @hf.step
    async def notify(self) -> None:
        await world.ask(seconds=0.12)


STEPS = tuple(Order.compiled_dag().topological_order)
