"""The nodes of a run, page by page, each with its attempts and when they were queued."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.documents.times import moment_of

if TYPE_CHECKING:
    from holdfast.core.graph import Graph
    from holdfast.core.rows import Run, Work
    from holdfast.documents.run import NodeShown
    from holdfast.engine import Engine


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it was recorded."""

    type: str
    message: str
    traceback: str | None


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a node. `outcome` is what the engine noted of it, not its result."""

    attempt: int
    state: str
    worker: str | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error: FailureView | None
    outcome: Any


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node; `state` is that of its latest attempt, `after` names what it depends on."""

    id: str
    name: str
    state: str
    detail: str
    after: tuple[str, ...]
    does: str
    attempts: tuple[AttemptView, ...]


class NodePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of nodes; `cursor` is the id of the last one, if there are more."""

    nodes: tuple[NodeView, ...]
    cursor: str | None


async def nodes_and_graph(engine: Engine, row: Run, work: list[Work]) -> tuple[tuple[NodeShown, ...], Graph | None]:
    """Every node of a run, in the order in which people read them."""
    from holdfast.core.errors import HoldfastError
    from holdfast.documents.run import in_source_order, nodes_of

    try:
        graph = await engine.definitions.load(engine.store, row)
    except HoldfastError:  # a damaged graph: whoever looks needs the rest all the more
        graph = None
    return nodes_of(row, await in_source_order(engine, row, work), graph), graph


async def page_of_nodes(
    engine: Engine, row: Run, *, state: str | None, after: str | None, limit: int, node: str | None = None
) -> NodePage:
    """The nodes after one, in their order; those in a state alone, or those that a node of the drawing stands for."""
    from holdfast.core.queries import AllWork

    work: list[Work] = await engine.store.rows(AllWork(row.id))
    shown, _ = await nodes_and_graph(engine, row, work)
    if after is not None:
        place = next((number for number, node in enumerate(shown) if node.id == after), len(shown))
        shown = shown[place + 1 :]
    wanted = [each for each in shown if state is None or each.state == state]
    if node is not None:
        wanted = [each for each in wanted if _is_of(each.id, node)]
    queued = {(item.node, item.attempt): item for item in work}
    page = wanted[:limit]
    return NodePage(
        nodes=tuple(_node(each, queued) for each in page),
        cursor=page[-1].id if len(wanted) > len(page) else None,
    )


def _is_of(item: str, drawn: str) -> bool:
    """Whether an item is of a drawn node: of a loop or a spread there are several, and calls of functions have a #."""
    return drawn in (item, item.removeprefix("#"), re.split(r"[@\[]", item, maxsplit=1)[0])


def counted_by_state(nodes: tuple[NodeShown, ...]) -> dict[str, int]:
    """How many nodes are in each state."""
    return dict(Counter(node.state for node in nodes))


def failure_view(error: Mapping[str, str] | None) -> FailureView | None:
    """An error that was read before, in the form of this interface."""
    if error is None:
        return None
    return FailureView(type=error["type"], message=error["message"], traceback=error.get("traceback"))


def _node(node: NodeShown, queued: Mapping[tuple[str, int], Work]) -> NodeView:
    attempts = []
    for each in node.attempts:
        item = queued.get((node.id, each.attempt))
        attempts.append(
            AttemptView(
                attempt=each.attempt,
                state=each.state,
                worker=each.worker,
                queued_at=None if item is None else moment_of(item.created),
                started_at=each.started_at,
                finished_at=each.finished_at,
                error=failure_view(each.error),
                outcome=each.outcome,
            )
        )
    return NodeView(
        id=node.id,
        name=node.name,
        state=node.state,
        detail=node.detail,
        after=node.after,
        does=node.does,
        attempts=tuple(attempts),
    )
