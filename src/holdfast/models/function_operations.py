"""Decisions of functions: a turn, and going on as another call."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from holdfast.core.codec import encode_error
from holdfast.core.errors import HoldfastError, RunError, UsageError
from holdfast.core.function_operations import (
    CHILD_CODEC,
    CONTINUED,
    ENDED_RUN,
    ENTRY_KINDS,
    EVENT,
    FAILURE,
    REFUSED,
    RESULT,
    ROLLBACKS,
    ContinueAs,
    Entry,
    Numbered,
    OpenWait,
    QueuedCall,
    Refusal,
    Stepped,
    TakeTurn,
    end_topic,
    entry_of,
    event_topic,
    rollback_bytes,
    stored_event_id,
)
from holdfast.core.operations import RECORDED, REPEATED, STALE, CompleteWork, Operation, Settled
from holdfast.core.queries import AllWork, WaitsOf
from holdfast.core.rows import (
    CALL,
    CANCELLED,
    CANCELLING,
    DEAD_EVENT,
    EVENTS,
    GATE_OPEN,
    GAVE_UP,
    HISTORY,
    INPUTS,
    PENDING,
    READY,
    RUNNING,
    RUNS,
    SUSPENDED,
    WAITS,
    WORK,
    Event,
    History,
    Input,
    Run,
    Wait,
    Work,
)
from holdfast.core.view import View
from holdfast.models.delivery import append, close, end_calls, ended_value, numbered, park
from holdfast.models.event_operations import oldest_queued, taken, wait_of
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import mark_running

SLOTS_PER_WAIT = 1_000
MOST_UNSEEN = 100_000  # entries that others may have written while a function took one turn
_NOTHING: Final[frozenset[str]] = frozenset()


class FunctionOperations:
    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle

    def decisions(self) -> dict[type[Operation], object]:
        return {
            TakeTurn: self.turn,
            ContinueAs: self.continue_as,
        }

    # -- what a function says

    def turn(self, view: View, op: TakeTurn) -> Stepped:
        held = self.lifecycle.lease_of_turn(view, op)
        if isinstance(held, Settled):
            run = view.run(op.run)
            parked = held.verdict == REPEATED and op.park  # K8; who did not park has been made to give it back
            verdict = REPEATED if parked else STALE
            return Stepped(verdict=verdict, run_status=held.run_status, parked=parked, last=run.entries if run else 0)
        run, turn = held
        seen = op.known + len(op.entries)
        says = op.entries or op.opens or op.calls
        recorded = self._recorded_since(view, run, op) if says and run.entries > op.known else _NOTHING
        if op.children:
            op = self._with_children(view, op)
        entries: Sequence[Entry] = op.entries
        if recorded:
            entries = [entry for entry in op.entries if _identity(entry) not in recorded]
        opens: Sequence[OpenWait] = ()
        if op.opens:
            # It is not opened once it is over: an entry that another process wrote, or one of these, has answered it.
            over = recorded | {_identity(entry) for entry in op.entries}
            opens = [wait for wait in op.opens if wait.address not in over]
        refused_before = op.refuses and all(self._came_in(view, run, each) is None for each in op.refuses)
        if refused_before:
            return Stepped(verdict=REPEATED, run_status=run.status, last=run.entries)
        if run.started is None or run.status == PENDING:
            run = mark_running(run, turn.started or view.now)
        as_it_was = run
        if entries and turn.losses:
            turn = replace(turn, losses=0)  # I6: something new was recorded
            view.put(WORK, turn)
        if run.signature != op.python and op.python and run.entries == run.base:
            run = replace(run, signature=op.python)  # somebody with another Python had started it
        written: list[Numbered] = []
        at = max(view.now, turn.due) if op.ahead else view.now
        for entry in entries:
            run = append(view, run, entry, at)
            written.append(Numbered(run.entries, at, entry))
        last = run.entries  # of what the driver said
        if op.closes:
            run = close(view, run, frozenset(op.closes))
        if op.withdraws and run.active > 1:  # else there is nothing but its turn
            run = end_calls(view, run, frozenset(op.withdraws))
        for refusal in op.refuses:
            self._refuse(view, run, refusal)
        for sequence in op.unread:
            run = self._give_back(view, run, sequence)
        for call in op.calls:
            if call.address.rpartition("|")[2] not in recorded:
                run = self._queue(view, run, call, retried=op.attempt > 1)
        for wait in opens:
            run = self._open(view, run, wait)
        # Only what the driver has seen may be waited with: whatever else came in is delivered first.
        parked = op.park and run.entries == seen
        if recorded and run == as_it_was and not parked:  # K8: all of it was there
            return Stepped(verdict=REPEATED, run_status=run.status, last=run.entries)
        if parked:
            run = park(view, run, turn, op.due)
        else:
            if run.status == SUSPENDED:  # a time that it waited for has come, and it goes on
                run = replace(run, status=RUNNING)
                # Written so that the flush asks for its token: that a server has forgotten this lease, and given it
                # to somebody else, its run's version does not tell (decision 0031).
                view.put(WORK, replace(turn))
            view.put(RUNS, run)
        return Stepped(
            verdict=RECORDED,
            run_status=run.status,
            parked=parked,
            last=run.entries,
            entries=tuple(written) if run.entries == last else (*written, *self._taken(view, run, last)),
        )

    def _with_children(self, view: View, op: TakeTurn) -> TakeTurn:
        """Start its children. One whose key another run has is that run; one that is refused is a call that failed."""
        others: dict[str, str] = {}
        refused: dict[str, bytes] = {}
        for child in op.children:
            try:
                started = self.lifecycle.start(view, child)
                if started.run == op.run:
                    raise UsageError(
                        f"run {op.run} of {child.workflow} has the key {child.key!r} itself, under which it was to "
                        "start a child: it would wait for its own end, which would never come",
                        hint="give the child another key",
                    )
            except HoldfastError as error:  # raised before anything was written
                refused[child.run] = encode_error(error)
            else:
                others[child.run] = started.run
        entries = [_child_entry(entry, others, refused) for entry in op.entries]
        opens = []
        for wait in op.opens:
            error_of = next((refused[run] for run in wait.runs if run in refused), None)
            if error_of is None:
                opens.append(replace(wait, runs=tuple(others.get(run, run) for run in wait.runs)))
            else:
                entries.append(_failed(wait, error_of))
        return replace(op, entries=tuple(entries), opens=tuple(opens))

    def _taken(self, view: View, run: Run, last: int) -> list[Numbered]:
        """What else this turn wrote: events that were there already for what it waits for."""
        rows = [view.get(HISTORY, (run.id, sequence)) for sequence in range(last + 1, run.entries + 1)]
        return [numbered(row) for row in rows if row is not None]

    def _recorded_since(self, view: View, run: Run, op: TakeTurn) -> frozenset[str]:
        """What was recorded and the driver does not know of: by this very turn, whose answer was lost (K8), or by
        others. A deadline that came with the event that it was for has lost, and takes nothing else down with it."""
        found = set()
        for sequence in _unseen(run, op.known):  # what came in since is little, and read by key
            row = view.get(HISTORY, (run.id, sequence))
            if row is not None and row.kind in ENTRY_KINDS:
                found.add(_identity(numbered(row).entry))
        return frozenset(found)

    def _came_in(self, view: View, run: Run, refusal: Refusal) -> History | None:
        """The entry of the event, unless it was refused before."""
        row = view.get(HISTORY, (run.id, refusal.sequence))
        return row if row is not None and row.kind == EVENT else None

    def _refuse(self, view: View, run: Run, refusal: Refusal) -> None:
        """The event was never let in, now or in any replay; it is a dead letter, and whoever waits goes on waiting."""
        row = self._came_in(view, run, refusal)
        if row is None:
            return  # K8
        view.put(HISTORY, replace(row, kind=REFUSED))
        entry = entry_of(row.data)
        view.insert(
            EVENTS,
            Event(
                id=stored_event_id(f"refused:{run.id}:{refusal.sequence}", entry.source),
                name=entry.event,
                target=run.id,
                payload=entry.value or b"null",
                codec=entry.codec,
                at=view.now,
                status=DEAD_EVENT,
                reason=refusal.reason,
            ),
        )

    def _give_back(self, view: View, run: Run, sequence: int) -> Run:
        """An event came for a wait that the code had given up: it is for the run's next wait. The entry stays."""
        row, mark = view.get(HISTORY, (run.id, sequence)), f"unread:{sequence}"
        if row is None or row.kind != EVENT or view.get(INPUTS, (run.id, mark)) is not None:
            return run  # K8
        entry = entry_of(row.data)
        event = Event(
            id=stored_event_id(f"{run.id}:{mark}", entry.source),
            name=entry.event,
            target=run.id,
            payload=entry.value or b"null",
            codec=entry.codec,
            at=row.at,
        )
        view.insert(INPUTS, Input(scope=run.id, id=mark, run=run.id, answer="queued", at=view.now))
        wait = wait_of(view, run, event.name)
        if wait is not None:  # another branch waits for the same
            run = close(view, run, frozenset({wait.address}))
            return append(view, run, taken(wait.address, wait.name, wait.digest, event))
        view.insert(EVENTS, event)
        return replace(run, mailbox=run.mailbox + 1)

    def _open(self, view: View, run: Run, wait: OpenWait) -> Run:
        """I51: what was sent to this run before what was broadcast; in each the oldest of all awaited names."""
        if any(row.address == wait.address for row in view.find(WaitsOf(run.id))):
            return run  # K8
        for target in (run.id, None) if run.mailbox else (None,):
            queued = [event for name in wait.events if (event := oldest_queued(view, name, target)) is not None]
            if queued:
                event = min(queued, key=lambda each: (each.at, each.id))
                view.delete(EVENTS, event)
                run = run if target is None else replace(run, mailbox=run.mailbox - 1)
                return append(view, run, taken(wait.address, wait.name, wait.digest, event))
        for awaited in wait.runs:
            other = view.run(awaited)
            if other is None or other.ended:
                value = ended_value(view, awaited, other)
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

    def _queue(self, view: View, run: Run, call: QueuedCall, *, retried: bool) -> Run:
        # Executions that drivers made themselves, and lost, have no rows: the first that has one may have any number.
        if view.probe(WORK, (run.id, call.address, call.attempt)) is not None or retried:
            attempts: list[Work] = [work for work in view.find(AllWork(run.id)) if work.node == call.address]
            latest = max(attempts, key=attrgetter("attempt"), default=None)
            if latest is not None and latest.status not in GAVE_UP and latest.status != CANCELLED:
                return run  # K8
            # The run had failed, which ended its calls, and was retried, or a cancel ended one that a rollback makes
            # again. (A failure that it was told of is recorded.)
            call = replace(call, attempt=max(call.attempt, 0 if latest is None else latest.attempt + 1))
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
        if run.status == CANCELLING:  # I10: it has had its last turn, whatever its code makes of that
            return self.lifecycle.complete(
                view, CompleteWork(run=op.run, node=op.node, attempt=op.attempt, token=op.token)
            )
        run = close(view, run, None)
        for sequence in _unseen(run, op.known):  # its code has not seen these, and never will
            run = self._give_back(view, run, sequence)
        if op.rollbacks:
            names = ", ".join(each.name for each in op.rollbacks)
            run = append(view, run, Entry(address="", kind=ROLLBACKS, name=names, value=rollback_bytes(op.rollbacks)))
        began = Entry(
            address="",
            kind=CONTINUED,
            name=op.workflow,
            digest=f"{run.id}|{run.entries + 1}",  # I56: what its chance depends on; older versions left it empty
            value=op.input,
            codec=op.codec,
        )
        run = append(view, run, began)
        run = replace(run, base=run.entries)
        view.put(RUNS, end_calls(view, run, None) if run.active > 1 else run)
        return Settled(verdict=RECORDED, run_status=run.status)


def _unseen(run: Run, known: int) -> range:
    """The entries that were written since a driver looked; refused if that would be counted up to for ever."""
    if run.entries - known > MOST_UNSEEN:
        raise RunError(
            f"run {run.id} says that it has {run.entries} entries, and its driver has seen {known}",
            hint="somebody changed the row: cancel the run, or correct the column entries",
        )
    return range(known + 1, run.entries + 1)


def _failed(wait: OpenWait, error: bytes) -> Entry:
    return Entry(address=wait.address, kind=FAILURE, name=wait.name, digest=wait.digest, value=error)


def _child_entry(entry: Entry, others: dict[str, str], refused: dict[str, bytes]) -> Entry:
    """What a call that starts a child and does not wait for it has to tell: the run that there is, or the failure."""
    if entry.kind != RESULT or entry.codec != CHILD_CODEC:
        return entry
    run = (entry.value or b"").decode()
    if run in refused:
        return replace(entry, kind=FAILURE, value=refused[run], codec="json")
    return replace(entry, value=others.get(run, run).encode())


def _identity(entry: Entry) -> str:
    """What an entry is found again by: its address, or what it says of the whole function."""
    return entry.address or f"{entry.kind} {entry.name}"


__all__ = ["FunctionOperations"]
