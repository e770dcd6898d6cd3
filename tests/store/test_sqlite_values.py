"""How values come into SQLite: many rows at once, and as they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.contract import Conflict
from holdfast.store.sqlite_write import ROWS_TOGETHER, adapt_plain_values
from holdfast.store.statements import for_several
from tests.store.conformance.rows import a_run, a_work, an_entry, put
from tests.support.stores import VirtualClock, every_row, site_for

BYTES, NOTHING = (bytes, sqlite3.PrepareProtocol), (type(None), sqlite3.PrepareProtocol)


@pytest.fixture
def adapters() -> Iterator[dict[tuple[type, type], object]]:
    """Those of the process, which are put back afterwards."""
    kept = dict(sqlite3.adapters)
    yield sqlite3.adapters
    sqlite3.adapters.clear()
    sqlite3.adapters.update(kept)


@pytest.mark.parametrize("count", [1, ROWS_TOGETHER - 1, ROWS_TOGETHER, ROWS_TOGETHER + 1, 3 * ROWS_TOGETHER + 2])
async def test_k1_however_many_rows_a_batch_inserts_they_are_all_there(tmp_path: Path, count: int) -> None:
    runs = [a_run(f"r{number:03d}") for number in range(count)]
    work = [a_work(run.id, payload=run.id.encode()) for run in runs]
    entries = [an_entry(run.id, number) for run in runs for number in range(1, 4)]
    with site_for("sqlite", None, tmp_path) as site:
        async with site.opened(VirtualClock()) as store:
            await put(store, *runs, *work, *entries)
            rows = await every_row(store)
    assert (rows["runs"], rows["work"], rows["history"]) == (runs, work, entries)


async def test_k1_one_row_that_is_there_already_keeps_all_of_its_batch_out(tmp_path: Path) -> None:
    with site_for("sqlite", None, tmp_path) as site:
        async with site.opened(VirtualClock()) as store:
            await put(store, a_run("r005"))
            with pytest.raises(Conflict):
                await put(store, *[a_run(f"r{number:03d}") for number in range(ROWS_TOGETHER)])
            assert (await every_row(store))["runs"] == [a_run("r005")]


def test_a_statement_for_several_rows_keeps_what_it_says_about_conflicts() -> None:
    one = "INSERT INTO t (a, b) VALUES (?, ?)\nON CONFLICT (a) DO UPDATE SET b = excluded.b"
    assert for_several(one, 2) == one.replace("(?, ?)", "(?, ?), (?, ?)")


def test_bytes_and_none_are_stored_as_they_are(adapters: dict[tuple[type, type], object]) -> None:
    adapt_plain_values()
    assert {BYTES, NOTHING} <= adapters.keys()
    with sqlite3.connect(":memory:") as db:
        assert db.execute("SELECT ?, ?, typeof(?), typeof(?)", (b"a", None, b"a", None)).fetchone() == (
            b"a",
            None,
            "blob",
            "null",
        )
    db.close()


def test_what_a_program_says_about_bytes_itself_stays_so(adapters: dict[tuple[type, type], object]) -> None:
    adapters.pop(BYTES, None)
    sqlite3.register_adapter(bytes, bytes.hex)
    adapt_plain_values()
    assert adapters[BYTES] == bytes.hex
