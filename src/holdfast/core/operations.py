"""Operations: what happened, as data. Results: what was decided about it, as data.

An operation names the runs it is about (they are locked together, in order), the topics it needs, and
whether it must take the locked path. It carries an identity that makes repeating it harmless (K8): a
run's id for a start, a token for whatever settles work.

Operations are JSON-able: `HOLDFAST_TRACE=operations` prints them, and a trace fed to a memory store
gives the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import msgspec

from holdfast.core.rows import Run, Work


class Operation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all operations."""

    locked: ClassVar[bool] = False  # always takes the locked path

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the runs to lock before deciding."""
        return ()

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics to lock before the runs."""
        return ()

    @property
    def wakes(self) -> tuple[str, ...]:
        """The topics whose waiters it may wake: those are locked with the named runs."""
        return self.topics

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """Of two operations that share one of these, the one submitted first is decided first."""
        return (*self.runs, *self.topics)

    @property
    def concerns_all(self) -> bool:
        """Whether it may touch runs it does not name: then its whole batch takes the locked path."""
        return bool(self.topics)

    @property
    def may_reach_out(self) -> bool:
        """Whether it may concern runs it does not name: where it is decided late, so is all that came after it."""
        return False


@cache
def names_its_runs(kind: type[Operation]) -> bool:
    """Whether operations of this kind never concern a run that they do not name: asked of every batch."""
    never: object = kind.concerns_all
    return never is False or (never is Operation.concerns_all and kind.topics is Operation.topics)


class Offer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker of this process has room: work that becomes ready may be leased to it at once."""

    worker: str
    room: int
    queues: tuple[str, ...]


class RunOperation(Operation, frozen=True, kw_only=True, gc=False):
    """An operation about one run."""

    run: str

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.run,)


class WorkOperation(RunOperation, frozen=True, kw_only=True, gc=False):
    """An operation by the holder of a lease: `token` proves it."""

    node: str
    attempt: int
    token: int


class PolicyOverride(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A policy given with `.options(…)` for one run of an action; stored with the work, as code read later lacks it."""

    timeout_seconds: float | None
    queue: str | None
    attempts: int
    base_seconds: float
    cap_seconds: float


class StartRun(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Create a run, or find the one that has its key already."""

    workflow: str
    model: str
    key: str | None = None
    aliases: tuple[str, ...] = ()  # names that the workflow had before, under which the key may be held
    input: bytes = b""
    codec: str = "json"
    input_digest: str = ""
    on_failure: str = "fail"
    queue: str = "default"
    priority: int = 0
    tags: str = "{}"
    due: int = 0
    paused: bool = False
    if_exists: str = "same"  # or "restart": a new run under the key once the old one has ended
    parent: str | None = None
    depth: int = 0
    override: PolicyOverride | None = None
    nodes: bytes = b""  # the graph to store, if it is none that code holds
    signature: str = ""
    offer: Offer | None = None

    @property
    def ordered_by(self) -> tuple[str, ...]:
        return (self.run,) if self.key is None else (self.run, f"{self.workflow}/{self.key}")

    @property
    def may_reach_out(self) -> bool:
        return self.key is not None  # to the run that has the key


class ClaimWork(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A worker took a ready item. Stores claim in bulk; this form exists to replay a trace."""

    worker: str


class CompleteWork(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The action returned."""

    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be
    result: bytes | None = None
    outcome: bytes | None = None
    offer: Offer | None = None


class FailWork(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The action raised, or ran out of time. The policy's numbers travel along, so deciding stays pure."""

    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be
    error: bytes
    outcome: bytes | None = None
    timed_out: bool = False
    retryable: bool = False
    attempts: int = 1
    base_seconds: float = 1.0
    cap_seconds: float = 60.0
    cause: int = 0  # of a function: the entry whose failure ended it, if nothing was done about it


class SteerWork(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The code itself said what becomes of its node or run: skip, pause, cancel, reattempt or finish."""

    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be
    wish: str
    reason: str = ""
    after: int = 0  # microseconds, for reattempt
    after_runs: tuple[str, ...] = ()  # for reattempt: not before these have ended
    outcome: bytes | None = None

    @property
    def locked(self) -> bool:  # type: ignore[override]  # other runs are looked at only then
        return bool(self.after_runs)

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.run, *self.after_runs)


class KillWork(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The item cannot be run at all (undecodable payload): a dead letter at once."""

    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be
    error: bytes
    plainly: bool = False  # without asking the run's model, which made nothing of it: the run fails


class ReleaseWork(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Claimed but not started, or given back on shutdown: ready again, and nothing is counted."""


class LapseWork(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The lease ran out or its worker is dead."""

    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be
    lost_limit: int = 10


class RecordProgress(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt recorded something new: losses before this do not count against it any more."""

    note: str = ""


class BuryUnknown(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """No live worker has known this ready item's name for too long."""

    locked: ClassVar[bool] = True
    node: str
    attempt: int
    error: bytes

    @property
    def concerns_all(self) -> bool:
        return True  # whoever waits for the end that this may be


class CancelRun(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    locked: ClassVar[bool] = True
    force: bool = False
    by: str = "an operator"

    @property
    def concerns_all(self) -> bool:
        return True  # its children


class Wish(RunOperation, frozen=True, kw_only=True, gc=False):
    """What an operator asks of a run. A repetition finds its entry in the history, however late it comes (K8)."""

    locked: ClassVar[bool] = True
    by: str = "an operator"
    wish: str = ""  # names it; without, it is asked anew each time
    known: int = 0  # entries that the run had before it was asked for


class PauseRun(Wish, frozen=True, kw_only=True, gc=False, tag=True):
    reason: str = ""


class ResumeRun(Wish, frozen=True, kw_only=True, gc=False, tag=True): ...


class RetryRun(Wish, frozen=True, kw_only=True, gc=False, tag=True):
    """Give every node that gave up a new attempt."""


class ReattemptNode(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Give one node that gave up a new attempt."""

    locked: ClassVar[bool] = True
    node: str
    by: str = "an operator"
    dead: bool = False  # only if it is a dead letter


class SkipNode(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Mark a node that gave up or has not started as skipped, which satisfies its dependents."""

    locked: ClassVar[bool] = True
    node: str
    by: str = "an operator"

    @property
    def concerns_all(self) -> bool:
        return True  # whoever waits for the end that this may be


class ForkRun(Operation, frozen=True, kw_only=True, gc=False, tag=True):
    """A new run that shares every completed node of `source`, except one and what depends on it."""

    locked: ClassVar[bool] = True
    run: str
    source: str
    from_node: str
    key: str | None = None
    by: str = "an operator"

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.run, self.source)


class StoreGraph(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """From now on the run follows this graph, whatever its code says (freeze, import)."""

    locked: ClassVar[bool] = True
    nodes: bytes
    signature: str
    expected: str | None = None  # the signature that the graph was made from: another one now means another editor
    by: str = "an operator"
    how: str = "imported"


class ReshapeRun(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The code of this process differs from what the run's counts agree with: make them agree (I31)."""

    locked: ClassVar[bool] = True


class DiscardDead(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Close a dead letter for good: the run it belongs to fails."""

    locked: ClassVar[bool] = True
    node: str
    by: str = "an operator"

    @property
    def concerns_all(self) -> bool:
        return True  # whoever waits for the end of the run


class SetHold(Operation, frozen=True, kw_only=True, gc=False, tag=True):
    """Turn maintenance on or off for everything, a workflow or a queue; or drain a workflow."""

    locked: ClassVar[bool] = True
    scope: str
    name: str = ""
    on: bool = True
    by: str = "an operator"

    @property
    def concerns_all(self) -> bool:
        return True


class Handed(msgspec.Struct, frozen=True, gc=False):
    """Work leased to the worker that made the offer, with the run it belongs to."""

    work: Work
    run: Run


class LogLine(msgspec.Struct, frozen=True):
    """A call of a logger in the code of a flow, to be made when the operation has been committed."""

    logger: str
    level: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    line: int


class Started(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    run: str
    existed: bool = False
    handed: tuple[Handed, ...] = ()
    logged: tuple[LogLine, ...] = ()


class Settled(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """What became of a worker's report.

    `recorded`: it counts. `repeated`: it had been recorded before, by the same lease. `stale`: the
    lease was lost or the run has ended; nothing was written (I1), and that is no error.
    """

    verdict: str
    run_status: str = ""
    handed: tuple[Handed, ...] = ()
    logged: tuple[LogLine, ...] = ()


class Changed(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """An operator's request: whether it changed anything, and the run's status now."""

    changed: bool
    status: str = ""
    nodes: tuple[str, ...] = ()
    logged: tuple[LogLine, ...] = ()


RECORDED, REPEATED, STALE = "recorded", "repeated", "stale"
