"""An instance of a decider as `holdfast show --json` gives it, and how it is gathered.

Events, effects, timers and inputs are shown as they are stored, so that looking needs no code. The state is what the
decider's code makes of the events; without that code, the last snapshot has to do.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.codec import decode_error
from holdfast.core.decider_operations import DECIDER, INPUT_EVENT
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import AllWork, DeadEvents, ObservationsOf, OpenWork, QueuedEvents, SnapshotOf, StreamAfter
from holdfast.core.rows import EFFECT, LEASED, OPEN_WORK, READY, TIMER, Event, Fact, Observation, Run, Snapshot, Work
from holdfast.core.stored import moment
from holdfast.models.decider import timer_key
from holdfast.runtime.folds import folded_now, folded_up_to

if TYPE_CHECKING:
    from holdfast.authoring.decider_code import BoundDecider
    from holdfast.engine import Engine

EVENTS_SHOWN: Final = 10
INPUTS_SHOWN: Final = 10
DEAD_LOOKED_AT: Final = 1000
PAGE: Final = 1000


class EventShown(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is stored; a record of the engine's own is `system`."""

    sequence: int
    type: str
    version: int
    at: datetime
    data: Any
    system: bool
    cause: str


class EffectShown(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that is pending or was given up; `behind` is the one that it waits for."""

    id: str
    type: str
    state: str
    attempt: int
    due_at: datetime
    behind: str | None
    error: dict[str, str] | None
    data: Any


class TimerShown(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that is set or was given up; `id` is what commands call it."""

    id: str
    key: str | None
    type: str
    state: str
    due_at: datetime
    failures: int
    error: dict[str, str] | None
    data: Any


class InputShown(msgspec.Struct, frozen=True, kw_only=True):
    """An input that waits in the inbox, or that could not be applied, with the reason."""

    id: str
    type: str
    at: datetime
    data: Any
    reason: str | None


class ObservedShown(msgspec.Struct, frozen=True, kw_only=True):
    """That the instance was given an input, and what came of it."""

    number: int
    type: str
    at: datetime
    source: str
    outcome: str
    command_id: str | None
    before: str | None
    after: str | None
    payload: Any


class StateShown(msgspec.Struct, frozen=True, kw_only=True):
    """A state after an event. `source` is "code", "snapshot" (an earlier one, as stored) or None, and `trouble` why."""

    status: str | None = None
    terminal: bool | None = None
    fields: dict[str, Any] = {}
    state: Any = None
    sequence: int | None = None
    source: str | None = None
    trouble: str | None = None


class InstanceShown(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance is, beyond its run. `inbox` counts the inputs of which the oldest are listed."""

    workflow_id: str
    sequence: int
    state: StateShown
    events: tuple[EventShown, ...]
    effects: tuple[EffectShown, ...]
    timers: tuple[TimerShown, ...]
    inbox: int
    inputs: tuple[InputShown, ...]
    dead_inputs: tuple[InputShown, ...]
    observations: tuple[ObservedShown, ...]


async def instance_work(engine: Engine, row: Run, every: bool) -> list[Work]:
    """Work of an instance that is pending or was given up, or all of it."""
    whole = every or row.gave_up
    return await engine.store.rows(AllWork(row.id) if whole else OpenWork(row.id))


async def gather_instance(
    engine: Engine, row: Run, work: list[Work], *, every: bool = False, whole: bool = False
) -> InstanceShown:
    """What is known about an instance: `every` effect and timer, done ones too; the `whole` stream."""
    latest = {item.node: item for item in work}
    shown = [item for item in latest.values() if every or item.status in OPEN_WORK or item.status == "dead"]
    ahead = next((item.node for item in shown if item.kind == EFFECT and item.status in (READY, LEASED)), None)
    queued: list[Event] = await engine.store.rows(QueuedEvents(INPUT_EVENT, row.id, INPUTS_SHOWN))
    dead: list[Event] = [
        event for event in await engine.store.rows(DeadEvents(DEAD_LOOKED_AT)) if event.target == row.id
    ]
    observed: list[Observation] = await engine.store.rows(ObservationsOf(row.id))
    after = 0 if whole else max(0, row.base - EVENTS_SHOWN)
    return InstanceShown(
        workflow_id=row.key or "",
        sequence=row.base,
        state=await state_of(engine, row),
        events=tuple([event async for page in stream_pages(engine, row, after) for event in page]),
        effects=tuple(_effect(engine, item, ahead) for item in sorted(shown, key=_asked) if item.kind == EFFECT),
        timers=tuple(_timer(engine, item) for item in sorted(shown, key=_due) if item.kind == TIMER),
        inbox=row.mailbox,
        inputs=tuple(_input(engine, event) for event in queued),
        dead_inputs=tuple(_input(engine, event) for event in dead),
        observations=tuple(_observed(engine, row) for row in observed),
    )


async def stream_pages(engine: Engine, row: Run, after: int, limit: int | None = None) -> Any:
    """The events of an instance after a sequence, page by page, as they are stored."""
    left = limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        facts: list[Fact] = await engine.store.rows(StreamAfter(row.id, after, size))
        if facts:
            yield [event_shown(engine, fact) for fact in facts[:size]]
        if len(facts) < size:
            return
        after = facts[-1].sequence
        left = None if left is None else left - len(facts)


# -- the state


async def state_of(engine: Engine, row: Run, at: int | None = None) -> StateShown:
    """The state now, or after an event; what the code cannot fold is told and not raised: whoever looks needs it."""
    code = engine.definitions.decider(row.workflow)
    if code is None:
        trouble = f"the code of {row.workflow}, which folds events into a state, is not imported: add --app MODULE"
        return await _stored_state(engine, row, trouble, at)
    try:
        if at is None:
            folded = await folded_now(engine.store, row, code, engine.definitions)
        else:
            folded = await folded_up_to(engine.store, row, code, at)
        info = code.view(folded.state)
        return StateShown(
            status=info.status,
            terminal=bool(info.terminal),
            fields={str(name): readable_value(value) for name, value in info.fields.items()},
            state=_plain_state(engine, code, folded.state),
            sequence=folded.sequence,
            source="code",
        )
    except HoldfastError as error:
        return await _stored_state(engine, row, str(error), at)
    except Exception as error:  # the author's evolve or view
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        return await _stored_state(engine, row, f"{type(error).__name__}: {error}{notes}", at)


async def _stored_state(engine: Engine, row: Run, trouble: str, at: int | None) -> StateShown:
    snapshots: list[Snapshot] = await engine.store.rows(SnapshotOf(row.id))
    for snapshot in snapshots:
        if at is None or snapshot.sequence <= at:
            state = plain(engine, snapshot.state, snapshot.codec)
            return StateShown(state=state, sequence=snapshot.sequence, source="snapshot", trouble=trouble)
    return StateShown(trouble=trouble)


def _plain_state(engine: Engine, code: BoundDecider, state: Any) -> Any:
    stored = code.store_state(state)
    return repr(state) if stored is None else plain(engine, *stored)


def readable_value(value: Any) -> Any:
    """A value of the author's for people and for JSON."""
    try:
        return msgspec.to_builtins(value, enc_hook=str, str_keys=True)
    except Exception:
        return repr(value)


def plain(engine: Engine, data: bytes, codec: str) -> Any:
    """A payload without its types, whatever it was written with."""
    try:
        return msgspec.to_builtins(engine.codecs.decode(data, where="a payload", codec=codec))
    except Exception:
        return f"<{len(data)} bytes of {codec} that this process cannot read>"


# -- rows


def event_shown(engine: Engine, fact: Fact) -> EventShown:
    """An event as it is stored. Its type is a column, and left out of the data."""
    data = plain(engine, fact.data, fact.codec)
    return EventShown(
        sequence=fact.sequence,
        type=fact.type,
        version=fact.version,
        at=_moment(fact.at),
        data=_without_type(data),
        system=bool(fact.system),
        cause=fact.cause,
    )


def _effect(engine: Engine, item: Work, ahead: str | None) -> EffectShown:
    return EffectShown(
        id=item.node,
        type=item.name[len(item.workflow) + 1 :],
        state=item.status,
        attempt=item.attempt,
        due_at=_moment(item.due),
        behind=ahead if item.status == "blocked" else None,
        error=_error(item),
        data=_without_type(plain(engine, item.payload or b"null", item.codec)),
    )


def _timer(engine: Engine, item: Work) -> TimerShown:
    return TimerShown(
        id=item.node,
        key=timer_key(item.node),
        type=item.name[len(item.workflow) + 1 :],
        state=item.status,
        due_at=_moment(item.due),
        failures=item.failures,
        error=_error(item),
        data=_without_type(plain(engine, item.payload or b"null", item.codec)),
    )


def _input(engine: Engine, event: Event) -> InputShown:
    data = plain(engine, event.payload, event.codec)
    return InputShown(
        id=event.id, type=type_of(data), at=_moment(event.at), data=_without_type(data), reason=event.reason
    )


def _observed(engine: Engine, row: Observation) -> ObservedShown:
    return ObservedShown(
        number=row.number,
        type=row.type,
        at=_moment(row.at),
        source=row.source,
        outcome=row.outcome,
        command_id=row.command,
        before=row.before,
        after=row.after,
        payload=None if row.payload is None else _without_type(plain(engine, row.payload, row.codec)),
    )


def _error(item: Work) -> dict[str, str] | None:
    if item.error is None:
        return None
    record = decode_error(item.error)
    return {"type": record.type, "message": record.message, "traceback": record.traceback}


def type_of(data: Any) -> str:
    """The class that a stored input says it is of."""
    return str(data["type"]) if isinstance(data, dict) and "type" in data else "?"


def _without_type(data: Any) -> Any:
    return {name: value for name, value in data.items() if name != "type"} if isinstance(data, dict) else data


def _moment(at: int) -> datetime:
    return moment(at)


def _asked(item: Work) -> tuple[int, int]:
    sequence, _, number = item.node.removeprefix("effect/").partition(".")
    return (int(sequence), int(number)) if sequence.isdecimal() and number.isdecimal() else (0, 0)


def _due(item: Work) -> tuple[int, str]:
    return item.due, item.node


__all__ = ["DECIDER", "InstanceShown", "gather_instance", "instance_work", "state_of", "stream_pages"]
