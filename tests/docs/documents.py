"""The project's documents, and programs taken from them or from examples, run as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import holdfast

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(holdfast.__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Link(NamedTuple):
    """A link in a document: what is shown, and where it leads."""

    document: Path
    text: str
    target: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}: [{self.text}]({self.target})"


def documents() -> list[Path]:
    """Every page that people read."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def links(document: Path) -> Iterator[Link]:
    text = _FENCED.sub("", document.read_text(encoding="utf-8"))
    return (Link(document, match[1], match[2]) for match in _LINK.finditer(text))


def python_blocks(document: Path) -> list[str]:
    """The Python code of a page, block by block."""
    return _BLOCK.findall(document.read_text(encoding="utf-8"))


def environment() -> dict[str, str]:
    """Ours, with the package under test first and without anything that configures an engine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(ROOT)]), "PYTHONUNBUFFERED": "1"}


def run_program(*arguments: str | Path, folder: Path) -> str:
    """What a program prints, run in a folder of its own; a failure shows all it said."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
