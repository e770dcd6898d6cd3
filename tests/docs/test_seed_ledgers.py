"""The ledgers of the seeds: every point of a seed has a test that exists, or a reason."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.documents import ROOT

LEDGERS = sorted((ROOT / "docs" / "seeds").glob("*.md"))
COLUMNS = 3
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_REASON = re.compile(r"\*(?:Differs|No test):\* (\S+(?: \S+){2,})")
# Cells are divided by bars that no backslash hides.
_BAR = re.compile(r"(?<!\\)\|")


class LedgerRow(NamedTuple):
    """A point of a seed, our name for it, and what proves it or why there is no such thing here."""

    ledger: str
    line: int
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.ledger}:{self.line}: {' | '.join(self.cells)[:160]}"


def rows_of(ledger: Path) -> list[LedgerRow]:
    """The rows of all tables of a ledger, without the headings."""
    lines = ledger.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        following = lines[number] if number < len(lines) else ""
        if not line.startswith("|") or line.startswith("|---") or following.startswith("|---"):
            continue
        cells = tuple(cell.strip() for cell in _BAR.split(line.strip())[1:-1])
        rows.append(LedgerRow(ledger.relative_to(ROOT).as_posix(), number, cells))
    return rows


def objections(row: LedgerRow) -> list[str]:
    """What is wrong with a row; nothing, if it says what it must."""
    if len(row.cells) != COLUMNS:
        return [f"{row} has {len(row.cells)} cells, not {COLUMNS}"]
    wrong = [f"{row} has an empty cell"] if not all(row.cells) else []
    named = _TEST.findall(row.cells[-1])
    if not named and not _REASON.search(row.cells[-1]):
        wrong.append(f"{row} names no `tests/…py::test_…` and gives no *Differs:* or *No test:* reason")
    # A test that is written down in another form would never be looked for.
    rest = _TEST.sub("", row.cells[-1])
    if "::" in rest or "tests/" in rest:
        wrong.append(f"{row} names something that does not read as `tests/…py::test_…`")
    wrong += [f"{row} names {file}::{test}, which does not exist" for file, test in named if test not in _tests(file)]
    return wrong


@functools.cache
def _tests(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, functions) and node.name.startswith("test_"))


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda path: path.name)
def test_every_row_of_a_ledger_has_a_test_that_exists_or_a_reason(ledger: Path) -> None:
    """Nothing of a seed is dropped in silence, and nothing is claimed that no test shows."""
    rows = rows_of(ledger)
    assert len(rows) > 20, f"{ledger.name} has {len(rows)} rows: is it still read as it is written?"
    wrong = [objection for row in rows for objection in objections(row)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda path: path.name)
def test_no_row_of_a_ledger_is_written_twice(ledger: Path) -> None:
    """A point that stands in two places is changed in one of them."""
    points = [row.cells[:2] for row in rows_of(ledger)]
    assert not [point for point in points if points.count(point) > 1]


def test_every_seed_that_has_scenario_tests_has_a_ledger_that_names_all_of_them() -> None:
    """A scenario that the ledger does not name is looked for in vain by whoever reads the seed."""
    named = {found for ledger in LEDGERS for found in _TEST.findall(ledger.read_text(encoding="utf-8"))}
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("test_seed_*.py"))]
    missing = [
        f"{file}::{test}"
        for file in files
        if file != Path(__file__).relative_to(ROOT).as_posix()
        for test in sorted(_tests(file))
        if (file, test) not in named
    ]
    assert not missing, "\n".join(missing)


GOOD = "`tests/docs/test_seed_ledgers.py::test_no_row_of_a_ledger_is_written_twice`"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (("a", "b", GOOD), None),
        (("a", "b", "*Differs:* because of three words"), None),
        (("a", "b", f"{GOOD} *No test:* for the rest of it"), None),
        (("a", "b"), "2 cells"),
        (("a", "", GOOD), "empty cell"),
        (("a", "b", ""), "empty cell"),
        (("a", "b", "soon"), "names no"),
        (("a", "b", "*Differs:*"), "names no"),
        (("a", "b", "`tests/docs/test_seed_ledgers.py::test_nothing`"), "does not exist"),
        (("a", "b", "`tests/nowhere.py::test_nothing`"), "does not exist"),
        (("a", "b", f"{GOOD} tests/docs/test_seed_ledgers.py::test_nothing"), "does not read as"),
    ],
)
def test_a_row_that_says_too_little_is_found(cells: tuple[str, ...], said: str | None) -> None:
    """The check itself: whatever would make a ledger lie is objected to."""
    found = objections(LedgerRow("ledger.md", 1, cells))
    assert not found if said is None else any(said in objection for objection in found), found
