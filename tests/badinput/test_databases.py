"""Databases that cannot be used: each says why, which one, and what to do; and work goes on when they can be again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import holdfast as hf
from holdfast.runtime.postgres_server import PostgresServer
from tests.badinput.checks import DEADLINE_SECONDS, nothing_written, refused
from tests.support.pace import longer

registry = hf.Registry()
NOBODY = 65534


@hf.action(registry=registry)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


def impatient(url: str, **settings: Any) -> hf.Engine:
    """An engine that gives a missing database a quarter of a second, and one that is there the time that it needs."""
    quick = {"store_timeout_seconds": longer(0.25), "poll_seconds": 0.05, "sweep_seconds": 0.1}
    return hf.Engine(url, registry=registry, **(quick | settings))


async def made(url: str) -> None:
    async with impatient(url):
        pass


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


async def execute(url: str, *statements: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


# --- whose is it? ------------------------------------------------------------------------------------------------


async def test_a_sqlite_file_from_a_newer_holdfast_is_refused_and_left_alone(sqlite_url: str) -> None:
    await made(sqlite_url)
    with contextlib.closing(sqlite3.connect(path_of(sqlite_url))) as db, db:
        db.execute("INSERT INTO holdfast_migrations VALUES (9999, 'from the future', 'x', 0)")
    with refused(hf.SchemaTooNew, "app.db", "9999", fix="upgrade"):
        await made(sqlite_url)


async def test_a_postgresql_database_from_a_newer_holdfast_is_refused_and_left_alone(postgres_url: str) -> None:
    await made(postgres_url)
    await execute(postgres_url, "INSERT INTO holdfast_migrations VALUES (9999, 'from the future', 'x', 0)")
    with refused(hf.SchemaTooNew, urlsplit(postgres_url).path[1:], "9999", fix="upgrade"):
        await made(postgres_url)


async def test_a_schema_that_was_changed_by_hand_is_refused(sqlite_url: str) -> None:
    await made(sqlite_url)
    with contextlib.closing(sqlite3.connect(path_of(sqlite_url))) as db, db:
        db.execute("UPDATE holdfast_migrations SET checksum = 'edited'")
    with refused(hf.NotOurDatabase, "app.db", "0001", fix="backup"):
        await made(sqlite_url)


async def test_a_sqlite_file_of_another_program_is_refused_and_gets_no_tables(sqlite_url: str) -> None:
    with contextlib.closing(sqlite3.connect(path_of(sqlite_url))) as db, db:
        db.execute("CREATE TABLE runs (marathon TEXT)")
    with refused(hf.NotOurDatabase, "app.db", "runs", fix="of its own"):
        await made(sqlite_url)
    with contextlib.closing(sqlite3.connect(path_of(sqlite_url))) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]


async def test_a_postgresql_database_of_another_program_is_refused_and_gets_no_tables(postgres_url: str) -> None:
    import asyncpg

    await execute(postgres_url, "CREATE TABLE runs (marathon text)")
    with refused(hf.NotOurDatabase, urlsplit(postgres_url).path[1:], "runs", fix="of its own"):
        await made(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    await connection.close()
    assert [row[0] for row in tables] == ["runs"]


async def test_a_file_that_is_no_database_is_refused_and_keeps_its_content(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader, " * 500)
    with refused(hf.NotOurDatabase, "letter.txt", fix="path"):
        await made(f"sqlite:///{letter}")
    assert letter.read_text() == "Dear reader, " * 500


async def test_a_folder_instead_of_a_file_and_a_file_instead_of_a_folder_are_refused(tmp_path: Path) -> None:
    with refused(hf.StoreUnavailable, str(tmp_path)):
        await made(f"sqlite:///{tmp_path}")
    (tmp_path / "letter.txt").write_text("Dear reader")
    with refused(hf.StoreUnavailable, "app.db", fix="folder"):
        await made(f"sqlite:///{tmp_path / 'letter.txt' / 'app.db'}")


# --- may we? -----------------------------------------------------------------------------------------------------


@pytest.fixture
def powerless() -> Iterator[Path]:
    """A folder that everybody may read, and a process that may write nowhere in it, also if we are root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    os.seteuid(os.getuid())
    folder.chmod(0o755)
    shutil.rmtree(folder)


def give_up_power(folder: Path, may_write: tuple[str, ...] = ()) -> None:
    """From here on only the named files can be written, and new ones only beside them."""
    for path in folder.iterdir():
        path.chmod(0o666 if path.name in may_write else 0o444)
    folder.chmod(0o777 if may_write else 0o555)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)


async def test_a_read_only_sqlite_file_is_refused_and_unchanged(powerless: Path) -> None:
    await made(f"sqlite:///{powerless / 'app.db'}")
    before = (powerless / "app.db").read_bytes()
    give_up_power(powerless)
    engine = impatient(f"sqlite:///{powerless / 'app.db'}")
    with refused(hf.StoreUnavailable, "app.db"):
        await engine.open()
        await engine.start(greet, "Ada")
    await engine.close()
    assert (powerless / "app.db").read_bytes() == before


async def test_a_sqlite_file_in_a_folder_that_may_not_be_written_is_refused(powerless: Path) -> None:
    give_up_power(powerless)
    with refused(hf.StoreUnavailable, "app.db", fix="folder"):
        await made(f"sqlite:///{powerless / 'app.db'}")
    with refused(hf.StoreUnavailable, "app.db", fix="folder"):
        await made(f"sqlite:///{powerless / 'new' / 'app.db'}")


async def test_a_lock_file_that_may_not_be_written_is_refused_by_its_name(powerless: Path) -> None:
    """Somebody else, root perhaps, opened the database first; the database itself may be written."""
    await made(f"sqlite:///{powerless / 'app.db'}")
    give_up_power(powerless, may_write=("app.db",))
    engine = impatient(f"sqlite:///{powerless / 'app.db'}")
    with refused(hf.StoreUnavailable, "app.db-holdfast-lock", fix="files beside it"):
        await engine.open()
        await engine.start(greet, "Ada")
    await engine.close()


async def test_a_read_only_postgresql_database_is_refused_and_stays_empty(postgres_url: str) -> None:
    name = urlsplit(postgres_url).path[1:]
    await execute(postgres_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    with refused(hf.StoreUnavailable, name, "read-only", fix="primary"):
        await made(postgres_url)


async def test_a_database_that_becomes_read_only_refuses_starts_and_takes_them_afterwards(postgres_url: str) -> None:
    """As after a failover, when a session meets the old primary."""
    name = urlsplit(postgres_url).path[1:]
    await made(postgres_url)
    await execute(postgres_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with impatient(postgres_url) as engine:
        async with nothing_written(engine):
            with refused(hf.StoreUnavailable, name, "read-only", fix="primary"):
                await engine.start(greet, "Ada")
        await execute(
            postgres_url,
            "SET default_transaction_read_only = off",
            f'ALTER DATABASE "{name}" RESET default_transaction_read_only',
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        await engine.start(greet, "Ada")


@pytest.fixture
def guarded(postgres: PostgresServer, postgres_url: str) -> Iterator[str]:
    """The address of a database for a role that must give a password, and the server asks for it."""
    rules = postgres.data_directory / "pg_hba.conf"
    before = rules.read_text()
    asyncio.run(execute(postgres_url, "CREATE ROLE careful LOGIN PASSWORD 'right'", "CREATE ROLE mute NOLOGIN"))
    rules.write_text("local all careful scram-sha-256\n" + before)
    asyncio.run(execute(postgres_url, "SELECT pg_reload_conf()"))
    yield postgres_url
    rules.write_text(before)
    asyncio.run(execute(postgres_url, "SELECT pg_reload_conf()", "DROP ROLE careful", "DROP ROLE mute"))


def as_role(url: str, role: str, password: str) -> str:
    return url.replace("user=postgres", f"user={role}") + f"&password={password}"


def test_a_refused_login_names_the_database_and_never_the_password(guarded: str) -> None:
    database = urlsplit(guarded).path[1:]
    for role, password in (("careful", "wrong"), ("mute", "secret"), ("stranger", "secret")):
        with refused(hf.StoreUnavailable, "login", role, database, fix="user and password") as refusal:
            asyncio.run(made(as_role(guarded, role, password)))
        assert password not in refusal.text
    with refused(hf.StoreUnavailable, database, fix="role"):  # the right password, and no rights
        asyncio.run(made(as_role(guarded, "careful", "right")))


async def test_a_database_that_does_not_exist_is_refused(postgres_url: str) -> None:
    with refused(hf.StoreUnavailable, "no_such_database", fix="create it"):
        await made(postgres_url.replace(urlsplit(postgres_url).path, "/no_such_database"))


async def test_a_search_path_without_any_schema_that_exists_is_refused(postgres_url: str) -> None:
    with refused(hf.StoreUnavailable, "no schema has been selected to create in", fix="CREATE SCHEMA"):
        await made(_with_search_path(postgres_url, "nowhere"))


async def test_a_session_that_the_server_ends_while_it_is_opened_is_told_as_ours(postgres_url: str) -> None:
    """The function in the place of PostgreSQL's own ends the first statement as a server does that shuts down."""
    await execute(
        postgres_url,
        "CREATE SCHEMA ending",
        "CREATE FUNCTION ending.pg_backend_pid() RETURNS int LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'terminating connection' USING ERRCODE = '57P01'; END $$",
    )
    with refused(hf.StoreUnavailable, "terminating connection", fix="check that the server runs"):
        await made(_with_search_path(postgres_url, "ending,pg_catalog"))


def _with_search_path(url: str, path: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options=-c%20search_path%3D{path}"


async def test_a_server_that_is_not_there_is_refused_without_the_password(tmp_path: Path) -> None:
    with refused(hf.StoreUnavailable, "app", fix="server runs") as refusal:
        await made(f"postgresql://ada:secret@/app?host={tmp_path}")
    assert "secret" not in refusal.text


# --- is there room, and is it free? ------------------------------------------------------------------------------


async def test_a_full_disk_refuses_starts_and_takes_them_when_there_is_room_again(sqlite_url: str) -> None:
    async with impatient(sqlite_url) as engine:
        store: Any = engine.store
        before = await engine.start(greet, "before")
        pages = store.db.execute("PRAGMA page_count").fetchone()[0]
        store.db.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to be full
        async with nothing_written(engine):
            with refused(hf.StoreUnavailable, "app.db", "full", fix="space"):
                await engine.start(greet, "x" * 1_000_000)
        store.db.execute("PRAGMA max_page_count = 1000000")
        async with engine.worker():
            assert await engine.run(greet, "after", timeout=DEADLINE_SECONDS) == "Hello, after!"
            assert await before.result(DEADLINE_SECONDS) == "Hello, before!"
        assert not [finding for finding in await engine.doctor() if finding.severity == "error"]


LOCKING = {
    "transaction": """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
""",
    "file lock": """
import fcntl, sys
file = open(sys.argv[1] + "-holdfast-lock", "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
""",
}


@contextlib.contextmanager
def held_by_another(path: Path, kind: str) -> Iterator[None]:
    """Another process holds the file until the block ends."""
    program = [sys.executable, "-c", LOCKING[kind], str(path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield
        other.communicate("")


@pytest.mark.parametrize("kind", LOCKING)
async def test_a_locked_file_refuses_starts_and_takes_them_when_it_is_free(sqlite_url: str, kind: str) -> None:
    async with impatient(sqlite_url) as engine:
        with held_by_another(path_of(sqlite_url), kind):
            async with nothing_written(engine):
                with refused(hf.StoreUnavailable, "app.db", "locked"):
                    await engine.start(greet, "Ada")
        async with engine.worker():
            assert await engine.run(greet, "Ada", timeout=DEADLINE_SECONDS) == "Hello, Ada!"


# --- is it still there? ------------------------------------------------------------------------------------------


async def test_g1_a_deleted_file_takes_no_more_starts_because_nobody_could_read_them(sqlite_url: str) -> None:
    """SQLite itself would go on writing into a file that has no name any more."""
    path = path_of(sqlite_url)
    aside = path.with_name("aside.db")
    async with impatient(sqlite_url) as engine:
        kept = await engine.start(greet, "kept")
        path.rename(aside)
        with refused(hf.StoreUnavailable, "app.db", "deleted or replaced", fix="put the file back"):
            await engine.start(greet, "lost")
        path.write_bytes(b"")
        with refused(hf.StoreUnavailable, "app.db", "deleted or replaced"):
            await engine.start(greet, "lost")
        aside.rename(path)
        async with engine.worker():
            assert await kept.result(DEADLINE_SECONDS) == "Hello, kept!"


async def test_g9_a_stopped_server_refuses_starts_and_work_goes_on_when_it_is_back(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async with impatient(postgres_url) as engine, engine.worker():
        assert await engine.run(greet, "before", timeout=DEADLINE_SECONDS) == "Hello, before!"
        kept = await engine.start(greet, "kept", queue="later")
        await asyncio.to_thread(postgres.stop, "immediate")
        with refused(hf.StoreUnavailable, urlsplit(postgres_url).path[1:], fix="server runs"):
            await engine.start(greet, "lost")
        await asyncio.to_thread(postgres.start)
        assert await engine.run(greet, "after", timeout=DEADLINE_SECONDS) == "Hello, after!"
        assert await kept.status() == "pending"
