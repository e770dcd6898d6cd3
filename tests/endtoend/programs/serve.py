"""A worker process: `python -m tests.endtoend.programs.serve ORDER`, the order being JSON.

Stops on SIGTERM and Ctrl-C as `holdfast worker` does, and dies where HOLDFAST_FAILPOINT says.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any

import msgspec

import holdfast as hf
from holdfast.runtime import killswitch
from tests.endtoend.programs import app


class Order(msgspec.Struct, kw_only=True):
    """What a worker process is to do."""

    url: str
    settings: dict[str, Any] = {}
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 10
    registry: str = "registry"


async def serve(order: Order) -> None:
    engine = hf.Engine(order.url, registry=getattr(app, order.registry), **order.settings)
    async with engine:
        await engine.run_worker(queues=order.queues, concurrency=order.concurrency, handle_signals=True)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(process)d %(name)s %(message)s")
    order = msgspec.json.decode(sys.argv[1], type=Order)
    killswitch.install_from_environment(os.environ)
    asyncio.run(serve(order))


if __name__ == "__main__":
    main()
