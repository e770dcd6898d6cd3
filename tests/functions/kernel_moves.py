"""Durable functions as the kernel sees them: operations in short, and what rows must never say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from holdfast.core.function_operations import (
    ENTRY_KINDS,
    EVENT,
    RESULT,
    TIMER,
    TURN,
    BroadcastEvent,
    ContinueAs,
    Entry,
    OpenWait,
    QueuedCall,
    SendEvent,
    TakeTurn,
    end_topic,
    entry_of,
    event_topic,
    sent_id,
)
from holdfast.core.operations import CancelRun, CompleteWork, FailWork, Offer, StartRun
from holdfast.core.rows import LEASED, READY
from holdfast.store.contract import ClaimRequest
from tests.support.stores import EPOCH_US, SECOND

WORKFLOW = "function"
ACTION = "act"
LATER = EPOCH_US + 10 * SECOND
ERROR = b'{"type":"ValueError","message":"no"}'
NOTHING_DONE = "0#9"


def start(run: str, *, lease: bool = True, **fields: Any) -> StartRun:
    """A function's start; its turn is leased to the worker w at once, with token 1."""
    offer = Offer(worker="w", room=1, queues=("default",)) if lease else None
    return StartRun(run=run, workflow=WORKFLOW, model="function", offer=offer, **fields)


def turn(run: str, *, known: int = 0, token: int = 1, attempt: int = 1, **said: Any) -> TakeTurn:
    return TakeTurn(run=run, node=TURN, attempt=attempt, token=token, known=known, **said)


def wait(address: str, *events: str, runs: tuple[str, ...] = ()) -> OpenWait:
    return OpenWait(address=address, name="wait", digest="d", events=events, runs=runs)


def suspend(
    run: str, *events: str, runs: tuple[str, ...] = (), due: int | None = None, address: str = "0#1", **at: Any
) -> TakeTurn:
    """The function waits for the first of these, and its turn is parked with that."""
    return turn(run, opens=(wait(address, *events, runs=runs),), park=True, due=due, **at)


def result(address: str) -> Entry:
    return Entry(address=address, kind=RESULT, name=ACTION, digest="d", value=b"1")


def time_comes(run: str, *, known: int = 0, token: int = 2, address: str = "0#1") -> TakeTurn:
    """The deadline of a wait, recorded by who drives the function."""
    fired = Entry(address=address, kind=TIMER, name="wait", digest="d")
    return turn(run, known=known, token=token, entries=(fired,), closes=(address,))


def queued_call(address: str, queue: str = "default") -> QueuedCall:
    return QueuedCall(address=address, action=ACTION, name=ACTION, digest="d", queue=queue, payload=b"[]", codec="json")


def send(run: str, event: str, name: str, **fields: Any) -> SendEvent:
    return SendEvent(run=run, event=event, name=name, payload=f'"{event}"'.encode(), **fields)


def broadcast(event: str, name: str, **fields: Any) -> BroadcastEvent:
    return BroadcastEvent(event=event, name=name, payload=f'"{event}"'.encode(), **fields)


def cancel(run: str, *, force: bool = False) -> CancelRun:
    return CancelRun(run=run, force=force, by="ann")


def returns(run: str, *, token: int = 1, node: str = TURN) -> CompleteWork:
    return CompleteWork(run=run, node=node, attempt=1, token=token, result=b"1")


def raises(run: str, *, token: int = 1, node: str = TURN) -> FailWork:
    return FailWork(run=run, node=node, attempt=1, token=token, error=ERROR)


def goes_on(run: str, *, known: int = 0, token: int = 1) -> ContinueAs:
    return ContinueAs(
        run=run, node=TURN, attempt=1, token=token, known=known, workflow=WORKFLOW, input=b"[]", codec="json"
    )


def claim_functions(worker: str = "w", queue: str = "default", limit: int = 100) -> ClaimRequest:
    return ClaimRequest(worker=worker, queue=queue, limit=limit, workflows=(WORKFLOW,), actions=(WORKFLOW, ACTION))


# --- what is stored ------------------------------------------------------------------------------------------------


def entries_of(rows: dict[str, list[Any]], run: str) -> list[Entry]:
    """What entered a function, in order."""
    return [entry_of(row.data) for row in rows["history"] if row.run == run and row.kind in ENTRY_KINDS]


def whereabouts(rows: dict[str, list[Any]], event: str, run: str | None = None) -> list[str]:
    """Where an event is: in the histories that these runs go on from, in their mailboxes, or stored for anybody."""
    base = {row.id: row.base for row in rows["runs"]}
    current = [row for row in rows["history"] if row.kind == EVENT and row.sequence > base[row.run]]
    found = [row.run for row in current if entry_of(row.data).source == event]
    found += ["stored" if row.target is None else row.target for row in rows["events"] if sent_id(row.id) == event]
    return [place for place in found if run is None or place in (run, "stored")]


def unsound(rows: dict[str, list[Any]]) -> list[str]:
    """What no sequence of operations may leave behind, whatever its results were."""
    wrong = []
    for run in rows["runs"]:
        of_run = {name: [row for row in rows[name] if row.run == run.id] for name in ("work", "history", "waits")}
        mailbox = [event for event in rows["events"] if event.target == run.id and event.status == "queued"]
        active = [work for work in of_run["work"] if work.status in (READY, LEASED)]
        counts = {
            "active": (run.active, len(active)),
            "waits": (run.remaining, len(of_run["waits"])),
            "entries": (run.entries, len(of_run["history"])),
            "events": (run.mailbox, len(mailbox)),
        }
        wrong += [
            f"{run.id} ({run.status}) counts {said} {name} and has {found}"
            for name, (said, found) in counts.items()
            if said != found
        ]
        wrong += _of_one(run, of_run["work"], of_run["waits"], of_run["history"])
        twice = [address for address, times in _answers(rows, run).items() if times > 1]
        wrong += [f"{run.id}: {address} was answered more than once" for address in twice]
    wrong += waiting_in_vain(rows)
    known = {run.id for run in rows["runs"]}
    wrong += [
        f"{row.run} has {name} and does not exist"
        for name in ("work", "waits")
        for row in rows[name]
        if row.run not in known
    ]
    return wrong


def waiting_in_vain(rows: dict[str, list[Any]]) -> list[str]:
    """G5: who waits for what is there already, an event that does not expire or a run that has ended."""
    there = {
        (row.target, event_topic(row.name)) for row in rows["events"] if row.status == "queued" and not row.expires
    }
    ended = {end_topic(run.id) for run in rows["runs"] if run.ended}
    return [
        f"{row.run} waits for {row.topic}, which is there"
        for row in rows["waits"]
        if (row.run, row.topic) in there or (None, row.topic) in there or row.topic in ended
    ]


def _answers(rows: dict[str, list[Any]], run: Any) -> Counter[tuple[int, str]]:
    """How often each address was answered; going on as another call begins to count anew."""
    times: Counter[tuple[int, str]] = Counter()
    life = 0
    for entry in entries_of(rows, run.id):
        life += entry.kind == "continued"
        if entry.address:
            times[(life, entry.address)] += 1
    return times


def _of_one(run: Any, work: list[Any], waits: list[Any], history: list[Any]) -> Iterable[str]:
    turns = [item for item in work if item.node == TURN]
    if run.ended:
        yield from (
            f"{run.id} is {run.status} and has {item.node} {item.status}"
            for item in work
            if item.status in ("blocked", READY, LEASED)
        )
        if waits:
            yield f"{run.id} is {run.status} and still waits"
    elif len([item for item in turns if item.status in ("blocked", READY, LEASED)]) != 1:
        yield f"{run.id} is {run.status} and its turns are {[item.status for item in turns]}"
    answered = {entry_of(row.data).address for row in history if row.kind in ENTRY_KINDS and row.sequence > run.base}
    yield from (f"{run.id} waits at {row.address}, which was answered" for row in waits if row.address in answered)
