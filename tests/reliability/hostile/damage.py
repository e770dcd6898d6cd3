"""Copies of runs, row by row, and what nobody of us would write into them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from holdfast.core.ids import instance_id
from holdfast.core.rows import TABLES, Table

# The columns that say to which run a row belongs; of `inputs` it is the scope that is always there.
OF_RUN = {"runs": "id", "events": "target", "inputs": "scope"}
TEXTS = ("", "nonsense", "{not json", "'; DROP TABLE runs; --")
NUMBERS = (-1, 2**62, -(2**62))
BLOBS = (b"", b"\xff{not json", b"null", b'["x"]', b'{"x": 1}', b"[" * 5000)
NOT_NUMBERS_HERE = 2**31  # PostgreSQL has columns of 32 bits
ENOUGH = 3


@dataclass(frozen=True, slots=True)
class Harm:
    """What is written where: in every row that the copy of a run has in this table."""

    table: str
    column: str
    value: Any

    def __str__(self) -> str:
        return f"{self.table}.{self.column} = {self.value!r:.40}"


class Rows:
    """Statements behind the engine's back, on either database, with ? for values."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.is_sqlite = isinstance(connection, sqlite3.Connection)

    async def fetch(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        if self.is_sqlite:
            cursor = self._connection.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        return [dict(row) for row in await self._connection.fetch(_numbered(sql), *values)]

    async def execute(self, sql: str, *values: Any) -> None:
        if self.is_sqlite:
            self._connection.execute(sql, values)
        else:
            await self._connection.execute(_numbered(sql), *values)


def _numbered(sql: str) -> str:
    for number in range(1, sql.count("?") + 1):
        sql = sql.replace("?", f"${number}", 1)
    return sql


@asynccontextmanager
async def rows_of(url: str) -> Any:
    """A connection of one's own; what was done is committed at the end."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(Path(url.removeprefix("sqlite:///")))
        try:
            with connection:
                yield Rows(connection)
        finally:
            connection.close()
    else:
        asynchronous = await asyncpg.connect(url)
        try:
            yield Rows(asynchronous)
        finally:
            await asynchronous.close()


async def copy_of(rows: Rows, run: str, suffix: str) -> str:
    """Every row of a run again, as another run; its id."""
    (original,) = await rows.fetch("SELECT * FROM runs WHERE id = ?", run)
    key = None if original["key"] is None else f"{original['key']}{suffix}"
    copied = instance_id(original["workflow"], key) if original["model"] == "decider" else f"{run}{suffix}"
    for table in TABLES:
        if table.name == "holds":
            continue
        for row in await rows.fetch(f"SELECT * FROM {table.name} WHERE {OF_RUN.get(table.name, 'run')} = ?", run):
            await _insert(rows, table, _renamed(table, row, run, copied, key, suffix))
    return copied


def _renamed(
    table: Table[Any], row: dict[str, Any], old: str, new: str, key: str | None, suffix: str
) -> dict[str, Any]:
    changed = {name: value.replace(old, new) if isinstance(value, str) else value for name, value in row.items()}
    if table.name == "events":
        changed["id"] += suffix
    if "key" in changed and table.name in ("runs", "stream"):
        changed["key"] = key
    if table.name == "stream":
        del changed["position"]
    return changed


async def _insert(rows: Rows, table: Table[Any], row: dict[str, Any]) -> None:
    if table.name == "stream" and not rows.is_sqlite:
        row["position"] = (await rows.fetch("SELECT nextval('stream_positions') AS n"))[0]["n"]
    names = ", ".join(f'"{name}"' for name in row)
    await rows.execute(f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' * len(row))})", *row.values())


def harms(sample: dict[str, Sequence[dict[str, Any]]]) -> Iterator[Harm]:
    """For every column of every table, values of its type that mean nothing; `sample` has rows of each."""
    for table in TABLES:
        for column in table.columns if sample.get(table.name) else ():
            if column == OF_RUN.get(table.name, "run"):
                yield Harm(table.name, column, "nobody")  # rows that belong to no run
                continue
            kinds = {type(row[column]) for row in sample[table.name]}
            values: tuple[Any, ...] = ()
            if bytes in kinds:
                values = BLOBS
            elif str in kinds:
                values = TEXTS
            elif kinds & {int, float}:
                values = NUMBERS
            yield from (Harm(table.name, column, value) for value in values)
            if type(None) in kinds or kinds == {bytes}:
                yield Harm(table.name, column, None)


REFUSALS = (sqlite3.IntegrityError, asyncpg.PostgresError, asyncpg.DataError, ValueError, OverflowError)


async def inflict(rows: Rows, harm: Harm, run: str) -> bool:
    """Do it; False if the database itself refuses such a value, or the run has no such row."""
    where = OF_RUN.get(harm.table, "run")
    found = await rows.fetch(f"SELECT count(*) AS n FROM {harm.table} WHERE {where} = ?", run)
    if not found[0]["n"]:
        return False
    try:
        await rows.execute(f'UPDATE {harm.table} SET "{harm.column}" = ? WHERE {where} = ?', harm.value, run)
    except REFUSALS:
        return False
    return True
