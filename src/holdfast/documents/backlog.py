"""Queues and workers: how much waits, for how long, and who is there to do it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.rows import LEASED
from holdfast.core.stored import moment

if TYPE_CHECKING:
    from holdfast.core.rows import Work
    from holdfast.engine import Engine
    from holdfast.store.contract import StoreStats, WorkerRow

HELD_SHOWN: Final = 20


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: what could run now, what waits for its time, what runs, and how many live workers serve it."""

    name: str
    ready: int
    delayed: int
    leased: int
    oldest_ready_seconds: float
    workers: int


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue that holds something or is served."""

    queues: tuple[QueueView, ...]


class HeldView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a worker does now."""

    run: str
    workflow: str
    key: str | None
    node: str


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker; one that is not `alive` will be taken over. `runs` has the first of what it does now."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    running: int
    started_at: datetime
    lease_expires_at: datetime
    heartbeat_age_seconds: float
    alive: bool
    version: str
    runs: tuple[HeldView, ...] = ()


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """Every worker that is enrolled."""

    workers: tuple[WorkerView, ...]


async def queues_of(engine: Engine, stats: StoreStats | None = None) -> QueueList:
    """Queues by name; `stats` if they were just read."""
    stats, now = stats or await engine.store.stats(), engine.store.now()
    serving: dict[str, int] = {}
    for worker in await engine.store.workers():
        for queue in worker.queues if worker.lease_until >= now else ():
            serving[queue] = serving.get(queue, 0) + 1
    found = {
        depth.queue: QueueView(
            name=depth.queue,
            ready=depth.ready,
            delayed=depth.delayed,
            leased=depth.leased,
            oldest_ready_seconds=depth.oldest_seconds if depth.ready else 0.0,
            workers=serving.get(depth.queue, 0),
        )
        for depth in stats.queues
    }
    for name in serving.keys() - found.keys():
        found[name] = QueueView(
            name=name, ready=0, delayed=0, leased=0, oldest_ready_seconds=0.0, workers=serving[name]
        )
    return QueueList(queues=tuple(found[name] for name in sorted(found)))


async def workers_of(engine: Engine) -> WorkerList:
    """Workers, the longest serving first."""
    now = engine.store.now()
    rows = sorted(await engine.store.workers(), key=lambda worker: (worker.started, worker.id))
    held = {row.id: [work for work in await engine.store.leased_to(row.id) if work.status == LEASED] for row in rows}
    shown = {work.run for running in held.values() for work in running[:HELD_SHOWN]}
    keys = {run.id: run.key for run in await engine.store.runs(sorted(shown))} if shown else {}
    return WorkerList(workers=tuple(_worker(row, now, held[row.id], keys) for row in rows))


def _worker(row: WorkerRow, now: int, running: list[Work], keys: Mapping[str, str | None]) -> WorkerView:
    return WorkerView(
        id=row.id,
        host=row.host,
        pid=row.pid,
        queues=row.queues,
        concurrency=row.concurrency,
        running=len(running),
        started_at=moment(row.started),
        lease_expires_at=moment(row.lease_until),
        heartbeat_age_seconds=max(0, now - row.seen) / 1e6,
        alive=row.lease_until >= now,
        version="",  # a worker does not tell
        runs=tuple(
            HeldView(run=work.run, workflow=work.workflow, key=keys.get(work.run), node=work.node)
            for work in running[:HELD_SHOWN]
        ),
    )
