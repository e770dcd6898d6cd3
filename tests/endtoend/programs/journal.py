"""What user code did, written where no crash can take it back: one line a deed, appended with a single write.

The times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

import holdfast as hf

BEGUN, DONE, RAISED = "begun", "done", "raised"


@dataclass(frozen=True, slots=True)
class Deed:
    """A line of the journal."""

    what: str
    run: str
    node: str
    attempt: int
    pid: int
    worker: str
    key: str
    at: float


def write(path: str, what: str) -> None:
    """Append what the running action or step just did."""
    context = hf.current()
    deed = Deed(
        what=what,
        run=context.run_id,
        node=context.node.name,
        attempt=context.attempt,
        pid=os.getpid(),
        worker=context.worker,
        key=context.idempotency_key,
        at=time.monotonic(),
    )
    # One write to a file opened for appending is never torn by another process, nor by a SIGKILL.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, msgspec.json.encode(deed) + b"\n")
    finally:
        os.close(file)


def read(path: Path | str) -> list[Deed]:
    """Everything that was done so far, oldest first."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Deed) for line in lines]


def begun(path: Path | str) -> list[Deed]:
    """Every execution that was begun."""
    return [deed for deed in read(path) if deed.what == BEGUN]
