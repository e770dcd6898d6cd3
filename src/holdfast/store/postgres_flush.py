"""One statement for a whole batch on PostgreSQL: lock and check, then write everything or nothing.

The shape matters. Writes ask `(SELECT ok FROM a)` instead of joining the locked runs: that join becomes a
nested loop once the server caches a generic plan, and a batch then costs the square of its size.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from holdfast.core.rows import EVENTS, HISTORY, HOLDS, RUNS, WAITS, WORK, Run, Table
from holdfast.core.view import Changes
from holdfast.store.statements import statements

_step = attrgetter("id", "version", "status", "remaining", "active", "gave_up", "entries", "started", "updated")
_rest = attrgetter("result", "error", "definition", "token", "awaited", "superseded", "reason", "finished")
_full = attrgetter(
    *("id", "version", "status", "remaining", "active", "gave_up", "entries", "started", "updated"),
    *("result", "error", "definition", "token", "awaited", "superseded", "reason", "finished"),
)
_work = attrgetter(
    *("run", "node", "attempt", "status", "completed", "token", "gate", "due", "worker", "result", "error", "outcome"),
    *("parents", "ancestry", "failures", "losses", "started", "finished"),
)
_guard = attrgetter("run", "node", "attempt", "token")
_INSERTS: tuple[tuple[Table[Any], str], ...] = (
    (RUNS, "flush_runs_insert"),
    (WORK, "flush_work_insert"),
    (HISTORY, "flush_history_insert"),
    (WAITS, "flush_waits_insert"),
    (EVENTS, "flush_events_insert"),
    (HOLDS, "flush_holds_insert"),
)


def guarded_flush(changes: Changes) -> tuple[str, list[Any]]:
    """The statement for these changes, deletes excepted, and its arguments."""
    parts: list[str] = []
    args: list[Any] = []
    runs, work = changes.updates.get(RUNS, ()), changes.updates.get(WORK, ())
    if runs:
        parts.append("flush_runs_guard")
        args += [[old.id for old, _ in runs], [old.version for old, _ in runs]]
    else:
        parts.append("flush_no_runs")
    if work:
        parts.append("flush_work_guard")
        args += _columns([_guard(old) for old, _ in work])
    else:
        parts.append("flush_no_work")
    parts.append("flush_ok")
    args += [len(runs), len(work), changes.presumes_no_holds]
    step = [new for old, new in runs if _is_step(old, new)]
    full = [new for old, new in runs if not _is_step(old, new)]
    if step:
        parts.append("flush_runs_step")
        args += _columns([_step(row) for row in step])
    if full:
        parts.append("flush_runs_full")
        args += _columns([_full(row) for row in full])
    elif RUNS in changes.inserts:
        parts.append("flush_no_full")
    if work:
        parts.append("flush_work_update")
        args += _columns([_work(new) for _, new in work])
    for table, part in _INSERTS:
        rows = changes.inserts.get(table)
        if rows:
            parts.append(part)
            args += _columns([astuple(row) for row in rows])
    return _assembled(tuple(parts)), args


def _is_step(old: Run, new: Run) -> bool:
    return bool(_rest(old) == _rest(new))


def _columns(rows: list[tuple[Any, ...]]) -> list[Any]:
    return list(zip(*rows, strict=True))


@cache
def _assembled(parts: tuple[str, ...]) -> str:
    sql = statements("postgres")
    body = "WITH " + ",\n".join(sql[part] for part in parts) + "\n" + sql["flush_end"]
    pieces = body.split("$?")
    return "".join(piece + (f"${number}" if number < len(pieces) else "") for number, piece in enumerate(pieces, 1))
