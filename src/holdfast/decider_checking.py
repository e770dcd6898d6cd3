"""Before a deploy: does this code still understand what a decider has stored? Nothing is started or written.

Streams and instances may be very many, so what is read is a sample that finds what goes wrong in practice: one event of
every type and version, one pending effect, timer and queued input of every type, dead letters, and the streams of some
instances as a whole. A problem in any of them breaks instances after the deploy, or loses what they hold; no problem is
no proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.authoring.decider_code import BoundDecider
from holdfast.authoring.variants import Variants
from holdfast.core.decider_operations import DECIDER, INPUT_EVENT
from holdfast.core.errors import HoldfastError
from holdfast.core.graph import known_names
from holdfast.core.queries import OpenWork, QueuedEvents, StreamAfter
from holdfast.core.rows import EFFECT, TIMER, Event, Fact, Run, Work
from holdfast.runtime.folds import folded_up_to
from holdfast.store.contract import FindRuns, OpenWorkType

if TYPE_CHECKING:
    from holdfast.engine import Engine

OPEN = ("running", "paused", "pending", "suspended", "cancelling")
INSTANCES_FOLDED = 100
EVENTS_FOLDED = 100_000
RUNS_LOOKED_AT = 5_000
INBOXES_READ = 100
INPUTS_READ = 20
DEAD_LOOKED_AT = 1_000
PAGE = 500


@dataclass(frozen=True, slots=True)
class Problem:
    """A run in which it shows, what is wrong, and whether the code `breaks` on it or only `changes` something."""

    run: str
    text: str
    verdict: str = "breaks"


async def problems_of(engine: Engine, workflow: str, code: BoundDecider) -> AsyncIterator[Problem]:
    """What this code does not understand of the instances stored under a decider's name, one problem of each sort."""
    unread = False
    async for problem in _events(engine, workflow, code):
        unread = unread or problem.verdict == "breaks"
        yield problem
    async for problem in _pending_work(engine, workflow, code):
        yield problem
    for problem in await _dead_letters(engine, workflow, code):
        yield problem
    folding = not unread  # whoever cannot read an event cannot fold its stream: that is the same problem once more
    seen: set[str] = set()
    looked_at = folded = events = inboxes = 0
    async for run in _open_instances(engine, workflow):
        looked_at += 1
        if folding and folded < INSTANCES_FOLDED and events + run.base <= EVENTS_FOLDED:
            folded, events = folded + 1, events + run.base
            trouble = await _folds(engine, run, code)
            if trouble:
                folding = False
                yield Problem(run.id, trouble)
        if run.mailbox and inboxes < INBOXES_READ:
            inboxes += 1
            for problem in await _inbox(engine, run, code, seen):
                yield problem
        if looked_at >= RUNS_LOOKED_AT:
            break


# -- events


async def _events(engine: Engine, workflow: str, code: BoundDecider) -> AsyncIterator[Problem]:
    for kind in await engine.store.stream_types(workflow):
        facts: list[Fact] = await engine.store.rows(StreamAfter(kind.run, kind.sequence - 1, 1))
        for fact in facts:
            count = "1 event" if kind.total == 1 else f"{kind.total:,} events"
            what = f"{count} of type {kind.type}" + ("" if kind.version == 1 else f", version {kind.version}")
            trouble = _trouble(code.event_of, fact)
            if trouble:
                yield Problem(fact.run, f"{what} cannot be read: {trouble}")
                continue
            for field in code.unread_fields(fact):
                yield Problem(fact.run, f"{what}: {_unread(field, fact, code)}", "changes")


def _unread(field: str, fact: Fact, code: BoundDecider) -> str:
    """Perhaps it was dropped on purpose; if it was renamed, all that it holds is replaced by a default."""
    name, version = code.definition.cls.__qualname__, code.definition.upcasters.current(fact.type)
    return (
        f"their stored field {field!r} is read by nobody, as the class has none of that name. Fix: if it was renamed, "
        f"add @hf.upcast({name}, {fact.type!r}, from_version={version}) that does the same to what is stored"
    )


async def _folds(engine: Engine, run: Run, code: BoundDecider) -> str | None:
    """Why the stream of an instance cannot be folded, if it cannot."""
    try:
        folded = await folded_up_to(engine.store, run, code, run.base)
        code.is_terminal(folded.state)
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        return f"instance {run.key!r} cannot be folded: {_told(error)}" + (f" ({notes})" if notes else "")
    return None


# -- what is pending


async def _pending_work(engine: Engine, workflow: str, code: BoundDecider) -> AsyncIterator[Problem]:
    for kind in await engine.store.open_work_types(workflow):
        if kind.kind not in (EFFECT, TIMER):
            continue
        known = code.definition.types.effects if kind.kind == EFFECT else code.definition.types.inputs
        name = kind.name[len(workflow) + 1 :]
        if name not in known.by_name:
            yield Problem(kind.run, _nobody(kind, name, known))
            continue
        trouble = await _sample(engine, kind, code)
        if trouble:
            yield Problem(kind.run, f"{_counted(kind, name)}, and one cannot be read: {trouble}")


def _nobody(kind: OpenWorkType, name: str, known: Variants) -> str:
    one = kind.total == 1
    does = (
        f"carry {'it' if one else 'them'} out"
        if kind.kind == EFFECT
        else f"take what {'it gives' if one else 'they give'}"
    )
    return (
        f"{_counted(kind, name)}, which is no {known.role} of this code: nobody could {does}. Fix: keep the class "
        f"until none is left; {known_names(name, known.by_name)}"
    )


def _counted(kind: OpenWorkType, name: str) -> str:
    what = "pending effect" if kind.kind == EFFECT else "timer"
    return f"{kind.total:,} {what}{'' if kind.total == 1 else 's'} of type {name}"


async def _sample(engine: Engine, kind: OpenWorkType, code: BoundDecider) -> str | None:
    work: list[Work] = await engine.store.rows(OpenWork(kind.run))
    read = code.decode_effect if kind.kind == EFFECT else code.decode_input
    for item in work:
        if (item.kind, item.name) == (kind.kind, kind.name):
            return _trouble(read, item.payload or b"", item.codec)
    return None  # it was done in the meantime


async def _inbox(engine: Engine, run: Run, code: BoundDecider, seen: set[str]) -> list[Problem]:
    queued: list[Event] = await engine.store.rows(QueuedEvents(INPUT_EVENT, run.id, INPUTS_READ))
    found: list[Problem] = []
    for event in queued[:INPUTS_READ]:
        trouble = _trouble(code.decode_input, event.payload, event.codec)
        if trouble and trouble not in seen:
            seen.add(trouble)
            found.append(Problem(run.id, f"an input in the inbox of instance {run.key!r} cannot be read: {trouble}"))
    return found


async def _dead_letters(engine: Engine, workflow: str, code: BoundDecider) -> list[Problem]:
    """Nothing waits for them; but what the code does not have cannot be replayed with it."""
    types = code.definition.types
    counted: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for letter in await engine.dead(DEAD_LOOKED_AT):
        if isinstance(letter, Event) or letter.workflow != workflow or letter.kind not in (EFFECT, TIMER):
            continue
        known = types.effects if letter.kind == EFFECT else types.inputs
        name = letter.name[len(workflow) + 1 :]
        if name not in known.by_name:
            counted[letter.kind, name] += 1
            first.setdefault((letter.kind, name), letter.run)
    return [
        Problem(
            first[kind, name],
            f"{total:,} dead letter{'' if total == 1 else 's'}: {kind} {name}, which is no "
            f"{types.effects.role if kind == EFFECT else types.inputs.role} of this code, so that replaying does "
            "not help. Fix: keep the class, or close them with `holdfast dead discard`",
            "changes",
        )
        for (kind, name), total in counted.items()
    ]


async def _open_instances(engine: Engine, workflow: str) -> AsyncIterator[Run]:
    after: str | None = None
    while True:
        asked = FindRuns(workflow=workflow, model=DECIDER, status=OPEN, limit=PAGE, after=after)
        rows = await engine.store.find(asked)
        for row in rows:
            yield row
        if len(rows) < PAGE:
            return
        after = rows[-1].id


def _trouble(read: Callable[..., Any], *given: Any) -> str | None:
    """What keeps this code from reading it, if anything does."""
    try:
        read(*given)
    except Exception as error:
        return _told(error)
    return None


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
