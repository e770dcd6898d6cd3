"""What was deployed first. Its second step waits for a service that was switched off."""

from __future__ import annotations

import asyncio

import holdfast as hf


class Invoice(hf.Dag):
    number: int

    @hf.step
    async def receive(self) -> None:
        print(f"  before: invoice {self.number} received", flush=True)

    @hf.step
    async def convert(self) -> None:
        print("  before: asking for the rate …", flush=True)
        await asyncio.Event().wait()  # an answer that never comes

    @hf.step(also_depends_on="receive")
    async def send_fax(self) -> None:
        print("  before: fax sent", flush=True)
