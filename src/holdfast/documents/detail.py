"""One run with all that a person needs to see why it is where it is, and what can be done about it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.codec import Encoded, decode_error, unlabelled
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import AllWork
from holdfast.core.rows import CANCELLED, CANCELLING, COMPLETED, LEASED, PAUSED, PENDING, RUNNING, SUSPENDED, Run, Work
from holdfast.documents.instance import DECIDER, InstanceShown, gather_instance, instance_work
from holdfast.documents.listing import RunView, view_fields
from holdfast.documents.nodes import FailureView, counted_by_state, nodes_and_graph
from holdfast.documents.payloads import TakesView, takes
from holdfast.documents.run import ChildShown, children_of, is_asleep, payload_of, waits_of
from holdfast.documents.state_graph import GRAPH, GraphShown, gather_graph
from holdfast.documents.timers import TimerView, timers_among
from holdfast.documents.times import moment_of

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.explain import Explanation


class CauseView(msgspec.Struct, frozen=True, kw_only=True):
    """A reason, or what would help: then with the command."""

    text: str
    command: str | None


class ExplainView(msgspec.Struct, frozen=True, kw_only=True):
    """What `holdfast explain` says."""

    headline: str
    text: str
    causes: tuple[CauseView, ...]


class WaitView(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run waits for: an event, which takes this, or the end of a run, which then has this status."""

    event: str | None
    run: str | None
    status: str | None
    address: str
    since: datetime
    takes: TakesView | None = None


class QuestionView(msgspec.Struct, frozen=True, kw_only=True):
    """What a node asks a person."""

    node: str
    payload: Any
    since: datetime


class RunDetail(RunView, frozen=True, kw_only=True):
    """A run as a listing has it, and the rest. `actions` are those that make sense now."""

    due_at: datetime | None
    wakes_at: datetime | None
    input: Any
    result: Any
    error: FailureView | None
    explain: ExplainView
    waits: tuple[WaitView, ...]
    timers: tuple[TimerView, ...]
    children: tuple[ChildShown, ...]
    questions: tuple[QuestionView, ...]
    actions: tuple[str, ...]
    counts: dict[str, int]
    instance: InstanceShown | None
    graph: GraphShown | None


async def detail_of_run(engine: Engine, row: Run) -> RunDetail:
    """All of it, from committed rows."""
    is_instance = row.model == DECIDER
    work: list[Work] = (
        await instance_work(engine, row, False) if is_instance else await engine.store.rows(AllWork(row.id))
    )
    nodes, _ = await nodes_and_graph(engine, row, work)
    graph = await _graph(engine, row, work)
    questions = () if graph is None else graph.questions
    fields = view_fields(row)
    if row.status == PENDING and any(item.status == LEASED for item in work):
        fields["status"] = RUNNING  # a claim does not write the run's row
    return RunDetail(
        **fields,
        due_at=None if is_instance or row.model == GRAPH else moment_of(row.due or None),  # whose `due` is a count
        wakes_at=next((moment_of(item.due) for item in work if is_asleep(row, item)), None),
        input=payload_of(Encoded(row.input, row.codec), row, engine.codecs) if row.input else None,
        result=None if row.result is None else payload_of(unlabelled(row.result), row, engine.codecs),
        error=None if row.error is None else _failure(row.error),
        explain=_explained(await engine.get(row.id).explain()),
        waits=tuple(
            WaitView(
                event=wait.event,
                run=wait.run,
                status=wait.status,
                address=wait.address,
                since=wait.since,
                takes=_takes(engine, wait.event),
            )
            for wait in await waits_of(engine, row)
        ),
        timers=timers_among(work, engine.store.now(), row.key),
        children=await children_of(engine, row),
        questions=tuple(QuestionView(node=each.item, payload=each.payload, since=each.since) for each in questions),
        actions=sensible_actions(row, asks=bool(questions)),
        counts=counted_by_state(nodes),
        instance=await gather_instance(engine, row, work) if is_instance else None,
        graph=graph,
    )


def _takes(engine: Engine, event: str | None) -> TakesView | None:
    known = None if event is None else engine.registry.events.get(event)
    return None if known is None else takes(known.type)


async def _graph(engine: Engine, row: Run, work: list[Work]) -> GraphShown | None:
    if row.model != GRAPH:
        return None
    try:
        return await gather_graph(engine, row, work)
    except HoldfastError:  # damaged checkpoints: the explanation says so, and the rest is needed all the more
        return None


def sensible_actions(row: Run, *, asks: bool) -> tuple[str, ...]:
    """What an operator may want to do with a run as it is now; the decision itself is the engine's."""
    for_good = row.status in (COMPLETED, CANCELLED)
    goes_on = row.status in (PENDING, RUNNING, SUSPENDED)
    gave_up = not for_good and (row.gave_up > 0 or row.status == "failed")
    sensible = {
        "cancel": not row.ended,
        "pause": goes_on,
        "resume": row.status == PAUSED,
        "retry": gave_up,
        "reattempt": gave_up and row.model in ("dag", "flow", GRAPH),
        "skip": row.model == "dag" and not for_good and row.status != CANCELLING,
        "fork": row.model in ("dag", GRAPH),
        "answer": asks,
        "send": not row.ended and row.model in ("function", "flow"),
    }
    return tuple(name for name, makes_sense in sensible.items() if makes_sense)


def _failure(stored: bytes) -> FailureView:
    record = decode_error(stored)
    return FailureView(type=record.type, message=record.message, traceback=record.traceback or None)


def _explained(told: Explanation) -> ExplainView:
    return ExplainView(
        headline=told.summary,
        text=str(told),
        causes=(
            *(CauseView(text=reason, command=None) for reason in told.reasons),
            *(CauseView(text=each.purpose, command=each.command) for each in told.fixes),
        ),
    )
