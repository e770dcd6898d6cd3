"""Databases as earlier versions left them, put back on a server or into a file of today."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg

from holdfast.store.statements import Migration, migrations

DATABASES = Path(__file__).parent / "databases"
DIALECTS = {"sqlite": "sqlite", "postgresql": "postgres"}
# The version at which code was left that has the model: no database of 0002 alone was ever left by finished code, so
# that one is the first version's with one migration more.
VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
WRITTEN_AS = {"0002": "0001"}


async def restore(kind: str, url: str, version: str) -> None:
    """Fill an empty database with what the version left."""
    dump = (DATABASES / f"{WRITTEN_AS.get(version, version)}.{DIALECTS[kind]}.sql").read_text(encoding="utf-8")
    later = [m for m in migrations(DIALECTS[kind]) if WRITTEN_AS.get(version, version) < f"{m.number:04d}" <= version]
    if kind == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(dump)
        for migration in later:
            connection.executescript(migration.sql)
            connection.execute("INSERT INTO holdfast_migrations VALUES (?, ?, ?, 1)", _noted(migration))
        connection.commit()
        connection.close()
        return
    server = await asyncpg.connect(url)
    await server.execute(dump)
    for migration in later:
        await server.execute(migration.sql)
        await server.execute("INSERT INTO holdfast_migrations VALUES ($1, $2, $3, 1)", *_noted(migration))
    await server.close()


def _noted(migration: Migration) -> tuple[int, str, str]:
    return migration.number, migration.name, migration.checksum
