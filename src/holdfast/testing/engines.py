"""`engine_in_memory`: an engine for one test, with nothing behind it and a clock in your hand."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.any_queue import serve_whatever_comes
from holdfast.authoring.durations import instant_us
from holdfast.authoring.registry import Registry
from holdfast.core.errors import UsageError
from holdfast.engine import Engine
from holdfast.runtime.system import RealIds, System, real_system
from holdfast.testing.virtual_clock import VirtualClock

SEEDED_START = datetime(2030, 1, 1, tzinfo=UTC)  # where time begins if all has to be the same each time


class SeededRandomness:
    """Chance that repeats."""

    __slots__ = ("random",)

    def __init__(self, *seed: object) -> None:
        self.random = random.Random(repr(seed)).random  # noqa: S311 - not for secrets


def engine_in_memory(
    *,
    seed: int | None = None,
    start: datetime | None = None,
    registry: Registry | None = None,
    concurrency: int = 100,
    patience_seconds: float = 1.0,
    **settings: Any,
) -> AbstractAsyncContextManager[tuple[Engine, VirtualClock]]:
    """An engine on `memory://` with a worker for every queue, and its clock: `async with … as (engine, clock):`.

    Time stands still until `await clock.advance(days=2)`. It begins at `start`, by default now; with a `seed`, ids,
    chance and the beginning are the same each time. Code of an action that really takes time really does: advancing
    waits for it, but goes on without it after `patience_seconds` in which nothing happened.
    """
    _check(seed, patience_seconds)
    real = real_system()
    if start is None and seed is None:
        start_us = real.clock.now_us()
    else:
        start_us = instant_us("start= of engine_in_memory", SEEDED_START if start is None else start)
    clock = VirtualClock(start_us, patience_seconds=patience_seconds)
    settings.setdefault("shutdown_seconds", patience_seconds)  # what still hangs when the test is over hangs for good
    engine = Engine("memory://", registry=registry, system=_system(real, clock, seed), **settings)
    return _running(engine, clock, concurrency)


def _check(seed: object, patience_seconds: object) -> None:
    if seed is not None and type(seed) is not int:
        raise UsageError(f"seed={seed!r:.80} is a {type(seed).__name__}", hint="give a whole number, or leave it out")
    if type(patience_seconds) not in (int, float) or not patience_seconds > 0:  # type: ignore[operator]
        raise UsageError(f"patience_seconds is {patience_seconds!r:.80}", hint="give a number of seconds above 0")


def _system(real: System, clock: VirtualClock, seed: int | None) -> System:
    if seed is None:
        return replace(real, clock=clock, ids=RealIds(clock, real.randomness), within=clock.within)
    # Two streams: how often a worker draws depends on real time, and ids must not.
    ids = RealIds(clock, SeededRandomness("ids", seed))
    return replace(real, clock=clock, ids=ids, randomness=SeededRandomness("worker", seed), within=clock.within)


@asynccontextmanager
async def _running(engine: Engine, clock: VirtualClock, concurrency: int) -> AsyncIterator[tuple[Engine, VirtualClock]]:
    async with engine:
        queues = sorted({"default", *engine.definitions.queues()})
        async with engine.worker(queues=queues, concurrency=concurrency) as worker:
            serve_whatever_comes(engine, worker)
            clock.belongs_to(engine)
            try:
                yield engine, clock
            finally:
                clock.belongs_to(None)
