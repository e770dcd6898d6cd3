"""A worker for programs where nobody else works: it serves every queue that something is put on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.coordinator import Commit

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.runtime.worker import Worker


def serve_whatever_comes(engine: Engine, worker: Worker) -> None:
    """Serve queues that are first named while it runs: in a start, in `.options(queue=…)`, for a child."""

    def on_commit(commit: Commit) -> None:
        for work in commit.work:
            serve(engine, worker, work.queue)

    engine.coordinator.observers.insert(0, on_commit)


async def serve_what_is_there(engine: Engine, worker: Worker) -> None:
    """Serve queues on which an earlier run of the program has left something."""
    for depth in (await engine.store.stats()).queues:
        serve(engine, worker, depth.queue)


def serve(engine: Engine, worker: Worker, queue: str) -> None:
    if not any(queue in each.queues for each in engine.local_workers):
        worker.queues = (*worker.queues, queue)
        worker.wake()
