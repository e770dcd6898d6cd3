"""How something reaches a function: an entry in its history, the end of the wait it answers, and a turn that is ready.

All of it under the run's lock and in one transaction. Whoever ends a run uses this for those who wait for its end.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.core.ahead import starts_at
from holdfast.core.function_operations import (
    ENDED_RUN,
    FAILURE,
    FORGOTTEN,
    TURN,
    Entry,
    Numbered,
    end_topic,
    entry_bytes,
    entry_of,
)
from holdfast.core.queries import Attempts, EventsFor, HistoryPage, OpenWork, WaitersOf, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CALL,
    CANCELLED,
    CANCELLING,
    COMPLETED,
    DEAD_EVENT,
    EVENTS,
    FAILED,
    GATE_DUE,
    GATE_OPEN,
    GATE_PAUSED,
    HISTORY,
    LEASED,
    ORPHANED,
    PAUSED,
    READY,
    RUNNING,
    RUNS,
    SUSPENDED,
    WAITS,
    WORK,
    History,
    Run,
    Wait,
    Work,
)
from holdfast.core.stored import read_stored, stored_number
from holdfast.core.view import View

ENTRY_CODEC = "entry"
MOST_BEHIND_A_FAILURE = 1_000  # entries: what was asked for beside it, and came in with it or soon after


class RunEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a run ended, as those who waited for it are told."""

    run: str
    status: str
    result: bytes | None = None
    codec: str = "json"
    error: bytes | None = None
    workflow: str = ""
    went_on_as: str = ""  # of a function: the workflow that it went on as, which the result is of


_decode_end = msgspec.msgpack.Decoder(RunEnd).decode


def gate_for(run: Run, due: int, now: int) -> int:
    if run.status == PAUSED:
        return GATE_PAUSED
    return GATE_DUE if due > now else GATE_OPEN


def append(view: View, run: Run, entry: Entry, at: int | None = None) -> Run:
    """Write the next entry of the run's history. The caller writes the run."""
    sequence = run.entries + 1
    at = view.now if at is None else at
    view.insert(HISTORY, History(run.id, sequence, entry.kind, at, entry_bytes(entry), ENTRY_CODEC))
    return replace(run, entries=sequence)


def numbered(row: History) -> Numbered:
    return Numbered(row.sequence, row.at, entry_of(row.data))


def deliver(view: View, run: Run, entry: Entry) -> Run:
    """Exactly one winner: the entry is written, its wait and whatever else it waited for go, and the turn is ready."""
    if run.model == "flow":  # which has no history, but an item that waits
        from holdfast.models.flow_waits import answer_flow

        return answer_flow(view, run, entry)
    run = close(view, run, frozenset({entry.address}))
    return wake(view, append(view, run, entry))


def close(view: View, run: Run, addresses: frozenset[str] | None) -> Run:
    """These waits of the run are over; None: all of them. The caller writes the run."""
    if run.remaining == 0:
        return run  # it waits for nothing: no need to look
    for wait in view.find(WaitsOf(run.id)):
        if addresses is None or wait.address in addresses:
            view.delete(WAITS, wait)
            run = replace(run, remaining=run.remaining - 1)
    return run


def end_calls(view: View, run: Run, nodes: frozenset[str] | None) -> Run:
    """Nobody waits for these calls in the work table any more; None: for all of them. The caller writes the run."""
    for work in view.find(OpenWork(run.id)):
        if work.kind == CALL and (nodes is None or work.node in nodes):
            run = replace(run, active=run.active - (work.status in (READY, LEASED)))
            view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, finished=view.now))
    return run


def turn_of(view: View, run: Run) -> Work | None:
    attempts: list[Work] = view.find(Attempts(run.id, frozenset({TURN})))
    return attempts[-1] if attempts else None


def wake(view: View, run: Run, *, fence: bool = False) -> Run:
    """The turn can be taken now. With `fence` also from an owner: what it still says is refused (K3)."""
    turn = turn_of(view, run)
    if turn is not None and turn.status in (BLOCKED, READY, LEASED):
        if turn.status == BLOCKED:
            run = replace(run, active=run.active + 1)
        if fence:
            turn = replace(turn, token=turn.token + 1)
        if turn.status != LEASED or fence:
            if run.status == SUSPENDED:
                run = replace(run, status=RUNNING)
            # A turn that was claimed ahead of its time may have recorded that this has come: nobody is told before.
            due = starts_at(turn.due, view.now) if turn.status == LEASED else view.now
            turn = replace(turn, status=READY, worker=None, due=due, gate=gate_for(run, due, view.now))
            view.put(WORK, turn)
    view.put(RUNS, run)
    return run


def forget_failure(view: View, turn: Work) -> None:
    """A function ended with the failure of a call or a child, and is tried again: so is the call, the child looked at.

    What came in behind that was asked for before: results stay, and what failed too is tried again too. Where the
    function did something about a failure, what it did is recorded, and stays: it fails again as it did.
    """
    if turn.parents is None:
        return
    cause = stored_number(turn.parents, f"column parents of {turn.node}")
    rows: list[History] = view.find(HistoryPage(turn.run, cause - 1, MOST_BEHIND_A_FAILURE))
    if rows and rows[0].sequence == cause and _is_failure(rows[0]):
        for row in filter(_is_failure, rows):
            view.put(HISTORY, replace(row, kind=FORGOTTEN))


def _is_failure(row: History) -> bool:
    if row.kind == ENDED_RUN:
        return read_stored(_decode_end, entry_of(row.data).value or b"", "the end of a run").status == FAILED
    return row.kind == FAILURE


def park(view: View, run: Run, turn: Work, due: int | None) -> Run:
    """The function waits: nobody holds its turn, and it comes back when it is woken, or at `due`."""
    if due is None:
        parked = replace(turn, status=BLOCKED, worker=None, started=None, losses=0)  # I6: this turn was not lost
        run = replace(run, active=run.active - 1)
    else:
        gate = GATE_DUE if due > view.now else GATE_OPEN
        gate = gate if run.status != PAUSED else gate_for(run, due, view.now)
        parked = replace(turn, status=READY, worker=None, started=None, due=due, gate=gate, losses=0)
    view.put(WORK, parked)
    run = run if run.status in (PAUSED, CANCELLING) else replace(run, status=SUSPENDED)
    view.put(RUNS, run)
    return run


def ended_value(view: View, run_id: str, run: Run | None) -> bytes:
    """What is told of a run that has ended, or that never was."""
    if run is None:
        return msgspec.msgpack.encode(RunEnd(run=run_id, status="not found"))
    end = RunEnd(
        run=run.id, status=run.status, result=run.result, codec=run.codec, error=run.error, workflow=run.workflow
    )
    if run.model == "function" and run.base and run.status == COMPLETED:
        row: History | None = view.get(HISTORY, (run.id, run.base))
        end = replace(end, went_on_as="" if row is None else entry_of(row.data).name)
    return msgspec.msgpack.encode(end)


def empty_mailbox(view: View, run: Run) -> Run:
    """The run has ended: what becomes of the events that it never took. The caller writes the run.

    One that would be discarded is kept while the run has merely failed: a retry finds what was sent to it (I48).
    """
    kept = 0
    for event in view.find(EventsFor(run.id)) if run.mailbox else ():
        if event.on_target_end == "broadcast":
            view.put(EVENTS, replace(event, status=ORPHANED, target=None, reason=f"run {run.id} ended"))
        elif event.on_target_end == "dead":
            view.put(EVENTS, replace(event, status=DEAD_EVENT, reason=f"run {run.id} ended before it took this"))
        elif run.status == FAILED:
            kept += 1
        else:
            view.delete(EVENTS, event)
    return replace(run, mailbox=kept)


def tell_waiters(view: View, run: Run) -> list[str]:
    """The run has ended: whoever waits for that gets it. No waiter can be added while this run is locked.

    The DAGs among them: the caller settles those that nothing can move even so.
    """
    dags: dict[str, None] = {}
    waits: list[Wait] = view.find(WaitersOf(end_topic(run.id)))
    for wait in waits:
        waiter = view.run(wait.run)
        if waiter is None or waiter.ended:
            view.delete(WAITS, wait)
            continue
        if waiter.model != "function":
            _release(view, waiter, wait)
            dags[waiter.id] = None
            continue
        entry = Entry(
            address=wait.address,
            kind=ENDED_RUN,
            name=wait.name,
            digest=wait.digest,
            value=ended_value(view, run.id, run),
            source=run.id,
        )
        deliver(view, waiter, entry)
    return list(dags)


def hold_for_runs(view: View, run: Run, key: tuple[str, str, int], others: tuple[str, ...]) -> Run:
    """Block an attempt of a node that was just made ready until these runs have ended; those that have do not count."""
    open_runs = [row for row in map(view.run, others) if row is not None and not row.ended]
    work = view.get(WORK, key)
    if not open_runs or work is None:
        return run
    slots = max((wait.slot for wait in view.find(WaitsOf(run.id))), default=0)
    for slot, other in enumerate(open_runs, slots + 1):
        view.put(RUNS, replace(other, awaited=True))
        topic = end_topic(other.id)
        view.insert(WAITS, Wait(run=run.id, slot=slot, topic=topic, since=view.now, address=work.node))
    if work.status == READY:
        view.put(WORK, replace(work, status=BLOCKED))
        run = replace(run, active=run.active - 1)
        view.put(RUNS, run)
    return run


def wait_no_more(view: View, run: str, node: str | None = None) -> None:
    """A node of a DAG waits for no other run any more; None: no node of it does."""
    for wait in view.find(WaitsOf(run)):
        if node is None or wait.address == node:
            view.delete(WAITS, wait)


def _release(view: View, run: Run, wait: Wait) -> None:
    """A run that a node waited for has ended: with the last of them, and of its parents, the node can start."""
    view.delete(WAITS, wait)
    if any(other.address == wait.address for other in view.find(WaitsOf(run.id))):
        return
    attempts: list[Work] = view.find(Attempts(run.id, frozenset({wait.address})))
    if attempts and attempts[-1].status == BLOCKED and attempts[0].completed >= attempts[0].required:
        ready = replace(attempts[-1], status=READY, due=view.now, gate=gate_for(run, view.now, view.now))
        view.put(WORK, ready)
        status = RUNNING if run.status == SUSPENDED else run.status
        view.put(RUNS, replace(run, active=run.active + 1, status=status))
