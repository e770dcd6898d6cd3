"""Room in SQLite's log: made ahead of commits, and no more than that. Rows and readers must not notice."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.store import sqlite_log
from holdfast.store.sqlite_log import FIRST_LOOK_COMMITS, LEAST_BYTES, MOST_BYTES, LogRoom
from tests.store.conformance.rows import a_run
from tests.support.stores import Site, VirtualClock, change, site_for

FRAME_BYTES = 4096 + 24


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_for("sqlite", None, tmp_path) as made:
        yield made


def log_of(site: Site) -> Path:
    return site.path.with_name(f"{site.path.name}-wal")


def used_bytes(site: Site) -> int:
    """How much of the log SQLite has written; a checkpoint tells."""
    with closing(sqlite3.connect(site.path)) as database:
        return int(database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]) * FRAME_BYTES


def runs_in(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [run for (run,) in connection.execute("SELECT id FROM runs ORDER BY id")]


async def test_i1_who_commits_often_gets_room_ahead_and_who_does_not_pays_nothing(site: Site) -> None:
    async with site.opened(VirtualClock()) as store:
        for number in range(FIRST_LOOK_COMMITS - 10):  # and those that made the tables
            await store.flush(change(insert=(a_run(f"a{number:03}"),)))
        assert log_of(site).stat().st_size < LEAST_BYTES
        for number in range(12):
            await store.flush(change(insert=(a_run(f"b{number:03}"),)))
        assert log_of(site).stat().st_size >= LEAST_BYTES > used_bytes(site)


async def test_i1_what_is_committed_into_the_room_survives_a_death_at_any_commit(site: Site, tmp_path: Path) -> None:
    """The files as they are, without a farewell, are what a killed process leaves."""
    async with site.opened(VirtualClock()) as store:
        for number in range(FIRST_LOOK_COMMITS + 20):
            await store.flush(change(insert=(a_run(f"r{number:03}"),)))
            left = tmp_path / f"left{number}"
            left.mkdir()
            for part in (site.path, log_of(site)):
                shutil.copy(part, left / part.name)
            assert runs_in(left / site.path.name) == [f"r{each:03}" for each in range(number + 1)]
            shutil.rmtree(left)


async def test_i1_two_stores_that_take_turns_lose_nothing_in_it(site: Site) -> None:
    async with site.opened(VirtualClock()) as first, site.opened(VirtualClock()) as second:
        for number in range(150):
            await (first, second)[number % 2].flush(change(insert=(a_run(f"r{number:03}"),)))
    assert runs_in(site.path) == [f"r{each:03}" for each in range(150)]
    assert not log_of(site).exists()  # the last to close takes all of it along


async def test_the_log_grows_to_its_size_and_no_further(site: Site) -> None:
    async with site.opened(VirtualClock()) as store:
        for number in range(600):
            many = tuple(a_run(f"r{number:04}-{each}", input=b"x" * 3000) for each in range(8))
            await store.flush(change(insert=many))
        assert log_of(site).stat().st_size < MOST_BYTES + 200 * FRAME_BYTES
    assert len(runs_in(site.path)) == 4800


def test_g10_a_disk_without_space_for_room_gets_back_what_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "app.db-wal"
    log.write_bytes(b"frames")
    real, written = os.pwrite, []

    def full(file: int, data: bytes, at: int) -> int:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "no space left on device")
        written.append(at)
        return real(file, data, at)

    monkeypatch.setattr(sqlite_log.os, "pwrite", full)
    room = LogRoom(str(tmp_path / "app.db"))
    for _ in range(10 * FIRST_LOOK_COMMITS):
        room.make()
    assert log.read_bytes() == b"frames"
    assert len(written) == 2  # and it is not tried again


def test_a_database_without_a_log_gets_none(tmp_path: Path) -> None:
    room = LogRoom(str(tmp_path / "app.db"))
    for _ in range(2 * FIRST_LOOK_COMMITS):
        room.make()
    assert list(tmp_path.iterdir()) == []
