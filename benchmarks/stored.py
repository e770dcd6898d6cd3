"""How much a database holds, of whoever wrote it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing


def stored_bytes(url: str) -> int:
    """The bytes of all pages of a SQLite file, or of all tables of a PostgreSQL database with their indexes."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (pages,), (size,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
            return int(pages) * int(size)
    return asyncio.run(_of_postgres(url))


async def _of_postgres(url: str) -> int:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return int(
            await connection.fetchval(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
            )
        )
    finally:
        await connection.close()
