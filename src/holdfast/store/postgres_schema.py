"""Opening a PostgreSQL database: is it ours, is it too new, and migrations under a lock."""

from __future__ import annotations

from typing import Any

from holdfast.core import failpoints
from holdfast.core.errors import NotOurDatabase
from holdfast.store.statements import OUR_TABLES, check_applied, migrations

_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
_APPLIED = "SELECT number, checksum FROM holdfast_migrations"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS holdfast_migrations "
    "(number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied bigint NOT NULL)"
)
_LOCK = "SELECT pg_advisory_xact_lock(7521983401)"  # held until the commit: one migrator at a time


async def check_database(connection: Any, pooled: bool) -> None:
    """Refuse a database that is somebody else's, or that newer code has migrated."""
    async with connection.transaction():
        tables = {row[0] for row in await connection.fetch(_TABLES)}
        where = f"database {await connection.fetchval('SELECT current_database()')}"
        if "holdfast_migrations" in tables:
            applied = {row[0]: row[1] for row in await connection.fetch(_APPLIED)}
            check_applied(applied, "postgres", where)
        elif foreign := tables & OUR_TABLES:
            raise NotOurDatabase(
                f"{where} has a table {min(foreign)}, but no holdfast_migrations: it belongs to another program",
                hint="give Holdfast a database or a schema of its own (search_path in the URL)",
            )


async def _is_current(connection: Any) -> bool:
    async with connection.transaction():
        if "holdfast_migrations" not in {row[0] for row in await connection.fetch(_TABLES)}:
            return False
        applied = {row[0] for row in await connection.fetch(_APPLIED)}
    return applied >= {migration.number for migration in migrations("postgres")}


async def migrate_database(connection: Any, sql: dict[str, str]) -> list[str]:
    """Apply what is missing in one transaction: PostgreSQL can undo DDL."""
    if await _is_current(connection):
        return []  # a role without the right to create tables can use a database that is up to date
    ran = []
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.execute(_LOCK)
        await connection.execute(_CREATE)
        applied = {row[0] for row in await connection.fetch("SELECT number FROM holdfast_migrations")}
        now = await connection.fetchval(sql["now"])
        for migration in migrations("postgres"):
            if migration.number in applied:
                continue
            if failpoints.armed:
                await failpoints.reach("migrate.before")
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO holdfast_migrations VALUES ($1, $2, $3, $4)",
                migration.number,
                migration.name,
                migration.checksum,
                now,
            )
            if failpoints.armed:
                await failpoints.reach("migrate.between")
            ran.append(f"{migration.number:04d}_{migration.name}")
        if failpoints.armed:
            await failpoints.reach("migrate.after")
    return ran
