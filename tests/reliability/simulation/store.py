"""A store as one simulated process sees it: the real one, behind a layer where calls are late, fail or get no answer.

A call takes effect at one moment, which is when the real store is called: nothing waits inside a transaction. What the
layer adds comes before that moment and after it. So the order of commits is known, and the shadow is told of each.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import StoreUnavailable
from holdfast.core.operations import Handed
from holdfast.core.view import Changes
from holdfast.store.contract import ClaimRequest, Store, Transaction
from holdfast.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.reliability.simulation.host import Host

PASSED_ON = frozenset({"open", "close", "migrate"})  # before and after the process lives


class SimulatedStore:
    """What an engine is given as its store."""

    shared = True

    def __init__(self, inner: Store, host: Host, *, overlap: bool) -> None:
        self.inner = inner
        self.kind = inner.kind
        self.flushes_overlap = overlap
        self._host = host
        self._world = host.world
        self.now = inner.now
        self.time_left = inner.time_left
        self.proves_life = inner.proves_life
        self.join = inner.join

    @property
    def on_foreign_write(self) -> Callable[[], None]:
        return self.inner.on_foreign_write

    @on_foreign_write.setter
    def on_foreign_write(self, call: Callable[[], None]) -> None:
        if self.kind == "sqlite":  # the memory store is one object, which others write to as well
            self.inner.on_foreign_write = call

    def __getattr__(self, name: str) -> Any:
        """Every call that is not named below: a read, or a write that touches no run."""
        call = getattr(self.inner, name)
        if name in PASSED_ON:
            return call

        async def layered(*args: Any, **options: Any) -> Any:
            await self._world.mischief.before(self._host, name)
            answer = await call(*args, **options)
            await self._world.mischief.after(self._host, name)
            return answer

        self.__dict__[name] = layered
        return layered

    # -- commits

    async def flush(self, changes: Changes) -> frozenset[str]:
        await self._world.mischief.before(self._host, "flush")
        missed = await self.inner.flush(changes)
        if not missed:
            self._world.committed(self._host, changes)
        await self._world.mischief.after(self._host, "flush")
        return missed

    def transaction(self, *, user: bool = False) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction(user)

    @asynccontextmanager
    async def _transaction(self, user: bool) -> AsyncIterator[Transaction]:
        await self._world.mischief.before(self._host, "transaction")
        async with self.inner.transaction(user=user) as tx:
            watched = WatchedTransaction(tx)
            yield watched  # type: ignore[misc]
        for changes in watched.written:
            self._world.committed(self._host, changes)
        await self._world.mischief.after(self._host, "transaction")

    async def claim(self, request: ClaimRequest) -> list[Handed]:
        await self._world.mischief.before(self._host, "claim")
        handed = await self.inner.claim(request)
        self._world.claimed(self._host, handed)
        await self._world.mischief.after(self._host, "claim")
        return handed

    # -- news

    async def announce(self, channels: frozenset[str]) -> None:
        self._world.announce(self._host, channels)

    async def listen(self, heard: Callable[[str], None]) -> None:
        self._host.heard = heard


class WatchedTransaction:
    """Remembers what was written through it, for when it is committed."""

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self.written: list[Changes] = []
        self.now = inner.now
        self.lock_topics = inner.lock_topics
        self.lock_runs = inner.lock_runs
        self.load = inner.load

    @property
    def user(self) -> Any:
        return self._inner.user

    async def write(self, changes: Changes) -> None:
        await self._inner.write(changes)
        self.written.append(changes)


class FillingConnection(sqlite3.Connection):
    """A connection to a file on a disk that may be full."""

    is_full: Callable[[], bool] = staticmethod(lambda: False)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        if self.is_full():
            raise sqlite3.OperationalError("database or disk is full")
        return super().executemany(sql, parameters)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.is_full():
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, parameters)


class SimulatedSqlite(SqliteStore):
    """A SQLite file whose process can die, and whose disk can be full."""

    is_full: Callable[[], bool] = staticmethod(lambda: False)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, cached_statements=256, factory=FillingConnection
        )
        db.is_full = self.is_full
        return db

    def cut(self) -> None:
        """What the operating system does when a process is gone."""
        if self._db is not None:
            self._db.close()
            self._db = None
        self._worker_locks.abandon()
        self._lock.close()


def lost(what: str) -> StoreUnavailable:
    return StoreUnavailable(f"the connection broke {what}, by this simulation's dice")


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


__all__ = ["SimulatedSqlite", "SimulatedStore", "for_ever", "lost"]
