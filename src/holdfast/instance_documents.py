"""What people and programs see of a decider's instance: its state, what is pending, and what was observed of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.authoring.durations import instant
from holdfast.authoring.state_machine import StateInfo
from holdfast.core.codec import Codecs, decode_error
from holdfast.core.rows import EFFECT, OPEN_WORK, TIMER, Observation, Run, Work
from holdfast.models.decider import timer_key


class PendingEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that has not been carried out, or was given up (`dead`)."""

    id: str
    type: str
    status: str
    attempt: int
    due: datetime
    error: str | None = None


class PendingTimer(msgspec.Struct, frozen=True, kw_only=True):
    """An input that will be given later, or was given up (`dead`)."""

    key: str | None
    type: str
    status: str
    due: datetime
    failures: int = 0
    error: str | None = None


class ObservedInput(msgspec.Struct, frozen=True, kw_only=True):
    """That an instance was given an input, and what came of it: applied, ignored or a duplicate."""

    number: int
    type: str
    at: datetime
    source: str
    outcome: str
    command_id: str | None = None
    before: str | None = None
    after: str | None = None
    payload: Any = None


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A way that instances were seen to take, and how often."""

    before: str | None
    input: str
    after: str | None
    count: int


class InstanceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of an instance at one moment."""

    run_id: str
    workflow: str
    workflow_id: str
    status: str  # of its run: running, completed, paused, cancelled
    state: Any
    view: StateInfo
    sequence: int
    effects: tuple[PendingEffect, ...]
    timers: tuple[PendingTimer, ...]
    inbox: int
    observations: tuple[ObservedInput, ...] = ()

    @property
    def terminal(self) -> bool:
        return bool(self.view.terminal)


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance in a listing."""

    run_id: str
    workflow: str
    workflow_id: str
    status: str
    events: int
    effects: int
    inbox: int
    dead: int
    created: datetime
    updated: datetime


def pending_effects(work: list[Work]) -> tuple[PendingEffect, ...]:
    """Effects that are not done, in the order in which they were asked for."""
    latest = {item.node: item for item in work if item.kind == EFFECT}
    waiting = [item for item in latest.values() if item.status in OPEN_WORK or item.status == "dead"]
    return tuple(
        PendingEffect(
            id=item.node,
            type=item.name.rpartition(".")[2],
            status=item.status,
            attempt=item.attempt,
            due=instant(item.due),
            error=_error_text(item.error),
        )
        for item in sorted(waiting, key=lambda item: (item.created, item.node))
    )


def pending_timers(work: list[Work]) -> tuple[PendingTimer, ...]:
    """Timers that are set, the earliest first."""
    waiting = [item for item in work if item.kind == TIMER and (item.status in OPEN_WORK or item.status == "dead")]
    return tuple(
        PendingTimer(
            key=timer_key(item.node),
            type=item.name.rpartition(":")[2],
            status=item.status,
            due=instant(item.due),
            failures=item.failures,
            error=_error_text(item.error),
        )
        for item in sorted(waiting, key=lambda item: (item.due, item.node))
    )


def _error_text(error: bytes | None) -> str | None:
    if error is None:
        return None
    record = decode_error(error)
    return f"{record.type}: {record.message}"


def observed_input(row: Observation, codecs: Codecs) -> ObservedInput:
    """An observation as people see it; what was kept of the input is decoded."""
    payload = None
    if row.payload is not None:
        payload = codecs.decode(row.payload, where=f"input {row.number} of run {row.run}", codec=row.codec)
    return ObservedInput(
        number=row.number,
        type=row.type,
        at=instant(row.at),
        source=row.source,
        outcome=row.outcome,
        command_id=row.command,
        before=row.before,
        after=row.after,
        payload=payload,
    )


def listed_instance(run: Run) -> Instance:
    return Instance(
        run_id=run.id,
        workflow=run.workflow,
        workflow_id=run.key or "",
        status=run.status,
        events=run.base,
        effects=run.remaining,
        inbox=run.mailbox,
        dead=run.gave_up,
        created=instant(run.created),
        updated=instant(run.updated),
    )
