"""What each question of a decision is asked with, in the order of its statement's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.queries import (
    Attempts,
    ByAncestry,
    DefinitionById,
    QueuedEvents,
    RunByKey,
    RunsToReshape,
    WaitersOf,
)
from holdfast.core.view import Query


def query_arguments(query: Query, texts_as: Callable[[list[str]], Any]) -> tuple[Any, ...]:
    """The arguments; `texts_as` gives a list of texts the form that the database takes."""
    match query:
        case RunByKey(workflow=workflow, key=key):
            return (workflow, key)
        case Attempts(run=run, nodes=nodes):
            return (run, texts_as(sorted(nodes)))
        case WaitersOf(topic=topic):
            return (topic,)
        case QueuedEvents(name=name, target=target):
            return (name, target)
        case DefinitionById(id=id):
            return (id,)
        case ByAncestry(ancestry=ancestry):
            return (ancestry,)
        case RunsToReshape(code=code, since=since, idle=idle, limit=limit):
            workflows, signatures = [name for name, _ in code], [signature for _, signature in code]
            return (texts_as(workflows), texts_as(signatures), since, idle, limit)
        case _:
            return () if query.of_run is None else (query.of_run,)


def json_texts(texts: list[str]) -> str:
    """SQLite has no arrays; `json_each` reads this."""
    return msgspec.json.encode(texts).decode()
