"""What `holdfast show` knows of a state graph's run besides its attempts: steps, frontier, questions, without code."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from holdfast.core.rows import Run, Work
    from holdfast.core.state_items import Item
    from holdfast.engine import Engine

GRAPH: Final = "graph"
NOT_LET_IN: Final = "queued"  # in the checkpoint that names it, or answered, and without room to run


class ItemShown(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the step that is under way. `state` is "queued" for one that was not let in yet.

    `after` names the nodes that led to it; `sent` has the fields that it was given alone.
    """

    item: str
    node: str
    order_key: str
    state: str
    attempt: int
    after: tuple[str, ...]
    sent: dict[str, Any] | None


class QuestionShown(msgspec.Struct, frozen=True, kw_only=True):
    """What an item asks a person, and since when."""

    item: str
    payload: Any
    since: datetime


class GraphShown(msgspec.Struct, frozen=True, kw_only=True):
    """Where a state graph's run stands: its last finished step, and the items of the step after that.

    `steps` has the checkpoints that are kept. `waiting` is how many items were not let in yet.
    """

    step: int
    steps: tuple[dict[str, Any], ...]
    frontier: tuple[ItemShown, ...]
    waiting: int
    questions: tuple[QuestionShown, ...]
    totals: dict[str, Any]


async def gather_graph(engine: Engine, row: Run, work: list[Work]) -> GraphShown:
    """All that is known of where the run stands, from committed rows."""
    from holdfast.core.errors import PayloadRefused

    try:
        return await _gathered(engine, row, work)
    except PayloadRefused:  # written with a codec that this process does not have
        return await _without_payloads(engine, row, work)


async def _without_payloads(engine: Engine, row: Run, work: list[Work]) -> GraphShown:
    """The same from what is never encoded: rows of steps, attempts and questions, without the values in them."""
    from holdfast.core.queries import CheckpointsOf, RecordedBy
    from holdfast.core.state_items import node_of, step_of
    from holdfast.core.stored import moment
    from holdfast.documents.checkpoints import steps_without_states
    from holdfast.graph_reading import metrics_of
    from holdfast.models.state_graph import asks_person
    from holdfast.models.state_memory import totals_of

    under_way = [item for item in work if step_of(item.node) == row.base + 1]
    questions = []
    for item in under_way:
        for call in await engine.store.rows(RecordedBy(row.id, item.node)) if asks_person(item) else ():
            if call.kind == "interrupt" and call.response is None:
                question = QuestionShown(item=item.node, payload=unread(call.request), since=moment(call.at))
                questions.append(question)
    latest = await engine.store.rows(CheckpointsOf(row.id, row.base + 1, 1))
    return GraphShown(
        step=row.base,
        steps=tuple(await steps_without_states(engine, row, work)),
        frontier=tuple(
            ItemShown(
                item=item.node,
                node=node_of(item.node),
                order_key="",
                state=item.status,
                attempt=item.attempt,
                after=(),
                sent=None,
            )
            for item in under_way
        ),
        waiting=0,
        questions=tuple(questions),
        totals=msgspec.to_builtins(metrics_of(totals_of(latest[0]))) if latest else {},
    )


def unread(stored: bytes) -> str:
    """What is shown in place of a payload that this process has no codec for."""
    from holdfast.core.codec import unlabelled

    payload = unlabelled(stored)
    return f"<{len(payload.data)} bytes of {payload.codec} that this process cannot read>"


async def _gathered(engine: Engine, row: Run, work: list[Work]) -> GraphShown:
    from holdfast.documents.checkpoints import steps_of
    from holdfast.graph_documents import SchedulerMetrics

    handle = engine.get(row.id)
    questions = () if row.ended else tuple(await handle.interrupts())
    scheduler = await handle.scheduler()
    frontier = await _frontier(engine, row)
    latest = {item.node: item for item in work}
    items = tuple(_item(each, row.base + 1, latest) for each in frontier)
    metrics: SchedulerMetrics = scheduler.metrics
    return GraphShown(
        step=row.base,
        steps=tuple(await steps_of(engine, row)),
        frontier=items,
        waiting=0 if row.ended else sum(item.state == NOT_LET_IN for item in items),
        questions=tuple(
            QuestionShown(item=each.node, payload=each.payload, since=each.since.astimezone(UTC)) for each in questions
        ),
        totals=msgspec.to_builtins(metrics),
    )


async def _frontier(engine: Engine, row: Run) -> tuple[Item, ...]:
    from holdfast.core.queries import CheckpointsOf
    from holdfast.graph_steps import GraphWithoutCode
    from holdfast.models.state_memory import frontier_of

    latest = await engine.store.rows(CheckpointsOf(row.id, row.base + 1, 1))
    return frontier_of(latest[0], GraphWithoutCode(engine.codecs)) if latest else ()


def _item(item: Item, step: int, latest: dict[str, Work]) -> ItemShown:
    from holdfast.models.state_graph import waits_for_room

    address = item.address(step)
    work = latest.get(address)
    sent = None
    if item.sent is not None:
        sent = {name: msgspec.json.decode(value) for name, value in item.sent.items()}
    return ItemShown(
        item=address,
        node=item.node,
        order_key=item.order_key,
        state=NOT_LET_IN if work is None or waits_for_room(work) else work.status,
        attempt=0 if work is None else work.attempt,
        after=tuple(dict.fromkeys(name for name, _ in item.parents)),
        sent=sent,
    )


__all__ = ["GRAPH", "NOT_LET_IN", "GraphShown", "ItemShown", "QuestionShown", "gather_graph"]
