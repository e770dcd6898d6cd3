"""An order as a class DAG: a chain of steps, tasks beside it, and a person who helps when something stays broken.

    python examples/order_workflow.py 17

The fraud service is down at first. Everything that does not need its answer is done meanwhile; then the run pauses and
says what it waits for. Somebody gives that one node another attempt, and the order goes on. Run the program again with
the same number, and it finds the finished run; state is in holdfast.db in the current directory.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf


@hf.action
async def count_sale(region: str) -> None:
    """A job: an action that any DAG may use as one of its nodes."""
    say(f"one more sale in {region}")


class OrderWorkflow(hf.Dag, on_failure="pause"):
    """Steps follow each other in the order of the text; tasks wait for exactly what they name."""

    order_id: int

    @hf.step
    async def validate(self) -> None:
        say(f"order {self.order_id} is complete")

    @hf.step
    async def enrich_data(self) -> None:
        say("address looked up")

    @hf.task(depends_on="validate")
    async def check_inventory(self) -> None:
        say("all pieces are there")

    @hf.task(depends_on="validate")
    async def check_fraud(self) -> None:
        if hf.current().attempt == 1:
            raise ConnectionError("the fraud service does not answer")
        say("no sign of fraud")

    # Its own depends_on, and still in the chain: the next step follows it.
    @hf.step(depends_on=["check_inventory", "check_fraud"])
    async def ready_to_charge(self) -> None:
        say("ready to charge")

    @hf.step(retry=hf.Retry(attempts=3, base=0.1, cap=5.0))
    async def charge_card(self) -> None:
        key = hf.current().idempotency_key  # the same in every attempt: the bank recognises a repetition
        say(f"card charged under {key.rpartition(':')[2]!r} of this run")

    @hf.task(depends_on="charge_card")
    async def send_receipt(self) -> None:
        say("receipt sent")

    update_analytics = hf.task(job=count_sale, args={"region": "north"}, depends_on="charge_card")

    @hf.step(depends_on=["charge_card", "send_receipt", "update_analytics"])
    async def complete(self) -> None:
        say(f"order {self.order_id} is done")


def say(what: str) -> None:
    print(f"  {what}", flush=True)


async def main(order: int) -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        handle = await engine.start(OrderWorkflow(order_id=order), key=f"order-{order}")
        try:
            await handle.result()
        except hf.RunPaused as paused:
            print(f"Paused: {paused.reason}")
            print("The fraud service is back. That node gets another attempt, and nothing else runs again:")
            await handle.reattempt("check_fraud", by="Grace")
            await handle.result()
        print(f"Order {order}: {await handle.status()}. Attempts at check_fraud:")
        for attempt in await handle.step_executions("check_fraud"):
            print(f"  {attempt.attempt}: {attempt.state}")
        print(await handle.mermaid())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 17))
