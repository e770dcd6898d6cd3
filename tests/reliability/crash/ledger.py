"""What really happened, in a file outside of any store: what actions did, and what was acknowledged to whom.

Each line is written with one system call, so a process that is killed leaves whole lines. User code writes through
`tell`, `ran` and `Done`; a life that is over cannot write any more, even if its code is still unwound.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import holdfast as hf


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened. `mark` is how much had been written to the disk then, where somebody counts that."""

    kind: str
    life: int
    mark: int
    facts: tuple[Any, ...]


class Ledger:
    """The lines of one point, over all of its lives."""

    def __init__(self, path: Path, life: int = 1, mark: Callable[[], int] = lambda: 0) -> None:
        self.path = path
        self.life = life
        self._mark = mark
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, kind: str, *facts: Any) -> None:
        if self._file is not None:
            os.write(self._file, json.dumps([kind, self.life, self._mark(), *facts]).encode() + b"\n")

    def lines(self) -> list[Line]:
        read = (json.loads(text) for text in self.path.read_text().splitlines())
        return [Line(kind, life, mark, tuple(facts)) for kind, life, mark, *facts in read]

    def has(self, kind: str, *facts: Any) -> bool:
        """Whether there is a line of this kind whose facts begin with these."""
        return self.count(kind, *facts) > 0

    def count(self, kind: str, *facts: Any) -> int:
        return sum(1 for line in self.lines() if line.kind == kind and line.facts[: len(facts)] == facts)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


_open: Ledger | None = None


def use(ledger: Ledger | None) -> None:
    """From now on user code writes to this ledger."""
    global _open
    _open = ledger


def current() -> Ledger:
    assert _open is not None, "no life is being lived"
    return _open


def tell(kind: str, *facts: Any) -> None:
    current().write(kind, *facts)


class Doing:
    """`with Doing("charge 1"):` around what an action does: a line when it begins and one when it is done."""

    def __init__(self, label: str, *, run: str | None = None, node: str | None = None) -> None:
        context = hf.current() if run is None else None
        self._facts = (label, run or (context.run_id if context else ""), node or (context.node.id if context else ""))
        self._ledger = current()
        # Called outside of any run: the garbage collector has unwound a function of a life that is over.
        self._is_stray = self._facts[1].startswith("outside-")

    def __enter__(self) -> None:
        self._write("ran")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("done" if kind is None else "raised")

    def _write(self, kind: str) -> None:
        self._ledger.write(f"stray {kind}" if self._is_stray else kind, *self._facts)
