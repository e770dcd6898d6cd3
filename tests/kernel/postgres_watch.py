"""Looking at a PostgreSQL server from outside: who waits, and whether anybody deadlocked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

SOON_SECONDS = 20.0
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND state = 'active' AND datname = current_database()"
)
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@asynccontextmanager
async def outsider(url: str) -> AsyncIterator[Any]:
    """A connection that is not the store's."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


async def until_someone_waits_for_a_lock(url: str, count: int = 1) -> None:
    """Return when so many statements are blocked, which is when an interleaving has been forced."""
    async with outsider(url) as connection, asyncio.timeout(SOON_SECONDS):
        while await connection.fetchval(_WAITING) < count:
            pass


async def deadlocks(url: str) -> int:
    """How many deadlocks the server has broken here so far. Close the stores first: sessions tell when they end."""
    async with outsider(url) as connection:
        async with asyncio.timeout(SOON_SECONDS):
            while await connection.fetchval(_OTHERS):
                pass
        found: int = await connection.fetchval(_DEADLOCKS)
        return found
