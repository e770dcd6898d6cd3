"""Which of a user's files matter to `holdfast dev`, and which of them have changed since it looked last.

The modification times of at most a few thousand files are asked for about twice a second: that needs no package, works
on every file system, shared folders of virtual machines included, and costs less than a percent of one core.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

IGNORED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"})
MOST_FILES: Final = 5_000

Mark = tuple[int, int]


def loaded_files(below: Path) -> list[str]:
    """The files of the modules that this process has imported from below a directory."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(file for file in files if isinstance(file, str) and _counts(Path(file), below))


def _counts(file: Path, below: Path) -> bool:
    if file.suffix != ".py" or not file.is_relative_to(below):
        return False
    return not any(_is_ignored(part) for part in file.relative_to(below).parts[:-1])


def _is_ignored(folder: str) -> bool:
    return folder in IGNORED or folder.startswith(".")


class WatchedFiles:
    """What was loaded, and whatever else is in the same packages: a module that is new there may be imported soon."""

    def __init__(self, below: Path) -> None:
        self._below = below
        self._loaded: frozenset[Path] = frozenset()
        self._everything = False
        self._marks: dict[Path, Mark] = {}

    def follow(self, loaded: Iterable[str]) -> None:
        """From now on these count. What has changed of them since they were looked at before is not forgotten."""
        self._loaded = frozenset(Path(file) for file in loaded)
        self._everything = False
        self._adopt()

    def follow_everything(self) -> None:
        """From now on every Python file below the directory counts: what does not import may be mended anywhere."""
        self._everything = True
        self._adopt()

    def changed(self) -> list[str]:
        """The files that are new, gone or different since the last time, as paths that people recognise."""
        before, self._marks = self._marks, _marks_of(self._files())
        differing = [path for path in before.keys() | self._marks.keys() if before.get(path) != self._marks.get(path)]
        return sorted(str(path.relative_to(self._below)) for path in differing)

    def _adopt(self) -> None:
        now = _marks_of(self._files())
        self._marks = {path: self._marks.get(path, mark) for path, mark in now.items()}

    def _files(self) -> set[Path]:
        if self._everything:
            return set(_python_files(self._below))
        packages = {path.parent for path in self._loaded if path.name == "__init__.py"}
        tops = [folder for folder in packages if folder.parent not in packages and folder != self._below]
        return set(self._loaded).union(*(_python_files(folder) for folder in tops))


def _python_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in sorted(folders) if not _is_ignored(name)]
        found += [Path(place, name) for name in files if name.endswith(".py")]
        if len(found) > MOST_FILES:  # somebody's home; what was loaded is watched all the same
            break
    return found


def _marks_of(files: Iterable[Path]) -> dict[Path, Mark]:
    marks = {}
    for path in files:
        try:
            seen = path.stat()
        except OSError:  # gone, which is a change too
            continue
        marks[path] = (seen.st_mtime_ns, seen.st_size)
    return marks


__all__ = ["WatchedFiles", "loaded_files"]
