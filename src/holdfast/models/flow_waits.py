"""How a flow begins to wait for events, and how one reaches it: each in one transaction, so that none is lost (I50).

The waiting item is blocked, or ready for the instant at which it would end without an event. An event that comes is put
into it and makes it ready; whoever claims it completes the node. An item that somebody holds because its time has come
is taken from them: exactly one of the two wins.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.flow_waits import AwaitEvents, FlowWait, WaitAnswer, WakeAhead, read_wait, wait_bytes
from holdfast.core.function_operations import Entry, event_topic, stored_event_id
from holdfast.core.operations import RECORDED, CompleteWork, Operation, Settled
from holdfast.core.queries import Attempts, OpenWork, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CHILD,
    COMPLETED,
    DEAD_EVENT,
    EVENTS,
    GATE_DUE,
    LEASED,
    PENDING,
    READY,
    RUNNING,
    RUNS,
    SLEEP,
    SUSPENDED,
    WAIT,
    WAITS,
    WORK,
    Event,
    Run,
    Wait,
    Work,
)
from holdfast.core.view import View
from holdfast.models.delivery import gate_for, wait_no_more
from holdfast.models.event_operations import oldest_queued, taken
from holdfast.models.flow_code import NotAhead
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import mark_running

MOST_LOOKED_AT = 16  # with more items under way nobody looks whether they all wait: that would cost more than it tells

__all__ = ["FlowWaits", "answer_flow", "suspended_if_only_waiting"]


class FlowWaits:
    """The decisions about `AwaitEvents` and `WakeAhead`."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle

    def decisions(self) -> dict[type[Operation], object]:
        return {AwaitEvents: self.await_events, WakeAhead: self.wake_ahead}

    def await_events(self, view: View, op: AwaitEvents) -> Settled:
        held = self.lifecycle.lease_of_item(view, op, BLOCKED, READY, COMPLETED)
        if isinstance(held, Settled):
            return held
        run, work = held
        wait = read_wait(work.payload)
        run = mark_running(run, work.started or view.now)
        if op.refused and wait.answer is not None:
            _bury(view, run, work, wait.answer, op.refused)
            wait = replace(wait, answer=None)
        if wait.answer is None:
            run, wait = _take_queued(view, run, wait)
        late = wait.until is not None and wait.until <= view.now
        if wait.answer is not None or late:
            view.put(RUNS, run)
            completed = CompleteWork(
                run=op.run,
                node=op.node,
                attempt=op.attempt,
                token=op.token,
                result=wait_bytes(wait),
                offer=op.offer,
            )
            return self.lifecycle.complete(view, completed)
        _open(view, run, work, wait)
        parked = replace(work, worker=None, started=None, payload=wait_bytes(wait))
        if wait.until is None:
            view.put(WORK, replace(parked, status=BLOCKED))
            run = replace(run, active=run.active - 1)
        else:
            due = wait.until
            view.put(WORK, replace(parked, status=READY, due=due, gate=gate_for(run, due, view.now)))
        run = suspended_if_only_waiting(view, run)
        view.put(RUNS, run)
        return Settled(verdict=RECORDED, run_status=run.status)

    def wake_ahead(self, view: View, op: WakeAhead) -> Settled:
        held = self.lifecycle.lease_of_item(view, op, COMPLETED)
        if isinstance(held, Settled):
            return held
        before, work = held
        now, view.now = view.now, max(view.now, work.due)  # all that is written is of then, and nobody begins it before
        try:
            settled = self.lifecycle.complete(
                view, CompleteWork(run=op.run, node=op.node, attempt=op.attempt, token=op.token, offer=op.offer)
            )
        finally:
            view.now = now
        after = view.run(op.run)
        # A join that others come to as well would know no more that it must not be ready before.
        if after is None or after.ended or after.active < before.active:
            raise NotAhead(f"{op.node} of run {op.run} ends at its time")
        return settled


def answer_flow(view: View, run: Run, entry: Entry) -> Run:
    """An event came that a flow waits for: it is in the item from now on, which is ready."""
    wait_no_more(view, run.id, entry.address)
    attempts: list[Work] = view.find(Attempts(run.id, frozenset({entry.address})))
    work = attempts[-1]
    answer = WaitAnswer(
        event=entry.event, payload=entry.value or b"null", codec=entry.codec, id=entry.source, at=view.now
    )
    ready = replace(
        work,
        status=READY,
        worker=None,
        started=None,
        token=work.token + (work.status == LEASED),
        due=view.now,
        gate=gate_for(run, view.now, view.now),
        payload=wait_bytes(replace(read_wait(work.payload), answer=answer)),
    )
    view.put(WORK, ready)
    status = RUNNING if run.status == SUSPENDED else run.status
    run = replace(run, active=run.active + (work.status == BLOCKED), status=status)
    view.put(RUNS, run)
    return run


def suspended_if_only_waiting(view: View, run: Run) -> Run:
    """Suspended, if all that the flow has under way are times, events and runs to come. The caller writes it."""
    if run.status not in (PENDING, RUNNING) or run.active > MOST_LOOKED_AT:
        return run
    for work in view.find(OpenWork(run.id)) if run.active else ():
        waits = work.kind in (SLEEP, WAIT) and work.status == READY and work.gate == GATE_DUE
        held_up = work.status == BLOCKED and (work.completed < work.required or work.kind in (CHILD, WAIT))
        if not (waits or held_up):
            return run
    return replace(run, status=SUSPENDED)


def _take_queued(view: View, run: Run, wait: FlowWait) -> tuple[Run, FlowWait]:
    """I51: what was sent to this run before what was broadcast; in each the oldest of all awaited names."""
    for target in (run.id, None) if run.mailbox else (None,):
        queued = [event for name in wait.events if (event := oldest_queued(view, name, target)) is not None]
        if queued:
            event = min(queued, key=lambda each: (each.at, each.id))
            view.delete(EVENTS, event)
            run = run if target is None else replace(run, mailbox=run.mailbox - 1)
            entry = taken("", "", "", event)
            answer = WaitAnswer(
                event=entry.event, payload=event.payload, codec=event.codec, id=entry.source, at=view.now
            )
            return run, replace(wait, answer=answer)
    return run, wait


def _open(view: View, run: Run, work: Work, wait: FlowWait) -> None:
    there = view.find(WaitsOf(run.id))
    if any(row.address == work.node for row in there):
        return  # an attempt before this one did
    slots = max((row.slot for row in there), default=0)
    name = f"wait_for({' | '.join(wait.events)})"
    for slot, event in enumerate(wait.events, slots + 1):
        view.insert(
            WAITS, Wait(run=run.id, slot=slot, topic=event_topic(event), since=view.now, address=work.node, name=name)
        )


def _bury(view: View, run: Run, work: Work, answer: WaitAnswer, reason: str) -> None:
    """The event was never let in; it is a dead letter, and the flow goes on waiting."""
    view.insert(
        EVENTS,
        Event(
            id=stored_event_id(f"refused:{run.id}:{work.node}", answer.id),
            name=answer.event,
            target=run.id,
            payload=answer.payload,
            codec=answer.codec,
            at=view.now,
            status=DEAD_EVENT,
            reason=reason,
        ),
    )
