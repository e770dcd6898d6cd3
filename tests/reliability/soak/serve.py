"""A worker process of the soak: `python -m tests.reliability.soak.serve ORDER`, the order being JSON.

With `skew_seconds` its clock is wrong by that much, everywhere in Holdfast; `FAKETIME` in its environment makes the
whole process believe in another time, where that library is installed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from typing import Any

import msgspec

import holdfast as hf
from holdfast.runtime.system import RealClock, System, real_system
from tests.reliability.soak import app


class Order(msgspec.Struct, kw_only=True):
    """What a worker process is to do."""

    url: str
    settings: dict[str, Any] = {}
    concurrency: int = 10
    skew_seconds: float = 0.0


class WrongClock(RealClock):
    """Tells a time that it is not."""

    def __init__(self, skew_seconds: float) -> None:
        self._skew_us = int(skew_seconds * 1_000_000)

    def now_us(self) -> int:
        return super().now_us() + self._skew_us


def skewed_system(skew_seconds: float) -> System:
    system = real_system()
    return replace(system, clock=WrongClock(skew_seconds)) if skew_seconds else system


async def serve(order: Order) -> None:
    system = skewed_system(order.skew_seconds)
    engine = hf.Engine(order.url, registry=app.registry, system=system, **order.settings)
    await engine.open(migrate=False)
    try:
        await engine.run_worker(concurrency=order.concurrency, handle_signals=True)
    finally:
        await engine.close()


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(relativeCreated)d %(process)d %(name)s %(message)s")
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=Order)))


if __name__ == "__main__":
    main()
