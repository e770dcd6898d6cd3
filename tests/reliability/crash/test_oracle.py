"""The oracle itself: it has nothing against a sound database, and notices every single thing that is broken in one."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from tests.reliability.crash import oracle
from tests.reliability.crash.grounds import Grounds
from tests.reliability.crash.in_process import Hit, Stage
from tests.reliability.crash.ledger import Ledger, Line
from tests.reliability.crash.oracle import Broken, Rows
from tests.reliability.crash.table import SCENARIOS

BROKEN = [
    ("G1", "DELETE FROM runs; DELETE FROM work; DELETE FROM history; DELETE FROM definitions"),
    ("G10", "DELETE FROM runs"),
    ("G9", "UPDATE runs SET status = 'running'"),
    ("G10", "UPDATE runs SET status = 'running', active = 7"),
    ("G2", "UPDATE runs SET result = x'31'"),
    (
        "G2",
        "INSERT INTO work SELECT run, node, 2, workflow, kind, name, 'completed', 1, 1, 1, queue, 0, 0, 0, NULL, NULL, "
        "'w', NULL, 'json', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 1, 1 FROM work WHERE node = 'one'",
    ),
    ("G4", "UPDATE work SET completed = required + 1 WHERE node = 'two'"),
    ("G6", "UPDATE work SET started = due - 1 WHERE node = 'two'"),
    ("G7", "UPDATE work SET status = 'ready' WHERE node = 'two'"),
    ("G10", "UPDATE work SET status = 'leased', worker = NULL WHERE node = 'three'; UPDATE runs SET status = 'failed'"),
    ("G10", "UPDATE runs SET entries = -1"),
]


@pytest.fixture(scope="module")
def end(grounds: Grounds) -> tuple[bytes, list[Line]]:
    """A database in which a chain has ended as it should, and what the ledger says."""
    stage = Stage(SCENARIOS["linear"], grounds.sqlite, grounds.folder)
    stage.record()
    ledger = Ledger(grounds.folder / "ledger")
    ledger.close()
    return grounds.sqlite.path.read_bytes(), ledger.lines()


def rows_of(grounds: Grounds, content: bytes, script: str = "") -> Rows:
    grounds.sqlite.put({"app.db": content})
    db = sqlite3.connect(grounds.sqlite.path)
    db.executescript(script)
    db.close()
    return grounds.sqlite.rows()


def test_the_oracle_has_nothing_against_a_sound_end(grounds: Grounds, end: tuple[bytes, list[Line]]) -> None:
    oracle.at_the_end(SCENARIOS["linear"], rows_of(grounds, end[0]), end[1], deaths=0)


@pytest.mark.parametrize(("promise", "script"), BROKEN)
def test_g10_the_oracle_notices_rows_that_should_not_be(
    grounds: Grounds, end: tuple[bytes, list[Line]], promise: str, script: str
) -> None:
    with pytest.raises(Broken, match=f"^{promise}: "):
        oracle.at_the_end(SCENARIOS["linear"], rows_of(grounds, end[0], script), end[1], deaths=0)


def _ran(*labels: str, life: int = 1, run: str = "r") -> list[Line]:
    return [Line(kind, life, 0, (label, run, label)) for label in labels for kind in ("ran", "done")]


@pytest.mark.parametrize(
    ("promise", "lines"),
    [
        ("G3", _ran("one", "three")),
        ("G3", _ran("one", "two", "three", "three")),
        ("G4", [*_ran("two"), *_ran("one"), *_ran("three")]),
        ("G1", [*_ran("one", "two", "three"), *(Line("ack", 1, 0, ("start", "chain", id)) for id in "ab")]),
        ("G7", [*_ran("one", "two"), Line("ack", 1, 0, ("cancel", "chain", "r")), *_ran("three", life=2)]),
    ],
)
def test_g3_the_oracle_notices_what_was_done_too_often_too_seldom_or_too_early(
    grounds: Grounds, end: tuple[bytes, list[Line]], promise: str, lines: list[Any]
) -> None:
    with pytest.raises(Broken, match=f"^{promise}: "):
        oracle.at_the_end(SCENARIOS["linear"], rows_of(grounds, end[0]), lines, deaths=0)


def test_g3_the_oracle_notices_what_was_done_again_although_it_was_recorded(
    grounds: Grounds, end: tuple[bytes, list[Line]]
) -> None:
    rows = rows_of(grounds, end[0])
    again = replace(next(line for line in end[1] if line.kind == "ran"), life=2)
    oracle.not_again(rows, end[1], 1)
    with pytest.raises(Broken, match=r"^G3: executed again"):
        oracle.not_again(rows, [*end[1], again], 1)


def test_a_life_that_nobody_ends_is_found_to_be_stuck(grounds: Grounds) -> None:
    """G9: a client that waits for what never comes is no endless test, but a failure."""

    async def play(scene: Any) -> None:
        await scene.until(lambda: False)

    stage = Stage(replace(SCENARIOS["linear"], play=play), grounds.sqlite, grounds.folder)
    with pytest.raises(TimeoutError):
        stage.crash_at(Hit("claim.before", 1))
