"""Bugs made by hand are noticed: a few of them with every commit, all of them by `make mutants`."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.reliability.mutants.catalogue import ROTATING, numbered, rotation
from tests.reliability.mutants.hunt import hunt
from tests.reliability.mutants.mutant import ROOT, SOURCES, DoesNotApply, Edit, copy_of_sources, mutated
from tests.reliability.mutants.table import table, table_on_page

MUTANTS = numbered()


def turn() -> int:
    """The commit decides, so that a failure is repeated with the commit; outside of a repository the day does."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = asked.stdout.strip()
    return int(commit[:8], 16) if asked.returncode == 0 and commit else datetime.now(UTC).toordinal()


@pytest.mark.parametrize("number", MUTANTS)
def test_a_mutant_fits_the_code_as_it_is(number: int) -> None:
    """One that cannot be applied any more proves nothing; whoever changed the code brings it up to date."""
    for edit in MUTANTS[number].edits:
        assert mutated(edit, SOURCES / "holdfast") != (SOURCES / "holdfast" / edit.file).read_text(encoding="utf-8")


def test_a_mutant_that_fits_nowhere_or_twice_says_so() -> None:
    """Half a bug would be no bug, and a test that misses it no proof."""
    for old in ("no such line\n", "import"):
        with pytest.raises(DoesNotApply, match="instead of once"):
            mutated(Edit("engine.py", old, ""), SOURCES / "holdfast")


def test_every_quick_mutant_has_its_turn() -> None:
    """A rotation that leaves some out for ever would look as good as one that does not."""
    quick = {number for number, each in MUTANTS.items() if not each.slow}
    turns = [rotation(each) for each in range(len(MUTANTS))]
    assert {number for each in turns for number in each} == quick
    assert {len(each) for each in turns} <= {ROTATING, ROTATING - 1}


def test_the_table_of_the_page_is_that_of_the_catalogue() -> None:
    """Fix: `python -m tests.reliability.mutants --table`."""
    assert table_on_page() == table()


@pytest.mark.parametrize("number", rotation(turn()))
def test_a_mutant_whose_turn_it_is_is_noticed(number: int, tmp_path: Path) -> None:
    """One that lives is a missing test: `make mutants ONLY=n` shows what its tests said."""
    hunted = hunt(MUTANTS[number], copy_of_sources(tmp_path))
    assert hunted.killed, f"mutant {number} lives ({hunted.verdict}): make mutants ONLY={number}\n{hunted.output}"
