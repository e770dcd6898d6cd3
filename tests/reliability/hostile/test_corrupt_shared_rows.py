"""Damaged rows that belong to no run: of workers, versions of code, holds and topics. Work goes on all the same."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.reliability.hostile.damage import REFUSALS, rows_of
from tests.reliability.hostile.looking import OF_ALL, strange
from tests.reliability.hostile.test_corrupt_rows import database_url, serve_the_healthy
from tests.reliability.hostile.victims import Parcel, engine_on, greet

__all__ = ["database_url"]

WORKER: dict[str, Any] = {
    **{
        "id": "strange",
        "host": "h",
        "pid": 1,
        "queues": '["default"]',
        "workflows": '["greet"]',
        "actions": '["greet"]',
    },
    **{"concurrency": 1, "provable": True, "started": 1, "seen": 1, "lease_until": 2**62},
}
CODE: dict[str, Any] = {"workflow": "Parcel", "signature": "strange", "seen": 1, "served": True, "nodes": b"{}"}
HOLD: dict[str, Any] = {"scope": "queue", "name": "elsewhere", "by": "ada", "since": 1}

STRANGE: list[tuple[str, dict[str, Any]]] = [
    *(
        ("workers", {**WORKER, column: value})
        for column in ("queues", "workflows", "actions")
        for value in ("", "{not json", "7", '{"a":1}', "[7]")
    ),
    *(
        ("workers", {**WORKER, column: value})
        for column in ("pid", "concurrency", "started", "seen")
        for value in (-1, 2**31 - 1)
    ),
    *(("workers", {**WORKER, "lease_until": value}) for value in (0, -(2**62), 2**62)),
    *(("workers", {**WORKER, "id": value}) for value in ("", "'; DROP TABLE runs; --", "x" * 5000, "a/../../b")),
    *(("code", {**CODE, "nodes": value}) for value in (b"", b"\xff{not json", b"null", b'{"x": 1}', b"[" * 5000)),
    *(("code", {**CODE, "signature": value}) for value in ("", "'; DROP TABLE runs; --")),
    *(("code", {**CODE, "seen": value}) for value in (-1, -(2**62))),
    *(("holds", {**HOLD, "scope": value}) for value in ("", "nonsense", "'; DROP TABLE runs; --")),
    *(("holds", {**HOLD, "since": value}) for value in (-(2**62), 2**62)),
    *(("topics", {"name": value}) for value in ("", "nonsense", "'; DROP TABLE runs; --", "x" * 5000)),
]


async def test_i8_damaged_rows_that_belong_to_no_run_stop_nobody(database_url: str) -> None:
    """One after another, in one database; whoever looks at all of it is told something."""
    wrong: dict[str, str] = {}
    async with engine_on(database_url) as engine:
        waiting = [await engine.start(greet, "Ada"), await engine.start(Parcel(weight=1))]
    for table, row in STRANGE:
        await _insert(database_url, table, row)
        async with engine_on(database_url) as engine:
            for name, look in OF_ALL.items():
                if told := await strange(look(engine)):
                    wrong.setdefault(f"{name}: {told}", f"{table} {row}")
            for handle in waiting:
                if told := await strange(engine.get(handle.id).explain()):
                    wrong.setdefault(f"explain: {told}", f"{table} {row}")
        if table != "topics":  # they stay, so that the worker below meets all of them
            await _delete(database_url, table, row)
    assert not wrong, "\n".join(f"{told}   <- {where}" for told, where in wrong.items())
    for number, (table, row) in enumerate(STRANGE):
        key = {"workers": "id", "code": "signature", "holds": "name"}.get(table)
        await _insert(database_url, table, {**row, key: f"{row[key]}{number}"} if key else row)
    async with engine_on(database_url) as engine, engine.worker():
        await serve_the_healthy(engine)


async def _insert(url: str, table: str, row: dict[str, Any]) -> None:
    async with rows_of(url) as rows:
        names = ", ".join(f'"{name}"' for name in row)
        with contextlib.suppress(*REFUSALS):  # not JSON where that must be, or too long for a key: it was never there
            await rows.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", *row.values())


async def _delete(url: str, table: str, row: dict[str, Any]) -> None:
    key = {"workers": "id", "code": "signature", "holds": "name"}[table]
    async with rows_of(url) as rows:
        await rows.execute(f"DELETE FROM {table} WHERE {key} = ?", row[key])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
