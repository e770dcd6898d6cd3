"""W7, its second half: one run of 10,000 steps is killed in the middle, and another process goes on with it.

As a program: `python -m benchmarks.killed URL STEPS PAUSE_AT` works until it has done that step, says so and waits to
be killed; begun again, it says when the first step is done that was not recorded before.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass

import holdfast as hf
from benchmarks.memory import peak_megabytes
from holdfast.authoring.registry import Registry

LONG = Registry()
KEY = "the long one"
_PAUSE_AT = 0
_SEEN: list[int] = []


@hf.action(registry=LONG)
async def one_more(number: int) -> int:
    if not _SEEN:
        print("began", number, flush=True)
    _SEEN.append(number)
    if number == _PAUSE_AT:
        print("pauses", number, flush=True)
        await asyncio.Event().wait()
    return number + 1


@hf.workflow(registry=LONG)
async def very_long(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await one_more(number)
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What the second process took."""

    seconds_to_first_new_step: float
    first_new_step: int
    peak_megabytes: float


def measure_killed(url: str, *, steps: int = 10_000) -> Recovery:
    """Kill a process in the middle of a run with SIGKILL, start another, and see when it goes on, and to the end."""
    middle = steps // 2
    with _program(url, steps, middle) as first:
        assert first.stdout is not None
        while not first.stdout.readline().startswith("pauses"):
            pass
        first.kill()
        first.wait()
    started = time.perf_counter()
    with _program(url, steps, -1) as second:
        assert second.stdout is not None
        number = int(second.stdout.readline().split()[1])
        seconds = time.perf_counter() - started
        ended, _, megabytes = second.stdout.readline().partition(" ")
        assert ended == "ended"
        second.wait()
    return Recovery(seconds_to_first_new_step=seconds, first_new_step=number, peak_megabytes=float(megabytes))


def _program(url: str, steps: int, pause_at: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.killed", url, str(steps), str(pause_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def main(url: str, steps: int) -> None:
    async with hf.Engine(url, registry=LONG) as engine, engine.worker():
        handle = await engine.start(very_long, steps, key=KEY)
        await handle.result()
    print("ended", round(peak_megabytes(), 1), flush=True)


if __name__ == "__main__":
    _PAUSE_AT = int(sys.argv[3])
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
