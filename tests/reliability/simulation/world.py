"""The world of one seed: a store, some processes, dice, a ledger, and a storm that ends."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import holdfast as hf
from holdfast.core.operations import REPEATED, STALE, Handed, WorkOperation
from holdfast.core.rows import RUNS, WORK
from holdfast.core.view import Changes
from holdfast.runtime.system import InlineExecutor
from holdfast.store.memory import MemoryStore
from tests.reliability.simulation.faults import LEASE_SECONDS, Faults, faults_of, late_answers
from tests.reliability.simulation.host import Host, SkewedClock
from tests.reliability.simulation.ledger import Broken, Ledger, must
from tests.reliability.simulation.loop import Lane, SimulatedLoop
from tests.reliability.simulation.mischief import Mischief
from tests.reliability.simulation.shadow import Shadow
from tests.reliability.simulation.store import SimulatedSqlite, SimulatedStore

T = TypeVar("T")
START_US = 1_900_000_000_000_000
ANSWER_SECONDS = 120.0  # however often it asks, by then it must have an answer
PATIENCE_SECONDS = 6.0  # of a client, before it asks somebody else


class Unanswered(Exception):
    """Who was asked has died."""


class World:
    """Everything of one seed."""

    def __init__(
        self, seed: int, *, file: Path | None = None, faults: Faults | None = None, late: bool = False
    ) -> None:
        self.seed = seed
        self.late = late  # answers are, and functions are cancelled and roll back
        self.dice = random.Random(f"world {seed}")
        self.loop = SimulatedLoop(random.Random(f"loop {seed}"))
        drawn = late_answers(self.dice) if late else faults_of(self.dice)
        self.faults = drawn if faults is None else faults
        self.stormy = self.faults
        self.start_us = START_US
        self.clock = SkewedClock(self.loop, START_US)
        self.ledger = Ledger()
        self.shadow = Shadow()
        self.mischief = Mischief(self)
        self.hosts: list[Host] = []
        self.broken: BaseException | None = None
        self._file = file
        self._memory = MemoryStore(self.clock)
        self._overlap = file is None and self.dice.random() < 0.5
        self._born = 0
        self._lane = Lane("world")
        self._trace = hashlib.sha256()
        self.trace: list[str] | None = None

    # -- stores

    @property
    def kind(self) -> str:
        return "memory" if self._file is None else "sqlite"

    def real_store(self) -> MemoryStore | SimulatedSqlite:
        if self._file is None:
            return self._memory
        return SimulatedSqlite(
            self._file,
            clock=self.clock,
            inline=InlineExecutor(),
            threaded=InlineExecutor(),
            sleep=_must_not_sleep,
            timeout_seconds=1.0,
        )

    def store_for(self, host: Host) -> SimulatedStore:
        inner = self.real_store()
        if isinstance(inner, SimulatedSqlite):
            inner.is_full = lambda: self.mischief.is_full(host)  # type: ignore[method-assign]
        return SimulatedStore(inner, host, overlap=self._overlap)

    # -- what the stores tell

    def now_us(self) -> int:
        return self.clock.now_us()

    def committed(self, host: Host, changes: Changes) -> None:
        self.note(host, "commit", [(*WORK.key(row), row.status, row.token) for row in changes.rows(WORK)])
        self.note(host, "runs", [(row.id, row.status, row.version) for row in changes.rows(RUNS)])
        self._checked(lambda: self.shadow.on_commit(changes, self.now_us()))

    def claimed(self, host: Host, handed: Sequence[Handed]) -> None:
        if handed:
            self.note(host, "claim", [(*WORK.key(item.work), item.work.token) for item in handed])
            self._checked(lambda: self.shadow.on_claim(handed, self.now_us()))

    def executed(self, host: str, run: str, node: str, attempt: int, label: str) -> None:
        self.note(None, "act", (host, run, node, attempt, label))
        self._checked(lambda: self.shadow.on_execution(run, node, attempt, self.now_us()))

    def refused(self, operation: WorkOperation, answer: asyncio.Future[Any]) -> None:
        """K3: tokens grow, so what is late when it is submitted is refused, or was recorded the first time."""
        if not answer.cancelled() and answer.exception() is None:
            verdict = getattr(answer.result(), "verdict", STALE)
            told = f"{type(operation).__name__} with the old token {operation.token} was {verdict}: {operation}"
            self._checked(lambda: must(verdict in (STALE, REPEATED), "K3", told))

    def _checked(self, check: Callable[[], None]) -> None:
        """What is broken is kept: the code under test must not catch it."""
        try:
            check()
        except AssertionError as error:
            self.broken = self.broken or error

    def note(self, host: Host | None, what: str, told: object) -> None:
        """One line of the trace: the same seed writes the same lines."""
        line = f"{self.loop.time():.6f} {host.name if host else '-'} {what} {told}"
        self._trace.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    @property
    def digest(self) -> str:
        return self._trace.hexdigest()[:16]

    def announce(self, teller: Host, channels: frozenset[str]) -> None:
        for host in self.hosts:
            if host is teller or host.heard is None or self.dice.random() < self.faults.deaf:
                continue
            for channel in sorted(channels):
                delay = 0.001 + 0.02 * self.dice.random()
                self.loop.call_later(delay, host.heard, channel, context=host.lane.context)

    # -- processes

    def begin_host(self) -> Host:
        self._born += 1
        host = Host(self, self._born)
        self.hosts.append(host)
        return host

    def kill(self, host: Host) -> None:
        """The process is gone in this very moment; nothing of it runs any more."""
        if host.lane.state == "dead":
            return
        self.ledger.met["killed"] += 1
        self.note(host, "killed", "")
        self.loop.kill(host.lane)
        host.cut()
        self.died(host)

    def died(self, host: Host) -> None:
        host.engine = None
        if host in self.hosts:
            self.hosts.remove(host)
        for call in list(host.calls):
            if not call.done():
                call.set_exception(Unanswered(host.name))
        host.calls.clear()

    # -- clients

    async def ask(self, call: Callable[[hf.Engine], Awaitable[T]]) -> T:
        """What a client does who wants an answer: asks again, and somebody else, until there is one.

        So `call` must be harmless to repeat: it names its key or id.
        """
        until = self.loop.time() + ANSWER_SECONDS
        while self.loop.time() < until:
            up = [host for host in self.hosts if host.is_up]
            if not up:
                await asyncio.sleep(0.1)
                continue
            host = up[int(self.dice.random() * len(up))]
            answer: asyncio.Future[T] = self.loop.create_future()
            host.calls[answer] = None
            self.loop.spawn(host.lane, _answered(host, call, answer))
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return await answer
            except (Unanswered, hf.StoreError, hf.EngineClosed, TimeoutError) as error:
                self.ledger.met[f"client: {type(error).__name__}"] += 1
                await asyncio.sleep(0.05 + 0.2 * self.dice.random())
            finally:
                host.calls.pop(answer, None)
        if self.broken is not None:
            raise self.broken
        raise Broken(f"G9: nobody has answered a client for {ANSWER_SECONDS:g} s; alive are {self.hosts}")

    def run(self, coroutine: Callable[[], Awaitable[None]]) -> None:
        """Run the world's own lane to its end, and leave nothing behind."""
        task = self.loop.spawn(self._lane, coroutine())  # type: ignore[arg-type]
        try:
            self.loop.run_until_complete(task)
        finally:
            for host in list(self.hosts):
                self.loop.kill(host.lane)
                host.cut()
            self.loop.abandon()


async def _answered(host: Host, call: Callable[[hf.Engine], Awaitable[Any]], answer: asyncio.Future[Any]) -> None:
    engine = host.engine
    assert engine is not None
    try:
        value = await call(engine)
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(value)


def _must_not_sleep(seconds: float) -> None:
    raise AssertionError("somebody waited for a lock that a simulated process held")


__all__ = ["LEASE_SECONDS", "World"]
