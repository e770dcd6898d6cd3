"""`HOLDFAST_TRACE=operations`: every operation with its result as a JSON line, and how to run such a trace again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.coordinator import Commit
from holdfast.core.every_operation import AnyOperation
from holdfast.core.operations import ClaimWork, Handed, Operation


class TraceLine(msgspec.Struct, frozen=True):
    """One operation as it was committed; `now` is the time of its batch."""

    now: int
    batch: int
    operation: AnyOperation
    result: Any = None
    error: str | None = None


class Tracer:
    """Writes a line for every operation, in the order in which they were decided."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._batch = 0

    def on_commit(self, commit: Commit) -> None:
        self._batch += 1
        for operation, result in commit.pairs:
            self._line(commit.now, operation, result)

    def on_claim(self, handed: Iterable[Handed]) -> None:
        """Claims are made in bulk by the store; in a trace each is the operation it amounts to."""
        self._batch += 1
        for item in handed:
            work = item.work
            operation = ClaimWork(
                run=work.run, node=work.node, attempt=work.attempt, token=work.token, worker=work.worker or ""
            )
            self._line(work.started or 0, operation, None)

    def _line(self, now: int, operation: Operation, result: Any) -> None:
        failed = isinstance(result, BaseException)
        line = {
            "now": now,
            "batch": self._batch,
            "operation": operation,
            "result": None if failed else result,
            "error": f"{type(result).__name__}: {result}" if failed else None,
        }
        self._write(msgspec.json.encode(line).decode() + "\n")


def read_trace(lines: Iterable[str]) -> list[TraceLine]:
    """The lines of a trace as operations, ready to be submitted to another store."""
    return [msgspec.json.decode(line, type=TraceLine) for line in lines if line.startswith("{")]
