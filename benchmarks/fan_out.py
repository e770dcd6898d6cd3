"""W3: very many steps at once and one that waits for them all, built at run time; and how that grows with their number.

As a program: `python -m benchmarks.fan_out URL NODES` runs one of them and prints what it took, memory included.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

import holdfast as hf
from benchmarks.memory import peak_megabytes
from benchmarks.throughput import working_engine
from holdfast.authoring.registry import Registry

WIDE = Registry()


@hf.action(registry=WIDE)
async def touch(number: int) -> None:
    """One of very many."""


@hf.action(registry=WIDE)
async def gather_all() -> None:
    """Waits for the others."""


def fan_out_of(steps: int) -> hf.BuiltDag:
    """`steps` nodes that wait for nothing, and one that waits for all of them."""
    builder = hf.DagBuilder("FanOut", registry=WIDE)
    builder.fan_out(
        range(steps), name=lambda number: f"touch {number}", job=touch, args=lambda number: {"number": number}
    )
    builder.node("gather", job=gather_all)
    return builder.build()


def layers_of(nodes: int, width: int = 100) -> hf.BuiltDag:
    """Layers of nodes of which each waits for two of the layer before: joins everywhere, and none of them large."""
    builder = hf.DagBuilder("Layers", registry=WIDE)
    before: list[hf.BuiltNode] = []
    for layer in range(nodes // width):
        now = []
        for place in range(width):
            parents = [before[place], before[(place + 1) % width]] if before else None
            number = layer * width + place
            now.append(builder.node(f"touch {number}", job=touch, args={"number": number}, depends_on=parents))
        before = now
    return builder.build()


async def seconds_for(engine: hf.Engine, steps: int) -> float:
    """From an empty builder to the result."""
    started = time.perf_counter()
    await engine.run(fan_out_of(steps))
    return time.perf_counter() - started


async def measure_w3(url: str, *, few: int = 1000, many: int = 10_000) -> tuple[float, float]:
    """Seconds for the smaller and for the larger one, on a store and an engine that have done this before."""
    async with working_engine(url, WIDE) as engine:
        await seconds_for(engine, few)
        return await seconds_for(engine, few), await seconds_for(engine, many)


class Report(msgspec.Struct, kw_only=True):
    """What one large DAG took."""

    nodes: int
    seconds: float
    start_seconds: float
    peak_megabytes: float


async def report_of(url: str, nodes: int) -> Report:
    async with working_engine(url, WIDE) as engine:
        dag = fan_out_of(nodes - 1)
        started = time.perf_counter()
        handle = await engine.start(dag)
        accepted = time.perf_counter()
        await handle.result()
        ended = time.perf_counter()
    peak = peak_megabytes()
    return Report(nodes=len(dag), seconds=ended - started, start_seconds=accepted - started, peak_megabytes=round(peak))


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(report_of(sys.argv[1], int(sys.argv[2])))).decode())
