"""A bug that somebody could have written: the few lines of it, what it would break, and the tests that must notice.

A mutant is applied to a private copy of the sources and to nothing else. Its old text must be found exactly once, so a
change of the code that makes a mutant meaningless is noticed at once, and the mutant is brought up to date with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src"


@dataclass(frozen=True, slots=True)
class Edit:
    """Text of one file, as it is and as the bug has it."""

    file: str  # below src/holdfast
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug, and the smallest selection of tests that is known to notice it."""

    area: str
    bug: str
    promises: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    slow: bool = False  # its tests notice it by waiting for something in vain: not for every commit


def mutant(
    area: str, bug: str, promises: str, file: str, old: str, new: str, *tests: str, slow: bool = False
) -> Mutant:
    """A bug of one edit, as nearly all are."""
    return Mutant(area, bug, promises, (Edit(file, old, new),), tests, slow)


class DoesNotApply(Exception):
    """The code is not what the mutant was written for any more."""


def mutated(edit: Edit, package: Path) -> str:
    """The whole file with the bug in it; DoesNotApply unless the old text is there exactly once."""
    text = (package / edit.file).read_text(encoding="utf-8")
    found = text.count(edit.old)
    if found != 1:
        raise DoesNotApply(f"{edit.file} has this {found} times instead of once; adapt the mutant:\n{edit.old}")
    return text.replace(edit.old, edit.new)


def copy_of_sources(folder: Path) -> Path:
    """A private copy to break, with its compiled files: those are found by time and size, which are kept."""
    return Path(shutil.copytree(SOURCES, folder / "src", copy_function=shutil.copy2))


@contextmanager
def applied(bug: Mutant, sources: Path) -> Iterator[None]:
    """The bug is in this copy inside of the block, and nowhere afterwards."""
    package = sources / "holdfast"
    before: list[tuple[Path, bytes, os.stat_result]] = []
    try:
        for edit in bug.edits:
            path = package / edit.file
            broken = mutated(edit, package)
            before.append((path, path.read_bytes(), path.stat()))
            path.write_text(broken, encoding="utf-8")
        yield
    finally:
        for path, content, stat in reversed(before):
            path.write_bytes(content)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
