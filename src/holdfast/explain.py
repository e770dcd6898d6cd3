"""`holdfast explain`: in plain words, why a run is not progressing now and what would move it.

Reads committed rows only; nothing here is ever used for a decision.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from holdfast.core.codec import decode_error
from holdfast.core.queries import AllWork, Holds
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    COMPLETED,
    DEAD,
    FAILED,
    GATE_DUE,
    LEASED,
    PAUSED,
    READY,
    TIMED_OUT,
    Hold,
    Run,
    Work,
)
from holdfast.store.contract import Store, WorkerRow


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`summary` says it in one sentence, `reasons` item by item, `fixes` are commands that would help."""

    run: str
    status: str
    summary: str
    reasons: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.summary, *(f"  - {reason}" for reason in self.reasons)]
        lines += [f"  try: {fix}" for fix in self.fixes]
        return "\n".join(lines)


async def explain(store: Store, run: Run) -> Explanation:
    """Why this run is where it is."""
    now = store.now()
    work: list[Work] = await store.rows(AllWork(run.id))
    if run.ended:
        return _ended(run, work)
    latest = list({item.node: item for item in work}.values())
    workers = await store.workers()
    holds: list[Hold] = await store.rows(Holds())
    reasons: list[str] = []
    fixes: list[str] = []
    if run.status == PAUSED:
        fixes.append(f"holdfast resume {run.id}")
    for item in latest:
        if item.status == LEASED:
            reasons.append(_leased(item, workers, now))
        elif item.status == READY and run.status != PAUSED:
            reason, fix = _ready(item, workers, holds, now)
            reasons.append(reason)
            fixes += fix
        elif item.status == BLOCKED:
            reasons.append(
                f"node {item.node} is blocked ({item.completed} of {item.required} parents done) "
                f"since {_clock(item.created)}"
            )
        elif item.status in (FAILED, TIMED_OUT, DEAD):
            reasons += _gave_up(item, run)
            if item.status == DEAD:
                fixes.append(f"holdfast dead replay {run.id} {item.node}")
            elif run.status != PAUSED:
                fixes.append(f"holdfast retry {run.id}")
    return Explanation(
        run=run.id,
        status=run.status,
        summary=_summary(run, latest),
        reasons=tuple(reasons),
        fixes=tuple(dict.fromkeys(fixes)),
    )


def _ended(run: Run, work: list[Work]) -> Explanation:
    when = _clock(run.finished or run.updated)
    if run.status == COMPLETED:
        summary, fixes = f"run {run.id} of {run.workflow} completed at {when}: there is nothing left to do", ()
    elif run.status == CANCELLED:
        summary, fixes = f"run {run.id} of {run.workflow} was {_said_once(CANCELLED, run.reason)}, at {when}", ()
    else:
        summary = f"run {run.id} of {run.workflow} failed at {when}: {run.reason}"
        fixes = (f"holdfast retry {run.id}",)  # type: ignore[assignment]
    latest = {item.node: item for item in work}.values()
    reasons = [line for item in latest if item.status in (FAILED, TIMED_OUT, DEAD) for line in _gave_up(item, run)]
    return Explanation(run=run.id, status=run.status, summary=summary, reasons=tuple(reasons), fixes=fixes)


def _said_once(verb: str, reason: str | None) -> str:
    """`paused: lunch`, but `paused by ada` and not `paused: paused by ada`."""
    if not reason:
        return verb
    return reason if reason.startswith(f"{verb} ") else f"{verb}: {reason}"


def _summary(run: Run, latest: list[Work]) -> str:
    name = f"run {run.id} of {run.workflow}"
    if run.status == PAUSED:
        return f"{name} is {_said_once(PAUSED, run.reason)}. Nothing of it starts until it is resumed"
    running = [item.node for item in latest if item.status == LEASED]
    if running:
        return f"{name} is running {', '.join(running)}"
    waiting = [item for item in latest if item.status == READY]
    if waiting:
        return f"{name} waits for {', '.join(item.node for item in waiting)} to be started"
    return f"{name} is {run.status}"


def _leased(item: Work, workers: list[WorkerRow], now: int) -> str:
    owner = next((worker for worker in workers if worker.id == item.worker), None)
    since = _clock(item.started or item.created)
    if owner is None:
        return f"node {item.node} was running on worker {item.worker}, which is gone: another worker takes it over soon"
    if owner.lease_until < now:
        return (
            f"node {item.node} was running on worker {owner.id} on {owner.host}, whose lease ran out at "
            f"{_clock(owner.lease_until)}: any live worker takes it over"
        )
    return (
        f"node {item.node} (attempt {item.attempt}) is running since {since} on worker {owner.id} "
        f"({owner.host}, pid {owner.pid}), which holds the lease until {_clock(owner.lease_until)}"
    )


def _ready(item: Work, workers: list[WorkerRow], holds: list[Hold], now: int) -> tuple[str, list[str]]:
    if item.gate == GATE_DUE and item.due > now:
        if item.error is not None:
            failed = decode_error(item.error)
            return (
                f"node {item.node} is backing off until {_clock(item.due)} ({(item.due - now) / 1e6:.0f} s) before "
                f"attempt {item.attempt}, after {failed.type}: {failed.message}",
                [],
            )
        return f"node {item.node} is due at {_clock(item.due)} ({(item.due - now) / 1e6:.0f} s from now)", []
    for hold in holds:
        if (
            hold.scope == "all"
            or (hold.scope == "workflow" and hold.name == item.workflow)
            or (hold.scope == "queue" and hold.name == item.queue)
        ):
            what = "everything" if hold.scope == "all" else f"{hold.scope} {hold.name}"
            option = "" if hold.scope == "all" else f" --{hold.scope} {hold.name}"
            reason = f"{what} is in maintenance since {_clock(hold.since)} (by {hold.by}): nothing is claimed"
            return reason, [f"holdfast maintenance off{option}"]
    live = [worker for worker in workers if worker.lease_until >= now]
    serving = [worker for worker in live if item.queue in worker.queues]
    waited = f"node {item.node} is ready since {_clock(item.due)}"
    if not live:
        return f"{waited}, and no worker is running", ["holdfast worker YOUR.MODULE"]
    if not serving:
        queues = ", ".join(sorted({queue for worker in live for queue in worker.queues}))
        return (
            f"{waited}, but no worker serves queue {item.queue!r} (live workers serve: {queues})",
            [f"holdfast worker YOUR.MODULE --queue {item.queue}"],
        )
    if not any(worker.knows(item) for worker in serving):
        return (
            f"{waited}, but no live worker of queue {item.queue!r} knows {item.name} of {item.workflow}",
            ["holdfast worker THE.MODULE.THAT.DEFINES.IT"],
        )
    return f"{waited}, and waits for a free slot of a worker of queue {item.queue!r}", ["holdfast stats"]


def _gave_up(item: Work, run: Run) -> list[str]:
    """One line, or none if the run's own reason has told it already."""
    attempts = "1 attempt" if item.attempt == 1 else f"{item.attempt} attempts"
    error = "" if item.error is None else decode_error(item.error).message
    kind = "is a dead letter" if item.status == DEAD else "gave up"
    reason = run.reason or ""
    if f"node {item.node} " in reason and error in reason:
        return []
    return [f"node {item.node} {kind} after {attempts} ({item.status}): {error}"]


def _clock(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
