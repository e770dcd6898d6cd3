"""DAGs to be refused, and what their database says before and after."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast as hf
from tests.badinput.checks import DEADLINE_SECONDS

TABLES = ("runs", "work", "history", "definitions", "waits", "events", "topics", "holds")


class World:
    """A registry of its own: an action that fits, one that fails, one that runs until it is told to end."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.running, self.may_end = asyncio.Event(), asyncio.Event()

        @hf.action(registry=self.registry)
        async def work(number: int) -> None: ...

        @hf.action(registry=self.registry)
        async def stumble() -> None:
            raise ValueError("stumbled")

        @hf.action(registry=self.registry)
        async def hold() -> None:
            self.running.set()
            await self.may_end.wait()

        self.work, self.stumble, self.hold = work, stumble, hold

    def builder(self, name: str = "batch") -> hf.DagBuilder:
        """Two nodes, one after the other."""
        dag = hf.DagBuilder(name, registry=self.registry)
        dag.node("first", job=self.work, args={"number": 1})
        dag.node("second", job=self.work, args={"number": 2})
        return dag

    def broken(self) -> hf.BuiltDag:
        """prepare > charge > ship, where charge fails; report goes its own way after prepare."""
        dag = hf.DagBuilder("order", registry=self.registry)
        dag.node("prepare", job=self.work, args={"number": 1})
        dag.node("report", job=self.work, args={"number": 2})
        dag.node("charge", job=self.stumble, depends_on="prepare")
        dag.node("ship", job=self.work, args={"number": 3})
        return dag.build()

    def engine(self, url: str) -> hf.Engine:
        return hf.Engine(url, registry=self.registry, poll_seconds=0.05)

    async def paused(self, engine: hf.Engine) -> hf.Handle[Any]:
        """A run whose node charge gave up."""
        handle = await engine.start(self.broken())
        with pytest.raises(hf.RunPaused):
            await handle.result(DEADLINE_SECONDS)
        return handle


async def every_row(engine: hf.Engine) -> dict[str, list[str]]:
    """What every table says, asked of the database and not of the engine."""
    store: Any = engine.store
    if store.kind == "memory":
        return {table.name: sorted(map(repr, rows.values())) for table, rows in store.tables.items()}
    if store.kind == "sqlite":
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            return {name: sorted(map(repr, db.execute(f"SELECT * FROM {name}"))) for name in TABLES}
    import asyncpg

    connection = await asyncpg.connect(engine.url)
    try:
        return {name: sorted(map(repr, await connection.fetch(f"SELECT * FROM {name}"))) for name in TABLES}
    finally:
        await connection.close()


@asynccontextmanager
async def nothing_changed(engine: hf.Engine) -> AsyncIterator[None]:
    """The block leaves every row as it was, to the last column."""
    before = await every_row(engine)
    yield
    assert await every_row(engine) == before
