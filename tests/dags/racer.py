"""One of two processes that act at the same instant, many times: `python -m tests.dags.racer SIDE URL MEETING`.

Reads one order a line and answers with one line: what came of each of its deeds. Both processes wait for each other
before every deed, by counting in a small shared file: a pipe would let one of them go first.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import holdfast as hf
from holdfast.core.operations import CompleteWork, Handed, Offer
from holdfast.core.queries import AllWork
from tests.dags.race_jobs import PARENTS, registry

MEETING_BYTES = 16


class Race(msgspec.Struct, kw_only=True):
    """What to do in each of these runs: `deeds` has one name for each side."""

    runs: list[str]
    deeds: tuple[str, str]
    remembered: tuple[bool, bool] = (False, False)  # whether the side has the run's rows in mind: its fast path


class Deed(msgspec.Struct, kw_only=True):
    """What came of it, and when it was under way (the clock is the machine's)."""

    said: str
    began: float
    ended: float
    handed: int = 0


class Meeting:
    """Where two processes wait for each other."""

    def __init__(self, path: Path, side: int) -> None:
        self._file = path.open("r+b")
        self._memory = mmap.mmap(self._file.fileno(), MEETING_BYTES)
        self._side = side
        self._count = 0

    def wait(self) -> None:
        """Return when the other process is here too; within microseconds of it if both have a core."""
        self._count += 1
        self._memory[8 * self._side : 8 * self._side + 8] = self._count.to_bytes(8, "little")
        other = 8 * (1 - self._side)
        while int.from_bytes(self._memory[other : other + 8], "little") < self._count:
            os.sched_yield()


class Racer:
    def __init__(self, engine: hf.Engine, side: int, meeting: Meeting) -> None:
        self.engine = engine
        self.side = side
        self.meeting = meeting

    async def run(self, race: Race) -> list[Deed]:
        return [await self._one(race, run) for run in race.runs]

    async def _one(self, race: Race, run: str) -> Deed:
        deed = getattr(self, race.deeds[self.side])
        prepared = await self._prepared(race, run)
        if race.remembered[self.side]:
            await self._remember(run)
        self.meeting.wait()
        began = time.monotonic()
        handed = 0
        try:
            answer = await deed(run, prepared)
            handed = len(getattr(answer, "handed", ()))
            said = str(getattr(answer, "verdict", answer))
        except hf.HoldfastError as error:
            said = f"{type(error).__name__}: {error.message}"
        return Deed(said=said, began=began, ended=time.monotonic(), handed=handed)

    async def _prepared(self, race: Race, run: str) -> str:
        """The document to import: exported before the other side has changed anything."""
        if race.deeds[self.side] != "import_edited":
            return ""
        document: dict[str, Any] = msgspec.json.decode(await self.engine.get(run).export_dag())
        mine = f"added_by_{self.side}"
        (other,) = [node for node in document["nodes"].values() if node["name"] == "child"]
        document["nodes"][mine] = {**other, "name": mine}
        return msgspec.json.encode(document).decode()

    async def _remember(self, run: str) -> None:
        (row,) = await self.engine.store.runs([run])
        work = await self.engine.store.rows(AllWork(run))
        self.engine.coordinator.remember([Handed(item, row) for item in work])

    # -- the deeds

    async def complete_own_parent(self, run: str, _: str) -> Any:
        """Report one of the two parents, and offer room for what that makes ready."""
        offer = Offer(worker=f"side {self.side}", room=1, queues=("default",))
        node = PARENTS[self.side]
        return await self.engine.coordinator.submit(
            CompleteWork(run=run, node=node, attempt=1, token=1, result=b"1", offer=offer)
        )

    async def reattempt(self, run: str, _: str) -> None:
        await self.engine.get(run).reattempt("child", by=f"side {self.side}")

    async def import_edited(self, run: str, document: str) -> None:
        await self.engine.get(run).import_dag(document, by=f"side {self.side}")

    async def pause(self, run: str, _: str) -> bool:
        return await self.engine.get(run).pause()

    async def resume(self, run: str, _: str) -> bool:
        return await self.engine.get(run).resume()

    async def skip(self, run: str, _: str) -> None:
        await self.engine.get(run).skip("child")

    async def retry(self, run: str, _: str) -> list[str]:
        return await self.engine.get(run).retry()

    async def cancel(self, run: str, _: str) -> bool:
        return await self.engine.get(run).cancel()


async def serve(side: int, url: str, meeting: Path) -> None:
    loop = asyncio.get_running_loop()
    async with hf.Engine(url, registry=registry, notify=False) as engine:
        racer = Racer(engine, side, Meeting(meeting, side))
        while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
            done = await racer.run(msgspec.json.decode(line, type=Race))
            sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
