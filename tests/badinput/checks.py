"""What every refusal owes its reader, and what it must not leave behind."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast as hf

DEADLINE_SECONDS = 20.0
TABLES = ("runs", "work", "history", "waits", "events", "topics", "holds")


class Refusal:
    """The error that a block raised, once it has raised it."""

    error: hf.HoldfastError

    @property
    def text(self) -> str:
        return str(self.error)


@contextlib.contextmanager
def refused(kind: type[hf.HoldfastError], *named: str, fix: str = "") -> Iterator[Refusal]:
    """The block raises exactly this kind; its message names the identity, and its hint says what to do."""
    refusal = Refusal()
    with pytest.raises(hf.HoldfastError) as caught:
        yield refusal
    error = refusal.error = caught.value
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    for name in named:
        assert name in error.message, f"{name!r} is not in: {error.message}"
    assert error.hint.strip()
    assert fix in error.hint, f"{fix!r} is not in the hint: {error.hint}"
    assert error.hint in str(error)


async def row_counts(engine: hf.Engine) -> dict[str, int]:
    """How many rows each table holds, asked of the database and not of the engine."""
    store: Any = engine.store
    if store.kind == "memory":
        return {table.name: len(rows) for table, rows in store.tables.items()}
    if store.kind == "sqlite":
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}
    import asyncpg

    connection = await asyncpg.connect(engine.url)
    try:
        return {name: await connection.fetchval(f"SELECT count(*) FROM {name}") for name in TABLES}
    finally:
        await connection.close()


@asynccontextmanager
async def nothing_written(engine: hf.Engine) -> AsyncIterator[None]:
    """The block leaves as many rows in every table as there were."""
    before = await row_counts(engine)
    yield
    assert await row_counts(engine) == before
