"""A crowd of worker processes under fire, and the books that must balance afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.core.rows import COMPLETED, FAILED, LEASED, LOST, Work
from holdfast.store.contract import FindRuns
from tests.endtoend.programs import app, journal
from tests.support.pace import longer
from tests.worker.support import Processes, assert_sound, work_of

GOES_ON_WITHIN_SECONDS = 2.0
SETTINGS: dict[str, Any] = {"lease_seconds": 30.0, "sweep_seconds": 0.2, "poll_seconds": 0.1}
"""The lease of real life: nothing that goes on sooner has waited for it."""


@dataclass(slots=True)
class Crowd:
    """Some worker processes on one database."""

    engine: hf.Engine
    url: str
    processes: Processes
    path: Path
    chance: random.Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    leased_at_a_crash: int = 0
    kills: list[tuple[int, float]] = field(default_factory=list)  # pid, time of the SIGKILL
    restarts: list[tuple[float, float]] = field(default_factory=list)  # down from, up again

    async def gather(self, count: int) -> None:
        self.workers = [self._hire() for _ in range(count)]
        for worker in self.workers:
            await self.processes.enrolled(self.engine, worker)

    def _hire(self) -> subprocess.Popen[bytes]:
        return self.processes.serve(self.url, settings=SETTINGS, concurrency=10)

    async def kill_one(self) -> None:
        """SIGKILL one of the workers that is enrolled, and start another in its place."""
        enrolled = {row.pid: row.id for row in await self.engine.workers()}
        ready = [worker for worker in self.workers if worker.pid in enrolled]
        if not ready:
            return
        victim = self.chance.choice(ready)
        # It stands still while we count what it holds, so that the count is exact when it dies.
        victim.send_signal(signal.SIGSTOP)
        self.leased_at_a_crash += len(await self.engine.store.leased_to(enrolled[victim.pid]))
        self.kills.append((victim.pid, time.monotonic()))
        victim.kill()
        victim.wait()
        self.workers[self.workers.index(victim)] = self._hire()

    async def leased(self) -> int:
        return (await self.engine.stats()).store.work.get(LEASED, 0)

    # -- the books

    async def check(self, started: dict[str, int]) -> None:
        """Nothing lost, nothing recorded twice, nothing executed without a reason, and no time wasted."""
        runs = await self.engine.store.find(FindRuns(limit=10_000))
        assert {run.id for run in runs} == set(started), "a run was lost, or made twice"
        assert Counter(run.status for run in runs) == {COMPLETED: len(started)}
        work: list[Work] = []
        for run in runs:
            found = await work_of(self.engine, run.id)
            _is_right(found, len(self.engine.definitions.of_code(run.workflow).nodes))  # type: ignore[union-attr]
            work += found
        for run in runs:
            if run.workflow == app.square.name:
                assert await self.engine.get(run.id).result(5) == started[run.id] ** 2
        self._executions_are_explained(work)
        self._order_is_right()
        self._work_went_on_in_time()
        await assert_sound(self.engine)

    def _executions_are_explained(self, work: list[Work]) -> None:
        executions = Counter((deed.run, deed.node, deed.attempt) for deed in journal.begun(self.path))
        recorded = Counter(row.status for row in work)
        again = executions.total() - recorded[COMPLETED] - recorded[FAILED]
        print(
            f"{executions.total()} executions, {recorded[COMPLETED]} completed, {recorded[FAILED]} failed as planned, "
            f"{recorded[LOST]} lost; {len(self.kills)} kills and {len(self.restarts)} restarts met "
            f"{self.leased_at_a_crash} leases; {again} executions again"
        )
        status = {(row.run, row.node, row.attempt): row.status for row in work}
        told = {
            deed: (count, status.get(deed)) for deed, count in executions.items() if count > 1 or deed not in status
        }
        print(f"more than once: {told}")
        assert set(recorded) <= {COMPLETED, FAILED, LOST}
        assert len(self.kills) >= 3, "too few kills to show anything"
        for row in work:
            if row.status in (COMPLETED, FAILED):
                assert executions[(row.run, row.node, row.attempt)] >= 1, f"recorded and never executed: {row}"
        # What was leased is counted just before a kill, so that it may be too few; a lease that was cut off is `lost`.
        assert 0 <= again <= max(self.leased_at_a_crash, recorded[LOST])

    def _order_is_right(self) -> None:
        """G4: no step began before the one before it was done."""
        done: dict[tuple[str, str], float] = {}
        for deed in journal.read(self.path):
            number = int(deed.node[1:]) if deed.node[1:].isdigit() else 1
            if deed.what == journal.BEGUN and number > 1:
                assert (deed.run, f"s{number - 1}") in done, f"{deed} began too early"
            elif deed.what == journal.DONE:
                done.setdefault((deed.run, deed.node), deed.at)

    def _work_went_on_in_time(self) -> None:
        """Time from a SIGKILL to the next execution of what the victim was running."""
        of_node: defaultdict[tuple[str, str], list[journal.Deed]] = defaultdict(list)
        for deed in journal.read(self.path):
            of_node[(deed.run, deed.node)].append(deed)
        gaps = []
        for pid, at in self.kills:
            if any(down - GOES_ON_WITHIN_SECONDS < at < up for down, up in self.restarts):
                continue  # the database was away: nobody could go on
            for deeds in of_node.values():
                last = [deed for deed in deeds if deed.pid == pid][-1:]
                later = [deed.at for deed in deeds if deed.at > at and deed.what == journal.BEGUN]
                if last and last[0].what == journal.BEGUN and later:
                    gaps.append(min(later) - at)
        assert gaps, "no kill met a running step"
        gaps.sort()
        print(f"{len(gaps)} steps went on after a kill, median {gaps[len(gaps) // 2]:.2f} s, worst {gaps[-1]:.2f} s")
        assert gaps[-1] < min(longer(GOES_ON_WITHIN_SECONDS), SETTINGS["lease_seconds"] / 2)


def _is_right(attempts: list[Work], nodes: int) -> None:
    completed = Counter(work.node for work in attempts if work.status == COMPLETED)
    assert len(completed) == nodes
    assert set(completed.values()) == {1}, f"recorded twice: {completed}"
    for node in completed:
        mine = [work for work in attempts if work.node == node]
        assert [work.attempt for work in mine] == list(range(1, len(mine) + 1))
        assert mine[-1].status == COMPLETED, "an attempt came after the completed one"
        tokens = [work.token for work in mine]
        assert tokens == sorted(set(tokens)), f"K3: tokens must grow: {tokens}"
