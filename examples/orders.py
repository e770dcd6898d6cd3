"""Work for workers in other processes: queues, priorities, retries, timeouts.

In one terminal, a worker for both queues:

    holdfast worker examples.orders --queue default --queue payments

In another, three orders:

    python examples/orders.py

Both need to see the same database: holdfast.db in the current directory, unless HOLDFAST_URL names another.
"""

from __future__ import annotations

import asyncio

import holdfast as hf


class CarrierBusy(Exception):
    """The carrier asks to be called again."""


@hf.action(retry=hf.Retry(attempts=3, base=0.2, cap=5.0), timeout=10.0, queue="payments")
async def charge(order: int, cents: int) -> str:
    """Charge a card. The key is the same in every attempt, so that the bank can tell a repetition."""
    running = hf.current()
    running.logger.info("charging %d cents for order %d", cents, order)
    return f"receipt for {running.idempotency_key}"


@hf.action
def print_label(size: str) -> None:
    """A plain `def` runs in a thread, so it may block."""


class Order(hf.Dag, on_failure="pause"):
    """One order. When a step gives up, the run pauses for somebody to look; `holdfast resume` goes on."""

    number: int
    cents: int

    @hf.step
    async def validate(self) -> None:
        if self.cents <= 0:
            raise hf.NonRetryable(f"order {self.number} costs {self.cents} cents")

    @hf.step(queue="payments", timeout=10.0)
    async def charge_card(self) -> None:
        await charge(self.number, self.cents)  # inside a step an action is a plain call, a part of the step

    label = hf.task(job=print_label, args={"size": "A6"}, depends_on="validate")

    @hf.step(also_depends_on="label", retry=hf.Retry(attempts=5, base=0.2, cap=5.0, retry_on=(CarrierBusy,)))
    async def ship(self) -> None:
        if hf.current().attempt == 1:
            raise CarrierBusy(f"order {self.number}: call again")
        hf.current().note("collected at the back door")


async def main() -> None:
    async with hf.Engine() as engine:
        handles = [
            await engine.start(Order(number=number, cents=1999), key=f"order-{number}", tags={"customer": "acme"})
            for number in (1, 2)
        ]
        handles.append(await engine.start(Order(number=3, cents=4999), key="order-3", priority=10))
        for handle in handles:
            await handle.result()
            print(f"{handle.key}: {await handle.status()}")


if __name__ == "__main__":
    asyncio.run(main())
