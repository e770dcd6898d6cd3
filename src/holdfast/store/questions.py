"""What each question of a decision is asked with, in the order of its statement's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.queries import (
    Attempts,
    ByAncestry,
    CheckpointsBetween,
    CheckpointsOf,
    ChildrenOf,
    CodeGraph,
    DeadEvents,
    DefinitionById,
    DelayedWork,
    DueWork,
    EventsFor,
    FactsCausedBy,
    HistoryPage,
    LabelledCheckpoint,
    QueuedEvents,
    RecordedBy,
    RecordedIn,
    RunByKey,
    RunsLeftBehind,
    RunsToReshape,
    StateChain,
    StoredEvent,
    StrayEvents,
    StreamAfter,
    ValuesAt,
    ValuesFor,
    WaitersOf,
)
from holdfast.core.view import Query


def query_arguments(query: Query, list_as: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    """The arguments; `list_as` gives a list the form that the database takes."""
    match query:
        case RunByKey(workflow=workflow, key=key):
            return (workflow, key)
        case Attempts(run=run, nodes=nodes):
            return (run, list_as(sorted(nodes)))
        case WaitersOf(topic=topic, limit=limit):
            return (topic, limit)
        case EventsFor(run=run) | ChildrenOf(run=run):
            return (run,)
        case QueuedEvents(name=name, target=target, limit=limit):
            return (name, target, limit)
        case StrayEvents(now=now, limit=limit) | DueWork(now=now, limit=limit):
            return (now, limit)
        case DelayedWork(after=place, limit=limit):
            return (*place, limit)
        case StreamAfter(run=run, after=after, limit=limit) | HistoryPage(run=run, after=after, limit=limit):
            return (run, after, limit)
        case ValuesFor(run=run, node=node, variable=variable):
            return (run, node, variable)
        case ValuesAt(run=run, places=places):
            return (run, list_as(sorted({node for node, _, _ in places})))
        case StateChain(run=run, step=step):
            return (run, step)
        case CheckpointsOf(run=run, before=before, limit=limit):
            return (run, before, limit)
        case CheckpointsBetween(run=run, first=first, before=before):
            return (run, first, before)
        case LabelledCheckpoint(run=run, label=label):
            return (run, label)
        case RecordedIn(run=run, nodes=nodes):
            return (run, list_as(sorted(nodes)))
        case RecordedBy(run=run, node=node):
            return (run, node)
        case FactsCausedBy(run=run, cause=cause):
            return (run, cause)
        case DeadEvents(limit=limit):
            return (limit,)
        case DefinitionById(id=id) | StoredEvent(id=id):
            return (id,)
        case CodeGraph(workflow=workflow, signature=signature):
            return (workflow, signature)
        case ByAncestry(ancestry=ancestry):
            return (ancestry,)
        case RunsLeftBehind(limit=limit):
            return (limit,)
        case RunsToReshape(code=code, limit=limit):
            workflows, signatures, seen = ([each[column] for each in code] for column in range(3))
            return (list_as(workflows), list_as(signatures), list_as(seen), limit)
        case _:
            return () if query.of_run is None else (query.of_run,)


def json_list(values: list[Any]) -> str:
    """SQLite has no arrays; `json_each` reads this."""
    return msgspec.json.encode(values).decode()
