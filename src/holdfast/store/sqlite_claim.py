"""A claim on SQLite, inside its transaction: what is ready is found, leased, and given with its run."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from holdfast.core.operations import Handed
from holdfast.core.rows import PENDING, RUNS, WORK, Run, Work
from holdfast.store.contract import ClaimRequest, ReadyItem, Recall, begun, leased
from holdfast.store.sqlite_write import load_rows

_json = msgspec.json.encode


def claim_items(
    db: sqlite3.Connection, sql: dict[str, str], request: ClaimRequest, wanted: tuple[Any, ...], now: int
) -> list[Handed]:
    """Lease what is wanted to the worker that asks."""
    found = _found(db, sql, wanted) if request.recall is None else _recalled(db, sql, wanted, request.recall)
    works = [leased(work, run, worker=request.worker, now=now) for work, run in found]
    db.executemany(sql["lease"], [(w.token, w.worker, w.started, w.run, w.node, w.attempt) for w in works])
    if pending := {run.id: work for work, (_, run) in zip(works, found, strict=True) if run.status == PENDING}:
        db.executemany(sql["begin"], [(work.started, run) for run, work in pending.items()])
    return [Handed(work, begun(run, work)) for work, (_, run) in zip(works, found, strict=True)]


def _found(db: sqlite3.Connection, sql: dict[str, str], wanted: tuple[Any, ...]) -> list[tuple[Work, Run]]:
    works = [Work(*row) for row in db.execute(sql["claimable"], wanted)]
    of_works = _ids({work.run for work in works})  # of a wide run there are many
    runs = {row[0]: Run(*row) for row in db.execute(sql["runs_by_id"], (of_works,))}
    return [(work, runs[work.run]) for work in works]


def _recalled(
    db: sqlite3.Connection, sql: dict[str, str], wanted: tuple[Any, ...], recall: Recall
) -> list[tuple[Work, Run]]:
    """The same, where most is remembered: only the rest is read."""
    items = [ReadyItem(*row) for row in db.execute(sql["claimable_items"], wanted)]
    return [recall(item) or _read(db, sql, item) for item in items]


def _read(db: sqlite3.Connection, sql: dict[str, str], item: ReadyItem) -> tuple[Work, Run]:
    (work,) = load_rows(db, sql, (WORK, (item.run, item.node, item.attempt)))
    (run,) = load_rows(db, sql, (RUNS, (item.run,)))
    return work, run


def _ids(runs: set[str]) -> str:
    return _json(list(runs)).decode()
