"""A process with a workflow that walks over a set: `start` takes a run up to its wait, `check` asks about open runs.

python -m tests.functions.hash_seed_deploy URL start|check sorted|unsorted
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

import holdfast as hf
from tests.worker.support import engine_on, until

COLOURS = {"amber", "blue", "cyan", "green", "grey", "magenta", "olive", "red"}


def version(registry: hf.Registry, *, is_sorted: bool) -> None:
    @hf.action(registry=registry)
    async def mix(colour: str) -> str:
        return colour

    @hf.workflow(registry=registry)
    async def paint() -> None:
        await asyncio.gather(*[mix(colour) for colour in (sorted(COLOURS) if is_sorted else COLOURS)])
        await hf.wait_for("dry")


async def main(url: str, verb: str, how: str) -> None:
    registry = hf.Registry()
    version(registry, is_sorted=how == "sorted")
    async with engine_on(url, registry) as engine:
        if verb == "start":
            async with engine.worker():
                handle = await engine.start("paint")

                async def suspended() -> bool:
                    return await handle.status() == "suspended"

                await until(suspended, "the run waits")
        print(msgspec.json.encode(await engine.check()).decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
