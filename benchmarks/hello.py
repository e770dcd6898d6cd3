"""The smallest program: one action, one run, its result. Then it idles until its input is closed, to be weighed."""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf


@hf.action
async def hello(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with hf.Engine(sys.argv[1]) as engine, engine.worker():
        print(await engine.run(hello, "world"), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
