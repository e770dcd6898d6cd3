"""Random DAGs for workers that are killed, built and as classes, and a worker: `python -m tests.dags.mortal_dags URL`.

Every node writes down when it begins and when it is done, takes a few milliseconds, and sometimes fails at first.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import holdfast as hf
from tests.dags.random_shapes import Shape, as_built, as_class, random_shape
from tests.endtoend.programs.app import chance
from tests.endtoend.programs.journal import BEGUN, DONE, write

registry = hf.Registry()
RETRY = hf.Retry(attempts=3, base=0.01, cap=0.02)
SETTINGS: dict[str, Any] = {"lease_seconds": 30.0, "sweep_seconds": 0.2, "poll_seconds": 0.05}
CLASS_SIZES = (7, 30, 80)
BUILT_SIZES = (5, 20, 60, 120, 300)


def shape_of(kind: str, size: int) -> Shape:
    """The same graph in every process."""
    return random_shape(random.Random(f"{kind} {size}"), size)


async def work(journal: str) -> None:
    """What every node does."""
    context = hf.current()
    write(journal, BEGUN)
    await asyncio.sleep(0.02 * chance(0, context.node.name, "length"))
    if chance(0, context.node.name, "fails") < 0.1 and context.attempt == 1:
        raise RuntimeError("as planned")
    write(journal, DONE)


@hf.action(registry=registry, retry=RETRY)
async def job(journal: str) -> None:
    await work(journal)


async def _body(dag: Any) -> None:
    await work(dag.journal)


CLASSES = [as_class(shape_of("class", size), f"Random{size}", _body, registry, retry=RETRY) for size in CLASS_SIZES]


def all_of_them(journal: str) -> list[hf.Dag | hf.BuiltDag]:
    """Every DAG of this module, to be started."""
    built = [as_built(shape_of("built", size), f"Built{size}", job, registry, journal=journal) for size in BUILT_SIZES]
    return [*(dag(journal=journal) for dag in CLASSES), *built]


async def serve(url: str) -> None:
    async with hf.Engine(url, registry=registry, **SETTINGS) as engine:
        await engine.run_worker(concurrency=10)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
