"""Decisions that hold for every model: starts, leases, and what becomes of an attempt.

Each function takes the View and one operation and returns a result. It may raise a `HoldfastError` to
refuse; the coordinator then undoes what the operation changed and nothing else (K7).
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.codec import encode_error
from holdfast.core.errors import KeyConflict, RunError, UsageError
from holdfast.core.function_operations import TURN
from holdfast.core.operations import (
    RECORDED,
    REPEATED,
    STALE,
    BuryUnknown,
    Changed,
    ClaimWork,
    CompleteWork,
    FailWork,
    KillWork,
    LapseWork,
    LogLine,
    Operation,
    RecordProgress,
    ReleaseWork,
    Settled,
    Started,
    StartRun,
    SteerWork,
    WorkOperation,
)
from holdfast.core.queries import OpenWork, RunByAlias, RunByKey
from holdfast.core.retry import Retry
from holdfast.core.rows import (
    BARRIER,
    BLOCKED,
    CALL,
    CANCELLED,
    CANCELLING,
    CHILD,
    COMPLETED,
    DEAD,
    EFFECT,
    ENDED,
    FAILED,
    GATE_OPEN,
    GATE_PAUSED,
    INBOX,
    LEASED,
    LOST,
    PAUSED,
    PENDING,
    PROJECTION,
    READY,
    RUNS,
    SETTLE,
    SETTLES_AFTER_END,
    SKIPPED,
    SLEEP,
    TIMED_OUT,
    TIMER,
    WAIT,
    WORK,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.dag_items import NOT_IN_GRAPH
from holdfast.models.delivery import gate_for, hold_for_runs, wait_no_more
from holdfast.models.machine import (
    STARTED_PAUSED,
    Definitions,
    Handing,
    Machine,
    end_run,
    existing_run,
    is_draining,
    mark_running,
    new_attempt,
    reason_while_paused,
    record,
    waits_anew,
    why,
)
from holdfast.models.state_code import GRAPH

# What gives up is answered by somebody else: the function that made the call, the author of the decider.
NOT_TO_BLAME = frozenset({CALL, EFFECT, TIMER, INBOX, PROJECTION, BARRIER, SLEEP, CHILD, WAIT, SETTLE})


class Lifecycle:
    """The kernel's decisions, given the machines of the models and the code that is known here."""

    def __init__(self, machines: dict[str, Machine], definitions: Definitions) -> None:
        self.machines = machines
        self.definitions = definitions

    def decisions(self) -> dict[type[Operation], object]:
        return {
            StartRun: self.start,
            ClaimWork: self.claim,
            CompleteWork: self.complete,
            FailWork: self.fail,
            SteerWork: self.steer,
            KillWork: self.kill,
            ReleaseWork: self.release,
            LapseWork: self.lapse,
            RecordProgress: self.progress,
            BuryUnknown: self.bury,
        }

    # -- starting

    def start(self, view: View, op: StartRun) -> Started:
        if view.probe(RUNS, (op.run,)) is not None:
            return Started(run=op.run)  # K8: this very start was recorded before; its caller never heard
        supersedes: Run | None = None
        if op.key is not None:
            for existing in _key_holders(view, op, op.key):
                if existing.input_digest != op.input_digest:
                    first = "" if existing.ended else "wait until that run has ended and "
                    raise KeyConflict(
                        f"key {op.key!r} of {op.workflow} belongs to run {existing.id}, which has another input",
                        hint="use another key, or the same input; to start over under this key, "
                        f'{first}pass if_exists="restart" with the same input',
                    )
                if op.if_exists != "restart" or not existing.ended:
                    return Started(run=existing.id, existed=True)
                supersedes = existing
        if op.parent is None and is_draining(view, op.workflow):  # a child is part of a run that goes on to its end
            raise UsageError(
                f"workflow {op.workflow} is being drained and takes no new runs",
                hint=f"start it after `holdfast drain {op.workflow} --off`",
            )
        if supersedes is not None:
            view.put(RUNS, replace(supersedes, superseded=True))
        run = Run(  # by position, at first: Python makes a dict of more than 15 keywords, for as much as all of this
            op.run,
            op.workflow,
            op.model,
            op.key,
            input=op.input,
            codec=op.codec,
            input_digest=op.input_digest,
            on_failure=op.on_failure,
            parent=op.parent,
            depth=op.depth,
            queue=op.queue,
            priority=op.priority,
            tags=op.tags,
            due=op.due,
            created=view.now,
            updated=view.now,
        )
        if op.paused:
            run = replace(run, status=PAUSED, reason=STARTED_PAUSED)
        if op.parent is not None:  # its id is derived, and may have been that of a child that was pruned (K4)
            run = replace(run, version=view.now)
        view.insert(RUNS, run)
        handing = Handing(op.offer, self.definitions)
        self.machines[op.model].start(view, run, op, handing, self.definitions)
        handed = handing.rows(view)
        if handed:
            started = _must(view.run(op.run))
            view.put(RUNS, mark_running(started, view.now))
            handed = handing.rows(view)
        return Started(run=op.run, handed=handed, logged=handing.logged)

    # -- settling work

    def complete(self, view: View, op: CompleteWork) -> Settled:
        held = self._lease(view, op, COMPLETED)
        if isinstance(held, Settled):
            return held
        run, work = held
        work = replace(work, status=COMPLETED, result=op.result, error=None, outcome=op.outcome, finished=view.now)
        view.put(WORK, work)
        if run.status == PENDING or run.started is None:
            run = mark_running(run, work.started or view.now)
        handing = Handing(op.offer, self.definitions)
        self.machines[run.model].advance(view, replace(run, active=run.active - 1), work, handing, self.definitions)
        after = view.get(RUNS, (op.run,))
        status = run.status if after is None else after.status
        return Settled(verdict=RECORDED, run_status=status, handed=handing.rows(view), logged=handing.logged)

    def fail(self, view: View, op: FailWork) -> Settled:
        status = TIMED_OUT if op.timed_out else FAILED
        held = self._lease(view, op, status, SKIPPED)
        if isinstance(held, Settled):
            return held
        run, work = held
        failures = work.failures + 1
        work = replace(work, status=status, error=op.error, outcome=op.outcome, failures=failures, finished=view.now)
        if op.cause:
            work = replace(work, parents=str(op.cause))
        view.put(WORK, work)
        run = replace(mark_running(run, work.started or view.now), active=run.active - 1)
        if op.retryable and failures < op.attempts:
            policy = Retry(attempts=op.attempts, base=op.base_seconds, cap=op.cap_seconds)
            delay = policy.delay_seconds(op.run, op.node, failures)
            due = view.now + int(delay * 1_000_000)
            self._try_again(view, run, work, due=due, failures=failures, losses=0)
            logged: tuple[LogLine, ...] = ()
        else:
            logged = self._give_up(view, run, work)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status, logged=logged)

    def steer(self, view: View, op: SteerWork) -> Settled:
        """The node's own code asked for something: skip, pause, cancel, reattempt or finish."""
        held = self._lease(view, op, COMPLETED, SKIPPED, CANCELLED)
        if isinstance(held, Settled):
            return held
        run, work = held
        machine = self.machines[run.model]
        label = machine.label(view, run, work.node, self.definitions)
        status = {"skip": SKIPPED, "finish": COMPLETED}.get(op.wish, CANCELLED)
        work = replace(work, status=status, outcome=op.outcome, error=None, finished=view.now)
        view.put(WORK, work)
        run = replace(mark_running(run, work.started or view.now), active=run.active - 1)
        because = f": {op.reason}" if op.reason else ""
        if op.wish == "skip":
            run = record(view, run, "skipped", by="the node itself", node=label, reason=op.reason)
            machine.advance(view, run, work, Handing(None), self.definitions)
        elif op.wish == "reattempt":
            run = record(view, run, "reattempted", by="the node itself", node=label, reason=op.reason)
            self._try_again(
                view, run, work, due=view.now + op.after, failures=work.failures, losses=0, after_runs=op.after_runs
            )
        elif op.wish == "pause":
            run = record(view, run, "paused", by=f"node {label}", reason=op.reason)
            reason = reason_while_paused(f"paused by node {label}{because}", run.reason if run.gave_up else None)
            run = replace(run, status=PAUSED, reason=reason)
            for other in view.find(OpenWork(run.id)):
                if other.status == READY:
                    view.put(WORK, replace(other, gate=GATE_PAUSED))
            # The attempt that asked for it runs again when the run is resumed.
            self._try_again(view, run, work, due=view.now, failures=work.failures, losses=0)
        elif op.wish == "cancel":
            run = record(view, run, "cancel requested", by=f"node {label}", reason=op.reason)
            end_run(view, run, CANCELLED, reason=f"cancelled by node {label}{because}")
        else:
            self._finish(view, run, label, op.reason)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status)

    def _finish(self, view: View, run: Run, label: str, reason: str) -> None:
        """Whatever has not been done does not need to be: the run is complete."""
        for work in view.find(OpenWork(run.id)):
            view.put(WORK, replace(work, status=SKIPPED, token=work.token + 1, finished=view.now))
        wait_no_more(view, run.id)
        run = record(view, run, "finished", by=f"node {label}", reason=reason, skipped=max(0, run.remaining - 1))
        end_run(view, replace(run, active=0, remaining=0, error=None), COMPLETED)

    def kill(self, view: View, op: KillWork) -> Settled:
        held = self._lease(view, op, DEAD, SKIPPED)
        if isinstance(held, Settled):
            return held
        run, work = held
        work = replace(work, status=DEAD, error=op.error, finished=view.now)
        view.put(WORK, work)
        run = replace(mark_running(run, work.started or view.now), active=run.active - 1)
        if op.plainly:
            run = replace(run, error=op.error, gave_up=run.gave_up + 1)
            end_run(view, run, FAILED, reason=why(work, work.node))
            return Settled(verdict=RECORDED, run_status=FAILED)
        logged = self._give_up(view, run, work)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status, logged=logged)

    def release(self, view: View, op: ReleaseWork) -> Settled:
        held = self._lease(view, op, READY, BLOCKED, SKIPPED)
        if isinstance(held, Settled):
            return held
        run, work = held
        wanted = self.machines[run.model].before_another(view, run, work, self.definitions)
        if wanted is None:
            self._drop(view, replace(run, active=run.active - 1), work)
            return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status)
        released = replace(work, status=READY, worker=None, started=None, gate=gate_for(run, work.due, view.now))
        if waits_anew(view, work):
            released = replace(released, status=BLOCKED)
            wanted = replace(wanted, active=run.active - 1)
        view.put(WORK, released)
        if wanted is not run:
            view.put(RUNS, wanted)
        if wanted.active == 0:
            self.machines[run.model].idle(view, wanted)
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status)

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
            logged = self._give_up(view, run, work)
        else:
            work = replace(work, status=LOST, losses=losses, finished=view.now)
            view.put(WORK, work)
            # Its old due time: what was cut off goes before what has not begun.
            self._try_again(view, run, work, due=work.due, failures=work.failures, losses=losses)
            logged = ()
        return Settled(verdict=RECORDED, run_status=_must(view.run(op.run)).status, logged=logged)

    def _try_again(
        self,
        view: View,
        run: Run,
        work: Work,
        *,
        due: int,
        failures: int,
        losses: int,
        after_runs: tuple[str, ...] = (),
    ) -> None:
        """The next attempt of a node whose last one is over, unless a deploy or an import removed it meanwhile."""
        machine = self.machines[run.model]
        wanted = machine.before_another(view, run, work, self.definitions)
        if wanted is None:
            self._drop(view, run, work)
            return
        run = new_attempt(view, wanted, work, Handing(None), due=due, failures=failures, losses=losses)
        if after_runs:
            run = hold_for_runs(view, run, (work.run, work.node, work.attempt + 1), after_runs)
        machine.tried_again(view, run, work)
        if after_runs and run.model == GRAPH:  # a subgraph holds no place while its run goes on
            machine.refresh(view, run, self.definitions)
        elif run.active == 0:
            machine.idle(view, run)

    def _drop(self, view: View, run: Run, work: Work) -> None:
        """I31: a node that the graph does not have any more is not tried again. Nobody may know its code now."""
        work = replace(work, status=SKIPPED, outcome=NOT_IN_GRAPH, finished=view.now)
        view.put(WORK, work)
        self.machines[run.model].advance(view, run, work, Handing(None), self.definitions)

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
        if work is None or work.status != READY or work.token >= op.token:
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
        run, work = view.get(RUNS, (op.run,)), view.get(WORK, (op.run, op.node, op.attempt))
        if run is None or work is None:
            return Settled(verdict=STALE)
        if work.token != op.token:
            return Settled(verdict=STALE, run_status=run.status)
        # A cancelled function has one more turn, for its rollbacks and `finally` blocks, and the calls that these make.
        may_settle = run.status != CANCELLING or work.kind in (TURN, CALL)
        if work.status == LEASED and run.status not in ENDED and may_settle:
            return run, work
        if work.status == LEASED and run.status == COMPLETED and work.kind in SETTLES_AFTER_END:
            return run, work  # I34
        if work.status in recorded:
            return Settled(verdict=REPEATED, run_status=run.status)
        return Settled(verdict=STALE, run_status=run.status)

    def lease_of_item(self, view: View, op: WorkOperation, *recorded: str) -> tuple[Run, Work] | Settled:
        return self._lease(view, op, *recorded)

    def lease_of_inbox(self, view: View, op: WorkOperation) -> tuple[Run, Work] | Settled:
        return self._lease(view, op, READY, COMPLETED)

    def lease_of_turn(self, view: View, op: WorkOperation, *recorded: str) -> tuple[Run, Work] | Settled:
        return self._lease(view, op, BLOCKED, READY, *recorded)

    def _give_up(self, view: View, run: Run, work: Work) -> tuple[LogLine, ...]:
        """What the code of a flow, which may have a handler for it, says to its log."""
        if self.machines[run.model].before_another(view, run, work, self.definitions) is None:
            self._drop(view, run, work)
            return ()
        if (
            run.gave_up == 0 and run.on_failure != "skip" and work.kind not in NOT_TO_BLAME
        ):  # else the run is not to blame for it
            label = self.machines[run.model].label(view, run, work.node, self.definitions)
            # I10: one that was cancelled has that as its reason, whatever its code raised on the way out.
            run = replace(run, error=work.error, reason=run.reason if run.status == CANCELLING else why(work, label))
        run = replace(run, gave_up=run.gave_up + 1)
        view.put(RUNS, run)
        handing = Handing(None)
        self.machines[run.model].give_up(view, run, work, handing, self.definitions)
        return handing.logged

    def bury(self, view: View, op: BuryUnknown) -> Changed:
        run, work = existing_run(view, op.run), view.get(WORK, (op.run, op.node, op.attempt))
        over = run.ended and (work is None or work.kind not in SETTLES_AFTER_END)
        if work is None or work.status != READY or work.gate != GATE_OPEN or over:  # I11: not if it is paused
            return Changed(changed=False, status=run.status)
        work = replace(work, status=DEAD, token=work.token + 1, error=op.error, finished=view.now)
        view.put(WORK, work)
        logged = self._give_up(view, replace(run, active=run.active - 1), work)
        return Changed(changed=True, status=existing_run(view, op.run).status, nodes=(op.node,), logged=logged)


def _key_holders(view: View, op: StartRun, key: str) -> list[Run]:
    """The run that has the key, under the workflow's name or one that it had before a rename (I12, I15)."""
    found: list[Run] = view.find(RunByKey(op.workflow, key))
    for alias in op.aliases:
        found = found or view.find(RunByAlias(alias, key))
    return found


def _must(row: Run | None) -> Run:
    if row is None:
        raise LookupError("the run was read by this very operation and cannot be gone")
    return row


__all__ = ["Lifecycle"]
