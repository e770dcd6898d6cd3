"""The rows of every table, as frozen values, and what the View must know about each table.

A row changes by replacement (`msgspec.structs.replace`), so undoing an operation is putting the old
value back. Times are integer microseconds of the database's clock. `key` names the columns that
identify a row; `run` tells to which run it belongs, because a commit that writes any row of a run
bumps that run's version (K4).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

Key = tuple[Any, ...]


class Row(msgspec.Struct, frozen=True, gc=False):
    """Base of all rows; exists for typing only."""


R = TypeVar("R", bound=Row)

PENDING, RUNNING, SUSPENDED, PAUSED = "pending", "running", "suspended", "paused"
CANCELLING, COMPLETED, FAILED, CANCELLED = "cancelling", "completed", "failed", "cancelled"
RUN_STATUSES = (PENDING, RUNNING, SUSPENDED, PAUSED, CANCELLING, COMPLETED, FAILED, CANCELLED)
ENDED = frozenset({COMPLETED, FAILED, CANCELLED})

BLOCKED, READY, LEASED = "blocked", "ready", "leased"
TIMED_OUT, LOST, SKIPPED, DEAD = "timed_out", "lost", "skipped", "dead"
WORK_STATUSES = (BLOCKED, READY, LEASED, COMPLETED, FAILED, TIMED_OUT, LOST, CANCELLED, SKIPPED, DEAD)
OPEN_WORK = frozenset({BLOCKED, READY, LEASED})
SATISFIED = frozenset({COMPLETED, SKIPPED})
GAVE_UP = frozenset({FAILED, TIMED_OUT, DEAD})

# A job of a graph that was built at run time, and a call of a function that goes through this table: there is no
# workflow that a worker must know, the action is enough.
NODE, JOB, CALL = "node", "job", "call"
# Of a decider's instance: a side effect, an input that is due later, inputs that wait to be applied. And a projection.
EFFECT, TIMER, INBOX, PROJECTION = "effect", "timer", "inbox", "projection"
# Of a flow: what gathers its parallel branches, a time that it waits for, a run that it started and waits for, events;
# and a completion that is recorded, and that has still to be planned by somebody with the code for it.
BARRIER, SLEEP, CHILD, WAIT, SETTLE = "barrier", "sleep", "child", "wait", "settle"
# A timer and an inbox are one row each for as long as the instance lives, a projection is one: set anew in place.
SET_IN_PLACE = frozenset({TIMER, INBOX, PROJECTION})
# What an instance's last decision asked for still happens after its end (I34).
SETTLES_AFTER_END = frozenset({EFFECT, TIMER, INBOX})
ACTION_ENOUGH = frozenset({JOB, CALL})
BROUGHT_BY_TIME = frozenset({TIMER, SLEEP})

NO_SLOT = -2  # of a value that is in one piece

# An event waits to be taken, belonged to a run that has ended, or is a dead letter.
QUEUED_EVENT, ORPHANED, DEAD_EVENT = "queued", "orphaned", "dead"

# Why a ready item is not claimable yet. The claim index holds only GATE_OPEN rows, so neither a
# hundred thousand delayed items nor a paused run slows a claim down.
GATE_OPEN, GATE_DUE, GATE_PAUSED = 0, 1, 2


class Run(Row, frozen=True, gc=False):
    """One execution of a workflow."""

    id: str
    workflow: str
    model: str
    key: str | None = None
    status: str = PENDING
    version: int = 1
    input: bytes = b""
    codec: str = "json"
    input_digest: str = ""
    result: bytes | None = None
    error: bytes | None = None
    definition: str | None = None  # the stored graph it follows; None: its code's
    on_failure: str = "fail"
    parent: str | None = None
    queue: str = "default"
    priority: int = 0
    tags: str = "{}"
    # Of a decider: how many inputs it has accepted; of a graph: marks its latest checkpoint; of a DAG without a
    # signature: the one that it had, as a number.
    token: int = 0
    awaited: bool = False
    superseded: bool = False
    remaining: int = 0  # nodes that are not terminal yet; of a function, what it waits for; of a decider, open effects
    active: int = 0  # work items ready or leased
    gave_up: int = 0  # nodes whose latest attempt gave up
    entries: int = 0  # history entries written so far
    reason: str | None = None
    # When it was to begin at the earliest. Of a graph: how many items of its step were let in; of a decider: when the
    # last of its inputs was queued.
    due: int = 0
    created: int = 0
    started: int | None = None
    finished: int | None = None
    updated: int = 0
    signature: str | None = None  # of the graph that its counts agree with; None: they must be made to agree first
    adopted: int = 0  # when the code was first seen that shaped it: only code that was seen later may reshape it
    # The entry after which a function's history begins: it went on as another call there. Of a decider, the length of
    # its stream; of a projection, the position up to which it has seen everything; of a graph, its latest step.
    base: int = 0
    mailbox: int = 0  # events that were sent to it and that it has not taken
    depth: int = 0  # how many runs there are above it that started each other, detached ones too

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class Work(Row, frozen=True, gc=False):
    """A claimable piece of work: one attempt of a node, an effect, a barrier or a turn."""

    run: str
    node: str
    attempt: int
    workflow: str
    kind: str = NODE
    name: str = ""  # the registered action, or workflow.node for a method of the workflow itself
    status: str = BLOCKED
    required: int = 1
    completed: int = 0
    token: int = 0
    queue: str = "default"
    priority: int = 0
    gate: int = GATE_OPEN
    due: int = 0
    timeout: int | None = None  # microseconds an attempt may take
    policy: str | None = None  # retry numbers given for this run alone, as JSON; else the code's
    worker: str | None = None
    payload: bytes | None = None
    codec: str = "json"
    result: bytes | None = None
    error: bytes | None = None
    outcome: bytes | None = None
    parents: str | None = None  # hash of the parents' attempts that this one follows
    ancestry: str | None = None
    failures: int = 0  # attempts that used the retry budget
    losses: int = 0  # leases lost in a row without anything recorded
    created: int = 0
    started: int | None = None
    finished: int | None = None


class History(Row, frozen=True, gc=False):
    """An entry of a run's append-only record."""

    run: str
    sequence: int
    kind: str
    at: int
    data: bytes = b"{}"
    codec: str = "json"


class Wait(Row, frozen=True, gc=False):
    """Something a suspended run waits for; `topic` is the event name."""

    run: str
    slot: int
    topic: str
    since: int = 0
    address: str = ""  # which of the run's waits: its other rows go with it
    name: str = ""
    digest: str = ""


class Event(Row, frozen=True, gc=False):
    """An event that nobody has consumed yet: for one run, or for whoever waits for its name."""

    id: str
    name: str
    target: str | None = None
    payload: bytes = b"null"
    codec: str = "json"
    at: int = 0
    expires: int | None = None
    status: str = QUEUED_EVENT
    on_target_end: str = "discard"
    reason: str | None = None


class Input(Row, frozen=True, gc=False):
    """The id of an event or command that was taken: it applies once (I12). `scope` is a run, or a topic."""

    scope: str
    id: str
    run: str | None = None
    answer: str = ""
    at: int = 0


class Fact(Row, frozen=True, gc=False):
    """An event of a decider's instance. `position` is given by the store, in the order of commits (I36)."""

    run: str
    sequence: int
    workflow: str
    key: str
    type: str
    version: int = 1
    at: int = 0
    data: bytes = b"{}"
    codec: str = "json"
    system: bool = False  # a record of the engine's own (TimerCancelled), never given to `evolve` (I33)
    cause: str = ""  # which input it came from: the submission, the effect or the timer
    position: int = 0


class Snapshot(Row, frozen=True, gc=False):
    """An instance's state, folded up to an event. A memory aid: it may be deleted at any time (I38)."""

    run: str
    sequence: int
    state: bytes
    codec: str = "json"
    code: str = ""  # digest of the code that folded it: another one folds anew
    at: int = 0


class Observation(Row, frozen=True, gc=False):
    """That an instance was given an input, and what came of it."""

    run: str
    number: int
    workflow: str
    type: str
    at: int = 0
    payload: bytes | None = None
    codec: str = "json"
    source: str = "command"  # or effect, timer, inbox
    command: str | None = None
    outcome: str = "applied"  # or ignored, duplicate
    before: str | None = None
    after: str | None = None


class Value(Row, frozen=True, gc=False):
    """A value that a flow's code after a node will need: the seed's inbox. The last one written counts."""

    run: str
    node: str
    variable: str
    slot: int  # a place in a sequence that is kept in pieces, or in what a barrier gathers; NO_SLOT: none
    value: bytes
    source: str = ""


class Checkpoint(Row, frozen=True, gc=False):
    """What a state graph had become after a step, and what runs next. Step 0 is what it began with."""

    run: str
    step: int
    whole: bool  # else `state` is what changed since the step before
    state: bytes
    digest: str  # of the whole state
    frontier: bytes
    key: str  # of this very step with this very state and frontier: a repeated commit is the same one (I44)
    label: str | None = None  # those of the nodes that ran, each between line breaks
    at: int = 0
    totals: bytes = b"[]"


class Recorded(Row, frozen=True, gc=False):
    """A call to the outside world that a node of a state graph made, or a question that it asks a person."""

    run: str
    node: str
    attempt: int  # the one that made the first call; attempts that were lost go on with its records
    call: int
    name: str
    kind: str = "call"  # or interrupt
    request: bytes = b"null"
    request_hash: str = ""
    response: bytes | None = None  # of a question that nobody has answered yet: none
    response_hash: str | None = None
    error: bytes | None = None
    at: int = 0
    duration: int = 0


class Hold(Row, frozen=True, gc=False):
    """Maintenance mode, or a workflow being drained: what must not be claimed, or not be started."""

    scope: str  # "all", "workflow", "queue" stop claims; "drain" stops starts of a workflow
    name: str
    by: str = ""
    since: int = 0


class Definition(Row, frozen=True, gc=False):
    """A graph that is stored for a run, because it was built at run time, frozen or edited. Never changed in place."""

    id: str
    run: str
    signature: str
    nodes: bytes
    by: str = ""
    frozen: int = 0


class Table(Generic[R]):
    """What the View knows of a table: its row type, its key, and the run a row belongs to."""

    __slots__ = ("by_run", "columns", "key", "key_fields", "name", "row", "run")

    def __init__(self, name: str, row: type[R], key: tuple[str, ...], run: str | None) -> None:
        self.name = name
        self.row = row
        self.key_fields = key
        self.by_run = key[0] == run  # the first part of the key is the run's id
        self.columns = row.__struct_fields__
        self.key: Callable[[R], Key] = _attributes(key)
        self.run: Callable[[R], str | None] = _attribute(run)

    def __repr__(self) -> str:
        return f"<table {self.name}>"


def _attributes(names: tuple[str, ...]) -> Callable[[Any], Key]:
    if len(names) > 1:
        return attrgetter(*names)
    (only,) = names  # attrgetter returns a bare value for one name, and keys are always tuples
    return lambda row: (getattr(row, only),)


def _attribute(name: str | None) -> Callable[[Any], str | None]:
    return _no_run if name is None else attrgetter(name)


def _no_run(row: Any) -> None:
    return None


RUNS: Table[Run] = Table("runs", Run, ("id",), "id")
WORK: Table[Work] = Table("work", Work, ("run", "node", "attempt"), "run")
HISTORY: Table[History] = Table("history", History, ("run", "sequence"), "run")
WAITS: Table[Wait] = Table("waits", Wait, ("run", "slot"), "run")
EVENTS: Table[Event] = Table("events", Event, ("id",), "target")
DEFINITIONS: Table[Definition] = Table("definitions", Definition, ("id",), "run")
INPUTS: Table[Input] = Table("inputs", Input, ("scope", "id"), "run")
HOLDS: Table[Hold] = Table("holds", Hold, ("scope", "name"), None)
STREAM: Table[Fact] = Table("stream", Fact, ("run", "sequence"), "run")
SNAPSHOTS: Table[Snapshot] = Table("snapshots", Snapshot, ("run",), "run")
OBSERVATIONS: Table[Observation] = Table("observations", Observation, ("run", "number"), "run")

VALUES: Table[Value] = Table("inbox", Value, ("run", "node", "variable", "slot"), "run")
CHECKPOINTS: Table[Checkpoint] = Table("checkpoints", Checkpoint, ("run", "step"), "run")
RECORDED: Table[Recorded] = Table("recorded", Recorded, ("run", "node", "attempt", "call"), "run")

# Whatever was there before under the key: the run's version guards it.
PUT_IN_PLACE: tuple[Table[Any], ...] = (SNAPSHOTS, VALUES, RECORDED)

TABLES: tuple[Table[Any], ...] = (
    *(RUNS, WORK, HISTORY, WAITS, EVENTS, HOLDS, DEFINITIONS, INPUTS, STREAM, SNAPSHOTS, OBSERVATIONS, VALUES),
    *(CHECKPOINTS, RECORDED),
)
