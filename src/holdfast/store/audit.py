"""What `holdfast doctor` looks at: G10 says that no crash leaves a store that it would reject."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.core.rows import LEASED, READY, Run, Work
from holdfast.store.contract import Finding

SAFE_SQLITE = (3, 51, 3)
LONG_WRITER_SECONDS = 10.0
_CHECKS = ("orphans", "miscounted", "overfull", "broken_streams")


def audit(
    runs: Iterable[Run], work_of: Callable[[Run], list[Work]], sequences_of: Callable[[Run], list[int]]
) -> list[Finding]:
    """Rows that contradict each other, in a store that is just rows."""
    findings = []
    for run in runs:
        items = work_of(run)
        active = sum(1 for item in items if item.status in (READY, LEASED))
        if not run.ended and active != run.active:
            findings.append(_miscounted(run.id, run.active, active))
        findings += [_overfull(item.run, item.node) for item in items if item.completed > item.required]
        if run.model == "decider" and (found := sequences_of(run)) != list(range(1, run.base + 1)):
            findings.append(_broken_stream(run.id, run.base, len(found), max(found, default=0)))
    return findings


def sqlite_findings(db: sqlite3.Connection, sql: dict[str, str]) -> list[Finding]:
    findings = [Finding(severity="ok", subject="store", message=f"SQLite {sqlite3.sqlite_version}")]
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        findings.append(
            Finding(
                severity="warning",
                subject="sqlite",
                message=f"SQLite {sqlite3.sqlite_version} can corrupt a WAL file if two connections write at "
                "the same instant; Holdfast's own lock prevents that; let no other program write to this file",
            )
        )
    for (verdict,) in db.execute("PRAGMA integrity_check(10)"):
        if verdict != "ok":
            findings.append(Finding(severity="error", subject="file", message=f"integrity check: {verdict}"))
    if db.execute("PRAGMA synchronous").fetchone()[0] < 2:
        findings.append(
            Finding(severity="error", subject="file", message="synchronous is not FULL: a power cut may lose commits")
        )
    findings += contradictions(*(db.execute(sql[name]).fetchall() for name in _CHECKS))
    return findings


async def postgres_findings(connection: Any, sql: dict[str, str], pooled: bool) -> list[Finding]:
    version = await connection.fetchval("SELECT version()")
    findings = [Finding(severity="ok", subject="store", message=str(version).split(" on ")[0])]
    if pooled:
        findings.append(
            Finding(
                severity="warning",
                subject="pooler",
                message="a pooler in transaction mode stands in between: no notifications, no proof that a worker is "
                "dead; polls and leases decide",
            )
        )
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        value = await connection.fetchval("SELECT current_setting($1)", setting)
        if value == "off":
            findings.append(
                Finding(severity="error", subject=setting, message=f"{setting} is off: a crash may lose commits")
            )
    for pid, program, state, seconds in await connection.fetch(sql["long_writers"], LONG_WRITER_SECONDS):
        findings.append(
            Finding(
                severity="warning",
                subject="horizon",
                message=f"process {pid} ({program or 'unnamed'}, {state}) has a transaction open for {seconds:.0f} s "
                "after writing: projections do not see newer events until it ends; end it",
            )
        )
    rows = [await connection.fetch(sql[name]) for name in _CHECKS]
    return findings + contradictions(*rows)


def contradictions(
    orphans: list[Any], miscounted: list[Any], overfull: list[Any], broken_streams: list[Any]
) -> list[Finding]:
    findings = [
        Finding(severity="error", subject=table, message=f"{count} rows of {table} belong to no run")
        for table, count in orphans
        if count
    ]
    findings += [_miscounted(run, stored, counted) for run, stored, counted in miscounted]
    findings += [_overfull(run, node) for run, node, _ in overfull]
    return findings + [_broken_stream(*row) for row in broken_streams]


def _miscounted(run: str, stored: int, counted: int) -> Finding:
    message = f"run {run} says it has {stored} active items, but there are {counted}"
    return Finding(severity="error", subject="runs", message=message)


def _overfull(run: str, node: str) -> Finding:
    return Finding(
        severity="error", subject="work", message=f"node {node} of run {run} was counted more often than it has parents"
    )


def _broken_stream(run: str, stored: int, count: int, last: int) -> Finding:
    return Finding(
        severity="error",
        subject="stream",
        message=f"instance {run} says its stream has {stored} events, but there are {count} and the last is {last}",
    )
