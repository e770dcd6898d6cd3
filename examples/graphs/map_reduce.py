"""A map-reduce: each document is read and counted by an item of its own, eight at a time, and the counts are added up.

    python examples/graphs/map_reduce.py

How many documents there are is known only when the list has been read: `hf.Send` makes an item for each. Their counts
are merged by the field's reducer in an order that depends on the graph alone, whichever was ready first, so that two
runs over the same documents end with the same state, byte for byte.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Annotated, Any, TypedDict

import holdfast as hf

LIBRARY = {
    "anchor": "a ship without an anchor is a ship that waits for a storm",
    "harbour": "a storm is a guest in the harbour and a master at sea",
    "rope": "the rope that holds a ship is the rope that was mended in the harbour",
    "tide": "the tide waits for no ship and the ship waits for the tide",
}


def added(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """A reducer of our own: it gets what is there and what one item gave."""
    return dict(Counter(counts) + Counter(more))


class State(TypedDict):
    counts: Annotated[dict[str, int], added]
    titles: Annotated[list[str], hf.reducers.append]
    title: str  # of the document that an item is about
    most: list[str]


words = hf.StateGraph(State, name="words", max_concurrent=8)


@words.node(recordable=True, goes_to=["count"])
async def list_documents(state: State, ctx: hf.NodeContext) -> Any:
    titles = await ctx.record("list", None, lambda: sorted(LIBRARY))
    return [hf.Send("count", {"title": title}) for title in titles]


@words.node(recordable=True, retry=hf.Retry(attempts=5, base=0.05))
async def count(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    """Read one document and count its words. Some cannot be read the first time."""
    text = await ctx.record("read", {"title": state["title"]}, lambda: read(state["title"], ctx.attempt))
    return {"counts": dict(Counter(re.findall(r"\w+", text))), "titles": [state["title"]]}


@words.node(label="counted")
async def report(state: State) -> dict[str, Any]:
    """One item, however many led to it: a join."""
    ordered = sorted(state["counts"].items(), key=lambda pair: (-pair[1], pair[0]))
    return {"most": [f"{word} {times}" for word, times in ordered[:5]]}


words.start_at("list_documents")
words.edge("count", "report")
words.finish("report")


async def read(title: str, attempt: int) -> str:
    """What would be a disk or a network."""
    if attempt == 1 and len(title) % 2 == 0:
        raise ConnectionError(f"{title} is busy")
    print(f"  {title} is read", flush=True)
    return LIBRARY[title]


async def main() -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        handle = await engine.start(words, {"counts": {}, "titles": []}, key="library")
        state = await handle.result()
        print(f"{len(state['titles'])} documents: {', '.join(state['most'])}")
        metrics = (await handle.scheduler()).metrics
        print(f"{metrics.total_nodes_executed} items in {metrics.total_steps} steps, {metrics.total_retries} retries")


if __name__ == "__main__":
    asyncio.run(main())
