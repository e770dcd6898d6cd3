"""The drawing of a function: what it has asked for, in the order in which the answers entered its history."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from holdfast.core.function_operations import CANCEL, ENTRY_KINDS, FAILURE, PATCH, TIMER, TURN
from holdfast.core.queries import AllWork, HistoryPage
from holdfast.core.rows import OPEN_WORK
from holdfast.documents.graph_view import GraphEdge, GraphNode, GraphView
from holdfast.documents.run import detail_of, waits_of
from holdfast.listing import readable_entry

if TYPE_CHECKING:
    from holdfast.core.rows import History, Run, Work
    from holdfast.engine import Engine

START: Final = "(start)"
END: Final = "(end)"
MOST_ENTRIES: Final = 2_000
NOT_ASKED_FOR: Final = frozenset({CANCEL, PATCH})


async def of_run(engine: Engine, row: Run) -> GraphView:
    """The calls of a function one after the other, then what it waits for now."""
    rows: list[History] = await engine.store.rows(HistoryPage(row.id, row.base, MOST_ENTRIES))
    work: list[Work] = await engine.store.rows(AllWork(row.id))
    nodes = [GraphNode(id=START, label=row.workflow, kind="start", state="completed" if row.started else "pending")]
    nodes += [_entry(engine, each) for each in rows if each.kind in ENTRY_KINDS - NOT_ASKED_FOR]
    edges = [GraphEdge(source=before.id, target=after.id, taken=True) for before, after in itertools.pairwise(nodes)]
    open_ones = [_open_call(row, item) for item in work if item.kind != TURN and item.status in OPEN_WORK]
    for wait in () if row.ended else await waits_of(engine, row):
        label = f"event {wait.event}" if wait.event else f"run {wait.run}"
        open_ones.append(GraphNode(id=f"wait:{wait.address}:{label}", label=label, kind="wait", state="blocked"))
    last = nodes[-1].id
    edges += [GraphEdge(source=last, target=each.id, taken=True) for each in open_ones]
    nodes += {each.id: each for each in open_ones}.values()
    if row.ended:
        nodes.append(GraphNode(id=END, label=row.status, kind="end", state=row.status))
        edges.append(GraphEdge(source=last, target=END, taken=True))
    return GraphView(kind="function", nodes=tuple(nodes), edges=tuple(edges), truncated=len(rows) >= MOST_ENTRIES)


def _entry(engine: Engine, row: History) -> GraphNode:
    data = readable_entry(row, engine.codecs)
    name = str(data.get("event") or data.get("name") or row.kind)
    return GraphNode(
        id=f"{row.sequence}",
        label="sleep" if row.kind == TIMER and not data.get("name") else name,
        kind="call" if row.kind in ("result", FAILURE) else row.kind,
        state="failed" if row.kind == FAILURE else "completed",
        attempts=1,
        detail=str(data.get("error") or ""),
    )


def _open_call(row: Run, item: Work) -> GraphNode:
    return GraphNode(
        id=item.node,
        label=item.name,
        kind="call",
        state=item.status,
        attempts=item.attempt,
        detail=detail_of(row, item),
    )
