"""Runs as they are listed for people and programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.dags import Dag
from holdfast.core.errors import UsageError
from holdfast.core.rows import RUN_STATUSES, Run
from holdfast.start_options import checked_text, microseconds
from holdfast.store.contract import FindRuns


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a listing."""

    id: str
    workflow: str
    key: str | None
    status: str
    queue: str
    priority: int
    tags: dict[str, str]
    reason: str | None
    created_at: datetime
    finished_at: datetime | None


class Runs(list[RunInfo]):
    """A page of runs, newest first. `cursor` gives the next page, None after the last."""

    cursor: str | None = None


def question(
    workflow: object, status: Any, tags: Any, since: datetime | None, limit: object, after: str | None
) -> FindRuns:
    """What the store is asked, from what `engine.find` was given."""
    wanted: tuple[str, ...] = (status,) if isinstance(status, str) else tuple(status or ())
    for name in wanted:
        if name not in RUN_STATUSES:
            raise UsageError(f"there is no run status {name!r}", hint=f"one of {', '.join(RUN_STATUSES)}")
    if not isinstance(limit, int) or not 1 <= limit <= 10_000:
        raise UsageError(f"limit is {limit!r}", hint="ask for 1 to 10000 runs at a time")
    for name, value in (tags or {}).items():
        checked_text(name, "a tag's name")
        checked_text(value, f"the value of tag {name}")
    return FindRuns(
        workflow=_workflow_name(workflow),
        status=wanted,
        tags=tuple(sorted((tags or {}).items())),
        since=None if since is None else microseconds(since),
        limit=limit,
        after=None if after is None else checked_text(after, "after"),
    )


def page_of(rows: list[Run], limit: int) -> Runs:
    page = Runs(_info(row) for row in rows)
    page.cursor = rows[-1].id if len(rows) == limit else None
    return page


def readable(stored: bytes | str) -> dict[str, Any]:
    """A stored JSON object for people. One that was damaged says so: a page must not fail because of one row."""
    try:
        return msgspec.json.decode(stored, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {"unreadable": f"{error}: {stored[:80]!r}"}


def _workflow_name(workflow: object) -> str | None:
    if workflow is None:
        return None
    if isinstance(workflow, str):
        return checked_text(workflow, "workflow")
    if isinstance(workflow, Action):
        return workflow.name
    if isinstance(workflow, type) and issubclass(workflow, Dag):
        return workflow.__holdfast__.name
    raise UsageError(f"{workflow!r} is no workflow", hint="give its name, its Dag class or its action")


def _info(row: Run) -> RunInfo:
    return RunInfo(
        id=row.id,
        workflow=row.workflow,
        key=row.key,
        status=row.status,
        queue=row.queue,
        priority=row.priority,
        tags=readable(row.tags),
        reason=row.reason,
        created_at=datetime.fromtimestamp(row.created / 1e6, UTC),
        finished_at=None if row.finished is None else datetime.fromtimestamp(row.finished / 1e6, UTC),
    )
