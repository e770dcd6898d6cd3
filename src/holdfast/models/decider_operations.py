"""Decisions of deciders: an input is executed, queued for later, or taken from the inbox."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from holdfast.core.decider_operations import (
    DECIDER,
    DUPLICATE,
    IGNORED,
    INBOX_NODE,
    INPUT_EVENT,
    DrainInbox,
    EnqueueInput,
    Executed,
    ExecuteInput,
    ForgetSnapshot,
    InputGiven,
    RefuseInput,
)
from holdfast.core.errors import UsageError
from holdfast.core.operations import RECORDED, Changed, Operation, Settled
from holdfast.core.queries import FactsCausedBy, QueuedEvents
from holdfast.core.rows import (
    COMPLETED,
    DEAD,
    DEAD_EVENT,
    EVENTS,
    INBOX,
    INPUTS,
    OPEN_WORK,
    READY,
    RUNNING,
    RUNS,
    SNAPSHOTS,
    WORK,
    Event,
    Input,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.decider import DeciderMachine, Given, code_of
from holdfast.models.decider_code import DeciderCode
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import Definitions, Handing, is_draining, make_ready, mark_running

QUEUED = "queued"
FRESH, SAME, OTHER = "fresh", "same", "other"  # an input by its command id or its content


class DeciderOperations:
    def __init__(self, machine: DeciderMachine, lifecycle: Lifecycle, definitions: Definitions) -> None:
        self.machine = machine
        self.lifecycle = lifecycle
        self.definitions = definitions

    def decisions(self) -> dict[type[Operation], object]:
        return {
            ExecuteInput: self.execute,
            EnqueueInput: self.enqueue,
            DrainInbox: self.drain,
            RefuseInput: self.refuse,
            ForgetSnapshot: self.forget_snapshot,
        }

    def execute(self, view: View, op: ExecuteInput) -> Executed:
        code = code_of(self.definitions, op.workflow)
        run = _instance(view, op, code)
        given = Given(
            data=op.data,
            codec=op.codec,
            cause=op.id,
            type=op.input_type,
            command=op.command,
            observe=op.observe,
        )
        if view.may_repeat and view.find(FactsCausedBy(run.id, op.id)):
            return _told(run, "applied")  # K8: this very submission was recorded, and its answer lost
        noted = _note_command(view, run, op, code)
        if noted != FRESH:
            return _duplicate(self.machine.observed(view, run, given, code, DUPLICATE), noted)
        handing = Handing(op.offer, self.definitions)
        verdict = self.machine.apply(view, run, given, handing, code)
        return _told(view.run(run.id) or run, verdict, handing, view)

    def enqueue(self, view: View, op: EnqueueInput) -> Executed:
        """Durable when this is committed; applied by a worker, in the order of arrival."""
        code = code_of(self.definitions, op.workflow)
        run = _instance(view, op, code)
        identity = f"{run.id}:input:{op.id}"
        if view.probe(EVENTS, (identity,)) is not None:
            return _told(run, QUEUED)  # K8
        if view.may_repeat and view.find(FactsCausedBy(run.id, identity)):
            return _told(run, QUEUED)  # K8: and a worker has applied it meanwhile
        given = Given(data=op.data, codec=op.codec, cause=op.id, source=INBOX, command=op.command, observe=op.observe)
        noted = _note_command(view, run, op, code)
        if noted != FRESH:
            return _duplicate(self.machine.observed(view, run, given, code, DUPLICATE), noted)
        if run.ended:  # I34
            return _told(self.machine.observed(view, run, given, code, IGNORED), IGNORED)
        at = max(view.now, run.due + 1)  # of one instance no two are queued at the same time, so the order is total
        view.insert(
            EVENTS,
            Event(id=identity, name=INPUT_EVENT, target=run.id, payload=op.data, codec=op.codec, at=at),
        )
        view.put(RUNS, open_inbox(view, replace(run, mailbox=run.mailbox + 1, due=at)))
        return _told(run, QUEUED)

    def drain(self, view: View, op: DrainInbox) -> Executed | Settled:
        held = self.lifecycle.lease_of_inbox(view, op)
        if isinstance(held, Settled):
            return held
        run, inbox = held
        run = mark_running(run, view.now)
        code = code_of(self.definitions, run.workflow)
        handing = Handing(op.offer, self.definitions)
        for event in _oldest_inputs(view, run, op.limit):
            view.delete(EVENTS, event)
            run = replace(run, mailbox=run.mailbox - 1)
            view.put(RUNS, run)
            given = Given(data=event.payload, codec=event.codec, cause=event.id, source=INBOX, observe=op.observe)
            self.machine.apply(view, run, given, handing, code)
            run = view.run(run.id) or run
        run = self._set_inbox(view, run, inbox, handing)
        return _told(run, RECORDED, handing, view)

    def refuse(self, view: View, op: RefuseInput) -> Settled:
        """I16: an input that cannot be decided is a dead letter, with the reason; those behind it go on."""
        held = self.lifecycle.lease_of_inbox(view, op)
        if isinstance(held, Settled):
            return held
        run, inbox = held
        for event in _oldest_inputs(view, run, 1):
            if event.id == op.event:
                view.put(EVENTS, replace(event, status=DEAD_EVENT, reason=op.reason))
                run = replace(run, mailbox=run.mailbox - 1)
        run = self._set_inbox(view, run, inbox, Handing(None))
        return Settled(verdict=RECORDED, run_status=run.status)

    def forget_snapshot(self, view: View, op: ForgetSnapshot) -> Changed:
        view.committed(SNAPSHOTS, (op.run,))  # one of this batch may stand in front of it: both are to go
        run, snapshot = view.run(op.run), view.get(SNAPSHOTS, (op.run,))
        if run is None or snapshot is None:
            return Changed(changed=False, status="" if run is None else run.status)
        view.delete(SNAPSHOTS, snapshot)
        return Changed(changed=True, status=run.status)

    def _set_inbox(self, view: View, run: Run, inbox: Work, handing: Handing) -> Run:
        """Ready again while something waits, else done until the next input is queued."""
        if run.mailbox > 0:
            again = replace(inbox, status=READY, worker=None, due=view.now, failures=0, losses=0, started=None)
            view.put(WORK, make_ready(view, run, again, handing))
        else:
            view.put(WORK, replace(inbox, status=COMPLETED, losses=0, failures=0, finished=view.now))
            run = replace(run, active=run.active - 1)
        view.put(RUNS, run)
        return run


def _oldest_inputs(view: View, run: Run, count: int) -> list[Event]:
    for limit in (count, count + 1_000, None):
        found, complete = view.oldest(QueuedEvents(INPUT_EVENT, run.id, limit), limit)
        if complete or len(found) >= count:
            return found[:count]
    return []


def open_inbox(view: View, run: Run) -> Run:
    """Something waits in the inbox: see that it is looked into. The caller writes the run."""
    inbox = view.probe(WORK, (run.id, INBOX_NODE, 1))
    if inbox is None:
        inbox = Work(
            run=run.id,
            node=INBOX_NODE,
            attempt=1,
            workflow=run.workflow,
            kind=INBOX,
            name=run.workflow,
            completed=1,
            queue=run.queue,
            priority=run.priority,
            due=view.now,
            created=view.now,
        )
        view.insert(WORK, make_ready(view, run, inbox, Handing(None)))
        return replace(run, active=run.active + 1)
    if inbox.status in OPEN_WORK:
        return run
    again = replace(inbox, status=READY, worker=None, due=view.now, error=None, started=None, finished=None)
    again = replace(again, failures=0, losses=0)
    view.put(WORK, make_ready(view, run, again, Handing(None)))
    return replace(run, active=run.active + 1, gave_up=run.gave_up - (inbox.status == DEAD))


def _instance(view: View, op: InputGiven, code: DeciderCode) -> Run:
    """The run of the instance; the first input creates it."""
    run = view.probe(RUNS, (op.run,))
    if run is not None:
        return run
    if is_draining(view, op.workflow):
        raise UsageError(
            f"decider {op.workflow} is being drained and takes no new instances",
            hint=f"execute it after `holdfast drain {op.workflow} --off`; instances that exist go on",
        )
    run = Run(
        id=op.run,
        workflow=op.workflow,
        model=DECIDER,
        key=op.key,
        status=RUNNING,
        # Not 0: who still remembers an earlier life of this id, which was pruned, must not take this one for it (K4).
        version=view.now,
        codec=op.codec,
        queue=code.queue,
        tags=op.tags,
        created=view.now,
        started=view.now,
        updated=view.now,
    )
    view.insert(RUNS, run)
    return run


def _note_command(view: View, run: Run, op: InputGiven, code: DeciderCode) -> str:
    """I12: an input under a command id applies once; where the decider has a window, so do equal inputs within it.

    FRESH if it is to be applied, else whether it is the SAME input again or an OTHER one under a used id.
    """
    if op.command is not None:
        key = (run.id, f"command:{op.command}")
        known = view.probe(INPUTS, key)
        if known is None:
            view.insert(INPUTS, Input(scope=run.id, id=key[1], run=run.id, answer=_digest(op.data), at=view.now))
            return FRESH
        if view.now - known.at <= code.command_retention:
            return SAME if known.answer == _digest(op.data) else OTHER
        view.put(INPUTS, replace(known, answer=_digest(op.data), at=view.now))
        return FRESH
    window = code.window
    if window is None:
        return FRESH
    key = (run.id, f"same:{code.content(op.data, op.codec)}")
    number = run.token + run.mailbox + 1  # those that wait in the inbox were accepted too
    known = view.probe(INPUTS, key)
    if known is None:
        view.insert(INPUTS, Input(scope=run.id, id=key[1], run=run.id, answer=str(number), at=view.now))
        return FRESH
    recent = window.last is None or number - int(known.answer) <= window.last
    young = window.seconds is None or view.now - known.at <= window.seconds * 1_000_000
    if recent and young:
        return SAME
    view.put(INPUTS, replace(known, answer=str(number), at=view.now))
    return FRESH


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _duplicate(run: Run, noted: str) -> Executed:
    return replace(_told(run, DUPLICATE), differs=noted == OTHER)


def _told(run: Run, verdict: str, handing: Handing | None = None, view: View | None = None) -> Executed:
    handed = handing.rows(view) if handing is not None and view is not None else ()
    return Executed(verdict=verdict, run_status=run.status, sequence=run.base, handed=handed)


__all__ = ["DeciderOperations", "open_inbox"]
