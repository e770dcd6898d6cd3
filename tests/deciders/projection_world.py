"""A decider that only counts, and projections of it that write a row for each event that they take.

On a database the rows are in a table, written through `tx`; on the memory store, which has none, in a list. Nothing
keeps a projection from writing a row twice or too early: what the tests find there is what happened.

`python -m tests.deciders.projection_world URL` is a process that runs such a projection until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Never

import msgspec

import holdfast as hf
from holdfast.runtime.killswitch import install_from_environment
from tests.worker.support import until

SECONDS = 10.0
QUICK = hf.Retry(attempts=3, base=0.001, cap=0.002)
"""Retries that no test has to wait for."""


class Add(msgspec.Struct, frozen=True):
    """An input: one event for each number."""

    id: str
    numbers: tuple[int, ...] = (1,)


class Added(msgspec.Struct, frozen=True):
    number: int


def counter(registry: hf.Registry, name: str = "counter") -> type[hf.Decider[int, Add, Added, Never]]:
    class Counter(hf.Decider[int, Add, Added, Never], name=name, registry=registry):
        def workflow_id(self, input: Add) -> str:
            return input.id

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Added) -> int:
            return state + event.number

        def decide(self, now: datetime, state: int, input: Add) -> hf.Decision[Added, Never, Add]:
            return hf.Decision.event(*[Added(number) for number in input.numbers])

        def is_terminal(self, state: int) -> bool:
            return False

    return Counter


Hook = Callable[[list[hf.Recorded[Added]]], Awaitable[None]]


class Rows:
    """What a projection wrote, in the order in which it did, as (workflow_id, sequence, number)."""

    def __init__(self, kind: str, table: str = "taken") -> None:
        self.kind = kind
        self.table = table
        self.memory: list[tuple[str, int, int]] = []

    async def create(self, engine: hf.Engine) -> None:
        if self.kind == "memory":
            return
        number = "SERIAL" if self.kind == "postgresql" else "INTEGER"
        async with engine.store.transaction(user=True) as tx:
            await tx.user.execute(f"DROP TABLE IF EXISTS {self.table}")
            columns = f"n {number} PRIMARY KEY, id text, sequence int, number int"
            await tx.user.execute(f"CREATE TABLE {self.table} ({columns})")

    async def write(self, event: hf.Recorded[Added], tx: hf.Tx) -> None:
        row = (event.workflow_id, event.sequence, event.event.number)
        if self.kind == "memory":
            self.memory.append(row)
            return
        marks = "$1, $2, $3" if self.kind == "postgresql" else "?, ?, ?"
        await tx.execute(f"INSERT INTO {self.table} (id, sequence, number) VALUES ({marks})", *row)

    async def empty(self, tx: hf.Tx) -> None:
        if self.kind == "memory":
            self.memory.clear()
        else:
            await tx.execute(f"DELETE FROM {self.table}")

    async def read(self, engine: hf.Engine) -> list[tuple[str, int, int]]:
        if self.kind == "memory":
            return list(self.memory)
        async with engine.store.transaction(user=True) as tx:
            rows = await tx.user.fetch(f"SELECT id, sequence, number FROM {self.table} ORDER BY n")
        return [(row[0], row[1], row[2]) for row in rows]


class Book:
    """A decider, a projection of it, and what that wrote. `before` is called with every list of events first."""

    def __init__(self, kind: str, *, name: str = "book", before: Hook | None = None, **options: Any) -> None:
        self.registry = hf.Registry()
        self.Counter = counter(self.registry)
        self.rows = Rows(kind)
        self.before = before
        self.calls: list[list[int]] = []  # the numbers of each call, also of those that came to nothing
        self.projection = self.define(name, self.rows, **options)

    def define(self, name: str, rows: Rows, *, batch: bool = False, reset: bool = True, **options: Any) -> Any:
        async def take(events: Any, tx: hf.Tx) -> None:
            several = events if batch else [events]
            self.calls.append([event.event.number for event in several])
            if self.before is not None:
                await self.before(several)
            for event in several:
                await rows.write(event, tx)

        options = {"retry": QUICK, **options}
        made: Any = hf.projection(self.Counter, name=name, batch=batch, registry=self.registry, **options)(take)
        if reset:
            made.reset(rows.empty)
        return made

    async def add(self, engine: hf.Engine, id: str, *numbers: int) -> None:
        await engine.execute(self.Counter, Add(id, numbers))


async def info(engine: hf.Engine, name: str = "book") -> Any:
    """Where this projection stands."""
    return next(each for each in await engine.projections() if each.name == name)


def fails_on(number: int) -> Hook:
    async def check(events: list[hf.Recorded[Added]]) -> None:
        if any(event.event.number == number for event in events):
            raise ValueError(f"no {number} please")

    return check


async def has_come_to(engine: hf.Engine, status: str, name: str = "book") -> Any:
    """Where this projection stands once its status is this one."""

    async def there() -> Any:
        found = await info(engine, name)
        return found if found.status == status else None

    return await until(there, f"projection {name} is {status}")


async def serve(url: str) -> None:
    book = Book(url.partition(":")[0], batch_size=100)
    install_from_environment(os.environ)
    async with hf.Engine(url, registry=book.registry) as engine:
        await engine.run_worker()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
