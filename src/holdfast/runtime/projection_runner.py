"""Which projections this worker owns: it makes them known to the store, claims those that nobody owns, and watches.

Projections run beside the worker's slots: one that is owned stays owned for as long as the worker lives, and a worker
with a single slot must still have it for work. Leases, take-over of the dead and tokens are those of all other work.

Two loops. `tend` creates, claims, and compares what is owned here with what the store says. `watch` asks how far
streams may be read, once for all projections, and tells their owners. A commit of this process and an announcement of
another wake them at once; without any of these, polling finds everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from holdfast.authoring.projections import PREFIX, Projection
from holdfast.coordinator import Commit, Coordinator
from holdfast.core.errors import HoldfastError, StoreError
from holdfast.core.ids import instance_id
from holdfast.core.operations import Handed, StartRun
from holdfast.core.projection_operations import PROJECTION_MODEL, sources_in
from holdfast.core.rows import LEASED, PAUSED, PROJECTION, STREAM, Work
from holdfast.core.seams import Clock
from holdfast.core.settings import Settings
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.projection_owner import ProjectionOwner
from holdfast.runtime.waiting import either
from holdfast.store.contract import ClaimRequest, Store

log = logging.getLogger("holdfast.projections")

# Between two looks at a stream that others may be writing to: short after news, longer with every look in vain.
SHORTEST_LOOK_SECONDS = 0.002
GATHER_SECONDS = 0.002  # a crowd of commits is one look
HORIZON_LOOK_SECONDS = 10.0
HELD_BACK_SECONDS = 10.0  # longer than this, somebody's open transaction is worth a warning
WARN_AGAIN_SECONDS = 60.0
STOP_SECONDS = 5.0


class Enrolled(Protocol):
    """What projections need of the worker that they belong to; both may change while it lives."""

    id: str
    queues: tuple[str, ...]


def run_ids(projection: Projection[Any]) -> dict[str, str]:
    """The ids that the run of a projection may have, by the name that each goes with: the own name's first."""
    return {name: instance_id(name, name.removeprefix(PREFIX)) for name in projection.__holdfast__.names}


class ProjectionRunner:
    """Owns projections for a worker."""

    def __init__(
        self,
        worker: Enrolled,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._settings = settings
        self._clock = clock
        self._owners: dict[str, ProjectionOwner] = {}  # by run
        self._claim_now = asyncio.Event()
        self._look_now = asyncio.Event()
        self._created_for = -1  # the version of the registry whose projections all have their runs
        self._next_due: int | None = None
        self._compare_at = 0.0
        self._horizon_at = 0.0
        self._warn_at = 0.0
        self._stopping = False

    @property
    def owned(self) -> list[str]:
        """Names of the projections that are owned here."""
        return sorted(owner.projection.name for owner in self._owners.values())

    # -- hints

    def wake(self) -> None:
        """There may be something to claim."""
        if self._definitions.projections():  # most workers have none, and work that they are woken for is not to wait
            self._claim_now.set()

    def look(self) -> None:
        """There may be new events."""
        if self._owners:
            self._look_now.set()

    def on_commit(self, commit: Commit) -> None:
        """New events, projections that somebody may own, and owned ones that somebody stopped."""
        if not self._definitions.projections():
            return  # what other processes project is theirs
        if STREAM in commit.changes.inserts:
            self._look_now.set()
        for work in commit.work:
            if work.kind == PROJECTION:
                self._claim_now.set()
                owner = self._owners.get(work.run)
                if owner is not None and owner.task is not None and work.token > owner.work.token:
                    owner.task.cancel()  # somebody set it out anew: whatever it still writes is refused
        if self._owners:
            for run in commit.runs:
                if run.id in self._owners and (run.status == PAUSED or run.ended):
                    self._owners[run.id].stop()

    # -- owning

    async def tend(self) -> None:
        """Create, claim, compare; for as long as the worker lives."""
        while not self._stopping:
            self._claim_now.clear()
            if self._definitions.projections():
                await self._create_missing()
                await self._claim()
                if self._clock.monotonic() >= self._compare_at:
                    self._compare_at = self._clock.monotonic() + self._settings.sweep_seconds
                    await self._compare()
            await either(self._claim_now, self._poll_seconds())

    def _poll_seconds(self) -> float:
        poll = self._settings.poll_seconds
        if self._next_due is not None:
            poll = min(poll, max(0.001, (self._next_due - self._store.now()) / 1e6))
        return poll

    async def _create_missing(self) -> None:
        """A projection is a run from the moment that a worker knows it, so that others see it too."""
        version = self._definitions.registry.version
        if version == self._created_for:
            return
        wanted = {id(each): each for each in self._definitions.projections().values()}.values()
        ids = {projection.workflow: run_ids(projection) for projection in wanted}
        found = {run.id for run in await self._store.runs([one for each in ids.values() for one in each.values()])}
        for projection in wanted:
            names = ids[projection.workflow]
            if not found.isdisjoint(names.values()):  # also under an earlier name, whose run goes on
                continue
            try:
                await self._coordinator.submit(
                    StartRun(
                        run=names[projection.workflow],
                        workflow=projection.workflow,
                        model=PROJECTION_MODEL,
                        key=projection.name,
                        input=sources_in(projection.sources),
                        queue=projection.queue,
                    )
                )
            except StoreError:
                raise
            except HoldfastError as error:
                log.warning("projection %s does not begin: %s", projection.name, error)
        self._created_for = version

    async def _claim(self) -> None:
        owned = {owner.work.name for owner in self._owners.values() if not owner.stopping}
        wanted = tuple(sorted(set(self._definitions.projections()) - owned))
        self._next_due = None  # else the time of one that we own by now, once past, would keep us awake
        if not wanted or not self._store.proves_life(self._worker.id):
            return
        self._next_due = await self._store.promote(self._worker.queues)
        for queue in self._worker.queues:
            request = ClaimRequest(
                worker=self._worker.id, queue=queue, limit=len(wanted), workflows=wanted, actions=wanted
            )
            handed = await self._store.claim(request)
            if handed:
                self._coordinator.remember(handed)
            for item in handed:
                self._own(item)

    def _own(self, handed: Handed) -> None:
        projection = self._definitions.projections().get(handed.work.workflow)
        if projection is None:
            return  # its definition went away meanwhile: the lease is given back when the worker stops
        before = self._owners.get(handed.run.id)
        owner = ProjectionOwner(
            projection=projection,
            work=handed.work,
            run=handed.run,
            store=self._store,
            coordinator=self._coordinator,
            definitions=self._definitions,
        )
        self._owners[handed.run.id] = owner
        owner.task = asyncio.get_running_loop().create_task(
            self._run(owner, before), name=f"holdfast-projection-{projection.name}"
        )
        owner.task.add_done_callback(lambda _: self._over(owner))  # also if it is cancelled before its first step
        self._look_now.set()
        log.info("worker %s owns projection %s at position %d", self._worker.id, projection.name, owner.position)

    async def _run(self, owner: ProjectionOwner, before: ProjectionOwner | None) -> None:
        if before is not None and before.task is not None:  # its lease is lost: whatever it does is refused
            before.task.cancel()
            await asyncio.wait([before.task])
        try:
            await owner.run()
        except Exception:  # I8
            log.exception("projection %s ended here; it is claimed again", owner.projection.name)
        finally:
            self._over(owner)

    def _over(self, owner: ProjectionOwner) -> None:
        if self._owners.get(owner.run_id) is owner:
            del self._owners[owner.run_id]
        self._claim_now.set()

    async def _compare(self) -> None:
        """What is owned here and not leased to us stops; what is leased to us and not owned here is.

        Claims happen in this very loop and an owner stays listed until its lease is given back, so no answer can be
        under way that would explain a difference.
        """
        before = dict(self._owners)
        held: dict[str, Work] = {
            work.run: work
            for work in await self._store.leased_to(self._worker.id)
            if work.kind == PROJECTION and work.status == LEASED
        }
        runs = {run.id: run for run in await self._store.runs([*held.keys() | before.keys()])}
        for run_id, owner in before.items():
            work = held.get(run_id)
            if work is None or work.token != owner.work.token:
                if owner.task is not None and self._owners.get(run_id) is owner:
                    owner.task.cancel()
            elif run_id in runs and runs[run_id].status == PAUSED:
                owner.stop()
        for run_id, work in held.items():
            if run_id not in self._owners and run_id in runs and run_id not in before:
                self._own(Handed(work, runs[run_id]))

    # -- watching

    async def watch(self) -> None:
        """Ask how far streams may be read, and tell the owners."""
        pause = SHORTEST_LOOK_SECONDS
        told = -1
        while True:
            self._look_now.clear()
            if self._owners:
                bound = await self._store.stream_bound()
                for owner in self._owners.values():
                    owner.may_read_to(bound)
                pause = SHORTEST_LOOK_SECONDS if bound > told else pause * 2
                told = bound
                await self._look_at_horizon()
            else:
                pause = self._settings.poll_seconds  # nobody to tell; whoever becomes an owner here wakes us
            await either(self._look_now, min(pause, self._settings.poll_seconds))
            if self._look_now.is_set():
                pause = SHORTEST_LOOK_SECONDS
                await asyncio.sleep(GATHER_SECONDS)

    async def _look_at_horizon(self) -> None:
        """I36: an open transaction that holds every projection back is reported."""
        now = self._clock.monotonic()
        if now < self._horizon_at:
            return
        self._horizon_at = now + HORIZON_LOOK_SECONDS
        age = await self._store.horizon_age()
        if age > HELD_BACK_SECONDS and now >= self._warn_at:
            self._warn_at = now + WARN_AGAIN_SECONDS
            log.warning(
                "a transaction that has written something is open for %.0f s, and projections do not see newer events "
                "until it ends; `holdfast doctor` names it",
                age,
            )

    # -- the end

    def lose_everything(self) -> None:
        """The worker was declared dead: whatever an owner still writes is refused."""
        for owner in self._owners.values():
            if owner.task is not None:
                owner.task.cancel()

    async def stop(self, grace_seconds: float, hurry: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Finish the batches that are under way, and give all leases back. `hurry()` is awaited to cut this short."""
        self._stopping = True
        self._claim_now.set()
        for owner in self._owners.values():
            owner.stop()
        tasks = [owner.task for owner in self._owners.values() if owner.task is not None]
        if not tasks:
            return
        hurried = asyncio.ensure_future(hurry())
        everything = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait([hurried, everything], timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        everything.cancel()
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=STOP_SECONDS)
