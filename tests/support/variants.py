"""On a slow machine CI tries some variants of a test and not all of them: `--one-variant-in N`.

Many tests exist in hundreds of variants: a place to die at, a model, a store, a seed. Every test runs, however slow the
machine is; of its variants every N-th does, and at least one. Which ones depends on the commit, so that others have
their turn with the next one. Without the option, and with N = 1, all of them run.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

OPTION = "--one-variant-in"
ROOT = Path(__file__).parents[2]


class SomeVariants:
    """A pytest plugin that leaves out what the option asks to leave out, and says how many that are."""

    def __init__(self, one_in: int, turn: str) -> None:
        self._one_in = one_in
        self._turn = turn

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = chosen([item.nodeid for item in items], self._one_in, self._turn)
        left_out = [item for item in items if item.nodeid not in kept]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid in kept]


def chosen(tests: Sequence[str], one_in: int, turn: str) -> frozenset[str]:
    """Of the variants of each test one in so many, and at least one; others when it is another's turn."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for test in tests:
        families[test.partition("[")[0]].append(test)
    kept: set[str] = set()
    for family in families.values():
        by_lot = sorted(family, key=lambda test: zlib.crc32(f"{turn} {test}".encode()))
        kept.update(by_lot[: -(-len(family) // one_in)])
    return frozenset(kept)


def commit() -> str:
    """What names the present commit, as git keeps it; the same for all processes of a test run."""
    head = ROOT / ".git" / "HEAD"
    told = head.read_text().strip() if head.is_file() else ""
    branch = ROOT / ".git" / told.removeprefix("ref: ")
    return branch.read_text().strip() if told.startswith("ref: ") and branch.is_file() else told
