"""Decisions of functions and events: a turn, going on as another call, sending, broadcasting."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from holdfast.core.errors import UsageError
from holdfast.core.function_operations import (
    CONTINUED,
    ENDED_RUN,
    EVENT,
    BroadcastEvent,
    ContinueAs,
    Delivered,
    DropEvent,
    Entry,
    Numbered,
    OpenWait,
    Queued,
    QueuedCall,
    SendEvent,
    Sent,
    Stepped,
    TakeTurn,
    TargetEnded,
    TargetNotFound,
    end_topic,
    event_topic,
)
from holdfast.core.operations import RECORDED, REPEATED, Changed, Operation, Settled
from holdfast.core.queries import OpenWork, QueuedEvents, WaitersOf, WaitsOf
from holdfast.core.rows import (
    CALL,
    CANCELLED,
    CANCELLING,
    EVENTS,
    GATE_OPEN,
    HISTORY,
    INPUTS,
    READY,
    RUNS,
    WAITS,
    WORK,
    Event,
    Input,
    Run,
    Wait,
    Work,
)
from holdfast.core.view import View
from holdfast.models.delivery import append, close, deliver, ended_value, numbered, park
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import mark_running

SLOTS_PER_WAIT = 1_000
WAITERS_AT_ONCE = (8, 200, None)  # a broadcast wakes one of possibly very many: few are read at first


class FunctionOperations:
    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle

    def decisions(self) -> dict[type[Operation], object]:
        return {
            TakeTurn: self.turn,
            ContinueAs: self.continue_as,
            SendEvent: self.send,
            BroadcastEvent: self.broadcast,
            DropEvent: self.drop,
        }

    # -- what a function says

    def turn(self, view: View, op: TakeTurn) -> Stepped:
        held = self.lifecycle.lease_of_turn(view, op)
        if isinstance(held, Settled):
            run = view.run(op.run)
            parked = held.verdict == REPEATED
            return Stepped(
                verdict=held.verdict, run_status=held.run_status, parked=parked, last=run.entries if run else 0
            )
        run, turn = held
        if (op.entries or op.opens) and (repeated := self._recorded_before(view, run, op)) is not None:
            return repeated
        before = run.entries
        run = mark_running(run, turn.started or view.now)
        if op.entries and turn.losses:
            turn = replace(turn, losses=0)  # I6: something new was recorded
            view.put(WORK, turn)
        for entry in op.entries:
            run = append(view, run, entry)
        if op.closes:
            run = close(view, run, frozenset(op.closes))
        for child in op.children:
            self.lifecycle.start(view, child)
        for call in op.calls:
            run = self._queue(view, run, call)
        for wait in op.opens:
            run = self._open(view, run, wait)
        # Only what the driver has seen may be waited with: whatever else came in is delivered first.
        seen = op.known + len(op.entries)
        parked = op.park and run.entries == seen
        if parked:
            run = park(view, run, turn, op.due)
        else:
            view.put(RUNS, run)
        return Stepped(
            verdict=RECORDED,
            run_status=run.status,
            parked=parked,
            last=run.entries,
            entries=tuple(self._written(view, run, before)),
        )

    def _written(self, view: View, run: Run, before: int) -> Iterable[Numbered]:
        for sequence in range(before + 1, run.entries + 1):
            row = view.get(HISTORY, (run.id, sequence))
            if row is not None:
                yield numbered(row)

    def _recorded_before(self, view: View, run: Run, op: TakeTurn) -> Stepped | None:
        """K8: this very turn was written, and its driver never heard."""
        if run.entries == op.known:
            return None  # nothing has come since, so it cannot have been
        addresses = {entry.address for entry in op.entries} | {wait.address for wait in op.opens}
        for sequence in range(op.known + 1, run.entries + 1):  # what came in since is little, and read by key
            row = view.get(HISTORY, (run.id, sequence))
            if row is not None and row.codec == "entry" and numbered(row).entry.address in addresses:
                return Stepped(verdict=REPEATED, run_status=run.status, last=run.entries)
        return None

    def _open(self, view: View, run: Run, wait: OpenWait) -> Run:
        """I51: what was sent to this run before what was broadcast; in each the oldest of all awaited names."""
        if any(row.address == wait.address for row in view.find(WaitsOf(run.id))):
            return run  # K8
        for target in (run.id, None) if run.mailbox else (None,):
            queued = [
                event
                for name in wait.events
                for event in view.find(QueuedEvents(name, target))
                if event.expires is None or event.expires > view.now
            ]
            if queued:
                event: Event = min(queued, key=lambda each: (each.at, each.id))
                view.delete(EVENTS, event)
                run = run if target is None else replace(run, mailbox=run.mailbox - 1)
                return append(view, run, _taken(wait.address, wait.name, wait.digest, event))
        for awaited in wait.runs:
            other = view.run(awaited)
            if other is None or other.ended:
                value = ended_value(awaited, other)
                return append(
                    view,
                    run,
                    Entry(
                        address=wait.address,
                        kind=ENDED_RUN,
                        name=wait.name,
                        digest=wait.digest,
                        value=value,
                        source=awaited,
                    ),
                )
            if not other.awaited:
                view.put(RUNS, replace(other, awaited=True))
        topics = (*map(event_topic, wait.events), *map(end_topic, wait.runs))
        # Slots are never used again: every wait that is over has added an entry, or had another address.
        slots = {row.slot for row in view.find(WaitsOf(run.id))}
        first = max(slots, default=run.entries * SLOTS_PER_WAIT) + 1
        for slot, topic in enumerate(topics, first):
            view.insert(
                WAITS,
                Wait(
                    run=run.id,
                    slot=slot,
                    topic=topic,
                    since=view.now,
                    address=wait.address,
                    name=wait.name,
                    digest=wait.digest,
                ),
            )
        return replace(run, remaining=run.remaining + len(topics))

    def _queue(self, view: View, run: Run, call: QueuedCall) -> Run:
        if view.probe(WORK, (run.id, call.address, call.attempt)) is not None:
            return run
        due = max(call.due, view.now)
        work = Work(
            run=run.id,
            node=call.address,
            attempt=call.attempt,
            workflow=run.workflow,
            kind=CALL,
            name=call.action,
            status=READY,
            completed=1,
            queue=call.queue,
            priority=run.priority,
            gate=GATE_OPEN if due <= view.now else 1,
            due=due,
            timeout=call.timeout,
            policy=call.policy,
            payload=call.payload,
            codec=call.codec,
            error=call.error,
            parents=call.digest,
            failures=call.failures,
            created=view.now,
        )
        view.insert(WORK, work)
        return replace(run, active=run.active + 1)

    def continue_as(self, view: View, op: ContinueAs) -> Settled:
        held = self.lifecycle.lease_of_turn(view, op)
        if isinstance(held, Settled):
            return held
        run, _ = held
        if run.base > op.known:
            return Settled(verdict=REPEATED, run_status=run.status)
        if run.status == CANCELLING:
            raise UsageError(f"run {run.id} is being cancelled and cannot go on as {op.workflow}")
        run = close(view, run, None)
        run = append(view, run, Entry(address="", kind=CONTINUED, name=op.workflow, value=op.input, codec=op.codec))
        run = replace(run, base=run.entries)
        for work in view.find(OpenWork(run.id)) if run.active > 1 else ():  # calls that nobody waits for any more
            if work.kind == CALL:
                run = replace(run, active=run.active - 1)
                view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, finished=view.now))
        view.put(RUNS, run)
        return Settled(verdict=RECORDED, run_status=run.status)

    # -- what reaches it

    def send(self, view: View, op: SendEvent) -> Sent:
        run = view.run(op.run)
        if run is None:
            return TargetNotFound()
        known = view.get(INPUTS, (op.run, op.event))
        if known is not None:  # K8, and I12: the same id applies once
            return Delivered(op.run) if known.answer == "delivered" else Queued(op.event)
        if run.ended or run.status == CANCELLING:
            return TargetEnded(run.status)
        event = _event(view, op, target=op.run)
        wait = next((row for row in view.find(WaitsOf(op.run)) if row.topic == event_topic(op.name)), None)
        answer = "delivered" if wait is not None else "queued"
        view.insert(INPUTS, Input(scope=op.run, id=op.event, run=op.run, answer=answer, at=view.now))
        if wait is None:
            view.insert(EVENTS, event)
            view.put(RUNS, replace(run, mailbox=run.mailbox + 1))
            return Queued(op.event)
        deliver(view, run, _taken(wait.address, wait.name, wait.digest, event))
        return Delivered(op.run)

    def broadcast(self, view: View, op: BroadcastEvent) -> Sent:
        topic = event_topic(op.name)
        known = view.get(INPUTS, (topic, op.event))
        if known is not None:
            return Delivered(known.answer) if known.answer else Queued(op.event)
        event = _event(view, op, target=None)
        reached: list[str] = []
        while wait := self._waiter(view, topic, everybody=op.to_all, but=reached):
            run = view.run(wait.run)
            if run is None or run.ended:
                view.delete(WAITS, wait)
                continue
            deliver(view, run, _taken(wait.address, wait.name, wait.digest, event))
            reached.append(run.id)
            if not op.to_all:
                break
        first = reached[0] if reached else ""
        view.insert(INPUTS, Input(scope=topic, id=op.event, run=None, answer=first, at=view.now))
        if reached:
            return Delivered(first, tuple(reached))
        stored = view.get(EVENTS, (op.event,))
        if stored is None:
            view.insert(EVENTS, event)
        else:  # one whose target ended, on its way to somebody else
            view.put(EVENTS, event)
        return Queued(op.event)

    def _waiter(self, view: View, topic: str, *, everybody: bool, but: list[str]) -> Wait | None:
        for limit in (None,) if everybody else WAITERS_AT_ONCE:
            waiters: list[Wait] = [wait for wait in view.find(WaitersOf(topic, limit)) if wait.run not in but]
            if waiters:
                return waiters[0]
        return None

    def drop(self, view: View, op: DropEvent) -> Changed:
        event = view.get(EVENTS, (op.event,))
        if event is None or (op.expired and (event.expires is None or event.expires > view.now)):
            return Changed(changed=False)
        view.delete(EVENTS, event)
        return Changed(changed=True)


def _event(view: View, op: SendEvent | BroadcastEvent, target: str | None) -> Event:
    return Event(
        id=op.event,
        name=op.name,
        target=target,
        payload=op.payload,
        codec=op.codec,
        at=view.now,
        expires=None if op.expires is None else view.now + op.expires,
        on_target_end=op.on_target_end if isinstance(op, SendEvent) else "discard",
    )


def _taken(address: str, name: str, digest: str, event: Event) -> Entry:
    return Entry(
        address=address,
        kind=EVENT,
        name=name,
        digest=digest,
        value=event.payload,
        codec=event.codec,
        event=event.name,
        source=event.id,
    )


__all__ = ["FunctionOperations"]
