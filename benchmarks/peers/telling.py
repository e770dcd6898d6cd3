"""What every peer's program shares; it runs in the peer's environment, so it imports nothing but the standard library.

A program is called as `python X_program.py URL WORKLOAD COUNT` and says what it measured in one line of JSON. COUNT is
the number of steps (W1), runs (W2, W5, W6), parallel steps (W3) or samples (W4). The workload `first` is W9's: one
result, and then idleness until the input is closed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
STEADILY_SECONDS = 0.01  # from one start to the next, in the mean
STEADY_RUNS = 300  # of a thousand
WARM_UP_PART = 10  # of the count; ours are warm too when they are measured


CROWDS = ("W2", "W3", "W5", "W6")  # measured as in a worker's process, ours too; the others as in an application's


def collect_less_often() -> None:
    """What `holdfast worker` does with the garbage collector. Imports are over by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, *gc.get_threshold()[1:])


def arguments() -> tuple[str, str, int]:
    url, workload, count = sys.argv[1:4]
    if workload in CROWDS:
        collect_less_often()
    return url, workload, int(count)


def tell(**values: float) -> None:
    print(json.dumps({"values": values}), flush=True)


def tell_latencies(taken_ms: list[float]) -> None:
    tell(**latencies(taken_ms))


def latencies(taken_ms: list[float], what: str = "") -> dict[str, float]:
    late = statistics.quantiles(taken_ms, n=100)[98] if len(taken_ms) > 1 else taken_ms[0]
    return {f"{what}p50": statistics.median(taken_ms), f"{what}p99": late}


async def steadily(count: int, start: Callable[[], Awaitable[T]]) -> list[T]:
    """Starts at the rate that is measured for all engines, and in the same moments as ours."""
    runs = max(2, count * STEADY_RUNS // 1000)
    moment, started, draw = time.perf_counter(), [], random.Random(runs)
    for _ in range(runs):
        moment += draw.uniform(0, 2 * STEADILY_SECONDS)
        await asyncio.sleep(max(0.0, moment - time.perf_counter()))
        started.append(await start())
    return started


def greet_and_idle() -> None:
    """The first result of W9: the runner takes the time of the line and then weighs the process."""
    print("Hello, world!", flush=True)
    sys.stdin.read()


def seconds_since(started: float) -> float:
    return time.perf_counter() - started


def refuse(workload: str, known: dict[str, Callable[..., object]]) -> None:
    if workload not in known:
        raise SystemExit(f"this peer has no {workload}; it has {', '.join(sorted(known))}")
