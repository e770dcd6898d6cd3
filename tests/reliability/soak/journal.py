"""What user code did to the world outside: one line a deed, appended with a single write, so that no death tears it."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SOAK_JOURNAL"
_numbers = itertools.count(1)


class Deed(NamedTuple):
    """`nonce` tells this execution from every other one."""

    label: str
    nonce: str
    run: str
    node: str
    attempt: int


def write(label: str, run: str, node: str, attempt: int) -> str:
    """Note an execution; its nonce."""
    nonce = f"{os.getpid()}-{next(_numbers)}"
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, "\t".join((label, nonce, run, node, str(attempt))).encode() + b"\n")
    finally:
        os.close(file)
    return nonce


def read(path: Path) -> list[Deed]:
    """Everything that was done, oldest first."""
    if not path.exists():
        return []
    parts = [line.split("\t") for line in path.read_text().splitlines()]
    return [Deed(label, nonce, run, node, int(attempt)) for label, nonce, run, node, attempt in parts]
