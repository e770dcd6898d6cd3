"""Runs as they are listed for people and programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.dags import Dag
from holdfast.authoring.flows import Flow
from holdfast.authoring.functions import Workflow
from holdfast.authoring.registry import Registry
from holdfast.core.codec import DEFAULT_CODECS, Codecs, Encoded, decode_error, unlabelled
from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.function_operations import CONTINUED, ENDED_RUN, EVENT, FAILURE, RESULT, Entry, entry_of
from holdfast.core.rows import RUN_STATUSES, History, Run
from holdfast.core.stored import UNREADABLE, moment
from holdfast.models.delivery import RunEnd
from holdfast.start_options import checked_text, microseconds
from holdfast.store.contract import ListRuns, Store


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a listing."""

    id: str
    workflow: str
    model: str  # "function", or "dag" for DAGs and single actions
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


def question(workflow: object, status: Any, tags: Any, since: datetime | None, limit: object) -> ListRuns:
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
    return ListRuns(
        workflow=_workflow_name(workflow),
        status=wanted,
        tags=tuple(sorted((tags or {}).items())),
        since=None if since is None else microseconds(since),
        limit=limit,
    )


async def page_of(store: Store, ask: ListRuns, after: str | None, registry: Registry) -> Runs:
    """The page that begins behind a cursor. What was a cursor once, the id of a run, still is one.

    One run more than it holds is asked for, so that the last page says that it is the last.
    """
    if after is not None:
        rows = await store.runs([checked_text(after, "after")])
        ask = msgspec.structs.replace(ask, after=(rows[0].created, rows[0].id) if rows else place_of(after))
    rows = await _found_under(store, msgspec.structs.replace(ask, limit=ask.limit + 1), registry)
    page = Runs(_info(row) for row in rows[: ask.limit])
    page.cursor = cursor_after(rows[ask.limit - 1]) if len(rows) > ask.limit else None
    return page


async def _found_under(store: Store, ask: ListRuns, registry: Registry) -> list[Run]:
    """The runs asked for; those of a workflow also under the names that it had before, as far as it is known here."""
    if ask.workflow is None:
        return await store.list_runs(ask)
    rows: list[Run] = []
    for name in registry.names_of(ask.workflow):
        rows += await store.list_runs(msgspec.structs.replace(ask, workflow=name))
    rows.sort(key=lambda run: (run.created, run.id), reverse=True)  # one order over all names, as `after` has it
    return rows[: ask.limit]


def cursor_after(row: Run) -> str:
    """Where the page after this run begins."""
    return f"{row.created}.{row.id}"


def place_of(cursor: str) -> tuple[int, str]:
    """The place that a cursor names; UsageError if it is none of ours."""
    created, dot, run = cursor.partition(".")
    if not dot or not run or not (created.isascii() and created.isdecimal()) or len(created) > 18:
        raise UsageError(f"there is no cursor {cursor!r:.80}", hint="give the cursor of the page before, as it was")
    return int(created), run


def readable(stored: bytes | str) -> dict[str, Any]:
    """A stored JSON object for people. One that was damaged says so: a page must not fail because of one row."""
    try:
        return msgspec.json.decode(stored, type=dict[str, Any])
    except UNREADABLE as error:
        return {"unreadable": f"{error}: {stored[:80]!r}"}


def readable_entry(row: History, codecs: Codecs = DEFAULT_CODECS) -> dict[str, Any]:
    """What a line of a run's record says, for people."""
    if row.codec != "entry":
        return readable(row.data)
    try:
        entry = entry_of(row.data)
    except msgspec.DecodeError as error:
        return {"unreadable": f"{error}: {row.data[:80]!r}"}
    told: dict[str, Any] = {"at": entry.address, "name": entry.name}
    if entry.event:
        told["event"] = entry.event
    if entry.source:
        told["source"] = entry.source
    if entry.kind in (RESULT, EVENT, CONTINUED) and entry.value is not None:
        told["value"] = _plain(_payload_of(entry), codecs)
    elif entry.kind == ENDED_RUN and entry.value is not None:
        told["status"] = msgspec.msgpack.decode(entry.value, type=RunEnd).status
    elif entry.kind == FAILURE and entry.value is not None:
        error_record = decode_error(entry.value)
        told["error"] = f"{error_record.type}: {error_record.message}"
    return {key: value for key, value in told.items() if value not in ("", None)}


def _payload_of(entry: Entry) -> Encoded:
    """Results of calls say themselves how they are written; of everything else the entry says it."""
    stored = unlabelled(entry.value or b"")
    return stored if stored.data != entry.value else Encoded(stored.data, entry.codec)


def _plain(stored: Encoded, codecs: Codecs) -> Any:
    """A payload without its types; what cannot be read here is not shown."""
    if stored.codec == "text":  # the id of a child, as the driver wrote it
        return stored.data.decode("utf-8", "backslashreplace")
    try:
        return codecs.decode(stored.data, where="a payload", codec=stored.codec)
    except HoldfastError:
        return f"<{len(stored.data)} bytes of {stored.codec}>"


def _workflow_name(workflow: object) -> str | None:
    if workflow is None:
        return None
    if isinstance(workflow, str):
        return checked_text(workflow, "workflow")
    if isinstance(workflow, Action | Workflow | Flow):
        return workflow.name
    if isinstance(workflow, type) and issubclass(workflow, Dag):
        return workflow.__holdfast__.name
    raise UsageError(f"{workflow!r} is no workflow", hint="give its name, its Dag class or its action")


def _info(row: Run) -> RunInfo:
    return RunInfo(
        id=row.id,
        workflow=row.workflow,
        model=row.model,
        key=row.key,
        status=row.status,
        queue=row.queue,
        priority=row.priority,
        tags=readable(row.tags),
        reason=row.reason,
        created_at=moment(row.created),
        finished_at=None if row.finished is None else moment(row.finished),
    )
