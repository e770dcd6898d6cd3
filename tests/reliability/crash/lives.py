"""Lives inside one process: each has an event loop, an engine and a worker of its own, and ends when it is told to.

A crash is an instant. The hook of the failpoint takes a copy of the SQLite files, or shuts the sockets to PostgreSQL,
and stops the loop; nothing that is unwound afterwards reaches the database or the ledger. On SQLite time is virtual:
the loop never waits, so a life takes as long as its computations, and the same life reaches the same places in the
same order. On PostgreSQL time is the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import selectors
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import holdfast as hf
from holdfast.core import failpoints
from holdfast.runtime.killswitch import Crash
from holdfast.runtime.system import InlineExecutor, RealClock, RealIds, System, real_system
from holdfast.store.contract import Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.engines import SeededRandomness
from tests.reliability.crash import ledger as ledgers
from tests.reliability.crash.ledger import Ledger
from tests.reliability.crash.oracle import Broken
from tests.reliability.crash.places import Place, SqlitePlace
from tests.reliability.crash.scenario import SETTINGS, Scenario, Scene

LIFE_SECONDS = 120.0
EPOCH_US = 1_700_000_000_000_000

logging.getLogger("holdfast").addHandler(logging.NullHandler())


class Stalled(Broken):
    """G9: nothing is left to wait for, and the scenario has not ended."""


class VirtualTime(selectors.DefaultSelector):
    """A selector that does not wait: what it is told to wait for is added to the time."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise Stalled("G9: nobody has anything to do, and nobody waits for a time")
        if not ready and timeout is not None and timeout > 0:
            self.seconds += timeout
        return ready

    # -- as the clock of an engine

    def now_us(self) -> int:
        return EPOCH_US + int(self.seconds * 1e6)

    def monotonic(self) -> float:
        return self.seconds


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, time: VirtualTime) -> None:
        self._virtual = time
        super().__init__(time)

    def time(self) -> float:
        return self._virtual.seconds


@dataclass
class Lived:
    """How a life went."""

    crashed: bool
    hits: Counter[str]
    seconds: float = 0.0
    """The virtual time at its end."""


@dataclass
class Life:
    """One life of a scenario on a place."""

    scenario: Scenario
    place: Place
    ledger: Ledger
    name: str = ""
    seconds: float = 0.0
    """The virtual time at its beginning."""
    on_hit: Callable[[str, int], bool] = lambda name, hit: False
    """Given each failpoint and how often it was reached: whether to die there."""
    make_store: Callable[[System], Store] | None = None
    hits: Counter[str] = field(default_factory=Counter)
    crashed: bool = False

    def live(self) -> Lived:
        """Until the scenario has ended, or the crash."""
        virtual = self.place.kind == "sqlite"
        time = VirtualTime(self.seconds)
        self._loop: asyncio.AbstractEventLoop = VirtualLoop(time) if virtual else asyncio.new_event_loop()
        self._transports: list[Any] = []  # to PostgreSQL
        self._closed: set[asyncio.Task[Any]] = set()
        self._loop.set_exception_handler(lambda loop, context: None)
        self._store = self._made_store(self._system(time if virtual else None))
        ledgers.use(self.ledger)
        # Whoever keeps log records keeps tracebacks, and with them the functions of the dead.
        logging.getLogger("holdfast").propagate = False
        failpoints.arm(self._hook)
        task = self._loop.create_task(self._main())
        task.add_done_callback(lambda _: self._loop.stop())
        try:
            self._loop.run_forever()
            failpoints.disarm()
            if not self.crashed:
                task.result()
        finally:
            failpoints.disarm()
            self.ledger.close()
            self._abandon()
            logging.getLogger("holdfast").propagate = True
        return Lived(self.crashed, self.hits, time.seconds)

    async def _main(self) -> None:
        # On SQLite a hint to others is a byte in a file, and closing an ear for it takes a millisecond.
        settings = {**SETTINGS, "notify": self.place.kind != "sqlite", **self.scenario.settings}
        engine = hf.Engine(registry=self.scenario.registry, store=self._store, system=self._given, **settings)
        async with asyncio.timeout(LIFE_SECONDS), engine:
            if isinstance(self._store, SqliteStore) and self.make_store is None:
                self._store.db.execute("PRAGMA synchronous = OFF")  # a process that dies loses nothing that it wrote
            await perform(self.scenario, engine)

    # -- the crash

    def _hook(self, name: str) -> None:
        if not self.crashed:
            self.hits[name] += 1
            if not self.on_hit(name, self.hits[name]):
                return
            self.crashed = True
            self._cut()
        raise Crash(f"dead since {name}")

    def _cut(self) -> None:
        """From here on nothing of this life reaches anybody."""
        self.ledger.close()
        for each in self._transports:
            with contextlib.suppress(OSError):
                each.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        if isinstance(self.place, SqlitePlace):
            self.place.leave()
        self._loop.stop()

    def _abandon(self) -> None:
        """Free what the dead life held, with none of its code left to run later, inside somebody else's life."""
        asyncio._set_running_loop(self._loop)
        while left := asyncio.all_tasks(self._loop) - self._closed:  # what is unwound may make new ones
            self._closed |= left
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        asyncio._set_running_loop(None)
        store: Any = self._store
        with contextlib.suppress(BaseException):
            if isinstance(store, SqliteStore) and store._db is not None:
                store._bell.close()
                store._worker_locks.abandon()
                store._lock.close()
                store._db.close()
        for each in self._transports:
            if each._sock is not None:
                each._sock.close()
        self._loop.close()

    # -- the world

    def _system(self, time: VirtualTime | None) -> System:
        chance = SeededRandomness("crash", self.name, self.ledger.life)
        if time is None:
            self._given = real_system()
        else:
            ids = RealIds(time, chance)
            self._given = replace(
                real_system(), clock=time, ids=ids, randomness=chance, make_threaded=lambda name: InlineExecutor()
            )
        return self._given

    def _made_store(self, system: System) -> Store:
        if self.make_store is not None:
            return self.make_store(system)
        if isinstance(self.place, SqlitePlace):
            return SqliteStore(
                self.place.path,
                clock=system.clock,
                inline=InlineExecutor(),
                threaded=InlineExecutor(),
                sleep=system.sleep,
            )
        store = PostgresStore(self.place.url, clock=RealClock())
        connect = store.connections._raw_connect

        async def noted(*, pooled: bool) -> Any:
            connection = await connect(pooled=pooled)
            self._transports.append(connection._transport)
            return connection

        store.connections._raw_connect = noted  # type: ignore[method-assign]
        return store


@contextlib.contextmanager
def buried() -> Iterator[None]:
    """Whoever dies in this block is gone after it: functions collected in another life would write to its ledger."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # nobody wants to hear what the dead complain of
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = hook


async def perform(scenario: Scenario, engine: hf.Engine) -> None:
    """What a life does with its engine."""
    scene = Scene(engine)
    if scenario.has_worker:
        async with engine.worker(queues=["default", "elsewhere"], concurrency=scenario.concurrency):
            await scenario.play(scene)
    else:  # a worker that begins while the server is just dying says so, and is started again
        await scene.patiently(lambda: scenario.play(scene))
