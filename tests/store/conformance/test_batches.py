"""Rows of a batch travel together; what one of them holds must not change what another one is."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tests.store.conformance.rows import a_run, a_work, an_entry, an_event, put
from tests.support.stores import Site, change, every_row


class Name(str):
    """A user's own kind of text, as a key or a queue may be."""


ODD_TEXTS = [
    *("", " ", " a ", "NULL", "null", "None", "{a,b}", "{}", "[]", ",", ";", "'", "''", '"', 'a"b', '""', '\\"'),
    *("\\", "a\\b", "a\\nb", "\\\\", "\\x41", "\\u0041", "a\nb", "\r\n", "\t", "\x01", "\x1f", "\x7f", "\x85"),
    *("ü", "ключ", "\u2028", "\ufeff", "𝄞", "true", "1", '{"a":"b\\n"}', Name("of my own"), Name("a\nb")),
]
NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31), 10**15, 2**63 - 1, -(2**63)]


def all_at_once() -> tuple[Any, ...]:
    """A batch with every odd text in columns that may be NULL and in columns that may not, between ordinary ones."""
    rows: list[Any] = [a_run("plain"), a_work("plain", token=1)]
    for place, text in enumerate(ODD_TEXTS):
        run, number = f"r{place:03d}", NUMBERS[place % len(NUMBERS)]
        rows += [
            a_run(run, queue=text, reason=text, entries=number, finished=number, awaited=place % 2 == 0),
            a_work(run, text or "n", name=text, policy=text, token=number, payload=text.encode()),
            replace(an_event(f"e{place:03d}", target=run), reason=text),
        ]
        rows += [an_entry(run, sequence) for sequence in (1, 2)]
    return tuple(rows)


async def test_k1_texts_and_numbers_of_a_batch_come_back_as_they_were(site: Site) -> None:
    rows = all_at_once()
    async with site.opened() as store:
        await put(store, *rows)
        stored = await every_row(store)
    assert {name: len(found) for name, found in stored.items() if found} == {
        "runs": len(ODD_TEXTS) + 1,
        "work": len(ODD_TEXTS) + 1,
        "events": len(ODD_TEXTS),
        "history": 2 * len(ODD_TEXTS),
    }
    found = [row for of_table in stored.values() for row in of_table]
    for row in rows:
        assert row in found


async def test_k1_columns_that_are_empty_in_some_rows_or_in_all_stay_so(site: Site) -> None:
    """An update takes away what was there, of one row of a batch or of every one; and no bytes are not NULL."""
    first = {"r0": b"1", "r1": b"", "r2": b"\x00\xff\\x41", "r3": None, "r4": b"x" * 100_000, "r5": b'"\\n"'}
    runs = [a_run(run, reason="why", result=result, started=3) for run, result in first.items()]
    then = {"r0": None, "r1": b"\xff", "r2": None, "r3": b"", "r4": b"22", "r5": None}
    some = [replace(run, version=2, reason="why" if run.id == "r1" else None, result=then[run.id]) for run in runs]
    none = [replace(run, version=3, reason=None, result=None, started=None, finished=None) for run in some]
    async with site.opened() as store:
        await put(store, *runs)
        assert (await every_row(store))["runs"] == runs
        for before, after in ((runs, some), (some, none)):
            async with store.transaction() as tx:
                await tx.write(change(update=tuple(zip(before, after, strict=True))))
            assert (await every_row(store))["runs"] == after


@pytest.mark.parametrize("impossible", [{"reason": "a\ud800"}, {"priority": 2**63}], ids=["surrogate", "too large"])
async def test_i8_what_no_database_can_hold_is_refused_and_the_store_goes_on(
    shared_site: Site, impossible: dict[str, Any]
) -> None:
    """I8: a poison operation is no lost server, and a batch with it leaves nothing behind."""
    async with shared_site.opened() as store:
        with pytest.raises((ValueError, OverflowError, asyncpg.PostgresError)):
            await put(store, a_run("r1"), a_run("r2", **impossible))
        await put(store, a_run("r3"))
        assert [run.id for run in (await every_row(store))["runs"]] == ["r3"]
