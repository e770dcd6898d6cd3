"""Workers that do nothing by themselves: a test claims for them and runs what they claimed, on a clock in its hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.function_operations import TURN
from holdfast.core.operations import Handed, Offer, Settled
from holdfast.core.seams import Randomness
from holdfast.runtime.attempt import Attempt
from holdfast.runtime.killswitch import Crash
from holdfast.runtime.system import RealIds, real_system
from holdfast.runtime.worker import Worker
from holdfast.store.contract import ClaimRequest
from holdfast.store.sqlite import SqliteStore
from tests.flows.actions import registry as actions
from tests.support.stores import Site, VirtualClock

QUEUE = "default"
LEASE_SECONDS = 30.0


def registry_with_actions() -> hf.Registry:
    """The actions and children of the corpus; its flows are added by whoever runs them."""
    registry = hf.Registry()
    for found in {id(each): each for each in (*actions.actions.values(), *actions.workflows.values())}.values():
        registry.add(found)
    return registry


class WorkerByHand:
    """An engine and its worker."""

    def __init__(self, engine: hf.Engine, clock: VirtualClock, randomness: Randomness) -> None:
        self.engine = engine
        self._clock = clock
        self._worker = Worker(
            store=engine.store,
            coordinator=engine.coordinator,
            definitions=engine.definitions,
            settings=engine.settings,
            clock=clock,
            ids=engine.system.ids,
            randomness=randomness,
            metrics=engine.metrics,
            codecs=engine.codecs,
        )

    @property
    def id(self) -> str:
        return self._worker.id

    async def enroll(self) -> None:
        await self._worker._enroll()

    async def take_over(self) -> None:
        """Leases of the dead lapse."""
        await self._worker._caretaker.take_over(self.id)

    async def prove_life(self) -> None:
        await self.engine.store.heartbeat(self.id, LEASE_SECONDS)

    async def claim(self, limit: int) -> list[Handed]:
        names = self.engine.definitions
        request = ClaimRequest(
            worker=self.id,
            queue=QUEUE,
            limit=limit,
            workflows=names.known_workflows(),
            actions=names.known_actions(),
        )
        await self.engine.store.promote((QUEUE,))  # what became due meanwhile
        found = await self.engine.store.claim(request)
        self.engine.coordinator.remember(found)
        return found

    async def leased_unawares(self) -> list[Handed]:
        """What was leased by a commit whose answer was lost; to be asked only when nothing is running."""
        leased = await self.engine.store.leased_to(self.id)
        runs = {run.id: run for run in await self.engine.store.runs([work.run for work in leased])}
        return [Handed(work, runs[work.run]) for work in leased]

    async def run(self, handed: Handed, offer: Callable[[], Offer | None]) -> Settled:
        """Run what was claimed, and report it."""
        if handed.work.kind == TURN:
            return await self._worker._driver.drive(handed.work, handed.run)
        return await self._worker._runner.run(Attempt(handed.work, handed.run), offer)

    async def time_passes(self) -> bool:
        """To the next due time; False if nothing is ever due."""
        due = await self.engine.store.promote((QUEUE,))
        if due is None:
            return False
        self._clock.advance(max(0.0, (due - self.engine.store.now()) / 1e6))
        await self.engine.store.promote((QUEUE,))
        return True


async def worker_by_hand(
    site: Site, registry: hf.Registry, clock: VirtualClock, randomness: Randomness
) -> WorkerByHand:
    """An open engine with an enrolled worker; it has not taken over from anybody."""
    engine = hf.Engine(
        registry=registry,
        store=site.store(clock),
        system=replace(real_system(), clock=clock, ids=RealIds(clock, randomness)),
        notify=False,
        lost_limit=10_000,
        lease_seconds=LEASE_SECONDS,
    )
    await engine.open()
    made = WorkerByHand(engine, clock, randomness)
    cuts_power(engine, never=True)
    await made.enroll()
    return made


async def crashes(
    hands: WorkerByHand,
    playing: Coroutine[Any, Any, None],
    place: str,
    hit: int,
    look: Callable[[], None] | None = None,
) -> bool:
    """Play until the place is reached for that time, `look`, and not an instant longer; False if it never is.

    The store stays open, and whatever was under way is gone. Close it as the death of a process would.
    """
    loop, reached, hits, dead = asyncio.get_running_loop(), asyncio.Event(), 0, False

    def hook(name: str) -> None:
        nonlocal hits, dead  # from this very instant on; the event is set a turn of the loop later
        hits += name == place
        if dead or (name == place and hits == hit):
            if look is not None and not dead:
                look()
            dead = True
            loop.call_soon_threadsafe(reached.set)
            raise Crash(f"{place}:{hit}")

    failpoints.arm(hook)
    played = asyncio.ensure_future(playing)
    crashing = asyncio.ensure_future(reached.wait())
    await asyncio.wait({played, crashing}, return_when=asyncio.FIRST_COMPLETED)
    crashing.cancel()
    played.cancel()  # it may wait for an answer that nobody will give
    runner = hands.engine.coordinator._runner
    waited: set[asyncio.Task[None]] = {played} if runner is None else {played, runner}
    await asyncio.wait(waited)
    failpoints.disarm()
    for task in waited:
        assert task.cancelled() or isinstance(task.exception(), Crash | None), task.exception()
    return reached.is_set()


def cuts_power(engine: hf.Engine, *, never: bool) -> None:
    """Whether SQLite must expect it: a process that dies loses nothing, and syncing would take most of the time."""
    if isinstance(engine.store, SqliteStore):
        engine.store.db.execute(f"PRAGMA synchronous = {'OFF' if never else 'FULL'}")
