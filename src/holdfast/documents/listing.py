"""Runs as they are listed over HTTP: a page newest first, and how many there are by status."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.rows import RUN_STATUSES, SUSPENDED
from holdfast.core.stored import moment, stored_tags
from holdfast.documents.times import moment_of
from holdfast.listing import cursor_after

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine
    from holdfast.store.contract import ListRuns

MOST_COUNTED: Final = 100_000


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a listing; `waits_for` says in short what a suspended one waits for, where its own row tells."""

    id: str
    workflow: str
    model: str
    key: str | None
    status: str
    queue: str
    priority: int
    tags: dict[str, str]
    reason: str | None
    parent: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waits_for: str | None = None


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs; `cursor` leads to the next one, and is null after the last."""

    runs: tuple[RunView, ...]
    cursor: str | None


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs have each status. With `more` there are at least so many: counting stops somewhere."""

    counts: dict[str, int]
    total: int
    more: bool


def run_view(row: Run) -> RunView:
    """A run for a listing."""
    return RunView(**view_fields(row))


def view_fields(row: Run) -> dict[str, Any]:
    """What a listing tells of a run, by name."""
    return {
        "id": row.id,
        "workflow": row.workflow,
        "model": row.model,
        "key": row.key,
        "status": row.status,
        "queue": row.queue,
        "priority": row.priority,
        "tags": stored_tags(row.tags),
        "reason": row.reason,
        "parent": row.parent,
        "created_at": moment(row.created),
        "started_at": moment_of(row.started),
        "finished_at": moment_of(row.finished),
        # Of functions and flows it would take a look at the waits of each run.
        "waits_for": "asks a person" if row.model == "graph" and row.status == SUSPENDED else None,
    }


async def page_of_runs(engine: Engine, ask: ListRuns) -> RunPage:
    """One page; one run more than it holds is asked for, so that the last page says that it is the last."""
    rows = await engine.store.list_runs(msgspec.structs.replace(ask, limit=ask.limit + 1))
    page = rows[: ask.limit]
    return RunPage(
        runs=tuple(run_view(row) for row in page),
        cursor=cursor_after(page[-1]) if len(rows) > len(page) else None,
    )


async def counts_of_runs(engine: Engine, ask: ListRuns) -> RunCounts:
    """How many runs match, whatever status was asked for."""
    every = msgspec.structs.replace(ask, status=(), after=None)
    counted = await engine.store.count_runs(every, MOST_COUNTED)
    return RunCounts(
        counts={status: counted.get(status, 0) for status in RUN_STATUSES},
        total=sum(counted.values()),
        more=sum(counted.values()) >= MOST_COUNTED,
    )
