"""Which variants of a test are left out on a slow machine, by hand and through real pytest runs."""

from __future__ import annotations

import subprocess
import sys

from tests.support.pace import MOST, longer, slower
from tests.support.variants import ROOT, chosen, commit

MANY = [f"tests/a.py::test_many[{number}]" for number in range(40)]
FEW = ["tests/a.py::test_alone", "tests/b.py::test_pair[sqlite]", "tests/b.py::test_pair[postgres]"]


def test_every_test_runs_and_of_its_variants_one_in_so_many() -> None:
    kept = chosen([*MANY, *FEW], 4, "one commit")
    assert "tests/a.py::test_alone" in kept
    assert len(kept & set(MANY)) == 10
    assert len(kept & set(FEW)) == 2


def test_another_commit_tries_other_variants_and_many_commits_try_all() -> None:
    turns = [chosen(MANY, 4, f"commit {number}") for number in range(60)]
    assert turns[0] != turns[1]
    assert frozenset().union(*turns) == frozenset(MANY)
    assert chosen(MANY, 4, "commit 0") == turns[0]


def test_without_the_option_nothing_is_left_out() -> None:
    assert chosen([*MANY, *FEW], 1, "one commit") == frozenset([*MANY, *FEW])


def test_a_run_says_how_many_it_left_out() -> None:
    asked = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "--one-variant-in",
        "3",
        "tests/store/test_shapes.py",
    ]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "deselected" in told
    assert "::" in told


def test_the_present_commit_has_a_name() -> None:
    assert not (ROOT / ".git").is_dir() or len(commit()) == 40


def test_deadlines_are_never_shorter_than_they_were_set_and_at_most_ten_times_as_long() -> None:
    assert 1.0 <= slower() <= MOST
    assert 2.0 <= longer(2.0) <= 2.0 * MOST
