"""An order that is sent in several parcels: a child run for each, and all of it undone if one cannot be sent.

    python examples/parcels.py lamp chair
    python examples/parcels.py lamp piano

Pianos are too heavy. Then the parcels that are out already are called back, and the money is returned: whatever
registered its undoing does so, in reverse. Kill the program in the middle, and run it again.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf


class TooHeavy(Exception):
    """The carrier does not take it."""


class NotSent(Exception):
    """The order could not be sent as a whole."""


@hf.action
async def charge(order: str, cents: int) -> str:
    """The key is the same in every attempt, so that a bank can tell a repetition."""
    print(f"  {cents} cents charged", flush=True)
    return f"receipt {hf.current().idempotency_key}"


@hf.action
async def refund(receipt: str) -> None:
    print("  money returned", flush=True)


@hf.action(retry=hf.Retry(attempts=3, base=0.1, retry_on=(ConnectionError,)), timeout=10.0)
async def hand_over(article: str) -> str:
    if article == "piano":
        raise TooHeavy(f"a {article} is too heavy")
    print(f"  {article} handed over", flush=True)
    return f"track-{article}"


@hf.action
async def call_back(tracking: str) -> None:
    print(f"  {tracking} called back", flush=True)


@hf.action
async def ask_for_review(order: str) -> None:
    print(f"  how was {order}?", flush=True)


@hf.workflow
async def parcel(article: str) -> str:
    """A child has a history, a status and a result of its own: `holdfast runs` lists it."""
    tracking = await hand_over(article)
    await hf.sleep(seconds=0.3)
    return tracking


@hf.workflow
async def review(order: str) -> None:
    await hf.sleep(seconds=0.5)
    await ask_for_review(order)


@hf.workflow
async def order(name: str, articles: list[str]) -> list[str]:
    receipt = await charge(name, 1000 * len(articles))
    hf.on_rollback(refund, receipt)

    async def send(article: str) -> str:
        tracking = await parcel(article)  # inside a workflow, calling a workflow is a child run
        hf.on_rollback(call_back, tracking)
        return tracking

    # Side by side. Which parcel is out first is recorded, so every replay sees the same order.
    outcomes = await asyncio.gather(*[send(article) for article in articles], return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, hf.RunFailed):  # what a child that failed raises here; its cause is the original
            raise NotSent(f"{name} stays here: {outcome.cause}") from outcome
    await hf.start_child(review, name, detached=True)  # goes on by itself, whatever becomes of this run
    return [outcome for outcome in outcomes if isinstance(outcome, str)]


async def main(articles: list[str]) -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        name = "-".join(articles)
        handle = await engine.start(order, name, articles, key=name)
        try:
            print(f"on their way: {', '.join(await handle.result())}")
        except hf.RunFailed as failed:
            print(failed.cause)
        for run in await engine.find(workflow="review", status=["pending", "running", "suspended"]):
            await engine.get(run.id).result()  # else it would go on when a worker is there again


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["lamp", "chair"]))
