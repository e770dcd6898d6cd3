"""Migrations: numbered, checksummed, once, whoever comes first; and databases that are not ours stay untouched."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.core import failpoints
from holdfast.core.errors import NotOurDatabase, SchemaTooNew
from holdfast.core.rows import TABLES
from holdfast.store.contract import WorkerRow
from holdfast.store.statements import migrations
from tests.store.conformance.rows import a_run, a_work, an_entry, put
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, every_row

ROOT = Path(__file__).resolve().parents[2]
DIALECTS = {"sqlite": "sqlite", "postgresql": "postgres"}
OUR_TABLES = {table.name: table.columns for table in TABLES} | {"workers": WorkerRow.__struct_fields__}
OPEN_AND_MIGRATE = """
import asyncio, sys
from tests.support.stores import Site

async def main():
    store = Site(sys.argv[1], sys.argv[2]).store()
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    print(len(await store.migrate()), flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(params=SHARED_KINDS)
def blank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A database without a single table."""
    if request.param == "sqlite":
        yield Site("sqlite", f"sqlite:///{tmp_path / 'blank.db'}")
    else:
        yield Site("postgresql", request.getfixturevalue("postgres_url"))


async def sql(site: Site, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as another program would; the rows of the last one."""
    rows: list[Any] = []
    if site.kind == "sqlite":
        db = sqlite3.connect(site.path, isolation_level=None)
        for statement in statements:
            rows = db.execute(statement).fetchall()
        db.close()
    else:
        connection = await asyncpg.connect(site.url)
        for statement in statements:
            rows = await connection.fetch(statement)
        await connection.close()
    return [tuple(row) for row in rows]


async def columns_of(site: Site, table: str) -> tuple[str, ...]:
    if site.kind == "sqlite":
        return tuple(row[1] for row in await sql(site, f"PRAGMA table_info({table})"))
    names = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public'"
    return tuple(row[0] for row in await sql(site, f"{names} AND table_name = '{table}' ORDER BY ordinal_position"))


async def everything_in(site: Site) -> Any:
    """All of a database, to see that nothing was written to it."""
    if site.kind == "sqlite":
        return site.path.read_bytes()
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
    names = [row[0] for row in await sql(site, tables)]
    return [(name, await sql(site, f"SELECT * FROM {name}")) for name in names]


def test_k1_migrations_are_numbered_without_gaps_and_alike_in_both_dialects() -> None:
    """The same numbers and names, so that a version means the same everywhere."""
    of_sqlite, of_postgres = (migrations(dialect) for dialect in DIALECTS.values())
    assert [m.number for m in of_sqlite] == list(range(1, len(of_sqlite) + 1))
    assert [(m.number, m.name) for m in of_sqlite] == [(m.number, m.name) for m in of_postgres]
    for migration in (*of_sqlite, *of_postgres):
        assert migration.checksum == hashlib.sha256(migration.sql.encode()).hexdigest()


def test_k1_every_migration_in_the_folder_is_listed() -> None:
    """The folder is not read, so a file that nobody listed would never be applied."""
    folder = ROOT / "src" / "holdfast" / "store" / "migrations"
    there = {path.name for path in folder.glob("*.sql")}
    listed = {f"{m.number:04d}_{m.name}.{dialect}.sql" for dialect in DIALECTS.values() for m in migrations(dialect)}
    assert there == listed


async def test_k1_migrating_twice_changes_nothing_the_second_time(blank: Site) -> None:
    """Rows survive, and what ran is recorded with its checksum."""
    expected = migrations(DIALECTS[blank.kind])
    store = blank.store(VirtualClock())
    await store.open()
    assert await store.migrate() == [f"{m.number:04d}_{m.name}" for m in expected]
    await put(store, a_run(active=1), a_work(), an_entry())
    before = await every_row(store)
    assert await store.migrate() == []
    await store.close()
    async with blank.opened(VirtualClock()) as again:
        assert await every_row(again) == before
    recorded = await sql(blank, "SELECT number, name, checksum FROM holdfast_migrations ORDER BY number")
    assert recorded == [(m.number, m.name, m.checksum) for m in expected]


@pytest.mark.parametrize("table", OUR_TABLES)
async def test_k1_every_table_has_the_columns_of_its_row_in_order(shared_site: Site, table: str) -> None:
    """Rows are read by position: a column out of place would be somebody else's value."""
    async with shared_site.opened(VirtualClock()):
        pass
    assert await columns_of(shared_site, table) == OUR_TABLES[table]


def test_k1_processes_that_open_a_new_database_at_once_migrate_it_once(blank: Site) -> None:
    """Three start at the same moment: all of them open it, one makes the tables."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_MIGRATE, blank.kind, blank.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={"PYTHONPATH": f"{Path(sys.modules['holdfast'].__path__[0]).parent}:{ROOT}", "PATH": ""},
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    said = [process.communicate(timeout=30)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    every = len(migrations(DIALECTS[blank.kind]))
    assert sorted(int(text) for text in said) == [0, 0, every]


@pytest.mark.parametrize("place", ["migrate.before", "migrate.between", "migrate.after"])
async def test_g10_a_migration_that_is_interrupted_leaves_nothing(blank: Site, place: str) -> None:
    """The next one starts from nothing and succeeds."""

    def fail(name: str) -> None:
        if name == place:
            raise RuntimeError(f"stopped at {place}")

    failpoints.arm(fail)
    store = blank.store(VirtualClock())
    await store.open()
    with pytest.raises(RuntimeError, match=place):
        await store.migrate()
    await store.close()
    failpoints.disarm()
    assert await columns_of(blank, "runs") == ()
    async with blank.opened(VirtualClock()) as again:
        await put(again, a_run())


async def test_k1_a_database_that_newer_code_has_migrated_is_refused_untouched(blank: Site) -> None:
    """SchemaTooNew says both numbers, and not a byte is written."""
    async with blank.opened(VirtualClock()) as store:
        await put(store, a_run())
    await sql(blank, "INSERT INTO holdfast_migrations (number, name, checksum, applied) VALUES (9999, 'next', 'x', 1)")
    before = await everything_in(blank)
    with pytest.raises(SchemaTooNew, match="9999"):
        await _open(blank)
    assert await everything_in(blank) == before


async def test_k1_a_schema_that_is_not_the_one_shipped_is_refused_untouched(blank: Site) -> None:
    """Another checksum under a known number: edited by hand, or from a development version."""
    async with blank.opened(VirtualClock()):
        pass
    await sql(blank, "UPDATE holdfast_migrations SET checksum = 'edited' WHERE number = 1")
    before = await everything_in(blank)
    with pytest.raises(NotOurDatabase, match="0001"):
        await _open(blank)
    assert await everything_in(blank) == before


@pytest.mark.parametrize("table", [*OUR_TABLES, "topics"])
async def test_k1_another_programs_table_of_our_name_is_refused_untouched(blank: Site, table: str) -> None:
    """NotOurDatabase before anything is changed, the journal mode of a SQLite file included."""
    await sql(blank, f"CREATE TABLE {table} (mine integer)", f"INSERT INTO {table} VALUES (1)")
    before = await everything_in(blank)
    with pytest.raises(NotOurDatabase):
        await _open(blank)
    assert await everything_in(blank) == before


async def test_k1_tables_of_other_names_may_share_the_database(blank: Site) -> None:
    """An application's own tables live beside ours: transactional actions write to them."""
    await sql(blank, "CREATE TABLE accounts (mine integer)", "INSERT INTO accounts VALUES (1)")
    async with blank.opened(VirtualClock()) as store:
        await put(store, a_run())
    assert await sql(blank, "SELECT mine FROM accounts") == [(1,)]


async def test_k1_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    """Somebody's text file keeps its text."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, whatever its name says\n" * 50)
    before = path.read_bytes()
    with pytest.raises(NotOurDatabase):
        await _open(Site("sqlite", f"sqlite:///{path}"))
    assert path.read_bytes() == before


async def _open(site: Site) -> None:
    store = site.store(VirtualClock())
    try:
        await asyncio.wait_for(store.open(), 20)
        await asyncio.wait_for(store.migrate(), 20)
    finally:
        await store.close()
