"""What each question of a decision is asked with, in the order of its statement's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.queries import Attempts, QueuedEvents, RunByKey, WaitersOf
from holdfast.core.view import Query


def query_arguments(query: Query, nodes_as: Callable[[list[str]], Any]) -> tuple[Any, ...]:
    """The arguments; `nodes_as` gives a list of names the form that the database takes."""
    match query:
        case RunByKey(workflow=workflow, key=key):
            return (workflow, key)
        case Attempts(run=run, nodes=nodes):
            return (run, nodes_as(sorted(nodes)))
        case WaitersOf(topic=topic):
            return (topic,)
        case QueuedEvents(name=name, target=target):
            return (name, target)
        case _:
            return () if query.of_run is None else (query.of_run,)


def json_nodes(names: list[str]) -> str:
    """SQLite has no arrays; `json_each` reads this."""
    return msgspec.json.encode(names).decode()
