"""Workers that are mistreated: their reports come late, twice and out of order, and their lives end suddenly.

Everything here is the real thing, engine, worker, coordinator and store; only who goes on next is left to dice. What a
worker reports waits here until the dice let it through, in batches of any size, some of it twice. What was reported is
reported again later, by whoever is alive then. Now and then the answer to a commit is lost. A life may be abandoned at
any moment: its worker never says another word, and another one on the same store takes over. Reports of the dead still
arrive.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.operations import RECORDED, REPEATED, STALE, CompleteWork, FailWork, Handed, KillWork, Offer
from holdfast.core.operations import Operation as AnyOperation
from holdfast.core.queries import AllWork
from holdfast.core.rows import COMPLETED
from holdfast.testing.engines import SeededRandomness
from tests.flows.by_hand import LEASE_SECONDS, QUEUE, WorkerByHand, cuts_power, worker_by_hand
from tests.support.stores import Site, VirtualClock

MOVES_LIMIT = 20_000
REPORTS = (CompleteWork, FailWork, KillWork)
Report = CompleteWork | FailWork | KillWork


@dataclass
class World:
    """A store, its dice, and everything that was ever reported."""

    site: Site
    registry: hf.Registry
    seed: str
    crash_one_in: int = 15
    clock: VirtualClock = field(default_factory=VirtualClock)
    said: list[Report] = field(default_factory=list)
    late: list[Report] = field(default_factory=list)
    """Reports of the dead that have not arrived yet."""
    met: Counter[str] = field(default_factory=Counter)
    """What happened, so that a test can see that it did."""

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.randomness = SeededRandomness("ids", self.seed)
        self.lives: list[Life] = []

    @property
    def shared(self) -> bool:
        """Whether several processes may work on it."""
        return self.site.kind != "memory"

    async def begin(self) -> hf.Engine:
        """The first lives; whoever starts runs does so through the engine of one of them."""
        for _ in range(2 if self.shared else 1):
            self.lives.append(await self._born())
        return self.lives[0].engine

    async def play(self, runs: list[str]) -> hf.Engine:
        """Until all these runs have ended. An engine to ask about them."""
        idle = 0
        for _ in range(MOVES_LIMIT):
            life = self.dice.choice(self.lives)
            if self.dice.randrange(self.crash_one_in) == 0:
                await self._replace(life)
                continue
            idle = 0 if await life.move() else idle + 1
            if idle < 4 * len(self.lives):
                continue
            rows = await life.engine.store.runs(runs)
            if all(row.ended for row in rows):
                cuts_power(life.engine, never=False)
                return life.engine
            # Nobody may have asked the one of them to whom something is leased without its knowing.
            if any([await other.move() for other in self.lives]):
                continue
            if all(other.is_idle for other in self.lives) and not await life.hands.time_passes():
                still = [f"{row.id} of {row.workflow} is {row.status}" for row in rows if not row.ended]
                raise AssertionError(f"stalled: {still}")
        raise AssertionError(f"after {MOVES_LIMIT} moves there is no end")

    async def end(self) -> None:
        """Let nobody live."""
        for life in self.lives:
            await life.die()

    # -- death and birth

    async def _replace(self, life: Life) -> None:
        self.met["abandoned"] += 1
        self.lives.remove(life)
        self.late += await life.die()
        self.dice.shuffle(self.late)
        born = await self._born()
        while self.late and self.dice.randrange(3):  # some arrive before anybody has noticed the death
            await born.hear(self.late.pop())
        self.clock.advance(LEASE_SECONDS + 1)
        self.lives.append(born)
        for other in self.lives:
            await other.hands.prove_life()
        await born.hands.take_over()
        while self.late:
            await born.hear(self.late.pop(), refused=True)

    async def _born(self) -> Life:
        return Life(self, await worker_by_hand(self.site, self.registry, self.clock, self.randomness))


class Life:
    """A worker whose reports are held back."""

    def __init__(self, world: World, hands: WorkerByHand) -> None:
        self.hands = hands
        self.engine = hands.engine
        self._world = world
        self._dice = world.dice
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: list[tuple[Report, asyncio.Future[Any]]] = []
        self._moved = asyncio.Event()
        self._submit = self.engine.coordinator.submit
        self.engine.coordinator.submit = self._hold_back  # type: ignore[method-assign]

    @property
    def is_idle(self) -> bool:
        return not self._running

    async def die(self) -> list[Report]:
        """End at once, with everything that was under way; the reports that nobody has heard yet."""
        unheard = [report for report, _ in self._waiting]
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._world.shared:
            await self.engine.store.close()
        return unheard

    # -- one move at a time

    async def move(self) -> bool:
        """Do one thing; False if there is nothing to do."""
        if self._dice.randrange(12) == 0:
            self.engine.coordinator.cache.clear()  # nothing is remembered: the locked path
        await self._all_wait()
        if not self._waiting or self._dice.randrange(2):
            claimed = await self.hands.claim(limit=self._dice.randint(1, 8))
            if not claimed and not self._running:
                claimed = await self.hands.leased_unawares()
            self._launch(claimed)
            if claimed or not self._waiting:
                return bool(claimed)
        await self._let_through()
        if self._world.said and self._dice.randrange(4) == 0:
            await self.hear(self._dice.choice(self._world.said), again=True)
        return True

    def _launch(self, found: Iterable[Handed]) -> None:
        for handed in found:
            task = asyncio.ensure_future(self._run(handed))
            self._running.add(task)
            task.add_done_callback(self._ran)

    async def _run(self, handed: Handed) -> None:
        settled = await self.hands.run(handed, self._offer)
        self._launch(settled.handed)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._moved.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _offer(self) -> Offer | None:
        room = self._dice.choice((0, 1, 1, 2, 5))
        return Offer(worker=self.hands.id, room=room, queues=(QUEUE,)) if room else None

    # -- reports

    def _hold_back(self, operation: AnyOperation) -> asyncio.Future[Any]:
        if not isinstance(operation, REPORTS):
            return self._submit(operation)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, future))
        self._moved.set()
        return future

    async def _all_wait(self) -> None:
        """Until whatever runs has something to report."""
        while len(self._running) > len(self._waiting):
            self._moved.clear()
            await asyncio.wait_for(self._moved.wait(), 20)

    async def _let_through(self) -> None:
        """Some of the reports that wait, in any order, some of them twice in one batch."""
        self._dice.shuffle(self._waiting)
        count = self._dice.randint(1, len(self._waiting))
        chosen, self._waiting = self._waiting[:count], self._waiting[count:]
        self._world.met["held back"] += len(self._waiting)
        if self._dice.randrange(8) == 0:
            failpoints.arm(self._answer_is_lost)
        submitted = []
        for report, future in chosen:
            times = 2 if self._dice.randrange(5) == 0 else 1
            submitted.append((report, future, [self._submit(report) for _ in range(times)]))
        for report, future, answers in submitted:
            first, *others = await asyncio.gather(*answers, return_exceptions=True)
            if isinstance(first, BaseException):  # such as: the graph must be read first
                future.set_exception(first)
                continue
            self._world.said.append(report)
            future.set_result(first)
            for other in others:
                self._world.met["twice at once"] += 1
                assert other.verdict in (REPEATED, STALE), f"{report} was accepted twice: {other}"
                assert not other.handed
        failpoints.disarm()

    def _answer_is_lost(self, name: str) -> None:
        if name == "flush.after_commit":
            failpoints.disarm()
            self._world.met["lost answers"] += 1
            raise hf.StoreUnavailable("gone after the commit, for this test")

    async def hear(self, report: Report, *, again: bool = False, refused: bool = False) -> None:
        """A report arrives from somewhere else. What was said before, or comes too late, changes nothing."""
        before = await self.engine.store.runs([report.run])
        (answer,) = await asyncio.gather(self._submit(report), return_exceptions=True)
        if isinstance(answer, Exception):  # its graph was not read here; whoever sent it would send it again
            return
        if again or refused:
            self._world.met["again" if again else "late"] += 1
            assert answer.verdict in (REPEATED, STALE), f"{report} was accepted: {answer}"
            assert before == await self.engine.store.runs([report.run]), f"{report} changed its run"
        else:
            self._world.met["of the dead"] += answer.verdict == RECORDED
            self._world.said.append(report)


async def assert_recorded_once(engine: hf.Engine, run: str) -> None:
    """G3: of every node one attempt at most is completed, and it is the last."""
    attempts: dict[str, list[Any]] = {}
    for item in await engine.store.rows(AllWork(run)):
        attempts.setdefault(item.node, []).append(item)
    for node, items in attempts.items():
        assert [item.attempt for item in items] == list(range(1, len(items) + 1)), node
        assert all(item.status != COMPLETED for item in items[:-1]), f"{node} of {run} was completed twice"
