"""Decisions about events: sending, broadcasting, bringing back what nobody could take, closing what nobody will.

An event is in one place at a time: in a row that waits to be taken, or in the history of a run that took it. Moving
it from one to the other is one transaction (I50).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from holdfast.core.decider_operations import DECIDER
from holdfast.core.errors import UsageError
from holdfast.core.function_operations import (
    EVENT,
    BroadcastEvent,
    Delivered,
    DropEvent,
    Entry,
    Queued,
    RedeliverEvent,
    SendEvent,
    Sent,
    TargetEnded,
    TargetNotFound,
    event_topic,
    sent_id,
    stored_event_id,
)
from holdfast.core.operations import Changed, Operation
from holdfast.core.queries import QueuedEvents, WaitersOf, WaitsOf
from holdfast.core.rows import (
    CANCELLING,
    DEAD_EVENT,
    EVENTS,
    INPUTS,
    PENDING,
    QUEUED_EVENT,
    RUNS,
    WAITS,
    Event,
    Input,
    Run,
    Wait,
)
from holdfast.core.view import NotLoaded, Query, View
from holdfast.models.decider_operations import open_inbox
from holdfast.models.delivery import deliver

T = TypeVar("T")

AT_ONCE = (8, 200, None)  # one of possibly very many is wanted: few are read at first


class EventOperations:
    def decisions(self) -> dict[type[Operation], object]:
        return {
            SendEvent: self.send,
            BroadcastEvent: self.broadcast,
            RedeliverEvent: self.redeliver,
            DropEvent: self.drop,
        }

    def send(self, view: View, op: SendEvent) -> Sent:
        run = view.run(op.run)
        if run is None:
            return TargetNotFound()
        if view.optimistic and run.status == PENDING:  # a claim elsewhere begins it, and leaves its version (K4)
            raise NotLoaded((RUNS, (op.run,)))
        known = view.probe(INPUTS, (op.run, op.event))
        if known is not None:  # K8, and I12: the same id applies once
            return Delivered(op.run) if known.answer == "delivered" else Queued(op.event)
        if run.model == DECIDER:
            raise UsageError(
                f"run {op.run} is an instance of decider {run.workflow}, which takes inputs and no events",
                hint=f"use engine.execute({run.workflow}, …) or engine.enqueue_input",
            )
        if not _takes_events(run):
            return TargetEnded(run.status)
        event = _event(view, op, scope=op.run, target=op.run)
        wait = wait_of(view, run, op.name)
        answer = "delivered" if wait is not None else "queued"
        view.insert(INPUTS, Input(scope=op.run, id=op.event, run=op.run, answer=answer, at=view.now))
        if wait is None:
            view.insert(EVENTS, event)
            view.put(RUNS, replace(run, mailbox=run.mailbox + 1))
            return Queued(op.event)
        deliver(view, run, taken(wait.address, wait.name, wait.digest, event))
        return Delivered(op.run)

    def broadcast(self, view: View, op: BroadcastEvent) -> Sent:
        topic = event_topic(op.name)
        known = view.get(INPUTS, (topic, op.event))
        if known is not None:
            runs = tuple(known.answer.split())
            return Delivered(runs[0], runs) if runs else Queued(op.event)
        event = _event(view, op, scope=topic, target=None)
        reached = self._deliver_to_waiters(view, event, everybody=op.to_all)
        view.insert(INPUTS, Input(scope=topic, id=op.event, run=None, answer=" ".join(reached), at=view.now))
        if reached:
            return Delivered(reached[0], tuple(reached))
        view.insert(EVENTS, event)
        return Queued(op.event)

    def redeliver(self, view: View, op: RedeliverEvent) -> Changed:
        event = view.get(EVENTS, (op.event,))
        if event is None or event.status == QUEUED_EVENT:
            return Changed(changed=False)  # K8, or somebody else has seen to it
        run = view.run(event.target) if event.target is not None else None
        if run is not None and run.model == DECIDER and run.ended:  # I34: accepted and ignored, as any input is now
            view.delete(EVENTS, event)
            return Changed(changed=True)
        if run is not None and run.model == DECIDER:  # an input that could not be decided goes to the end of the line
            at = max(view.now, run.due + 1)
            view.put(EVENTS, replace(event, status=QUEUED_EVENT, at=at, reason=None))
            view.put(RUNS, open_inbox(view, replace(run, mailbox=run.mailbox + 1, due=at)))
            return Changed(changed=True)
        if run is not None and _takes_events(run):
            wait = wait_of(view, run, event.name)
            if wait is not None:
                view.delete(EVENTS, event)
                deliver(view, run, taken(wait.address, wait.name, wait.digest, event))
                return Changed(changed=True)
            view.put(EVENTS, replace(event, status=QUEUED_EVENT, at=view.now, reason=None))
            view.put(RUNS, replace(run, mailbox=run.mailbox + 1))
            return Changed(changed=True)
        reached = self._deliver_to_waiters(view, event, everybody=False)
        if reached:
            view.delete(EVENTS, event)
            return Changed(changed=True)
        view.put(EVENTS, replace(event, status=QUEUED_EVENT, target=None, at=view.now, reason=None))
        return Changed(changed=True)

    def _deliver_to_waiters(self, view: View, event: Event, *, everybody: bool) -> list[str]:
        """The runs that got it, the longest waiting first."""
        reached: list[str] = []
        while wait := self._waiter(view, event_topic(event.name), everybody=everybody, but=reached):
            run = view.run(wait.run)
            if run is None or run.ended:
                view.delete(WAITS, wait)
                continue
            deliver(view, run, taken(wait.address, wait.name, wait.digest, event))
            reached.append(run.id)
            if not everybody:
                break
        return reached

    def _waiter(self, view: View, topic: str, *, everybody: bool, but: list[str]) -> Wait | None:
        def not_reached(wait: Wait) -> bool:
            return wait.run not in but

        if everybody:
            return next(filter(not_reached, view.find(WaitersOf(topic))), None)
        return _first(view, lambda limit: WaitersOf(topic, limit), not_reached)

    def drop(self, view: View, op: DropEvent) -> Changed:
        event = view.get(EVENTS, (op.event,))
        if event is None:
            return Changed(changed=False)
        expired = event.expires is not None and event.expires <= view.now
        if (event.status != DEAD_EVENT) is not op.expired or (op.expired and not expired):
            return Changed(changed=False)
        view.delete(EVENTS, event)
        if event.target is not None and event.status == QUEUED_EVENT:
            run = view.run(event.target)
            if run is not None:
                view.put(RUNS, replace(run, mailbox=run.mailbox - 1))
        return Changed(changed=True)


def oldest_queued(view: View, name: str, target: str | None) -> Event | None:
    """The event of a name that a new wait takes first, if there is one: for the run, or broadcast (I51)."""

    def has_time_left(event: Event) -> bool:
        return event.expires is None or event.expires > view.now

    return _first(view, lambda limit: QueuedEvents(name, target, limit), has_time_left)


def _first(view: View, question: Callable[[int | None], Query], wanted: Callable[[T], bool]) -> T | None:
    """The first row that is wanted, without reading all of possibly very many."""
    for limit in AT_ONCE:
        rows, complete = view.oldest(question(limit), limit)
        found = next(filter(wanted, rows), None)
        if found is not None or complete:
            return found
    return None


def _takes_events(run: Run) -> bool:
    return not run.ended and run.status != CANCELLING


def wait_of(view: View, run: Run, name: str) -> Wait | None:
    """The wait of the run that an event of this name ends, if there is one."""
    return next((row for row in view.find(WaitsOf(run.id)) if row.topic == event_topic(name)), None)


def _event(view: View, op: SendEvent | BroadcastEvent, *, scope: str, target: str | None) -> Event:
    return Event(
        id=stored_event_id(scope, op.event),
        name=op.name,
        target=target,
        payload=op.payload,
        codec=op.codec,
        at=view.now,
        expires=None if op.expires is None else view.now + op.expires,
        on_target_end=op.on_target_end if isinstance(op, SendEvent) else "discard",
    )


def taken(address: str, name: str, digest: str, event: Event) -> Entry:
    """The entry that an event becomes in the run that takes it."""
    return Entry(
        address=address,
        kind=EVENT,
        name=name,
        digest=digest,
        value=event.payload,
        codec=event.codec,
        event=event.name,
        source=sent_id(event.id),
    )


__all__ = ["EventOperations", "oldest_queued", "taken", "wait_of"]
