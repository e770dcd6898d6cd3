"""Waiting until nothing more happens by itself: what tests and scripts do before they look."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.authoring.context import current, is_running
from holdfast.authoring.function_calls import running_function
from holdfast.core.errors import UsageError
from holdfast.core.queries import DueWork, Holds
from holdfast.core.rows import LEASED, PROJECTION, Hold, Work
from holdfast.projecting import behind

if TYPE_CHECKING:
    from holdfast.coordinator import Commit
    from holdfast.engine import Engine

LOOK_AGAIN_SECONDS = 0.05  # for what other processes do; commits of this one tell at once
LIMIT = 1_000


class Moving(msgspec.Struct, frozen=True):
    """What is due or running now. `unserved`: no live worker serves its queue or knows its name."""

    running: tuple[Work, ...] = ()
    ready: tuple[Work, ...] = ()
    unserved: tuple[Work, ...] = ()
    events: bool = False  # of an ended run, on their way to others
    projections: tuple[str, ...] = ()  # names of those that have events before them

    @property
    def settled(self) -> bool:
        return not (self.running or self.ready or self.events or self.projections)

    def __str__(self) -> str:
        shown = [f"{work.name} of run {work.run} is running" for work in self.running[:3]]
        shown += [f"{work.name} of run {work.run} waits on queue {work.queue}" for work in self.ready[:3]]
        more = len(self.running) + len(self.ready) - len(shown)
        shown += [f"projection {name} has events before it" for name in self.projections[:3]]
        return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


async def look(engine: Engine) -> Moving:
    """What is due or running on the engine's store."""
    store, workers = engine.store, engine.local_workers
    await store.promote(sorted({queue for worker in workers for queue in worker.queues}))
    due: list[Work] = await store.rows(DueWork(store.now(), LIMIT))
    due = [work for work in due if work.kind != PROJECTION]  # leased for as long as somebody owns it
    ready = [work for work in due if work.status != LEASED]
    holds: list[Hold] = await store.rows(Holds()) if ready else []
    ready = [work for work in ready if not any(_holds(hold, work) for hold in holds)]
    here = {queue for worker in workers for queue in worker.queues}
    served = [work for work in ready if work.queue in here and engine.definitions.can_run(work)]
    if len(served) < len(ready):
        now, own = store.now(), {worker.id for worker in workers}
        others = [row for row in await store.workers() if row.lease_until >= now and row.id not in own]
        served = [work for work in ready if work in served or any(row.knows(work) for row in others)]
    return Moving(
        running=tuple(work for work in due if work.status == LEASED),
        ready=tuple(served),
        unserved=tuple(work for work in ready if work not in served),
        events=engine.stray_events is not None and engine.stray_events.busy,
        projections=tuple(await behind(engine)),
    )


async def settle(engine: Engine, timeout: float | None) -> None:
    """Return when nothing is due and nothing is running."""
    refuse_inside_a_run("engine.settle()")
    moving = Moving()
    try:
        async with asyncio.timeout(timeout):
            with commits_of(engine) as committed:
                while True:
                    committed.clear()
                    moving = await look(engine)
                    if moving.settled:
                        break
                    for worker in engine.local_workers:
                        worker.wake()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                            await committed.wait()
    except TimeoutError:
        raise TimeoutError(f"the engine has not settled after {timeout:g} s: {moving}") from None
    if moving.unserved:
        work = moving.unserved[0]
        count = len(moving.unserved)
        due = "1 item is" if count == 1 else f"{count:,} items are"
        raise UsageError(
            f"{due} due that no live worker can run{'; the first is' if count > 1 else ':'} {work.name} of run "
            f"{work.run} on queue {work.queue}",
            hint=f"run a worker that serves queue {work.queue} and imports {work.name}: "
            f"`async with engine.worker(queues=[{work.queue!r}])`",
        )


@contextlib.contextmanager
def commits_of(engine: Engine) -> Iterator[asyncio.Event]:
    """An event that is set by every commit of this engine."""
    committed = asyncio.Event()

    def note(commit: Commit) -> None:
        committed.set()

    observers = engine.coordinator.observers
    observers.append(note)
    try:
        yield committed
    finally:
        observers.remove(note)


def refuse_inside_a_run(what: str) -> None:
    """Who runs can't wait for the end of everything that runs."""
    if is_running():
        raise UsageError(
            f"{what} was called in {current().node.name}, which would wait for itself", hint="call it from outside"
        )
    if (run := running_function.get()) is not None:
        raise UsageError(
            f"{what} was called in workflow {run.workflow_name}, which would wait for itself",
            hint="call it from outside",
        )


def _holds(hold: Hold, work: Work) -> bool:
    return (
        hold.scope == "all"
        or (hold.scope == "workflow" and hold.name == work.workflow)
        or (hold.scope == "queue" and hold.name == work.queue)
    )
