"""Operations of durable functions and events: what a function says in its turn, and what reaches it from outside.

A function's run has one work item, its *turn*. Whoever holds the turn's lease drives the function. Everything that
enters the function is an entry of the run's history, with one order; the driver delivers entries one by one (I49).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from holdfast.core.ids import hashed
from holdfast.core.operations import Operation, RunOperation, StartRun, WorkOperation
from holdfast.core.stored import read_stored

TURN = "turn"  # the node of a function's one work item, and its kind

# What an entry is about.
RESULT, FAILURE, TIMER, EVENT, ENDED_RUN, CANCEL, CONTINUED, PATCH = (
    "result",
    "failure",
    "timer",
    "event",
    "ended",
    "cancel",
    "continued",
    "patch",
)
REFUSED = "refused"  # an event that was not of the type that the code waits for: it is not delivered any more
CHILD_CODEC = "text"  # of the result of a call that starts a run and does not wait for it: the run's id
FORGOTTEN = "forgotten"  # a failure that an operator had tried again: it is not delivered any more
ROLLBACKS = "rollbacks"  # what the next call inherits: just before the entry that it begins with
ENTRY_KINDS = frozenset({RESULT, FAILURE, TIMER, EVENT, ENDED_RUN, CANCEL, CONTINUED, PATCH})


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Something that enters a function, as its history keeps it: where, what was asked for, and what came of it."""

    address: str
    kind: str
    name: str = ""
    digest: str = ""
    value: bytes | None = None
    codec: str = "json"
    event: str = ""  # the name of the event
    source: str = ""  # the event's id, or the run that ended


class Numbered(msgspec.Struct, frozen=True, gc=False):
    """An entry with its place in the history, and the run's time then."""

    sequence: int
    at: int
    entry: Entry


class OpenWait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A wait of the function: for the first of these. Its deadline is the turn's, and the driver's to see."""

    address: str
    name: str
    digest: str
    events: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


class QueuedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An action call for the work table: on another queue, or a retry that waits for its time."""

    address: str
    action: str
    name: str
    digest: str
    queue: str
    payload: bytes
    codec: str
    due: int = 0
    timeout: int | None = None
    policy: str | None = None
    attempt: int = 1
    failures: int = 0
    error: bytes | None = None


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """An event that the function cannot take, because it is not of the type that its code waits for."""

    sequence: int  # of the entry that brought it
    reason: str


class TakeTurn(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """All that a function's driver has to say at once: what came in, what it asks for, and whether it now waits.

    `known` is the last entry that the driver has delivered. Identity: the token of the turn, and for entries their
    addresses.
    """

    concerns_all: ClassVar[bool] = False
    known: int
    entries: tuple[Entry, ...] = ()
    calls: tuple[QueuedCall, ...] = ()
    opens: tuple[OpenWait, ...] = ()
    closes: tuple[str, ...] = ()  # addresses of waits that are over: their time came, or the code gave them up
    children: tuple[StartRun, ...] = ()
    refuses: tuple[Refusal, ...] = ()  # what came in and was not let in: dead letters, and their waits open again
    withdraws: tuple[str, ...] = ()  # nodes of calls in the work table that the code gave up: nobody makes them now
    unread: tuple[int, ...] = ()  # entries whose events the code had given up: they go back to the run's queue
    park: bool = False
    due: int | None = None  # when a parked function has to be woken at the latest
    ahead: bool = False  # the turn was claimed ahead of its time, and what came in is of then: it is told then
    python: str = ""  # of the driver: the run keeps the version that its history begins with

    @property
    def locked(self) -> bool:  # type: ignore[override]  # it depends on what is asked for
        return bool(self.opens or self.closes or self.withdraws or self.children or self.refuses or self.unread)

    @property
    def runs(self) -> tuple[str, ...]:
        if not self.opens and not self.children:  # the ordinary step of a function: asked for several times in each
            return (self.run,)
        awaited = {run for wait in self.opens for run in wait.runs}
        return (self.run, *sorted(awaited | {child.run for child in self.children}))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({event_topic(name) for wait in self.opens for name in wait.events}))

    @property
    def wakes(self) -> tuple[str, ...]:
        return ()

    @property
    def ordered_by(self) -> tuple[str, ...]:
        if not self.opens and not self.children:
            return (self.run,)
        return (*self.runs, *self.topics, *(name for child in self.children for name in child.ordered_by))

    @property
    def may_reach_out(self) -> bool:
        return any(child.may_reach_out for child in self.children)


class Rollback(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """An action to be called if the run fails or is cancelled, as the call that registered it left it to the next."""

    name: str
    input: bytes
    codec: str


class ContinueAs(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The function goes on as another call, with a fresh history and the same run. Identity: what it knew."""

    known: int
    workflow: str
    input: bytes
    codec: str
    rollbacks: tuple[Rollback, ...] = ()  # those of the call that ends, and of all before it


class SendEvent(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """An event for one run. Identity: its id."""

    event: str
    name: str
    payload: bytes = b"null"
    codec: str = "json"
    expires: int | None = None  # microseconds from now
    on_target_end: str = "discard"


class BroadcastEvent(Operation, frozen=True, kw_only=True, gc=False, tag=True):
    """An event for whoever waits longest for its name, or for all who wait. Identity: its id, within its name."""

    locked: ClassVar[bool] = True
    event: str
    name: str
    payload: bytes = b"null"
    codec: str = "json"
    expires: int | None = None
    to_all: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        return (event_topic(self.name),)

    @property
    def wakes(self) -> tuple[str, ...]:
        return ()  # possibly one of very many: found while it is decided, and locked then


class RedeliverEvent(Operation, frozen=True, kw_only=True, gc=False, tag=True):
    """Bring a stored event to whom it may concern: a dead letter that is replayed, or one whose run has ended.

    To its run if that still takes events, else to whoever waits longest for its name; kept until somebody does.
    """

    locked: ClassVar[bool] = True
    event: str  # as it is stored
    name: str
    run: str | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        return () if self.run is None else (self.run,)

    @property
    def topics(self) -> tuple[str, ...]:
        return (event_topic(self.name),)

    @property
    def wakes(self) -> tuple[str, ...]:
        return ()  # as for a broadcast


class DropEvent(Operation, frozen=True, kw_only=True, gc=False, tag=True):
    """Close a stored event that nobody took: a dead letter that is discarded, or one whose time has passed."""

    locked: ClassVar[bool] = True
    event: str
    expired: bool = False


class Stepped(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """What became of a turn: `entries` are all that this operation wrote, in order; `last` is the latest there is."""

    verdict: str
    run_status: str = ""
    parked: bool = False
    last: int = 0
    entries: tuple[Numbered, ...] = ()


class Delivered(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The event reached a function that waited for it (`runs`: all of them, for a broadcast to all)."""

    run_id: str
    runs: tuple[str, ...] = ()


class Queued(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Nobody waits for the event yet: it is kept until somebody does, or until it expires."""

    event_id: str


class TargetEnded(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The run has ended, and takes no more events."""

    status: str


class TargetNotFound(msgspec.Struct, frozen=True, gc=False, tag=True):
    """There is no such run."""


Sent = Delivered | Queued | TargetEnded | TargetNotFound


def event_topic(name: str) -> str:
    """What is locked, and waited for, for events of a name."""
    return f"event:{name}"


def stored_event_id(scope: str, id: str) -> str:
    """The id of an event's row. Ids of senders are theirs within a run or a topic only (I12)."""
    return f"{hashed(scope)[:16]}/{id}"


def sent_id(stored: str) -> str:
    """The id that an event was sent under."""
    scope, slash, id = stored.partition("/")
    return id if slash else scope


def end_topic(run: str) -> str:
    """What is waited for, for the end of a run. It needs no lock of its own: the run's row is the lock."""
    return f"end:{run}"


rollback_bytes: Callable[[tuple[Rollback, ...]], bytes] = msgspec.msgpack.Encoder().encode
_decode_rollbacks = msgspec.msgpack.Decoder(tuple[Rollback, ...]).decode
entry_bytes: Callable[[Entry], bytes] = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def rollbacks_of(entry: Entry) -> tuple[Rollback, ...]:
    return read_stored(_decode_rollbacks, entry.value or b"", "the rollbacks of a run")


def entry_of(data: bytes) -> Entry:
    return read_stored(_decode, data, "an entry of a history")
