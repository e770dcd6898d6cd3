"""Decisions that hold for every model: leases, attempts, cancel, pause, and what operators ask for.

Each function takes the View and one operation and returns a result. It may raise a `HoldfastError` to
refuse; the coordinator then undoes what the operation changed and nothing else (K7).
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.codec import decode_error, encode_error
from holdfast.core.errors import KeyConflict, RunError, UnknownNode, UnknownWorkflow, UsageError
from holdfast.core.operations import (
    RECORDED,
    REPEATED,
    STALE,
    BuryUnknown,
    CancelRun,
    Changed,
    ClaimWork,
    CompleteWork,
    DiscardDead,
    FailWork,
    KillWork,
    LapseWork,
    Operation,
    PauseRun,
    ReattemptNode,
    RecordProgress,
    ReleaseWork,
    ResumeRun,
    RetryRun,
    SetHold,
    Settled,
    SkipNode,
    Started,
    StartRun,
    WorkOperation,
)
from holdfast.core.queries import AllWork, Attempts, OpenWork, RunByKey
from holdfast.core.retry import Retry
from holdfast.core.rows import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    DEAD,
    FAILED,
    GATE_OPEN,
    GATE_PAUSED,
    HOLDS,
    LEASED,
    LOST,
    PAUSED,
    PENDING,
    READY,
    RUNNING,
    RUNS,
    SKIPPED,
    SUSPENDED,
    TIMED_OUT,
    WORK,
    Hold,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.machine import (
    Definitions,
    Handing,
    Machine,
    end_run,
    gate_for,
    is_draining,
    mark_running,
    new_attempt,
    record,
)

GAVE_UP = frozenset({FAILED, TIMED_OUT, DEAD})
REASON_LIMIT = 500


class Lifecycle:
    """The kernel's decisions, given the machines of the models and the code that is known here."""

    def __init__(self, machines: dict[str, Machine], definitions: Definitions) -> None:
        self.machines = machines
        self.definitions = definitions

    # -- starting

    def start(self, view: View, op: StartRun) -> Started:
        if view.probe(RUNS, (op.run,)) is not None:
            return Started(run=op.run)  # K8: this very start was recorded before; its caller never heard
        supersedes: Run | None = None
        if op.key is not None:
            for existing in view.find(RunByKey(op.workflow, op.key)):
                if existing.input_digest != op.input_digest:
                    raise KeyConflict(
                        f"key {op.key!r} of {op.workflow} belongs to run {existing.id}, which has another input",
                        hint="use another key, or the same input; to start over under this key, wait until that run "
                        'has ended and pass if_exists="restart" with the same input',
                    )
                if op.if_exists != "restart" or not existing.ended:
                    return Started(run=existing.id, existed=True)
                supersedes = existing
        if is_draining(view, op.workflow):
            raise UsageError(
                f"workflow {op.workflow} is being drained and takes no new runs",
                hint=f"start it after `holdfast drain {op.workflow} --off`",
            )
        if supersedes is not None:
            view.put(RUNS, replace(supersedes, superseded=True))
        run = Run(
            id=op.run,
            workflow=op.workflow,
            model=op.model,
            key=op.key,
            status=PAUSED if op.paused else PENDING,
            input=op.input,
            codec=op.codec,
            input_digest=op.input_digest,
            on_failure=op.on_failure,
            parent=op.parent,
            queue=op.queue,
            priority=op.priority,
            tags=op.tags,
            due=op.due,
            reason="started paused" if op.paused else None,
            created=view.now,
            updated=view.now,
        )
        view.insert(RUNS, run)
        handing = Handing(op.offer)
        self.machines[op.model].start(view, run, op, handing, self.definitions)
        handed = handing.rows(view)
        if handed:
            started = _must(view.run(op.run))
            view.put(RUNS, mark_running(started, view.now))
            handed = handing.rows(view)
        return Started(run=op.run, handed=handed)

    # -- settling work

    def complete(self, view: View, op: CompleteWork) -> Settled:
        held = self._lease(view, op, COMPLETED)
        if isinstance(held, Settled):
            return held
        run, work = held
        work = replace(work, status=COMPLETED, result=op.result, error=None, outcome=op.outcome, finished=view.now)
        view.put(WORK, work)
        run = mark_running(run, work.started or view.now)
        handing = Handing(op.offer)
        self.machines[run.model].advance(view, replace(run, active=run.active - 1), work, handing, self.definitions)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status, handed=handing.rows(view))

    def fail(self, view: View, op: FailWork) -> Settled:
        status = TIMED_OUT if op.timed_out else FAILED
        held = self._lease(view, op, status, SKIPPED)
        if isinstance(held, Settled):
            return held
        run, work = held
        failures = work.failures + 1
        work = replace(work, status=status, error=op.error, outcome=op.outcome, failures=failures, finished=view.now)
        view.put(WORK, work)
        run = replace(mark_running(run, work.started or view.now), active=run.active - 1)
        if op.retryable and failures < op.attempts:
            policy = Retry(attempts=op.attempts, base=op.base_seconds, cap=op.cap_seconds)
            delay = policy.delay_seconds(op.run, op.node, failures)
            due = view.now + int(delay * 1_000_000)
            new_attempt(view, run, work, Handing(None), due=due, failures=failures, losses=0)
        else:
            self._give_up(view, run, work)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status)

    def kill(self, view: View, op: KillWork) -> Settled:
        held = self._lease(view, op, DEAD, SKIPPED)
        if isinstance(held, Settled):
            return held
        run, work = held
        work = replace(work, status=DEAD, error=op.error, finished=view.now)
        view.put(WORK, work)
        self._give_up(view, replace(mark_running(run, work.started or view.now), active=run.active - 1), work)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status)

    def release(self, view: View, op: ReleaseWork) -> Settled:
        held = self._lease(view, op, READY)
        if isinstance(held, Settled):
            return held
        run, work = held
        released = replace(work, status=READY, worker=None, started=None, gate=gate_for(run, work.due, view.now))
        view.put(WORK, released)
        return Settled(verdict=RECORDED, run_status=run.status)

    def lapse(self, view: View, op: LapseWork) -> Settled:
        """I6: recorded as lost, no retry budget used; too many in a row without anything new is a dead letter."""
        held = self._lease(view, op, LOST, DEAD, SKIPPED)
        if isinstance(held, Settled):
            return held
        run, work = held
        losses = work.losses + 1
        run = replace(mark_running(run, work.started or view.now), active=run.active - 1)
        if losses >= op.lost_limit:
            error = RunError(
                f"the worker died {losses} times while running node {work.node} of {work.workflow} (run {run.id})",
                hint="look at what kills the process (memory, a native crash, os._exit), then `holdfast retry`",
            )
            work = replace(work, status=DEAD, losses=losses, error=encode_error(error), finished=view.now)
            view.put(WORK, work)
            self._give_up(view, run, work)
        else:
            view.put(WORK, replace(work, status=LOST, losses=losses, finished=view.now))
            # Its old due time: what was cut off goes before what has not begun.
            new_attempt(view, run, work, Handing(None), due=work.due, failures=work.failures, losses=losses)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status)

    def progress(self, view: View, op: RecordProgress) -> Settled:
        held = self._lease(view, op)
        if isinstance(held, Settled):
            return held
        run, work = held
        if work.losses:
            view.put(WORK, replace(work, losses=0))
        if op.note:
            record(view, run, "noted", node=op.node, attempt=op.attempt, note=op.note)
        return Settled(verdict=RECORDED, run_status=run.status)

    def claim(self, view: View, op: ClaimWork) -> Settled:
        work = view.get(WORK, (op.run, op.node, op.attempt))
        if work is None or work.status != READY or work.token != op.token - 1:
            return Settled(verdict=STALE)
        # Only an item whose gate is open is ever claimed; a trace does not tell when that happened.
        leased = replace(work, status=LEASED, token=op.token, worker=op.worker, started=view.now, gate=GATE_OPEN)
        view.put_lease(WORK, leased)
        run = view.run(op.run)
        if run is not None:
            view.put_lease(RUNS, mark_running(run, view.now))
        return Settled(verdict=RECORDED)

    def _lease(self, view: View, op: WorkOperation, *recorded: str) -> tuple[Run, Work] | Settled:
        """The run and item of a valid lease; else what to answer: stale, or `recorded` by this very report before."""
        run, work = view.run(op.run), view.get(WORK, (op.run, op.node, op.attempt))
        if run is None or work is None:
            return Settled(verdict=STALE)
        if work.token != op.token:
            return Settled(verdict=STALE, run_status=run.status)
        if work.status == LEASED and not run.ended and run.status != CANCELLING:
            return run, work
        if work.status in recorded:
            return Settled(verdict=REPEATED, run_status=run.status)
        return Settled(verdict=STALE, run_status=run.status)

    def _give_up(self, view: View, run: Run, work: Work) -> None:
        if run.error is None:
            run = replace(run, error=work.error, reason=_why(work))
        run = replace(run, gave_up=run.gave_up + 1)
        view.put(RUNS, run)
        self.machines[run.model].give_up(view, run, work, Handing(None), self.definitions)

    def bury(self, view: View, op: BuryUnknown) -> Changed:
        run, work = _run(view, op.run), view.get(WORK, (op.run, op.node, op.attempt))
        if work is None or work.status != READY or work.gate != GATE_OPEN or run.ended:  # I11: not if it is paused
            return Changed(changed=False, status=run.status)
        work = replace(work, status=DEAD, token=work.token + 1, error=op.error, finished=view.now)
        view.put(WORK, work)
        self._give_up(view, replace(run, active=run.active - 1), work)
        return Changed(changed=True, status=_run(view, op.run).status, nodes=(op.node,))

    # -- what people ask for

    def cancel(self, view: View, op: CancelRun) -> Changed:
        run = _run(view, op.run)
        if run.ended:
            return Changed(changed=False, status=run.status)
        run = record(view, run, "cancel requested", by=op.by)
        if self.machines[run.model].cancels_gracefully and not op.force:
            view.put(RUNS, replace(run, status=CANCELLING, token=run.token + 1))
        else:
            end_run(view, run, CANCELLED, reason=f"cancelled by {op.by}")
        return Changed(changed=True, status=_run(view, op.run).status)

    def pause(self, view: View, op: PauseRun) -> Changed:
        run = _run(view, op.run)
        if run.status not in (PENDING, RUNNING, SUSPENDED):
            return Changed(changed=False, status=run.status)
        for work in view.find(OpenWork(run.id)):
            if work.status == READY:
                view.put(WORK, replace(work, gate=GATE_PAUSED))
        run = record(view, run, "paused", by=op.by, reason=op.reason)
        reason = f"paused by {op.by}" + (f": {op.reason}" if op.reason else "")
        view.put(RUNS, replace(run, status=PAUSED, reason=reason))
        return Changed(changed=True, status=PAUSED)

    def resume(self, view: View, op: ResumeRun) -> Changed:
        """I11: overdue work runs at once, future times are kept; a pause that came from a failure is retried."""
        run = _run(view, op.run)
        if run.status != PAUSED:
            return Changed(changed=False, status=run.status)
        run = self._reopen(view, record(view, run, "resumed", by=op.by))
        nodes = self._retry_nodes(view, run, None) if run.gave_up else ()
        if not run.active and not run.gave_up:
            self.machines[run.model].refresh(view, run, self.definitions)
        return Changed(changed=True, status=_run(view, op.run).status, nodes=nodes)

    def retry(self, view: View, op: RetryRun) -> Changed:
        run = _run(view, op.run)
        if run.status in (COMPLETED, CANCELLED, CANCELLING) or not run.gave_up:
            return Changed(changed=False, status=run.status)
        run = self._reopen(view, record(view, run, "retried", by=op.by))
        nodes = self._retry_nodes(view, run, None)
        return Changed(changed=True, nodes=nodes, status=_run(view, op.run).status)

    def reattempt(self, view: View, op: ReattemptNode) -> Changed:
        run = _run(view, op.run)
        latest = self._latest(view, run, op.node)
        if latest.status not in GAVE_UP or run.status in (COMPLETED, CANCELLED, CANCELLING):
            return Changed(changed=False, status=run.status)
        run = self._reopen(view, record(view, run, "reattempted", by=op.by, node=op.node))
        nodes = self._retry_nodes(view, run, op.node)
        return Changed(changed=True, nodes=nodes, status=_run(view, op.run).status)

    def skip(self, view: View, op: SkipNode) -> Changed:
        run = _run(view, op.run)
        latest = self._latest(view, run, op.node)
        if latest.status == SKIPPED:
            return Changed(changed=False, status=run.status)  # K8: whoever asks again is not told off
        if run.status in (COMPLETED, CANCELLED, CANCELLING) or latest.status in (COMPLETED, LEASED):
            raise UsageError(
                f"node {op.node} of run {run.id} cannot be skipped: it is {latest.status} and the run is {run.status}",
                hint="only a node that gave up, is ready or is blocked can be skipped",
            )
        run = record(view, run, "skipped", by=op.by, node=op.node)
        if latest.status in GAVE_UP:
            run = replace(run, gave_up=run.gave_up - 1)
        elif latest.status == READY:
            run = replace(run, active=run.active - 1)
        if latest.status in GAVE_UP or run.status == FAILED:
            run = self._reopen(view, run)
        skipped = replace(latest, status=SKIPPED, token=latest.token + 1, finished=view.now)
        view.put(WORK, skipped)
        if latest.status in GAVE_UP:
            run = self._blame(view, run)
        self.machines[run.model].advance(view, run, skipped, Handing(None), self.definitions)
        return Changed(changed=True, status=_run(view, op.run).status, nodes=(op.node,))

    def discard(self, view: View, op: DiscardDead) -> Changed:
        run = _run(view, op.run)
        latest = self._latest(view, run, op.node)
        if latest.status != DEAD:
            return Changed(changed=False, status=run.status)
        view.put(WORK, replace(latest, status=CANCELLED, token=latest.token + 1))
        run = record(view, run, "dead letter discarded", by=op.by, node=op.node)
        run = replace(run, gave_up=max(0, run.gave_up - 1))
        if run.ended:
            view.put(RUNS, run)
        else:
            for work in view.find(OpenWork(run.id)):
                if work.status in (READY, LEASED):  # a failed run has nothing that could still be claimed
                    view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, finished=view.now))
            run = replace(run, active=0)
            end_run(view, run, FAILED, reason=f"the dead letter of node {op.node} was discarded by {op.by}")
        return Changed(changed=True, status=_run(view, op.run).status, nodes=(op.node,))

    def hold(self, view: View, op: SetHold) -> Changed:
        existing = view.get(HOLDS, (op.scope, op.name))
        if op.on and existing is None:
            view.insert(HOLDS, Hold(scope=op.scope, name=op.name, by=op.by, since=view.now))
        elif not op.on and existing is not None:
            view.delete(HOLDS, existing)
        return Changed(changed=op.on is (existing is None))

    def _latest(self, view: View, run: Run, node: str) -> Work:
        attempts = view.find(Attempts(run.id, frozenset({node})))
        if not attempts:
            raise UnknownNode(
                f"run {run.id} of {run.workflow} has no work for node {node!r}",
                hint=f"see `holdfast show {run.id}` for its nodes",
            )
        latest: Work = attempts[-1]
        return latest

    def _reopen(self, view: View, run: Run) -> Run:
        """Back to running, with ready work claimable again when its time has come."""
        run = replace(run, status=PENDING if run.started is None else RUNNING, reason=None, finished=None)
        view.put(RUNS, run)
        for work in view.find(OpenWork(run.id)):
            if work.status == READY:
                view.put(WORK, replace(work, gate=gate_for(run, work.due, view.now)))
        return run

    def _retry_nodes(self, view: View, run: Run, only: str | None) -> tuple[str, ...]:
        """A new attempt, with a fresh budget, for the nodes whose latest attempt gave up."""
        query = AllWork(run.id) if only is None else Attempts(run.id, frozenset({only}))
        latest: dict[str, Work] = {}
        for work in view.find(query):
            latest[work.node] = work
        again = [work for work in latest.values() if work.status in GAVE_UP]
        run = replace(run, gave_up=run.gave_up - len(again))
        view.put(RUNS, run)
        for work in again:
            if work.status == DEAD:  # I9: replayed, it is no dead letter any more and is counted as none
                view.put(WORK, replace(work, status=FAILED))
            run = new_attempt(view, run, work, Handing(None), due=view.now, failures=0, losses=0)
        self._blame(view, run)
        return tuple(work.node for work in again)

    def _blame(self, view: View, run: Run) -> Run:
        """The run's error and reason are those of a node that has given up and still stands so, if there is one."""
        run = replace(run, error=None, reason=None)
        if run.gave_up:
            latest: dict[str, Work] = {work.node: work for work in view.find(AllWork(run.id))}
            for work in latest.values():
                if work.status in GAVE_UP:
                    run = replace(run, error=work.error, reason=_why(work))
                    break
        view.put(RUNS, run)
        return run


def decisions(lifecycle: Lifecycle) -> dict[type[Operation], object]:
    """Which function decides which operation."""
    return {
        StartRun: lifecycle.start,
        ClaimWork: lifecycle.claim,
        CompleteWork: lifecycle.complete,
        FailWork: lifecycle.fail,
        KillWork: lifecycle.kill,
        ReleaseWork: lifecycle.release,
        LapseWork: lifecycle.lapse,
        RecordProgress: lifecycle.progress,
        BuryUnknown: lifecycle.bury,
        CancelRun: lifecycle.cancel,
        PauseRun: lifecycle.pause,
        ResumeRun: lifecycle.resume,
        RetryRun: lifecycle.retry,
        ReattemptNode: lifecycle.reattempt,
        SkipNode: lifecycle.skip,
        DiscardDead: lifecycle.discard,
        SetHold: lifecycle.hold,
    }


def _run(view: View, run: str) -> Run:
    row = view.run(run)
    if row is None:
        raise UnknownWorkflow(f"there is no run {run}", hint="`holdfast runs` lists the runs of this database")
    return row


def _must(row: Run | None) -> Run:
    if row is None:
        raise LookupError("the run was read by this very operation and cannot be gone")
    return row


def _why(work: Work) -> str:
    """What gave up, in a sentence that fits a listing."""
    times = "1 attempt" if work.attempt == 1 else f"{work.attempt} attempts"
    if work.error is None:
        return f"node {work.node} gave up after {times} ({work.status})"
    error = decode_error(work.error)
    # PostgreSQL's text holds no NUL, and a failure must not turn into a dead letter for its message.
    message = error.message.replace("\0", "\\0")
    return f"node {work.node} gave up after {times}: {error.type}: {message}"[:REASON_LIMIT]


__all__ = ["GAVE_UP", "Lifecycle", "decisions"]
