"""One of several processes that finish elements of a spread at the same instant: `python -m tests.flows.join_racer`.

With SIDE, SIDES, URL and MEETING as arguments. Reads one order a line: which elements of which run are its own. All
processes wait for each other, by counting in a small shared file, before they report all that is theirs at once. The
answer is one line: what came of it.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

import holdfast as hf
from holdfast.core.operations import CompleteWork, Offer
from holdfast.runtime.folds import submit

WIDTH = 1000
PASSES = 2
registry = hf.Registry()


@hf.action(registry=registry)
async def square(number: int) -> int:
    return number * number


@hf.flow(registry=registry)
async def joined(width: int) -> int:
    return sum(await asyncio.gather(*[square(number) for number in range(width)]))


@hf.flow(registry=registry)
async def joined_in_a_loop(width: int, times: int) -> int:
    total = 0
    for _ in range(times):
        total += sum(await asyncio.gather(*[square(number) for number in range(width)]))
    return total


class Share(msgspec.Struct, kw_only=True):
    """What one process reports."""

    run: str
    elements: list[tuple[str, int, int, int]]
    """Node, attempt, token and result of each."""
    one_by_one: bool = False


class Deed(msgspec.Struct, kw_only=True):
    """What came of it, and when it was under way (the clock is the machine's)."""

    verdicts: dict[str, int]
    handed: list[str]
    began: float
    ended: float


class Meeting:
    """Where processes wait for each other."""

    def __init__(self, path: Path, side: int, sides: int) -> None:
        self._file = path.open("r+b")
        self._memory = mmap.mmap(self._file.fileno(), 8 * sides)
        self._side = side
        self._sides = sides
        self._count = 0

    def wait(self) -> None:
        self._count += 1
        self._memory[8 * self._side : 8 * self._side + 8] = self._count.to_bytes(8, "little")
        while any(self._arrived(side) < self._count for side in range(self._sides)):
            os.sched_yield()

    def _arrived(self, side: int) -> int:
        return int.from_bytes(self._memory[8 * side : 8 * side + 8], "little")


async def report(engine: hf.Engine, share: Share, side: int, meeting: Meeting) -> Deed:
    """Report everything, each with room for what it makes ready."""
    offer = Offer(worker=f"side {side}", room=1, queues=("default",))
    operations = [
        CompleteWork(run=share.run, node=node, attempt=attempt, token=token, result=str(result).encode(), offer=offer)
        for node, attempt, token, result in share.elements
    ]
    meeting.wait()
    began = time.monotonic()
    submitted = [
        submit(operation, coordinator=engine.coordinator, store=engine.store, definitions=engine.definitions)
        for operation in operations
    ]
    answers = [await each for each in submitted] if share.one_by_one else await asyncio.gather(*submitted)
    return Deed(
        verdicts=dict(Counter(answer.verdict for answer in answers)),
        handed=[handed.work.node for answer in answers for handed in answer.handed],
        began=began,
        ended=time.monotonic(),
    )


async def main(side: int, sides: int, url: str, place: str) -> None:
    meeting = Meeting(Path(place), side, sides)
    loop = asyncio.get_running_loop()
    async with hf.Engine(url, registry=registry, notify=False) as engine:
        while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
            deed = await report(engine, msgspec.json.decode(line, type=Share), side, meeting)
            sys.stdout.buffer.write(msgspec.json.encode(deed) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
