"""A worker for the nodes that run elsewhere: `python -m tests.graphs.elsewhere URL SEED`. Ends when it is told to."""

from __future__ import annotations

import asyncio
import random
import sys

import holdfast as hf
from tests.graphs.worlds import ELSEWHERE, made
from tests.worker.support import PATIENT

LONGEST_SECONDS = 0.004


async def main(url: str, seed: str) -> None:
    chance = random.Random(seed)
    world = made(queue=ELSEWHERE, delay=lambda _: chance.random() * LONGEST_SECONDS)
    async with hf.Engine(url, registry=world.registry, **PATIENT, lost_limit=1000) as engine:
        await engine.run_worker(queues=(ELSEWHERE,), concurrency=10)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
