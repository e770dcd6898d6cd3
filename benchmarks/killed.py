"""W7, its second half: one run of 10,000 steps is killed in the middle, and another process goes on with it.

As a program: `python -m benchmarks.killed URL MODEL STEPS PAUSE_AT` works until it has come to that step, says so and
waits to be killed; begun again, it says when the first step is done that was not recorded before.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import holdfast as hf
from benchmarks.memory import peak_megabytes
from holdfast.authoring.registry import Registry

LONG = Registry()
KEY = "the long one"
NOWHERE = -1
_pause_at = NOWHERE
_began = False


def reached(number: int) -> None:
    """Every model's step calls this first."""
    global _began
    if not _began:
        _began = True
        print("began", number, flush=True)
    if number == _pause_at:
        print("pauses", number, flush=True)
        signal.pause()


@hf.action(registry=LONG)
async def one_more(number: int) -> int:
    reached(number)
    return number + 1


Started = Awaitable[hf.Handle[Any]]


def start_function(engine: hf.Engine, steps: int) -> Started:
    @hf.workflow(name="very_long", registry=LONG)
    async def very_long(steps: int) -> int:
        number = 0
        for _ in range(steps):
            number = await one_more(number)
        return number

    return engine.start(very_long, steps, key=KEY)


def start_flow(engine: hf.Engine, steps: int) -> Started:
    @hf.flow(name="very_long_flow", registry=LONG)
    async def very_long_flow(steps: int) -> int:
        number = 0
        for _ in range(steps):
            number = await one_more(number)
        return number

    return engine.start(very_long_flow, steps, key=KEY)


def start_dag(engine: hf.Engine, steps: int) -> Started:
    from benchmarks.chains import chain_of  # as the other models': nobody pays for what the others import

    return engine.start(chain_of(steps, LONG, on_step=reached)(), key=KEY)


def start_graph(engine: hf.Engine, steps: int) -> Started:
    from benchmarks.graphs import loop_graph

    return engine.start(loop_graph(steps, LONG, reached), {"n": 0}, key=KEY)


STARTING: dict[str, Callable[[hf.Engine, int], Started]] = {
    "function": start_function,
    "flow": start_flow,
    "dag": start_dag,
    "graph": start_graph,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What the second process took."""

    seconds_to_first_new_step: float
    peak_megabytes: float


def measure_killed(url: str, model: str, *, steps: int = 10_000) -> Recovery:
    """Kill a process in the middle of a run with SIGKILL, start another, and see when it goes on, and to the end."""
    middle = steps // 2
    with _program(url, model, steps, middle) as first:
        _said(first, "began")
        _said(first, "pauses")
    started = time.perf_counter()
    with _program(url, model, steps, NOWHERE) as second:
        number = _said(second, "began")
        seconds = time.perf_counter() - started
        megabytes = _said(second, "ended")
        second.wait()
    if number != middle:
        raise RuntimeError(f"it was killed at step {middle} and went on at {number:g}: what was recorded is not used")
    return Recovery(seconds_to_first_new_step=seconds, peak_megabytes=megabytes)


@contextmanager
def _program(url: str, model: str, steps: int, pause_at: int) -> Iterator[subprocess.Popen[str]]:
    from benchmarks.startup import environment  # not for the program itself, whose memory is measured

    command = [sys.executable, "-m", "benchmarks.killed", url, model, str(steps), str(pause_at)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as program:
        try:
            yield program
        finally:
            program.kill()


def _said(program: subprocess.Popen[str], word: str) -> float:
    """The number that it says behind this word, which is its next."""
    assert program.stdout is not None
    line = program.stdout.readline()
    if not line.startswith(f"{word} "):
        raise RuntimeError(f"it was to say {word!r} and said {line!r}; run benchmarks.killed by hand")
    return float(line.split()[1])


async def main(url: str, model: str, steps: int) -> None:
    async with hf.Engine(url, registry=LONG) as engine, engine.worker():
        handle = await STARTING[model](engine, steps)
        await handle.result()
    print("ended", round(peak_megabytes(), 1), flush=True)


if __name__ == "__main__":
    _pause_at = int(sys.argv[4])
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
