"""The projection machine: a run whose position only its owner moves, and that stops where it cannot go on.

A projection has one work item for as long as it lives. Leased: a worker owns it. Ready: anybody may. Dead: it stands
before an event that it cannot take, its run has failed with that event as the reason, and all other projections go on
(I36). Its position is `base` of the run, and is written in the transaction that holds what its handler wrote.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.core.codec import decode_error
from holdfast.core.errors import UnknownNode, UsageError
from holdfast.core.operations import (
    RECORDED,
    REPEATED,
    STALE,
    Changed,
    FailWork,
    Operation,
    Settled,
    StartRun,
)
from holdfast.core.projection_operations import (
    PROJECTION_MODEL,
    PROJECTION_NODE,
    AdvanceProjection,
    EventPlace,
    FailProjection,
    RebuildProjection,
    SkipEvent,
)
from holdfast.core.rows import (
    CANCELLED,
    DEAD,
    FAILED,
    LEASED,
    PAUSED,
    PROJECTION,
    READY,
    RUNNING,
    RUNS,
    WORK,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import (
    REASON_LIMIT,
    Definitions,
    Handing,
    end_run,
    existing_run,
    make_ready,
    mark_running,
    record,
    why,
)


class ProjectionMachine:
    """Projections."""

    cancels_gracefully = False

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None:
        work = Work(
            run=run.id,
            node=PROJECTION_NODE,
            attempt=1,
            workflow=run.workflow,
            kind=PROJECTION,
            name=run.workflow,
            completed=1,
            queue=run.queue,
            priority=run.priority,
            due=view.now,
            created=view.now,
        )
        view.insert(WORK, make_ready(view, run, work, handing))
        view.put(RUNS, replace(run, active=1))

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        raise UsageError(
            f"{run.workflow} is a projection, which is never done",
            hint="stop it with `holdfast projections pause`, or for good with `holdfast cancel`",
        )

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """I36: it stops, with the event as the reason; a dead letter until somebody retries or skips it."""
        reason = _stopped_at(run, work) if work.status != DEAD else why(work, _name(run))
        if work.status != DEAD:
            view.put(WORK, replace(work, status=DEAD))
        end_run(view, replace(run, error=work.error), FAILED, reason=reason)

    def before_another(self, view: View, run: Run, work: Work, definitions: Definitions) -> Run | None:
        return run

    def tried_again(self, view: View, run: Run, work: Work) -> None:
        """Nothing more follows from it."""

    def idle(self, view: View, run: Run) -> None:
        """It waits for an owner."""

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """Whoever owns it reads where it stands."""

    def cancel(self, view: View, run: Run, definitions: Definitions, by: str) -> None:
        raise NotImplementedError("a projection is cancelled at once")

    def label(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return node

    def position(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return ""

    def find(self, view: View, run: Run, name: str, definitions: Definitions) -> str:
        if name in (PROJECTION_NODE, run.workflow, _name(run)):
            return PROJECTION_NODE
        raise UnknownNode(
            f"{run.workflow} has no node {name!r}", hint=f"a projection has one, which is called {PROJECTION_NODE!r}"
        )

    def parents(self, view: View, run: Run, node: str, definitions: Definitions) -> str | None:
        return None

    def below(self, view: View, run: Run, node: str, definitions: Definitions) -> tuple[str, ...]:
        return ()

    def skip_unbegun(self, view: View, run: Run, node: str, definitions: Definitions) -> Work:
        raise UsageError(f"{run.workflow} cannot be skipped", hint="`holdfast projections skip` passes over one event")


class ProjectionOperations:
    """What its owner reports, and what operators ask for."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle

    def decisions(self) -> dict[type[Operation], object]:
        return {
            AdvanceProjection: self.advance,
            FailProjection: self.fail,
            RebuildProjection: self.rebuild,
            SkipEvent: self.skip,
        }

    def advance(self, view: View, op: AdvanceProjection) -> Settled:
        """Only for its owner, only from where it stands, and not while it is paused: else nothing of it may stay."""
        held = self.lifecycle.lease_of_turn(view, op)
        if isinstance(held, Settled):
            return held
        run, work = held
        if run.base != op.after:
            return Settled(verdict=REPEATED if run.base == op.position else STALE, run_status=run.status)
        if run.status == PAUSED:
            return Settled(verdict=STALE, run_status=PAUSED)
        if work.failures or work.losses or work.error is not None:
            view.put(WORK, replace(work, failures=0, losses=0, error=None, payload=None))
        run = replace(mark_running(run, work.started or view.now), base=op.position)
        view.put(RUNS, run)
        return Settled(verdict=RECORDED, run_status=run.status)

    def fail(self, view: View, op: FailProjection) -> Settled:
        held = self.lifecycle.lease_of_turn(view, op, DEAD)
        if isinstance(held, Settled):
            return held
        run, work = held
        if op.place.position <= run.base:
            return Settled(verdict=STALE, run_status=run.status)
        view.put(WORK, replace(work, payload=msgspec.json.encode(op.place)))
        return self.lifecycle.fail(
            view,
            FailWork(
                run=op.run,
                node=op.node,
                attempt=op.attempt,
                token=op.token,
                error=op.error,
                retryable=op.retryable,
                attempts=op.attempts,
                base_seconds=op.base_seconds,
                cap_seconds=op.cap_seconds,
            ),
        )

    def rebuild(self, view: View, op: RebuildProjection) -> Changed:
        """Its reset hook runs in this transaction, so that empty tables and position 0 are one moment."""
        run, work = _projection(view, op.run)
        if run.status == CANCELLED:
            raise UsageError(
                f"{run.workflow} was cancelled, and that is for good",
                hint="give the projection another name=, and it begins with the first event",
            )
        if run.base == 0 and work.status == READY and not work.failures:
            return Changed(changed=False, status=run.status)  # K8: it stands at the beginning, and nobody owns it
        run = record(view, run, "rebuilt", by=op.by, position=run.base)
        run = _set_out(view, replace(run, base=0), work)
        return Changed(changed=True, status=run.status)

    def skip(self, view: View, op: SkipEvent) -> Changed:
        run, work = _projection(view, op.run)
        return skip_event(view, run, work, op.position, op.by)


def skip_event(view: View, run: Run, work: Work, position: int, by: str) -> Changed:
    """Go on behind an event that cannot be taken."""
    if position <= run.base:
        return Changed(changed=False, status=run.status)  # K8: it was passed over before
    if work.status != DEAD and not (work.status == READY and work.failures):
        raise UsageError(
            f"{run.workflow} does not stand before an event that it cannot take",
            hint=f"`holdfast explain {run.id}` says what it does",
        )
    place = failed_place(work)
    shown = {} if place is None else {"type": place.type, "of": place.workflow, "key": place.key}
    run = record(view, run, "event skipped", by=by, position=position, **shown)
    run = _set_out(view, replace(run, base=position), work)
    return Changed(changed=True, status=run.status, nodes=(PROJECTION_NODE,))


def failed_place(work: Work) -> EventPlace | None:
    """The event that the projection could not take last time, if there is one."""
    if work.payload is None or not (work.failures or work.status == DEAD):
        return None
    try:
        return msgspec.json.decode(work.payload, type=EventPlace)
    except msgspec.DecodeError:  # changed by hand: the error is still told
        return None


def _set_out(view: View, run: Run, work: Work) -> Run:
    """Anybody may own it now, and whoever did does not any more: the token grows (I36)."""
    run = replace(
        run,
        active=run.active + (work.status not in (READY, LEASED)),
        gave_up=run.gave_up - (work.status == DEAD),
    )
    if run.status == FAILED:
        run = replace(run, status=RUNNING, error=None, reason=None, finished=None)
    fresh = replace(
        work,
        status=READY,
        token=work.token + 1,
        worker=None,
        payload=None,
        error=None,
        failures=0,
        losses=0,
        due=view.now,
        started=None,
        finished=None,
    )
    view.put(WORK, make_ready(view, run, fresh, Handing(None)))
    view.put(RUNS, run)
    return run


def _projection(view: View, run: str) -> tuple[Run, Work]:
    found = existing_run(view, run)
    work = view.get(WORK, (run, PROJECTION_NODE, 1))
    if found.model != PROJECTION_MODEL or work is None:
        raise UsageError(
            f"run {run} of {found.workflow} is no projection", hint="`holdfast projections` lists those that there are"
        )
    return found, work


def _name(run: Run) -> str:
    return run.key or run.workflow


def _stopped_at(run: Run, work: Work) -> str:
    place = failed_place(work)
    if place is None or work.error is None:
        return why(work, _name(run))
    error = decode_error(work.error)
    times = "1 attempt" if work.failures == 1 else f"{work.failures} attempts"
    message = error.message.replace("\0", "\\0")
    text = f"projection {_name(run)} stopped at {place} after {times}: {error.type}: {message}"
    return text[:REASON_LIMIT]


__all__ = ["PROJECTION_MODEL", "ProjectionMachine", "ProjectionOperations", "failed_place", "skip_event"]
