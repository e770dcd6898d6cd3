"""One statement for a whole batch on PostgreSQL: lock and check, then write everything or nothing.

The shape matters twice. Writes ask `(SELECT ok FROM a)` instead of joining the locked rows: that join becomes
a nested loop once the server caches a generic plan, and a batch then costs the square of its size. And
columns that a batch leaves alone are not sent: most of a lone step's time is parameters, so the ordinary
step has shapes of its own.
"""

from __future__ import annotations

import re
from functools import cache
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from holdfast.core.rows import DEFINITIONS, EVENTS, HISTORY, HOLDS, INPUTS, RUNS, WAITS, WORK, Run, Table
from holdfast.core.view import Changes
from holdfast.store.shapes import only_settled, only_step, run_full, run_rest, run_step, work_full, work_settle
from holdfast.store.statements import statements

_KEY = attrgetter("run", "node", "attempt", "token")
_fresh = attrgetter(
    *(
        "run",
        "node",
        "workflow",
        "name",
        "status",
        "required",
        "completed",
        "token",
        "queue",
        "priority",
        "gate",
        "due",
    ),
    *("worker", "parents", "ancestry", "created", "started"),
)
_special = attrgetter(
    *("attempt", "kind", "codec", "failures", "losses"),
    *("timeout", "policy", "payload", "result", "error", "outcome", "finished"),
)
_NOTHING_SPECIAL = (1, "node", "json", 0, 0, None, None, None, None, None, None, None)

_INSERTS: tuple[tuple[Table[Any], str], ...] = (
    (RUNS, "flush_runs_insert"),
    (WORK, "flush_work_insert"),
    (HISTORY, "flush_history_insert"),
    (WAITS, "flush_waits_insert"),
    (EVENTS, "flush_events_insert"),
    (HOLDS, "flush_holds_insert"),
    (DEFINITIONS, "flush_definitions_insert"),
    (INPUTS, "flush_inputs_insert"),
)


def guarded_flush(changes: Changes) -> tuple[str, list[Any]]:
    """The statement for these changes, deletes excepted, and its arguments."""
    runs, work = changes.updates.get(RUNS, []), changes.updates.get(WORK, [])
    if len(runs) == 1 and not work and _is_lone_turn(changes, *runs[0]):
        (old, new), (entry,) = runs[0], changes.inserts[HISTORY]
        return statements("postgres")["lone_turn"], [new.id, old.version, *run_step(new), *astuple(entry)]
    run_shape, args = _run_updates(runs)
    work_shape, work_args = _work_updates(work)
    args += [*work_args, len(runs), len(work), changes.presumes_no_holds]
    parts = [run_shape, work_shape, "flush_ok", f"{run_shape}_update"]
    if work:
        parts.append(f"{work_shape}_update")
    for table, part in _INSERTS:
        rows = changes.inserts.get(table)
        if not rows:
            continue
        if table is WORK and all(_special(row) == _NOTHING_SPECIAL for row in rows):
            parts.append("flush_work_fresh")
            args += _columns([_fresh(row) for row in rows])
        else:
            parts.append(part)
            args += _columns([astuple(row) for row in rows])
    one = all(len(rows) == 1 for rows in (*changes.updates.values(), *changes.inserts.values()))
    if one:
        args = [arg[0] if isinstance(arg, tuple) else arg for arg in args]
    return _assembled(tuple(parts), one), args


def _is_lone_turn(changes: Changes, old: Run, new: Run) -> bool:
    inserts = changes.inserts
    one_entry = len(inserts) == 1 and len(inserts.get(HISTORY, ())) == 1
    return one_entry and not changes.presumes_no_holds and run_rest(old) == run_rest(new)


def _run_updates(pairs: list[tuple[Any, Any]]) -> tuple[str, list[Any]]:
    if not pairs:
        return "flush_no_runs", []
    if only_step(pairs):
        return "flush_runs_step", _columns([(new.id, old.version, *run_step(new)) for old, new in pairs])
    return "flush_runs_full", _columns([(new.id, old.version, *run_full(new)) for old, new in pairs])


def _work_updates(pairs: list[tuple[Any, Any]]) -> tuple[str, list[Any]]:
    if not pairs:
        return "flush_no_work", []
    if only_settled(pairs):
        return "flush_work_settle", _columns([_KEY(old) + work_settle(new) for old, new in pairs])
    return "flush_work_full", _columns([_KEY(old) + work_full(new) for old, new in pairs])


def _columns(rows: list[tuple[Any, ...]]) -> list[Any]:
    return list(zip(*rows, strict=True))


@cache
def _assembled(parts: tuple[str, ...], one: bool) -> str:
    sql = statements("postgres")
    body = "WITH " + ",\n".join(sql[part] for part in parts) + "\n" + sql["flush_end"]
    if one:  # a lone step: VALUES costs the server a third of what an unnest of many arrays does
        body = re.sub(r"unnest\(([^()]*)\)", lambda found: f"(VALUES ({found[1].replace('[]', '')}))", body)
    pieces = body.split("$?")
    return "".join(piece + (f"${number}" if number < len(pieces) else "") for number, piece in enumerate(pieces, 1))
