"""Opening a SQLite file: is it ours, is it too new, migrations, and errors in words people can act on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from holdfast.core import failpoints
from holdfast.core.errors import NotOurDatabase, StoreError, StoreUnavailable
from holdfast.store.contract import Conflict
from holdfast.store.statements import OUR_TABLES, Migration, check_applied, migrations

OLDEST_SQLITE = (3, 40, 0)


def check_database(db: sqlite3.Connection, path: str) -> None:
    """Refuse a file that is somebody else's, or that newer code has migrated."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailable(
            f"this Python links SQLite {sqlite3.sqlite_version}, and Holdfast needs 3.40 or newer",
            hint="use a newer Python build, or PostgreSQL",
        )
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "holdfast_migrations" in tables:
        check_applied(dict(db.execute("SELECT number, checksum FROM holdfast_migrations")), "sqlite", str(path))
    elif foreign := tables & OUR_TABLES:
        raise NotOurDatabase(
            f"{path} has a table {min(foreign)}, but no holdfast_migrations: it belongs to another program",
            hint="give Holdfast a file of its own, for example sqlite:///holdfast.db",
        )


def is_current(db: sqlite3.Connection) -> bool:
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_migrations'").fetchone():
        return False
    applied = {number for (number,) in db.execute("SELECT number FROM holdfast_migrations")}
    return applied >= {migration.number for migration in migrations("sqlite")}


def migrate_database(db: sqlite3.Connection, now: int) -> list[str]:
    """Apply what is missing, all in one transaction."""
    ran: list[str] = []
    if is_current(db):
        return ran
    db.execute("BEGIN EXCLUSIVE")
    try:
        db.execute(
            "CREATE TABLE IF NOT EXISTS holdfast_migrations "
            "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied INTEGER NOT NULL) STRICT"
        )
        applied = {number for (number,) in db.execute("SELECT number FROM holdfast_migrations")}
        for migration in migrations("sqlite"):
            if migration.number not in applied:
                _apply(db, migration, now)
                ran.append(f"{migration.number:04d}_{migration.name}")
        if failpoints.armed:
            failpoints.hit("migrate.after")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return ran


def _apply(db: sqlite3.Connection, migration: Migration, now: int) -> None:
    if failpoints.armed:
        failpoints.hit("migrate.before")
    for statement in split(migration.sql):
        db.execute(statement)  # executescript would commit the transaction we are in
        if failpoints.armed:
            failpoints.hit("migrate.between")
    db.execute(
        "INSERT INTO holdfast_migrations (number, name, checksum, applied) VALUES (?, ?, ?, ?)",
        (migration.number, migration.name, migration.checksum, now),
    )


def split(sql: str) -> Iterator[str]:
    """The statements of a migration file."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def is_taken(error: sqlite3.IntegrityError) -> bool:
    """Whether a key exists already, which another look at the rows resolves; a NULL or a wrong type stays wrong."""
    return error.sqlite_errorcode in (
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
        sqlite3.SQLITE_CONSTRAINT_ROWID,
    )


class translate:
    """SQLite's errors, as ours: with the file and what to do."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.IntegrityError):
            if is_taken(error):  # else a poison operation: it would be refused every time
                raise Conflict(str(error)) from error
        elif isinstance(error, sqlite3.DatabaseError):
            raise explain(error, self._path) from error
        elif isinstance(error, OSError):
            raise StoreUnavailable(
                f"{self._path} cannot be used: {error.strerror}",
                hint="check the path and the permissions of its folder",
            ) from error


def explain(error: sqlite3.DatabaseError, path: str) -> StoreError | Conflict:
    text = str(error)
    if "locked" in text or "busy" in text:
        return StoreUnavailable(
            f"{path} is locked by another program: {text}", hint="close the other program's transaction"
        )
    if "readonly" in text or "read-only" in text:
        return StoreUnavailable(
            f"{path} cannot be written: {text}", hint="check the file's and the folder's permissions"
        )
    if "disk is full" in text or "full" in text:
        return StoreUnavailable(
            f"the disk that holds {path} is full", hint="free some space; work goes on by itself then"
        )
    if "not a database" in text or "malformed" in text:
        return NotOurDatabase(
            f"{path} is not a healthy SQLite database: {text}", hint="check the path, or restore a backup"
        )
    if "unable to open" in text:
        return StoreUnavailable(
            f"{path} cannot be opened: {text}", hint="check that the folder exists and may be written"
        )
    if "no such table" in text or "no such column" in text:
        return NotOurDatabase(
            f"{path} has no Holdfast tables, or those of an older version: {text}",
            hint="run `holdfast migrate`, or open the engine, which migrates",
        )
    return StoreUnavailable(f"SQLite said of {path}: {text}", hint="`holdfast doctor` may know more")
