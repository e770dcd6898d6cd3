"""A pipeline with retries, that can be replayed: prices are fetched, checked and converted side by side, and published.

    python examples/graphs/pipeline.py

The exchange fails twice before it answers, and the attempts are shown as they happen by an emitter. Then the run is
replayed: the same code runs again with the recorded answers, nobody outside is asked, and the state is the same. Run
the program again, and it finds the run that is there, and replays that.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

import holdfast as hf


class State(TypedDict):
    articles: list[str]
    prices: dict[str, int]
    rate: float
    problems: Annotated[list[str], hf.reducers.append]
    published: str


class Shown:
    """Says what happened to a node. Whatever an emitter raises does the run no harm."""

    def emit(self, event: hf.emitters.GraphEvent) -> None:
        if event.kind in ("node_failed", "node_completed"):
            told = event.data.get("error", "done")
            print(f"  step {event.step}: {event.node}, attempt {event.attempt}: {told}", flush=True)


pipeline = hf.StateGraph(State, name="pipeline", emitter=Shown())


@pipeline.node(recordable=True)
async def fetch(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    prices = await ctx.record("prices", state["articles"], lambda: {name: 10 * len(name) for name in state["articles"]})
    return {"prices": prices}


@pipeline.node(recordable=True, retry=hf.Retry(attempts=4, base=0.05, cap=0.2), timeout=5.0)
async def convert(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    rate = await ctx.record("exchange", {"to": "EUR"}, lambda: exchange(ctx.attempt))
    return {"rate": rate}


@pipeline.node
def check(state: State) -> dict[str, Any]:
    """A plain function: it declares no side effect, so a replay runs it again and compares what it returns."""
    return {"problems": [f"{name} is too cheap" for name, price in state["prices"].items() if price < 50]}


@pipeline.node(recordable=True, requires_idempotency=True, idempotency_key=lambda state: "/".join(state["articles"]))
async def publish(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    total = round(sum(state["prices"].values()) * state["rate"], 2)
    sent = {"total": total, "problems": state["problems"], "key": ctx.idempotency_key}
    return {
        "published": await ctx.record("publish", sent, lambda: f"{total:.2f} EUR, {len(state['problems'])} problems")
    }


pipeline.start_at("fetch")
pipeline.edge("fetch", "convert")
pipeline.edge("fetch", "check")
pipeline.edge("convert", "publish")
pipeline.edge("check", "publish")  # once, when both are done
pipeline.finish("publish")


async def exchange(attempt: int) -> float:
    """What would be a service in the network."""
    if attempt < 3:
        raise ConnectionError("the exchange does not answer")
    return 0.5


async def main() -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        handle = await engine.start(pipeline, {"articles": ["lamp", "chair", "table"], "problems": []}, key="monday")
        print(f"published: {(await handle.result())['published']}")
        report = await engine.replay(handle.id, mode="strict")
        print(f"replayed {report.nodes} nodes with {report.calls} recorded calls: {report.state['published']}")


if __name__ == "__main__":
    asyncio.run(main())
