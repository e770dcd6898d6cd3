"""What is deployed in the middle of a run: one step mended, one new, one removed. The class has the same name."""

from __future__ import annotations

import holdfast as hf


class Invoice(hf.Dag):
    number: int

    @hf.step
    async def receive(self) -> None:
        print(f"  after: invoice {self.number} received", flush=True)

    @hf.task(depends_on="receive")
    async def check_customer(self) -> None:
        print("  after: customer checked", flush=True)

    @hf.step
    async def convert(self) -> None:
        print(f"  after: converted, attempt {hf.current().attempt}", flush=True)

    @hf.step(also_depends_on="check_customer")
    async def send_mail(self) -> None:
        print("  after: mail sent", flush=True)
