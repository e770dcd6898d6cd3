"""A batch on its way through the coordinator: what was submitted, what was decided about it, and what was committed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import types
from collections.abc import Generator
from typing import Any

import msgspec

from holdfast.core.errors import StoreUnavailable
from holdfast.core.operations import Operation
from holdfast.core.rows import ENDED, GATE_OPEN, READY, RUNS, WORK
from holdfast.core.view import Changes, NotLoaded, View

log = logging.getLogger("holdfast.coordinator")

RUNS_NAMED = 3


class Spent:
    """Where a batch's time went, in seconds: locks and reads, decisions, writes and commit."""

    __slots__ = ("decide", "load", "write")

    def __init__(self, load: float = 0.0, decide: float = 0.0, write: float = 0.0) -> None:
        self.load = load
        self.decide = decide
        self.write = write


class Commit:
    """What a committed batch did, for those who listen: hints to wake others, counters, the trace."""

    __slots__ = ("changes", "locked", "now", "pairs", "runs", "spent", "work")

    def __init__(
        self, now: int, changes: Changes, pairs: list[tuple[Operation, Any]], spent: Spent, locked: bool
    ) -> None:
        self.now = now
        self.changes = changes
        self.pairs = pairs
        self.spent = spent
        self.locked = locked
        self.work = changes.rows(WORK)  # as they are now; most of those who listen ask for them
        self.runs = changes.rows(RUNS)

    def has_ready_work(self) -> bool:
        return any(row.status == READY and row.gate == GATE_OPEN for row in self.work)

    def ended_runs(self) -> list[str]:
        return [row.id for row in self.runs if row.status in ENDED]


class Submitted(msgspec.Struct, eq=False):
    """An operation with its caller's future and, once decided, its result."""

    operation: Operation
    future: asyncio.Future[Any]
    number: int  # the order of submission
    result: Any = None
    error: BaseException | None = None
    may_repeat: bool = False  # it may have been committed, and the answer lost
    reaches_out: bool = False  # it concerns runs that it does not name, such as those who wait for its run's end

    @staticmethod
    def tellable(error: BaseException) -> Exception:
        """What deciding it raised, as something that its caller can be told without ending a task or the program."""
        if isinstance(error, Exception):
            return error
        told = RuntimeError(f"code inside a decision raised {error!r}, which is no Exception")
        told.__cause__ = error
        return told


class Decided:
    """What came of deciding a batch on remembered rows: what to flush, and what has to take the locked path."""

    __slots__ = ("changes", "fast", "seconds", "slow", "view")

    def __init__(
        self, fast: list[Submitted], slow: list[Submitted], view: View, changes: Changes, seconds: float
    ) -> None:
        self.fast = fast
        self.slow = slow
        self.view = view
        self.changes = changes
        self.seconds = seconds


def deliver(batch: list[Submitted]) -> None:
    """Tell every caller what came of its operation."""
    for item in batch:
        future = item.future
        if future.done():
            continue  # its caller was cancelled meanwhile; what was decided stands
        try:
            if item.error is None:
                future.set_result(item.result)
            else:
                future.set_exception(item.error)
        except Exception:  # its loop is closed, or wants nothing from outside; the others of the batch must be told
            log.exception("whoever waited for %s could not be told", type(item.operation).__name__)


def named(operation: Operation) -> str:
    """The operation without its payload, which does not belong in a log, nor do the names of hundreds of children."""
    runs = operation.runs
    more = [f"and {len(runs) - RUNS_NAMED} more"] if len(runs) > RUNS_NAMED else []
    return " ".join([type(operation).__name__, *runs[:RUNS_NAMED], *more])


def named_with_code(operation: Operation, view: View) -> str:
    """The same, and whose code decides it: workflow, node and type of the input, as far as it and its run tell."""
    workflow, node = getattr(operation, "workflow", ""), getattr(operation, "node", "")
    if not workflow and operation.runs:
        with contextlib.suppress(NotLoaded):
            run = view.get(RUNS, (operation.runs[0],))
            workflow = "" if run is None else run.workflow
    given = getattr(operation, "input_type", "")
    told = [part for part in (workflow, node and f"node {node}", given and f"input {given}") if part]
    return f"{named(operation)} ({', '.join(told)})" if told else named(operation)


def gave_up(error: Exception) -> StoreUnavailable:
    """What a caller is told whose operation was refused again and again."""
    return StoreUnavailable(
        f"the store did not accept a batch in time: {error}",
        hint="another transaction holds a lock for very long; see pg_stat_activity, or raise store_timeout_seconds",
    )


@types.coroutine
def turn_of_the_loop() -> Generator[None]:
    """Let everybody else who is ready run once: `asyncio.sleep(0)` without its two frames."""
    yield
