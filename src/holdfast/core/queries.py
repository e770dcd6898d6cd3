"""The questions that decisions ask beyond rows found by key. Each store answers each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from holdfast.core.changes import Query
from holdfast.core.rows import (
    CHECKPOINTS,
    DEAD_EVENT,
    DEFINITIONS,
    EVENTS,
    GATE_DUE,
    GATE_OPEN,
    HISTORY,
    HOLDS,
    LEASED,
    OBSERVATIONS,
    OPEN_WORK,
    ORPHANED,
    PAUSED,
    QUEUED_EVENT,
    READY,
    RECORDED,
    RUNS,
    SNAPSHOTS,
    STREAM,
    VALUES,
    WAITS,
    WORK,
    Checkpoint,
    Definition,
    Event,
    Fact,
    History,
    Hold,
    Key,
    Observation,
    Recorded,
    Run,
    Snapshot,
    Table,
    Value,
    Wait,
    Work,
)


class RunByKey(Query, frozen=True, gc=False):
    """The run that holds a key now (a restarted one's predecessor is superseded)."""

    table: ClassVar[Table[Any]] = RUNS
    unique: ClassVar[bool] = True
    workflow: str
    key: str

    def matches(self, row: Run) -> bool:
        return row.key == self.key and row.workflow == self.workflow and not row.superseded


class RunByAlias(RunByKey, frozen=True, gc=False):
    """The run that holds a key under a name that its workflow had before. Read, and never presumed not to exist: the
    run that is then inserted has another name, so the index would prove nothing."""

    unique: ClassVar[bool] = False


class OpenWork(Query, frozen=True, gc=False):
    """Blocked, ready and leased items of a run."""

    table: ClassVar[Table[Any]] = WORK
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Work) -> bool:
        return row.run == self.run and row.status in OPEN_WORK


class AllWork(Query, frozen=True, gc=False):
    """Every attempt of every node of a run."""

    table: ClassVar[Table[Any]] = WORK
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Work) -> bool:
        return row.run == self.run


class Attempts(Query, frozen=True, gc=False):
    """Every attempt of some nodes of a run, oldest first."""

    table: ClassVar[Table[Any]] = WORK
    run: str
    nodes: frozenset[str]

    @property
    def of_run(self) -> str | None:
        return self.run

    @property
    def within(self) -> Query | None:
        return AllWork(self.run)

    def matches(self, row: Work) -> bool:
        return row.run == self.run and row.node in self.nodes

    def pick(self, look_up: Callable[[Key], Any]) -> list[Any]:
        found = []
        for node in self.nodes:
            # Attempts have no gap and are never deleted alone. The first of a function's call may have been made by the
            # driver itself: then they begin with the second. (Or later, if drivers were lost: `_queue` reads all.)
            attempt = 1 if look_up((self.run, node, 1)) is not None else 2
            while (row := look_up((self.run, node, attempt))) is not None:
                found.append(row)
                attempt += 1
        return found


class WaitersOf(Query, frozen=True, gc=False):
    """Who waits for a topic, the longest waiting first. Valid only while the topic is locked."""

    table: ClassVar[Table[Any]] = WAITS
    topic: str
    limit: int | None = None

    def matches(self, row: Wait) -> bool:
        return row.topic == self.topic

    def order(self, row: Wait) -> Any:
        return (row.since, row.run, row.slot)


class WaitsOf(Query, frozen=True, gc=False):
    """What a run waits for."""

    table: ClassVar[Table[Any]] = WAITS
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Wait) -> bool:
        return row.run == self.run


class QueuedEvents(Query, frozen=True, gc=False):
    """Events of a name that nobody has consumed, oldest first: targeted at the run, or broadcast (target None)."""

    table: ClassVar[Table[Any]] = EVENTS
    name: str
    target: str | None
    limit: int | None = None

    def matches(self, row: Event) -> bool:
        return row.name == self.name and row.target == self.target and row.status == QUEUED_EVENT

    def order(self, row: Event) -> Any:
        return (row.at, row.id)


class EventsFor(Query, frozen=True, gc=False):
    """Events that were sent to a run and that it has not taken. Dead letters are not among them."""

    table: ClassVar[Table[Any]] = EVENTS
    run: str

    def matches(self, row: Event) -> bool:
        return row.target == self.run and row.status == QUEUED_EVENT


class StrayEvents(Query, frozen=True, gc=False):
    """Events that somebody must see to: their run has ended, or their time has passed. For those outside a decision."""

    table: ClassVar[Table[Any]] = EVENTS
    now: int
    limit: int

    def matches(self, row: Event) -> bool:
        return row.status == ORPHANED or (
            row.status == QUEUED_EVENT and row.expires is not None and row.expires <= self.now
        )


class StoredEvent(Query, frozen=True, gc=False):
    """An event by the id of its row, for those who are outside a decision."""

    table: ClassVar[Table[Any]] = EVENTS
    id: str

    def matches(self, row: Event) -> bool:
        return row.id == self.id


class DeadEvents(Query, frozen=True, gc=False):
    """Events that nobody could take, oldest first. For those outside a decision."""

    table: ClassVar[Table[Any]] = EVENTS
    limit: int

    def matches(self, row: Event) -> bool:
        return row.status == DEAD_EVENT

    def order(self, row: Event) -> Any:
        return (row.at, row.id)


class DueWork(Query, frozen=True, gc=False):
    """Work that is running, or could be: its time has come and it is not paused. For those outside a decision.

    An open gate says that its time has come, also where this process's idea of the time is a little behind the store's.
    """

    table: ClassVar[Table[Any]] = WORK
    now: int
    limit: int

    def matches(self, row: Work) -> bool:
        if row.status == READY:
            return row.gate == GATE_OPEN or (row.gate == GATE_DUE and row.due <= self.now)
        return row.status == LEASED


class DelayedWork(Query, frozen=True, gc=False):
    """A page of the work that waits for its time, the next first, after a place. For those outside a decision."""

    table: ClassVar[Table[Any]] = WORK
    after: tuple[int, str, str]  # when it is due, its run, its node
    limit: int

    def matches(self, row: Work) -> bool:
        return row.status == READY and row.gate == GATE_DUE and (row.due, row.run, row.node) > self.after

    def order(self, row: Work) -> Any:
        return (row.due, row.run, row.node)


class HistoryPage(Query, frozen=True, gc=False):
    """A page of a run's record, oldest first. In a decision: of the end of the record, which is shorter than it."""

    table: ClassVar[Table[Any]] = HISTORY
    run: str
    after: int
    limit: int

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: History) -> bool:
        return row.run == self.run and row.sequence > self.after


class ChildrenOf(Query, frozen=True, gc=False):
    """Runs that a run has started and that are cancelled with it."""

    table: ClassVar[Table[Any]] = RUNS
    run: str

    def matches(self, row: Run) -> bool:
        return row.parent == self.run


class StreamAfter(Query, frozen=True, gc=False):
    """The events of an instance after a sequence, at most `limit` of them: what its state is folded from."""

    table: ClassVar[Table[Any]] = STREAM
    run: str
    after: int
    limit: int

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Fact) -> bool:
        return row.run == self.run and row.sequence > self.after


class SnapshotOf(Query, frozen=True, gc=False):
    """The snapshot of an instance, for those who are outside a decision."""

    table: ClassVar[Table[Any]] = SNAPSHOTS
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Snapshot) -> bool:
        return row.run == self.run


class ObservationsOf(Query, frozen=True, gc=False):
    """What was observed of an instance's inputs, for those who are outside a decision."""

    table: ClassVar[Table[Any]] = OBSERVATIONS
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Observation) -> bool:
        return row.run == self.run


class ValuesOf(Query, frozen=True, gc=False):
    """Everything that a flow keeps for its nodes."""

    table: ClassVar[Table[Any]] = VALUES
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Value) -> bool:
        return row.run == self.run


class ValuesFor(Query, frozen=True, gc=False):
    """What the elements of a branch wrote to a barrier, in the order of their places."""

    table: ClassVar[Table[Any]] = VALUES
    run: str
    node: str
    variable: str

    @property
    def of_run(self) -> str | None:
        return self.run

    @property
    def within(self) -> Query | None:
        return ValuesOf(self.run)

    def matches(self, row: Value) -> bool:
        return row.run == self.run and row.node == self.node and row.variable == self.variable

    def pick(self, look_up: Callable[[Key], Any]) -> list[Any]:
        found = []
        slot = 0  # asked when all of them are there
        while (row := look_up((self.run, self.node, self.variable, slot))) is not None:
            found.append(row)
            slot += 1
        return found


class ValuesAt(Query, frozen=True, gc=False):
    """What a flow keeps at these places: node, variable, slot."""

    table: ClassVar[Table[Any]] = VALUES
    run: str
    places: frozenset[tuple[str, str, int]]

    @property
    def of_run(self) -> str | None:
        return self.run

    @property
    def within(self) -> Query | None:
        return ValuesOf(self.run)

    def matches(self, row: Value) -> bool:
        return row.run == self.run and (row.node, row.variable, row.slot) in self.places

    def pick(self, look_up: Callable[[Key], Any]) -> list[Any]:
        return [row for place in self.places if (row := look_up((self.run, *place))) is not None]


class StateChain(Query, frozen=True, gc=False):
    """What the state of a graph after a step is put together from: the last whole one and what changed since."""

    table: ClassVar[Table[Any]] = CHECKPOINTS
    run: str
    step: int

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Checkpoint) -> bool:  # and older ones, which do no harm
        return row.run == self.run and row.step <= self.step


class CheckpointsOf(Query, frozen=True, gc=False):
    """A page of the checkpoints of a graph, the latest first, for those who are outside a decision."""

    table: ClassVar[Table[Any]] = CHECKPOINTS
    run: str
    before: int
    limit: int

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Checkpoint) -> bool:
        return row.run == self.run and row.step < self.before

    def order(self, row: Checkpoint) -> Any:
        return -row.step


class CheckpointsBetween(Query, frozen=True, gc=False):
    """The checkpoints from one step up to, but not including, another."""

    table: ClassVar[Table[Any]] = CHECKPOINTS
    run: str
    first: int
    before: int

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Checkpoint) -> bool:
        return row.run == self.run and self.first <= row.step < self.before


class LabelledCheckpoint(Query, frozen=True, gc=False):
    """The latest checkpoint of a graph with a label."""

    table: ClassVar[Table[Any]] = CHECKPOINTS
    limit: ClassVar[int] = 1
    run: str
    label: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Checkpoint) -> bool:
        return row.run == self.run and f"\n{self.label}\n" in (row.label or "")

    def order(self, row: Checkpoint) -> Any:
        return -row.step


class RecordedBy(Query, frozen=True, gc=False):
    """The calls that an item of a graph has recorded, in every attempt."""

    table: ClassVar[Table[Any]] = RECORDED
    run: str
    node: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Recorded) -> bool:
        return row.run == self.run and row.node == self.node


class RecordedIn(Query, frozen=True, gc=False):
    """The calls that some items of a graph have recorded."""

    table: ClassVar[Table[Any]] = RECORDED
    run: str
    nodes: frozenset[str]

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Recorded) -> bool:
        return row.run == self.run and row.node in self.nodes


class RecordedOf(Query, frozen=True, gc=False):
    """Every call that a run of a graph has recorded, for those who are outside a decision."""

    table: ClassVar[Table[Any]] = RECORDED
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Recorded) -> bool:
        return row.run == self.run


class FactsCausedBy(Query, frozen=True, gc=False):
    """The events that one input caused: asked only where a commit's answer was lost, so it may go through them all."""

    table: ClassVar[Table[Any]] = STREAM
    run: str
    cause: str

    def matches(self, row: Fact) -> bool:
        return row.run == self.run and row.cause == self.cause


class Holds(Query, frozen=True, gc=False):
    """Everything that is held back now."""

    table: ClassVar[Table[Any]] = HOLDS
    presumed_empty: ClassVar[bool] = True

    def matches(self, row: Hold) -> bool:
        return True


class DefinitionById(Query, frozen=True, gc=False):
    """A stored graph, for those who are outside a decision."""

    table: ClassVar[Table[Any]] = DEFINITIONS
    id: str

    def matches(self, row: Definition) -> bool:
        return row.id == self.id


class CodeGraph(Query, frozen=True, gc=False):
    """The graph that a version of a workflow's code had, as if it were a stored one; nothing if it was never seen."""

    table: ClassVar[Table[Any]] = DEFINITIONS
    workflow: str
    signature: str

    def matches(self, row: Definition) -> bool:
        return row.id == f"{self.workflow}@{self.signature}"


class ByAncestry(Query, frozen=True, gc=False):
    """The attempts that carry an ancestry hash: a hash names one place in one history, also across forks."""

    table: ClassVar[Table[Any]] = WORK
    ancestry: str

    def matches(self, row: Work) -> bool:
        return row.ancestry == self.ancestry


class RunsLeftBehind(Query, frozen=True, gc=False):
    """Open runs that somebody without the right code has settled something of: what follows is not decided yet."""

    table: ClassVar[Table[Any]] = RUNS
    limit: int

    def matches(self, row: Run) -> bool:
        open_run = row.finished is None and row.definition is None and row.status != PAUSED
        return open_run and row.model == "dag" and row.signature is None


class RunsToReshape(Query, frozen=True, gc=False):
    """Open runs that follow an older version of code than this one (workflow, signature, when it was seen)."""

    table: ClassVar[Table[Any]] = RUNS
    code: tuple[tuple[str, str, int], ...]
    limit: int

    def matches(self, row: Run) -> bool:
        if row.finished is not None or row.definition is not None or row.status == PAUSED:
            return False
        return any(
            row.workflow == workflow and row.signature != signature and row.adopted <= seen
            for workflow, signature, seen in self.code
        )
