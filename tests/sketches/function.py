"""The function model in one page: a journal with one order, and waits with exactly one winner.

A resident function holds the lease of its run's one work item, the turn; every entry it records carries the
turn's token. To suspend is to give the turn back as blocked; to win is to make it ready again.

Left out: the run's own event loop and its replay, addresses checked by name and digest, several waits of one
run at a time (one suspension here names all there is to wait for), broadcasts that repeat, expiry,
`to_all`, failed runs, children.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from holdfast.core.operations import RECORDED, REPEATED, ClaimWork, RunOperation, WorkOperation
from holdfast.core.queries import QueuedEvents, WaitersOf, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    CANCELLING,
    COMPLETED,
    EVENTS,
    HISTORY,
    READY,
    RUNNING,
    RUNS,
    SUSPENDED,
    WAITS,
    WORK,
    Event,
    Run,
    Wait,
)
from holdfast.core.view import View
from holdfast.models.machine import record
from tests.sketches.kernel import INPUTS, TIMERS, Decisions, Input, Timer, claim, held, ready_item

TURN, DEADLINE = "turn", "deadline"
DELIVERED, QUEUED, TARGET_ENDED, NOT_FOUND, OVER = "delivered", "queued", "target ended", "not found", "over"
SLOTS_PER_WAIT = 1_000


class Start(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Create a run with its turn ready. Identity: the run's id."""


class Record(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A call of the function has an outcome. Identity: its address; `after` is the last entry its owner knew."""

    address: str
    after: int


class Suspend(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Wait for the first of some events, a deadline, the end of other runs. Identity: the token of the turn."""

    locked: ClassVar[bool] = True
    events: tuple[str, ...] = ()
    deadline: int | None = None
    ends: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.run, *self.ends)

    @property
    def topics(self) -> tuple[str, ...]:
        return self.events


class Send(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """An event for one run. Identity: the event's id."""

    locked: ClassVar[bool] = True
    event: str
    name: str


class Broadcast(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """An event for whoever waits longest for its name. Its `run` is not a run here but the event's id."""

    locked: ClassVar[bool] = True
    name: str

    @property
    def runs(self) -> tuple[str, ...]:
        return ()

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.name,)


class FireTimer(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A deadline was found to have passed, without a lock. Identity: its generation."""

    locked: ClassVar[bool] = True
    generation: int


class End(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The function returned, or has rolled back after a cancel. Identity: the token of the turn."""


class Cancel(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Ask a run to stop: it gets one more turn for its `finally` blocks."""

    locked: ClassVar[bool] = True


def decisions() -> Decisions:
    return {
        **{Start: start, ClaimWork: claim, Record: record_call, Suspend: suspend, Send: send},
        **{Broadcast: broadcast, FireTimer: fire, End: end, Cancel: cancel},
    }


def start(view: View, op: Start) -> str:
    if view.probe(RUNS, (op.run,)) is not None:
        return REPEATED
    view.insert(RUNS, Run(op.run, "sketch", "function", status=RUNNING))
    view.insert(WORK, replace(ready_item(op.run, TURN), kind="turn"))
    return RECORDED


def record_call(view: View, op: Record) -> str:
    lease = held(view, op)
    if isinstance(lease, str):
        return lease
    run, _ = lease
    for sequence in range(op.after + 1, run.entries + 1):  # what came in since is little, and read by key
        entry = view.get(HISTORY, (op.run, sequence))
        if entry is not None and msgspec.json.decode(entry.data).get("address") == op.address:
            return REPEATED
    record(view, run, "call", address=op.address)
    return RECORDED


def suspend(view: View, op: Suspend) -> str:
    lease = held(view, op)
    if isinstance(lease, str):
        return lease
    run, turn = lease
    # I51: what was sent to this run before broadcasts; in each the oldest of all awaited names.
    for target in (op.run, None):
        queued = [event for name in op.events for event in view.find(QueuedEvents(name, target))]
        if queued:
            oldest: Event = min(queued, key=lambda event: (event.at, event.id))
            view.delete(EVENTS, oldest)
            record(view, run, "won", by=oldest.name, event=oldest.id)
            return DELIVERED
    awaited = [row for row in map(view.run, op.ends) if row is not None]
    for row in awaited:
        if row.ended:
            record(view, run, "won", by=ended(row.id))
            return DELIVERED
        view.put(RUNS, replace(row, awaited=True))
    # Each wait that is won adds an entry, so slots and generation made from the entries are never used again (I50).
    for slot, topic in enumerate((*op.events, *map(ended, op.ends)), run.entries * SLOTS_PER_WAIT):
        view.insert(WAITS, Wait(op.run, slot, topic, view.now))
    if op.deadline is not None:
        timer = Timer(op.run, DEADLINE, run.entries, op.deadline)
        view.insert(TIMERS, timer)
    view.put(RUNS, replace(run, status=SUSPENDED))
    view.put(WORK, replace(turn, status=BLOCKED, worker=None))
    return SUSPENDED


def send(view: View, op: Send) -> str:
    run = view.run(op.run)
    if run is None or run.ended:
        return NOT_FOUND if run is None else TARGET_ENDED
    if view.get(INPUTS, (op.run, op.event)) is not None:
        return REPEATED
    view.insert(INPUTS, Input(op.run, op.event))
    if any(wait.topic == op.name for wait in view.find(WaitsOf(op.run))):
        return wake(view, run, op.name, op.event)
    view.insert(EVENTS, Event(op.event, op.name, target=op.run, at=view.now))
    return QUEUED


def broadcast(view: View, op: Broadcast) -> str:
    for wait in view.find(WaitersOf(op.name)):  # the longest waiting first
        run = view.run(wait.run)
        if run is not None and run.status == SUSPENDED:
            return wake(view, run, op.name, op.run)
    view.insert(EVENTS, Event(op.run, op.name, at=view.now))
    return QUEUED


def fire(view: View, op: FireTimer) -> str:
    run, timer = view.run(op.run), view.get(TIMERS, (op.run, DEADLINE))
    if run is None or timer is None or timer.generation != op.generation or timer.due > view.now:
        return OVER
    return wake(view, run, DEADLINE, None)


def end(view: View, op: End) -> str:
    lease = held(view, op)
    if isinstance(lease, str):
        return lease
    run, turn = lease
    view.put(WORK, replace(turn, status=COMPLETED, finished=view.now))
    status = CANCELLED if run.status == CANCELLING else COMPLETED
    view.put(RUNS, replace(run, status=status, finished=view.now))
    if run.awaited:  # no new waiter can come: to wait for this run is to hold its lock
        for wait in view.find(WaitersOf(ended(op.run))):
            waiter = view.run(wait.run)
            if waiter is not None:
                wake(view, waiter, wait.topic, None)
    return RECORDED


def cancel(view: View, op: Cancel) -> str:
    run = view.run(op.run)
    if run is None or run.ended or run.status == CANCELLING:
        return OVER
    return wake(view, run, "cancel", None, status=CANCELLING)


def wake(view: View, run: Run, by: str, event: str | None, status: str = RUNNING) -> str:
    """Store the one winner, drop all that lost, and make the turn ready: whoever claims it replays and goes on."""
    for wait in view.find(WaitsOf(run.id)):
        view.delete(WAITS, wait)
    timer = view.get(TIMERS, (run.id, DEADLINE))
    if timer is not None:
        view.delete(TIMERS, timer)
    view.put(RUNS, replace(record(view, run, "won", by=by, event=event), status=status))
    turn = view.get(WORK, (run.id, TURN, 1))
    if turn is None:
        raise LookupError(f"run {run.id} has no turn")
    # K3: the token grows, so an owner that a cancel has overtaken records nothing more.
    view.put(WORK, replace(turn, status=READY, token=turn.token + 1, worker=None))
    return DELIVERED


def ended(run: str) -> str:
    """The topic of a run's end. It needs no topic lock: the run's own row is the lock."""
    return f"end of {run}"
