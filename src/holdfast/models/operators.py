"""Decisions about what people ask for: cancel, pause, resume, retry, reattempt, skip, discard, maintenance.

All of them take the locked path: an operator's wish is decided on what is stored, never on what is remembered.
"""

from __future__ import annotations

import shlex

from msgspec.structs import replace

from holdfast.core.decider_operations import DECIDER
from holdfast.core.errors import HoldfastError, ReattemptRefused, UsageError
from holdfast.core.function_operations import TURN
from holdfast.core.ids import child_id
from holdfast.core.operations import (
    CancelRun,
    Changed,
    DiscardDead,
    Operation,
    PauseRun,
    ReattemptNode,
    ResumeRun,
    RetryRun,
    SetHold,
    SkipNode,
    Wish,
)
from holdfast.core.queries import AllWork, Attempts, ChildrenOf, OpenWork, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CALL,
    CANCELLED,
    CANCELLING,
    CHILD,
    COMPLETED,
    DEAD,
    EFFECT,
    FAILED,
    GATE_PAUSED,
    GAVE_UP,
    HISTORY,
    HOLDS,
    INBOX,
    LEASED,
    PAUSED,
    PENDING,
    PROJECTION,
    READY,
    RUNNING,
    RUNS,
    SKIPPED,
    SUSPENDED,
    TIMER,
    WAIT,
    WORK,
    Hold,
    Run,
    Work,
)
from holdfast.core.state_items import step_of
from holdfast.core.view import View
from holdfast.models.delivery import forget_failure, gate_for, wait_no_more
from holdfast.models.machine import (
    Definitions,
    Handing,
    Machine,
    discarded_letter,
    end_run,
    existing_run,
    facts_of,
    new_attempt,
    pause_asked_for,
    reason_while_paused,
    record,
    was_taken,
    why,
)
from holdfast.models.projection import failed_place, skip_event
from holdfast.models.state_code import GRAPH
from holdfast.models.state_graph import asks_person, subgraph_run

FINAL = (COMPLETED, CANCELLED, CANCELLING)
NAMES_SHOWN = 5  # in a refusal

_WISHES = frozenset({"paused", "resumed", "retried"})
# How a refusal tells a person where a node stands; other statuses are words already.
_STANDING = {
    LEASED: "is running",
    READY: "is ready and waits for a worker",
    BLOCKED: "has not begun",
    COMPLETED: "has completed",
    SKIPPED: "was skipped",
}


def _refuse_taken(run: Run, work: Work, error: type[HoldfastError], what: str) -> None:
    if was_taken(work):
        raise error(
            f"node {work.node} of run {run.id} cannot be {what}: its failure was taken, and the flow has gone on",
            hint=f"start another run of {run.workflow}",
        )


def _named(op: Wish) -> dict[str, str]:
    return {"wish": op.wish} if op.wish else {}


def _was_granted(view: View, run: Run, op: Wish) -> bool:
    """K8: this very wish is recorded, and its answer was lost. Whatever others have asked for since then stands."""
    if not op.wish:
        return False
    for sequence in range(op.known + 1, run.entries + 1):  # what came since it was asked for is little
        row = view.get(HISTORY, (run.id, sequence))
        if row is not None and row.kind in _WISHES and facts_of(row).get("wish") == op.wish:
            return True
    return False


def _is_final(run: Run) -> bool:
    """Whether nothing of the run can be tried again. The last effects of an instance that has ended can (I34)."""
    return run.status in FINAL and not (run.model == DECIDER and run.status == COMPLETED)


def _skip_event_of(view: View, run: Run, work: Work, by: str) -> Changed:
    """A projection passes over the event that it stands before."""
    place = failed_place(work)
    if place is None:
        raise UsageError(
            f"{run.workflow} does not stand before an event that it cannot take",
            hint=f"`holdfast retry {run.id}` lets it try again; `holdfast projections skip` finds its next event",
        )
    return skip_event(view, run, work, place.position, by)


def _run_of(view: View, work: Work | None) -> Run | None:
    """The run that an item waits for because it started it, as long as that goes on: the item is then running too."""
    if work is None or work.kind != CHILD or work.status not in (BLOCKED, READY):
        return None
    parent = existing_run(view, work.run)
    child = view.run(subgraph_run(work) if parent.model == GRAPH else child_id(work.run, work.node))
    return None if child is None or child.ended else child


def _standing(view: View, run: Run, work: Work | None) -> str:
    """Where a node stands that cannot be attempted again."""
    if work is None:
        return _STANDING[BLOCKED]
    child = _run_of(view, work)
    if child is not None:
        return f"is running, as run {child.id}"
    if work.status == READY and work.gate == GATE_PAUSED:
        return "is ready, and the run is paused"
    if work.status == READY and work.due > view.now:
        return "waits for its time"
    if work.status == BLOCKED and work.kind == TURN:
        return "waits for what it has asked for"
    if work.status == BLOCKED and run.model == GRAPH and asks_person(work):
        return "waits for a person's answer"
    if work.status == BLOCKED and any(wait.address == work.node for wait in view.find(WaitsOf(run.id))):
        return "waits for an event" if work.kind == WAIT else "waits for another run"
    return _STANDING.get(work.status, f"is {work.status}")


def _what_instead(run: Run, node: str, name: str) -> str:
    """What to do instead of attempting a node again: mostly a fork. The command needs what the run's graph is in."""
    if run.model == DECIDER:
        return f"give {run.workflow} an input that asks for it again: another instance, if this one has ended"
    if run.model not in ("dag", GRAPH):
        return f"start another run of {run.workflow}: only DAGs and state graphs can be forked"
    where, asked = f"--from {shlex.quote(name)}", f"from_node={name!r}"
    if run.model == GRAPH:
        step = step_of(node) - 1  # the checkpoint that has the item in its frontier
        where, asked = f"--step {step}", f"step={step}"
    code = "" if run.definition is not None else f" (with --app and the module of {run.workflow})"
    return (
        f"`holdfast fork {run.id} {where}`{code}, or engine.fork(…, {asked}), makes a new run that shares everything "
        "before it"
    )


def _hasten(view: View, run: Run, waiting: Work, name: str, by: str) -> Changed:
    """The attempt that is asked for waits already: for its time, which is now, or (K8) for a worker alone."""
    if waiting.due <= view.now:
        return Changed(changed=False, status=run.status)
    record(view, run, "reattempted", by=by, node=name)
    view.put(WORK, replace(waiting, due=view.now, gate=gate_for(run, view.now, view.now)))
    return Changed(changed=True, status=run.status, nodes=(name,))


def _ask(run: Run) -> str:
    return f"`holdfast explain {run.id}` says what the run waits for"


class Operators:
    """What operators may do to a run, given the machines of the models and the code that is known here."""

    def __init__(self, machines: dict[str, Machine], definitions: Definitions) -> None:
        self.machines = machines
        self.definitions = definitions

    def decisions(self) -> dict[type[Operation], object]:
        return {
            CancelRun: self.cancel,
            PauseRun: self.pause,
            ResumeRun: self.resume,
            RetryRun: self.retry,
            ReattemptNode: self.reattempt,
            SkipNode: self.skip,
            DiscardDead: self.discard,
            SetHold: self.hold,
        }

    def cancel(self, view: View, op: CancelRun) -> Changed:
        run = existing_run(view, op.run)
        if run.ended:
            return Changed(changed=False, status=run.status)
        self._cancel(view, run, op)
        return Changed(changed=True, status=existing_run(view, op.run).status)

    def _cancel(self, view: View, run: Run, op: CancelRun) -> None:
        machine = self.machines[run.model]
        if not machine.cancels_gracefully:
            run = record(view, run, "cancel requested", by=op.by)
            end_run(view, run, CANCELLED, reason=f"cancelled by {op.by}")
            if run.model not in ("flow", GRAPH):  # which have children, as a function has
                return
        elif op.force:
            run = record(view, run, "cancel requested", by=op.by, force=True)
            end_run(view, run, CANCELLED, reason=f"cancelled by {op.by}, by force")
        elif run.status != CANCELLING:
            machine.cancel(view, run, self.definitions, op.by)
        for found in view.find(ChildrenOf(run.id)):  # unless it was detached, what a run started ends with it
            child = existing_run(view, found.id)  # as it is now: the end of one may have reached another
            if not child.ended and (op.force or child.status != CANCELLING):
                self._cancel(view, child, op)

    def pause(self, view: View, op: PauseRun) -> Changed:
        run = existing_run(view, op.run)
        if _was_granted(view, run, op):
            return Changed(changed=True, status=run.status)
        if run.status not in (PENDING, RUNNING, SUSPENDED, PAUSED) or pause_asked_for(view, run):
            return Changed(changed=False, status=run.status)
        for work in view.find(OpenWork(run.id)):
            if work.status == READY:
                view.put(WORK, replace(work, gate=GATE_PAUSED))
        run = record(view, run, "paused", by=op.by, reason=op.reason, **_named(op))
        asked_for = f"paused by {op.by}" + (f": {op.reason}" if op.reason else "")
        reason = reason_while_paused(asked_for, run.reason if run.gave_up else None)
        view.put(RUNS, replace(run, status=PAUSED, reason=reason))
        return Changed(changed=True, status=PAUSED)

    def resume(self, view: View, op: ResumeRun) -> Changed:
        """I11: overdue work runs at once, future times are kept; a pause that came from a failure is retried."""
        run = existing_run(view, op.run)
        if _was_granted(view, run, op):
            return Changed(changed=True, status=run.status)
        if run.status != PAUSED:
            return Changed(changed=False, status=run.status)
        run = self._reopen(view, record(view, run, "resumed", by=op.by, **_named(op)))
        nodes = self._retry_nodes(view, run, None, op.by) if run.gave_up and run.model != DECIDER else ()
        self._refresh(view, op.run)
        return Changed(changed=True, status=existing_run(view, op.run).status, nodes=nodes)

    def retry(self, view: View, op: RetryRun) -> Changed:
        run = existing_run(view, op.run)
        if _was_granted(view, run, op):
            return Changed(changed=True, status=run.status)
        # The last step of a graph may have failed at its merge, which no node is to blame for.
        unmerged = run.model == GRAPH and run.status == FAILED and run.remaining == 0
        if _is_final(run) or not (run.gave_up or unmerged):
            return Changed(changed=False, status=run.status)
        nodes = self._retry(view, record(view, run, "retried", by=op.by, **_named(op)), op.by)
        return Changed(changed=True, nodes=nodes, status=existing_run(view, op.run).status)

    def reattempt(self, view: View, op: ReattemptNode) -> Changed:
        """I29: strict. What followed an attempt must not find out later that there was another one."""
        run = existing_run(view, op.run)
        machine = self.machines[run.model]
        node = machine.find(view, run, op.node, self.definitions)
        attempts: list[Work] = view.find(Attempts(run.id, frozenset({node})))
        name = machine.label(view, run, node, self.definitions)
        status = attempts[-1].status if attempts else "not begun"
        if op.dead and status != DEAD:
            return Changed(changed=False, status=run.status)
        instead = _what_instead(run, node, name)
        if _is_final(run):
            raise ReattemptRefused(
                f"node {name} of run {run.id} cannot be attempted again: the run is {run.status}", hint=instead
            )
        if status == READY and attempts[-1].attempt > 1:
            return _hasten(view, run, attempts[-1], name, op.by)
        if status not in GAVE_UP and status != CANCELLED:
            is_done = status in (COMPLETED, SKIPPED)
            ahead = self._gone_ahead(view, run, node) if is_done else []
            stands = "; ".join([f"it {_standing(view, run, attempts[-1] if attempts else None)}", *ahead])
            raise ReattemptRefused(
                f"node {name} of run {run.id} cannot be attempted again: {stands}",
                hint=instead if is_done else f"wait for its end; {_ask(run)}",
            )
        _refuse_taken(run, attempts[-1], ReattemptRefused, "attempted again")
        if ahead := self._gone_ahead(view, run, node):
            raise ReattemptRefused(
                f"node {name} of run {run.id} cannot be attempted again: {'; '.join(ahead)}", hint=instead
            )
        run = self._take_up(view, record(view, run, "reattempted", by=op.by, node=name))
        nodes = self._retry_nodes(view, run, node, op.by)
        self._refresh(view, op.run)
        return Changed(changed=True, nodes=nodes, status=existing_run(view, op.run).status)

    def _gone_ahead(self, view: View, run: Run, node: str) -> list[str]:
        """What depends on the node and has completed or runs, in words: it must not find out later (I29)."""
        machine = self.machines[run.model]
        following = frozenset(machine.below(view, run, node, self.definitions))
        rows: list[Work] = view.find(Attempts(run.id, following)) if following else []
        ahead = [work for work in rows if work.status in (COMPLETED, LEASED)]
        said = []
        for work in ahead[:NAMES_SHOWN]:
            after = machine.label(view, run, work.node, self.definitions)
            said.append(f"{after}, which depends on it, {_STANDING[work.status]}")
        more = len(ahead) - NAMES_SHOWN
        return [*said, f"and so on with {more:,} more"] if more > 0 else said

    def skip(self, view: View, op: SkipNode) -> Changed:
        run = existing_run(view, op.run)
        machine = self.machines[run.model]
        node = machine.find(view, run, op.node, self.definitions)
        name = machine.label(view, run, node, self.definitions)
        attempts: list[Work] = view.find(Attempts(run.id, frozenset({node})))
        latest = attempts[-1] if attempts else None
        status = "not begun" if latest is None else latest.status
        if latest is not None and latest.kind == TURN:
            raise UsageError(
                f"run {run.id} of {run.workflow} is a function, which has no nodes that could be skipped",
                hint=f"`holdfast retry {run.id}` tries again what failed, `holdfast cancel {run.id}` ends it",
            )
        if latest is not None and latest.kind in (EFFECT, TIMER, INBOX):
            raise UsageError(
                f"{name} of run {run.id} is a decider's {latest.kind}, and nothing waits for it that could go on",
                hint=f"`holdfast retry {run.id}` tries dead letters again; `holdfast dead discard` closes one",
            )
        if latest is not None and latest.kind == PROJECTION:
            return _skip_event_of(view, run, latest, op.by)
        if status == SKIPPED:
            return Changed(changed=False, status=run.status)  # K8: whoever asks again is not told off
        child = _run_of(view, latest)
        if child is not None:  # which would go on, with nobody to tell
            raise UsageError(
                f"node {name} of run {run.id} cannot be skipped: it is running, as run {child.id}",
                hint=f"wait for its end, or `holdfast cancel {child.id}`: then the node gives up, and can be skipped",
            )
        if run.status in FINAL or status in (COMPLETED, LEASED):
            stands = _standing(view, run, latest)
            waits = status == LEASED and run.status not in FINAL
            fix = f"wait for its end; {_ask(run)}" if waits else "leave it as it is"
            raise UsageError(
                f"node {name} of run {run.id} cannot be skipped: it {stands} and the run is {run.status}",
                hint=f"{fix}; only a node that gave up or has not begun can be skipped, in a run that has not ended",
            )
        if latest is not None:
            _refuse_taken(run, latest, UsageError, "skipped")
        run = record(view, run, "skipped", by=op.by, node=name)
        if status in GAVE_UP:
            run = replace(run, gave_up=run.gave_up - 1)
        elif status == READY:
            run = replace(run, active=run.active - 1)
        ended = run.status == FAILED
        if status in GAVE_UP or ended:
            run = self._take_up(view, run)
        if latest is None:
            skipped = machine.skip_unbegun(view, run, node, self.definitions)
            view.insert(WORK, skipped)
        else:
            skipped = replace(latest, status=SKIPPED, token=latest.token + 1, finished=view.now)
            view.put(WORK, skipped)
            wait_no_more(view, run.id, node)
        if status in GAVE_UP or ended:
            run = self._blame(view, run)
        handing = Handing(None)
        machine.advance(view, run, skipped, handing, self.definitions)
        status = existing_run(view, op.run).status
        return Changed(changed=True, status=status, nodes=(name,), logged=handing.logged)

    def discard(self, view: View, op: DiscardDead) -> Changed:
        run = existing_run(view, op.run)
        machine = self.machines[run.model]
        node = machine.find(view, run, op.node, self.definitions)
        name = machine.label(view, run, node, self.definitions)
        attempts: list[Work] = view.find(Attempts(run.id, frozenset({node})))
        if not attempts or attempts[-1].status != DEAD:
            return Changed(changed=False, status=run.status)
        if attempts[-1].kind == PROJECTION:  # its dead letter is an event: closed for good, it is passed over
            return _skip_event_of(view, run, attempts[-1], op.by)
        if attempts[-1].kind == INBOX:
            raise UsageError(
                f"the inbox of run {run.id} holds {run.mailbox} inputs and cannot be discarded",
                hint=f"`holdfast retry {run.id}` looks into it again",
            )
        view.put(WORK, replace(attempts[-1], status=CANCELLED, token=attempts[-1].token + 1))
        run = record(view, run, "dead letter discarded", by=op.by, node=name)
        run = replace(run, gave_up=max(0, run.gave_up - 1))
        reason = discarded_letter(name, op.by)
        if run.model == DECIDER:  # an instance goes on without it
            view.put(RUNS, run)
        elif run.ended:  # it failed before; for what else, if for anything
            view.put(RUNS, self._blame(view, run) if run.gave_up else replace(run, reason=reason))
        else:
            waiting = {wait.address for wait in view.find(WaitsOf(run.id))}
            wait_no_more(view, run.id)
            for work in view.find(OpenWork(run.id)):
                # A failed run has nothing that could still be claimed, or that the end of another run would wake.
                if work.status in (READY, LEASED) or work.node in waiting:
                    view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, finished=view.now))
            run = replace(run, active=0)
            end_run(view, run, FAILED, reason=reason)
        return Changed(changed=True, status=existing_run(view, op.run).status, nodes=(name,))

    def hold(self, view: View, op: SetHold) -> Changed:
        existing = view.get(HOLDS, (op.scope, op.name))
        if op.on and existing is None:
            view.insert(HOLDS, Hold(scope=op.scope, name=op.name, by=op.by, since=view.now))
        elif not op.on and existing is not None:
            view.delete(HOLDS, existing)
        return Changed(changed=op.on is (existing is None))

    def _refresh(self, view: View, run: str) -> None:
        row = existing_run(view, run)
        self.machines[row.model].refresh(view, row, self.definitions)

    def _take_up(self, view: View, run: Run) -> Run:
        """Back to running, unless somebody asked for a pause: what becomes ready then waits with the rest (I11)."""
        return run if pause_asked_for(view, run) else self._reopen(view, run)

    def _reopen(self, view: View, run: Run) -> Run:
        """Back to running, with ready work claimable again when its time has come."""
        if run.ended and run.model == DECIDER:  # I34: it has ended, and its last effects are tried again
            return run
        run = replace(run, status=PENDING if run.started is None else RUNNING, reason=None, finished=None)
        view.put(RUNS, run)
        for work in view.find(OpenWork(run.id)):
            if work.status == READY:
                view.put(WORK, replace(work, gate=gate_for(run, work.due, view.now)))
        return run

    def _retry(self, view: View, run: Run, by: str) -> tuple[str, ...]:
        """All that gave up in the run is tried again; the names of it."""
        nodes = self._retry_nodes(view, self._take_up(view, run), None, by)
        self._refresh(view, run.id)
        return nodes

    def _retry_subgraph(self, view: View, work: Work, by: str) -> None:
        """What failed is in the subgraph's own run: that is retried too. One that was cancelled is begun anew."""
        child = view.run(subgraph_run(work))
        if child is not None and child.status == FAILED:
            self._retry(view, record(view, child, "retried", by=by), by)
        elif child is not None and child.status == CANCELLED:
            again: Work | None = view.get(WORK, (work.run, work.node, work.attempt + 1))
            if again is not None:
                view.put(WORK, replace(again, payload=str(again.attempt).encode()))

    def _retry_nodes(self, view: View, run: Run, only: str | None, by: str) -> tuple[str, ...]:
        """A new attempt, with a fresh budget, for the nodes whose latest attempt gave up; their names."""
        machine = self.machines[run.model]
        query = AllWork(run.id) if only is None else Attempts(run.id, frozenset({only}))
        latest: dict[str, Work] = {}
        for work in view.find(query):
            latest[work.node] = work
        # A function was told of a call that failed: that is in its history, and not for an operator to try again.
        again = [
            work
            for work in latest.values()
            if (work.status in GAVE_UP or work.node == only) and work.kind != CALL and not was_taken(work)
        ]
        run = replace(run, gave_up=run.gave_up - sum(work.status in GAVE_UP for work in again))
        view.put(RUNS, run)
        for work in again:
            if work.status == DEAD:  # I9: replayed, it is no dead letter any more and is counted as none
                view.put(WORK, replace(work, status=FAILED))
            if work.kind == TURN:
                forget_failure(view, work)
            parents = machine.parents(view, run, work.node, self.definitions)
            if parents is not None and parents != work.parents:
                run = record(view, run, "follows other attempts", node=work.node, attempt=work.attempt + 1)
            if work.kind == EFFECT:
                run = replace(run, remaining=run.remaining + 1)
            run = new_attempt(view, run, work, Handing(None), due=view.now, failures=0, losses=0, parents=parents)
            machine.tried_again(view, run, work)
            if work.kind == CHILD and run.model == GRAPH:
                self._retry_subgraph(view, work, by)
            run = existing_run(view, run.id)
        self._blame(view, run)
        return tuple(machine.label(view, run, work.node, self.definitions) for work in again)

    def _blame(self, view: View, run: Run) -> Run:
        """The run's error is that of a node that has given up and still stands so, if there is one.

        So is its reason, after that of somebody who paused it.
        """
        asked_for = pause_asked_for(view, run)
        run = replace(run, error=None, reason=asked_for)
        if run.gave_up and run.model != DECIDER:
            latest: dict[str, Work] = {work.node: work for work in view.find(AllWork(run.id))}
            for work in latest.values():
                if work.status in GAVE_UP:
                    machine = self.machines[run.model]
                    reason = why(work, machine.label(view, run, work.node, self.definitions))
                    reason += machine.position(view, run, work.node, self.definitions)
                    run = replace(
                        run,
                        error=work.error,
                        reason=reason if asked_for is None else reason_while_paused(asked_for, reason),
                    )
                    break
        view.put(RUNS, run)
        return run
