"""A simulated process: an engine with a worker in a lane of its own, which can die, stand still and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import holdfast as hf
from holdfast.core.operations import Operation, PauseRun, ResumeRun, WorkOperation
from holdfast.runtime.system import InlineExecutor, RealIds, System
from holdfast.testing.engines import SeededRandomness
from tests.reliability.simulation.actions import registry
from tests.reliability.simulation.faults import LEASE_SECONDS
from tests.reliability.simulation.loop import Lane
from tests.reliability.simulation.store import SimulatedSqlite, SimulatedStore

if TYPE_CHECKING:
    from tests.reliability.simulation.world import World

SETTINGS: dict[str, Any] = {
    "lease_seconds": LEASE_SECONDS,
    "poll_seconds": 1.0,
    "sweep_seconds": 1.0,
    "store_timeout_seconds": 4.0,
    "shutdown_seconds": 0.5,
    "resident_seconds": 2.0,
    "lost_limit": 1000,  # a storm may take a lease from one item very often
}
QUEUES = ("default", "side")


class SkewedClock:
    """The clock of one machine: its wall time may be hours off; a second is a second everywhere."""

    __slots__ = ("_loop", "_skew_us", "_start_us")

    def __init__(self, loop: asyncio.AbstractEventLoop, start_us: int, skew_us: int = 0) -> None:
        self._loop = loop
        self._start_us = start_us
        self._skew_us = skew_us

    def now_us(self) -> int:
        return self._start_us + self._skew_us + int(self._loop.time() * 1e6)

    def monotonic(self) -> float:
        return self._loop.time()


class Host:
    """One process, from its birth to its death. A new one takes its place; it never comes back itself."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"host{number}"
        self.lane = Lane(self.name)
        self.engine: hf.Engine | None = None
        self.heard: Callable[[str], None] | None = None
        self.calls: dict[asyncio.Future[Any], None] = {}  # of clients who wait for an answer, in their order
        self.heart_fails_until = -1.0
        self.disk_full_until = -1.0
        self._stop = asyncio.Event()
        dice = world.dice
        self._skew_us = int(dice.uniform(-7200, 7200) * 1e6) if dice.random() < world.faults.skew else 0
        self._settings = {
            **SETTINGS,
            "hand_over": dice.random() < 0.8,
            "resident_functions": dice.choice((1, 2, 10_000)),
            "batch_limit": dice.choice((1, 3, 200)),
            "cache_rows": dice.choice((10, 200_000)),
        }
        self.concurrency = dice.choice((1, 2, 5, 100))
        self.store = world.store_for(self)
        world.loop.spawn(self.lane, self._watched())

    def __repr__(self) -> str:
        return f"<{self.name}, {self.lane.state}>"

    @property
    def is_up(self) -> bool:
        return self.engine is not None and self.lane.state == "alive"

    async def _watched(self) -> None:
        try:
            await self._live()
        except Exception as error:  # no fault of ours ends a process
            self.world.broken = self.world.broken or error

    async def _live(self) -> None:
        loop = self.world.loop
        clock = SkewedClock(loop, self.world.start_us, self._skew_us)
        system = System(
            clock=clock,
            ids=RealIds(clock, SeededRandomness("ids", self.world.seed, self.name)),
            randomness=SeededRandomness("worker", self.world.seed, self.name),
            make_inline=InlineExecutor,
            make_threaded=lambda _: InlineExecutor(),
            sleep=_must_not_sleep,
        )
        engine = hf.Engine("memory://", registry=registry, system=system, store=self.store, **self._settings)
        while True:
            try:
                await engine.open(migrate=False)
                break
            except hf.StoreError:
                await asyncio.sleep(0.2)
        self._repeat_submissions(engine)
        self.engine = engine
        while not self._stop.is_set():
            try:
                async with engine.worker(queues=QUEUES, concurrency=self.concurrency):
                    await self._stop.wait()
            except hf.StoreError:
                await asyncio.sleep(0.2)
        self.world.ledger.met["stopped politely"] += 1
        await engine.close()
        self.world.died(self)

    def stop(self) -> None:
        """Ask it to end politely."""
        self.world.loop.call_soon(self._stop.set, context=self.lane.context)

    def cut(self) -> None:
        """What the system does with the rest of a process that was killed."""
        if isinstance(self.store.inner, SimulatedSqlite):
            self.store.inner.cut()

    def _repeat_submissions(self, engine: hf.Engine) -> None:
        """K8: an operation that is submitted a second time changes nothing, at once or later."""
        submit, world = engine.coordinator.submit, self.world

        def fenced(operation: Operation) -> asyncio.Future[Any]:
            future = submit(operation)
            if isinstance(operation, WorkOperation) and world.shadow.is_stale(operation):
                world.ledger.met["late reports"] += 1
                future.add_done_callback(lambda _: world.refused(operation, future))
            return future

        def again(operation: Operation) -> None:
            if engine._coordinator is not None:
                fenced(operation).add_done_callback(_seen)

        def submitted(operation: Operation) -> asyncio.Future[Any]:
            future = fenced(operation)
            wish = isinstance(operation, PauseRun | ResumeRun)  # a second time it is another wish
            if world.faults.repeat and not wish and world.dice.random() < world.faults.repeat:
                world.ledger.met["repeated"] += 1
                world.loop.call_later(world.dice.choice((0.0, 0.0, 0.3, 2.0)) * world.dice.random(), again, operation)
            if world.faults.forget and world.dice.random() < world.faults.forget:
                world.ledger.met["forgot"] += 1
                engine.coordinator.cache.clear()
            return future

        engine.coordinator.submit = submitted  # type: ignore[method-assign]


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _must_not_sleep(seconds: float) -> None:
    raise AssertionError("somebody waited for a lock that a simulated process held")


__all__ = ["Host", "SimulatedStore", "SkewedClock"]
