"""Fake operations that suspend on topics and send to them, as the functions and events to come will.

They exist to test what the kernel offers: topics locked before runs, waiters found and locked with them, rows in
`waits` and `events`, and deletes that must match.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.core.operations import Operation, RunOperation
from holdfast.core.queries import QueuedEvents, WaitersOf, WaitsOf
from holdfast.core.rows import EVENTS, RUNNING, RUNS, SUSPENDED, WAITS, Event, Run, Wait
from holdfast.core.view import View
from holdfast.models.machine import record


class Suspend(RunOperation, frozen=True, kw_only=True, gc=False):
    """The run takes the oldest event of its topics, or waits for the next one."""

    names: tuple[str, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        return self.names


class Broadcast(Operation, frozen=True, kw_only=True, gc=False):
    """An event for whoever has waited longest, or to be kept until someone does."""

    event: str
    name: str

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.name,)


def suspend(view: View, op: Suspend) -> str:
    run = view.run(op.run)
    if run is None or run.ended:
        return "ended"
    if view.find(WaitsOf(op.run)):
        return "waiting"
    queued = [event for name in op.names for event in view.find(QueuedEvents(name, None))]
    if queued:
        oldest = min(queued, key=lambda event: (event.at, event.id))
        view.delete(EVENTS, oldest)
        _deliver(view, run, oldest.id)
        return f"took {oldest.id}"
    for slot, name in enumerate(op.names):
        view.insert(WAITS, Wait(run=op.run, slot=slot, topic=name, since=view.now))
    view.put(RUNS, replace(run, status=SUSPENDED))
    return "waiting"


def broadcast(view: View, op: Broadcast) -> str:
    for wait in view.find(WaitersOf(op.name)):
        run = view.run(wait.run)
        if run is None or run.ended:
            continue
        for other in view.find(WaitsOf(wait.run)):
            view.delete(WAITS, other)
        _deliver(view, replace(run, status=RUNNING), op.event)
        return f"to {wait.run}"
    view.insert(EVENTS, Event(id=op.event, name=op.name, at=view.now))
    return "queued"


def _deliver(view: View, run: Run, event: str) -> None:
    record(view, run, "delivered", event=event)


TOPIC_DECISIONS: dict[type[Operation], Any] = {Suspend: suspend, Broadcast: broadcast}


def delivered(rows: dict[str, list[Any]]) -> list[str]:
    """Ids of delivered events, once for each delivery."""
    import json

    return sorted(json.loads(entry.data)["event"] for entry in rows["history"] if entry.kind == "delivered")
