"""W6 for deciders: how late timers are, from the moment that was due to the decision."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import datetime
from typing import Never

import msgspec

import holdfast as hf
from benchmarks.throughput import working_engine
from holdfast.authoring.registry import Registry

ALARMS = Registry()
PATIENCE_SECONDS = 60
_LATE_MS: list[float] = []


class Set(msgspec.Struct, frozen=True):
    clock: str
    seconds: float


class Ring(msgspec.Struct, frozen=True):
    due: float


class WasSet(msgspec.Struct, frozen=True):
    pass


class Rang(msgspec.Struct, frozen=True):
    pass


class Alarm(hf.Decider[int, Set | Ring, WasSet | Rang, Never], registry=ALARMS):
    def workflow_id(self, input: Set | Ring) -> str:
        assert isinstance(input, Set)  # what a timer gives belongs to its own instance
        return input.clock

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: WasSet | Rang) -> int:
        return state + isinstance(event, Rang)

    def decide(self, now: datetime, state: int, input: Set | Ring) -> hf.Decision[WasSet | Rang, Never, Ring]:
        if isinstance(input, Set):
            ring = Ring(now.timestamp() + input.seconds)
            return hf.Decision.event(WasSet()).with_timer_after(input.seconds, ring)
        _LATE_MS.append((time.time() - input.due) * 1000)  # no decider of yours should: it is the moment of deciding
        return hf.Decision.event(Rang())


async def measure_timers(url: str, *, runs: int = 1000, seconds: float = 1.0) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds; set one after another, as in `measure_w6`."""
    async with working_engine(url, ALARMS) as engine:
        await _ring(engine, "warm", max(1, runs // 10), 0.01)
        await _ring(engine, "alarm", runs, seconds)
    return statistics.median(_LATE_MS), statistics.quantiles(_LATE_MS, n=100)[98]


async def _ring(engine: hf.Engine, name: str, runs: int, seconds: float) -> None:
    _LATE_MS.clear()
    for number in range(runs):
        await engine.execute(Alarm, Set(f"{name} {number}", seconds))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(_LATE_MS) < runs:  # noqa: ASYNC110 - nobody would set an Event
            await asyncio.sleep(0.02)
