"""A worker of the demo, to be killed. In a project of your own this is `holdfast worker YOUR.MODULE`."""

from __future__ import annotations

import asyncio
import logging

import shop  # noqa: F401  # defines what this worker can run

import holdfast as hf

SLOTS = 6


async def main() -> None:
    async with hf.Engine() as engine:
        await engine.run_worker(handle_signals=True, concurrency=SLOTS)


logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
asyncio.run(main())
