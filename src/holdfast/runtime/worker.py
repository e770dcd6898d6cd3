"""The worker: claims work it knows, keeps its leases, takes over from the dead, and stops politely.

Theory of operation. One task claims, one keeps the worker's row alive, one looks after ourselves (items leased to us
that we do not run) and after others (`caretaker.py`). Each item runs in a task; when it is settled, work that became
ready may come back leased to us in the same commit (hand-over), and the same task goes on with it: a chain costs one
commit a step and no poll. Where there is a backlog, slots are claimed for while the completions that leave them are
written (`leaving.py`).

Wake-ups are hints (K11): a commit in this process, an announcement of another, a freed slot. The flag is cleared
*before* the claim, so a hint that comes during it is not lost; and polling alone would suffice.

Losing the database stops nothing but progress: every loop backs off and tries again. Losing the lease (our row is gone:
someone took over) means that whatever we still run is stale; it is asked to stop, and we enroll again under a new id,
because an id that others have declared dead must not come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from holdfast.batches import Submitted
from holdfast.coordinator import Commit, Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import DEFAULT_CODECS, Codecs
from holdfast.core.errors import StoreError
from holdfast.core.function_operations import TURN
from holdfast.core.operations import STALE, Handed, Offer
from holdfast.core.rows import LEASED, PROJECTION, Work
from holdfast.core.seams import Clock, Ids, Randomness
from holdfast.core.settings import Settings
from holdfast.runtime import telemetry as t
from holdfast.runtime.attempt import Attempt, AttemptRunner, log_keys, named
from holdfast.runtime.caretaker import Caretaker
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.delayed import Delayed
from holdfast.runtime.function_calls import CallRunner
from holdfast.runtime.function_driver import FunctionDriver
from holdfast.runtime.last_resort import bury
from holdfast.runtime.leaving import Leaving
from holdfast.runtime.loops import keep_going
from holdfast.runtime.lost_often import LostOften
from holdfast.runtime.own_leases import Item, OwnLeases, retire
from holdfast.runtime.processes import ProcessSlots
from holdfast.runtime.projection_runner import ProjectionRunner
from holdfast.runtime.room import Room
from holdfast.runtime.system import Within
from holdfast.runtime.threads import ThreadSlots
from holdfast.runtime.waiting import behind_others, either, until_it_rests
from holdfast.store.contract import ClaimRequest, Store

log = logging.getLogger("holdfast.worker")

CLAIM_LIMIT = 200
HANDOVER_STREAK = 64  # a long chain lets others in after this many steps, when there is a backlog
SECOND_LOOK_SECONDS = 0.3  # a cancel reaches what runs within a second, also from another process (I10)


class Worker:
    """Claims and runs work in this process until it is stopped."""

    def __init__(
        self,
        *,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        settings: Settings,
        clock: Clock,
        ids: Ids,
        randomness: Randomness,
        metrics: t.Metrics,
        levels: t.Levels | None = None,
        codecs: Codecs = DEFAULT_CODECS,
        queues: tuple[str, ...] = ("default",),
        concurrency: int = 100,
        within: Within = asyncio.timeout,
    ) -> None:
        self._within = within
        self.queues = queues
        self.concurrency = concurrency
        self.id = ids.new()
        self._ids = ids
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        self._levels = levels or t.Levels(metrics)
        self._codecs = codecs
        self._wake = asyncio.Event()
        self._running: dict[Item, Attempt] = {}
        self._next: dict[Item, Handed] = {}  # the same item again, for when it has left `_running`
        self._reserved = 0
        self._turn = 0  # which of the queues is asked first
        self._backlog = self._seen_ready = self._stopping = False
        self._knows_what_is_ready = False  # what was claimed last had been written or read here before
        self._own = OwnLeases()
        self._look_now, self._hurry = asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop  # from the start on
        self._loops: list[asyncio.Task[None]] = []
        self._threads = ThreadSlots(settings.threads, when_abandoned=partial(self._levels.change, t.ABANDONED_THREADS))
        self._processes = ProcessSlots(settings.processes, when_died=partial(metrics.count, t.PROCESS_DEATHS))
        self._delayed = Delayed(store, clock, settings.poll_seconds)
        self._runner = self._make_runner()
        self._driver = self._make_driver()
        self._leaving = Leaving(self._running, concurrency, lambda run: self._driver.has_calls(run))
        self._caretaker = Caretaker(
            store=store,
            coordinator=coordinator,
            definitions=definitions,
            settings=settings,
            clock=clock,
            randomness=randomness,
            metrics=metrics,
        )
        self.projections = ProjectionRunner(self, store, coordinator, definitions, settings, clock)
        self._lost_often = LostOften(settings.lost_limit)
        self._told_version = -1  # of the registry, as our row shows it to others
        self._last_beat = clock.monotonic()
        self._beating = asyncio.Lock()

    def _make_runner(self) -> AttemptRunner:
        return AttemptRunner(
            worker=self.id,
            store=self._store,
            coordinator=self._coordinator,
            definitions=self._definitions,
            clock=self._clock,
            threads=self._threads,
            processes=self._processes,
            heartbeat=self._beat_if_due,
            tell_what_is_new=self._tell_what_is_new,
            payload_limit_bytes=self._settings.payload_limit_bytes,
            metrics=self._metrics,
            levels=self._levels,
            codecs=self._codecs,
            observe_inputs=self._settings.observe_inputs,
            within=self._within,
            until=self._delayed.until,
        )

    def _make_driver(self) -> FunctionDriver:
        calls = CallRunner(
            runner=self._runner,
            store=self._store,
            coordinator=self._coordinator,
            definitions=self._definitions,
            codecs=self._codecs,
            payload_limit_bytes=self._settings.payload_limit_bytes,
            worker=self.id,
            child_depth=self._settings.child_depth,
            observe_inputs=self._settings.observe_inputs,
        )
        return FunctionDriver(
            store=self._store,
            coordinator=self._coordinator,
            definitions=self._definitions,
            settings=self._settings,
            clock=self._clock,
            calls=calls,
            until=self._delayed.until,
            within=self._within,
        )

    # -- life

    async def start(self) -> None:
        """Enroll, take over from workers that are provably dead, and begin to claim."""
        self._loop = asyncio.get_running_loop()
        await self._enroll()
        try:
            await self._caretaker.begin(self.id)
        except StoreError as error:
            log.info("worker %s looks after others later: %s", self.id, error, extra={"worker": self.id})
        except Exception:  # I8: nothing poisonous of others keeps a worker from starting
            log.exception("worker %s could not look after others, and tries again", self.id, extra={"worker": self.id})
        self._coordinator.observers.append(self._on_commit)
        if self._store.flushes_overlap:
            self._coordinator.flush_observers.append(self._on_flush)
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            "claims": self._claim_loop,
            "heartbeat": self._heartbeat_loop,
            "sweep": self._sweep_loop,
            "projections": self.projections.tend,
            "streams": self.projections.watch,
        }
        create_task = self._loop.create_task
        self._loops = [
            create_task(keep_going(name, each, self, self._clock, self._metrics), name=f"holdfast-{name}")
            for name, each in loops.items()
        ]
        serves = ", ".join(self.queues)
        log.info("worker %s serves %s with %d slots", self.id, serves, self.concurrency, extra={"worker": self.id})

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Claim nothing more, finish what runs within the grace time, give the rest back."""
        if self._stopping:
            return
        self._stopping = self._driver.stopping = self._delayed.is_over = True
        self._wake.set()
        grace = self._settings.shutdown_seconds if grace_seconds is None else grace_seconds
        for loop in self._loops:
            if loop.get_name() in ("holdfast-claims", "holdfast-projections"):
                loop.cancel()
        projections = asyncio.ensure_future(self.projections.stop(grace, self._hurry.wait))
        tasks = [attempt.task for attempt in self._running.values() if attempt.task is not None]
        if tasks:
            told = (self.id, grace, len(tasks))
            log.info("worker %s waits up to %g s for what is running: %d", *told, extra={"worker": self.id})
            hurry = asyncio.ensure_future(self._hurry.wait())
            everything = asyncio.ensure_future(asyncio.wait(tasks))
            await asyncio.wait([hurry, everything], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            everything.cancel()
        left = [attempt for attempt in self._running.values() if attempt.task is not None and not attempt.task.done()]
        for attempt in left:
            self._ask_to_stop(attempt)
        if left:
            await asyncio.wait([attempt.task for attempt in left if attempt.task is not None], timeout=5.0)
        await asyncio.gather(projections, return_exceptions=True)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        with contextlib.suppress(ValueError):
            self._coordinator.observers.remove(self._on_commit)
            self._coordinator.flush_observers.remove(self._on_flush)
        await retire(self._store, self._coordinator, self.id)
        await self._driver.close()
        self._processes.close()
        self._threads.close(0.0)

    async def hurry(self) -> None:
        """Do not wait any longer for what is running."""
        self._hurry.set()

    async def _enroll(self) -> None:
        version, lease = self._definitions.registry.version, self._settings.lease_seconds
        await self._store.enroll(self._definitions.worker_row(self.id, self.queues, self.concurrency), lease)
        self._told_version = version
        self._last_beat = self._clock.monotonic()

    # -- room

    @property
    def free(self) -> int:
        return max(0, self.concurrency - len(self._running) - self._reserved + len(self._leaving))

    @property
    def accepting(self) -> bool:
        """Whether work leased to us now would stay ours: without proof of life anyone may take it away (I7)."""
        return not self._stopping and self._store.proves_life(self.id)

    @property
    def hands_over(self) -> bool:
        return self._settings.hand_over and not self._stopping and self._store.proves_life(self.id)

    def lend(self) -> int:
        """Free slots for what a completion makes ready, unless others wait for them; give them back.

        Not the last tenth: what becomes due while the completion is written would wait until it is.
        """
        taken = 0 if self._backlog else max(0, self.free - self.concurrency // 10)
        self._reserved += taken
        return taken

    def take_back(self, slots: int) -> None:
        self._reserved -= slots
        if self._backlog:  # somebody came meanwhile, and found no room
            self._wake.set()

    def reserve(self) -> Offer | None:
        """One slot for a run that is about to be started here; give it back with `accept`."""
        if not self.accepting or self.free < 1:
            return None
        self._reserved += 1
        return Offer(worker=self.id, room=1, queues=self.queues)

    def accept(self, handed: tuple[Handed, ...]) -> None:
        """Take what a start handed over, and give the reserved slot back."""
        for item in handed:
            if not self._own.adopted(item.work):
                self._launch(item)
        self.take_back(1)

    def wake(self) -> None:
        self._wake.set()
        self.projections.wake()

    def look(self) -> None:
        """Something ended somewhere: look whether it is something that we run."""
        self._look_now.set()

    # -- claiming

    async def _claim_loop(self) -> None:
        while not self._stopping:
            self._wake.clear()
            if self.free == 0:
                self._backlog = True  # woken without room: the next slot that becomes free must look again
            claimed = await self._claim_once() if self.free > 0 else 0
            few = self.free < max(1, self.concurrency // 10)
            if claimed and self._backlog and self.free > 0:  # else it got all there was
                if few:
                    await either(self._wake, 0.001)
                continue
            if self._backlog and few and self._running:
                # Slots become free one by one under load; waiting a moment lets one claim serve many.
                await either(self._wake, self._poll_seconds())
                if self.free > 0 and not self._leaving:
                    await until_it_rests(lambda: len(self._running))
                    if self._running:
                        await asyncio.sleep(0.001)
                continue
            await either(self._wake, self._poll_seconds())

    async def _claim_once(self) -> int:
        await self._prove_life()
        self._delayed.is_crowded = self._backlog
        await self._delayed.let_in(self.queues)
        total, full, expected, self._seen_ready = 0, False, self._seen_ready, False
        for queue in (*self.queues[self._turn :], *self.queues[: self._turn]):
            losses_below = self._lost_often.losses_below(attempt.work for attempt in self._running.values())
            limit = self._lost_often.limit(min(self.free, CLAIM_LIMIT), losses_below)
            if limit < 1:
                full = True
                break
            request = ClaimRequest(
                worker=self.id,
                queue=queue,
                limit=limit,
                workflows=self._definitions.known_workflows(),
                actions=self._definitions.known_actions(),
                losses_below=losses_below,
                recall=self._coordinator.cache.recall if self._knows_what_is_ready else None,
            )
            asked = self._clock.monotonic()
            handed = await self._store.claim(request)
            self._metrics.observe(t.CLAIM_SECONDS, self._clock.monotonic() - asked)
            self._metrics.count(t.CLAIMS)
            if not handed:
                continue
            self._metrics.count(t.CLAIMED_ITEMS, len(handed))
            full = full or len(handed) == limit
            self._knows_what_is_ready = self._coordinator.remember(handed)
            handed, too_many = self._lost_often.sort([item for item in handed if not self._own.adopted(item.work)])
            if too_many:
                await self._own.give_back(self._coordinator, too_many)
            total += len(handed)
            for item in handed:
                waited = (item.work.started or 0) - item.work.due
                self._metrics.observe(t.SCHEDULE_TO_START_SECONDS, waited / 1e6)
                self._launch(item, ahead=waited == 0)
        if expected and not total:  # a claim steps over what somebody has locked, perhaps to leave it as it is
            self._delayed.look_again_soon()
        self._backlog = full
        self._turn = (self._turn + full) % len(self.queues)  # G9: who takes every slot is asked last the next time
        return total

    def _poll_seconds(self) -> float:
        poll = self._settings.poll_seconds * (0.8 + 0.4 * self._randomness.random())
        # Without room who is due waits for a slot, once that is noted as a backlog: slots may be lent for a moment.
        return poll if self.free == 0 and self._backlog else self._delayed.seconds_until(poll)

    def _on_flush(self, batch: Sequence[Submitted]) -> None:
        if self._backlog and self._leaving.note(batch):
            self._wake.set()

    def _on_commit(self, commit: Commit) -> None:
        """Ready work that was not handed over wakes the claims; cancelled work of ours is asked to stop."""
        self._delayed.note_commit(commit.spent.write)
        self._driver.on_commit(commit)
        self.projections.on_commit(commit)
        for work in commit.work:
            if work.status == "ready":
                if work.kind == TURN:
                    self._stop_if_fenced(work)
                if work.queue in self.queues and (work.gate == 0 or self._delayed.note(work)):
                    self._seen_ready = self._seen_ready or work.gate == 0
                    self._wake.set()
            elif work.status == "cancelled" and work.worker == self.id:
                self._ask_to_stop(self._running.get((work.run, work.node, work.attempt)))

    def _stop_if_fenced(self, turn: Work) -> None:
        """A cancel took the turn away from us: whatever its function still says is refused."""
        attempt = self._running.get((turn.run, turn.node, turn.attempt))
        if attempt is not None and attempt.work.token < turn.token:
            self._ask_to_stop(attempt)

    # -- running

    def _launch(self, handed: Handed, *, ahead: bool = False) -> None:
        key = ((work := handed.work).run, work.node, work.attempt)
        if (running := self._running.get(key)) is not None:
            if running.work.token != work.token:  # parked, woken and claimed again while its task is just ending
                self._next[key] = handed
            return
        attempt = self._running[key] = Attempt(work, handed.run, ahead=ahead)
        attempt.task = self._loop.create_task(self._run_chain(attempt, key))
        attempt.task.add_done_callback(lambda _: self._end_chain(attempt, key))

    def _leave(self, attempt: Attempt, key: Item) -> bool:
        """Take an item that has run off every list; whether its slot was claimed for."""
        self._running.pop(key, None)
        self._own.has_run(attempt.work)
        if self._next and (again := self._next.pop(key, None)) is not None and not self._stopping:
            self._launch(again, ahead=True)
        return self._leaving.has_left(key)

    def _end_chain(self, first: Attempt, key: Item) -> None:
        if self._running.get(key) is first:  # cancelled before its task's first step: no `finally` did this
            self._leave(first, key)
        if self._backlog or self._lost_often.is_suspect(first.work):
            self._wake.set()

    async def _run_chain(self, attempt: Attempt, key: Item) -> None:
        """Run an item, and whatever the commit that settled it handed over to us."""
        following: Attempt | None = attempt
        streak, following_key, room = 0, key, Room(self)
        while following is not None:
            attempt, key, following = following, following_key, None
            try:
                streak += 1
                room.own = 0 if streak >= HANDOVER_STREAK and self._backlog else 1
                room.running = attempt
                if attempt.work.kind == TURN:
                    settled = await self._driver.drive(attempt.work, attempt.run, ahead=attempt.ahead)
                else:
                    settled = await self._runner.run(attempt, room.offer)
            except asyncio.CancelledError:
                if not attempt.stop_requested:
                    raise
                settled = None
            except StoreError as error:
                # The store is gone for too long: our lease runs out and someone else takes the item.
                log.warning("%s was not settled: %s", named(attempt.work), error, extra=log_keys(attempt.work))
                settled = None
            except Exception as error:
                log.exception("%s was not settled", named(attempt.work), extra=log_keys(attempt.work))
                settled = await bury(self._coordinator, attempt.work, error)
            finally:
                if room.taken:
                    room.give_back()
                left = self._leave(attempt, key)
            if settled is None:
                break
            if settled.verdict == STALE:
                self._metrics.count(t.STALE_COMPLETIONS)
                log.info("a late result of %s was refused", named(attempt.work), extra=log_keys(attempt.work))
            if left and settled.handed:  # decided again, when its slot was claimed for
                idle = [handed for handed in settled.handed if not self._own.adopted(handed.work)]
                await self._own.give_back(self._coordinator, idle)
                break
            for handed in settled.handed:
                if failpoints.armed:
                    await failpoints.reach("handover.received")
                self._metrics.count(t.HANDED_OVER)
                if self._own.adopted(work := handed.work):
                    continue
                item = (work.run, work.node, work.attempt)
                if following is None and item not in self._running:  # else taken for an orphan meanwhile
                    following = Attempt(work, handed.run, task=attempt.task, ahead=attempt.ahead)
                    self._running[item], following_key = following, item
                else:
                    self._launch(handed, ahead=attempt.ahead)

    def _ask_to_stop(self, attempt: Attempt | None) -> None:
        if attempt is None or attempt.stop_requested:
            return
        attempt.stop_requested = True
        if attempt.task is not None and attempt.task is not asyncio.current_task():
            attempt.task.cancel()

    # -- leases

    async def _heartbeat_loop(self) -> None:
        while True:
            await self._beat()  # first: after a failure this loop starts again, and a lease is running out
            await asyncio.sleep(self._settings.lease_seconds / 3)

    async def _beat_if_due(self) -> None:
        if self._clock.monotonic() - self._last_beat > self._settings.lease_seconds / 3:
            await self._beat()

    async def _prove_life(self) -> None:
        """A database that restarted has forgotten our lock: take it again before taking anything on."""
        if not self._store.proves_life(self.id):
            await self._beat()

    async def _beat(self) -> None:
        async with self._beating:  # two at once would each make a session, and the lock stays with one of them
            await self._beat_once()

    async def _beat_once(self) -> None:
        try:
            alive = await self._store.heartbeat(self.id, self._settings.lease_seconds)
        except StoreError:
            if self._clock.monotonic() - self._last_beat > self._settings.lease_seconds:
                self._lose_everything("no heartbeat got through for a whole lease")
            raise
        if alive:
            self._last_beat = self._clock.monotonic()
            return
        self._lose_everything("another worker took its leases over")
        old, self.id = self.id, self._ids.new()
        self._runner = self._make_runner()
        await self._driver.close()
        self._driver = self._make_driver()
        await self._enroll()
        await self._store.retire(old)  # its lock and its session would stay for as long as this process
        log.warning("worker %s was declared dead and goes on as %s", old, self.id, extra={"worker": self.id})

    def _lose_everything(self, why: str) -> None:
        self.projections.lose_everything()
        for attempt in list(self._running.values()):
            log.warning("%s lost its lease: %s", named(attempt.work), why, extra=log_keys(attempt.work))
            self._metrics.count(t.LEASE_LOSSES)
            self._ask_to_stop(attempt)

    # -- looking after ourselves, then after others

    async def _sweep_loop(self) -> None:
        soon = False
        while True:  # also while stopping: a cancel must reach what is still running
            every = self._settings.sweep_seconds * (0.8 + 0.4 * self._randomness.random())
            await either(self._look_now, SECOND_LOOK_SECONDS if soon else every)
            if hinted := soon or self._look_now.is_set():
                await behind_others()  # on SQLite the same hint tells of work
            self._look_now.clear()
            soon = await self._compare_with_store()
            await self._look_for_entries()
            self._driver.rest()
            if hinted or self._stopping:
                continue
            await self._notice_own_death()
            await self._tell_what_is_new()
            await self._caretaker.look_after_others(self.id)

    async def _notice_own_death(self) -> None:
        """Declared dead by mistake, every item we claim would be taken away again, until a heartbeat tells us."""
        await self._prove_life()
        if self._store.shared and all(worker.id != self.id for worker in await self._store.workers()):
            await self._beat()

    async def _tell_what_is_new(self) -> None:
        """I8, I31: claims know a late definition at once; others read in our row whether anybody knows it."""
        if (version := self._definitions.registry.version) != self._told_version:
            await self._store.learn_names(self._definitions.worker_row(self.id, self.queues, self.concurrency))
            await self._definitions.see_code(self._store, serve=True)
            self._told_version = version

    async def _compare_with_store(self) -> bool:
        """What we run but do not hold is asked to stop; what we hold but do not run is run. True to look again soon.

        The second happens after a commit whose answer was lost: work was leased to us and nobody told us.
        It must be seen twice, because an answer may just be under way.
        """
        if not self._store.shared and not self._running:
            return False
        leased = [w for w in await self._store.leased_to(self.id) if w.status == LEASED and w.kind != PROJECTION]
        lost, orphans, soon = self._own.compare(leased, self._running)
        for attempt in lost:
            self._ask_to_stop(attempt)
        if orphans and not self._stopping:
            runs = {run.id: run for run in await self._store.runs([work.run for work in orphans])}
            for work in orphans:
                key = (work.run, work.node, work.attempt)
                if work.run in runs and key not in self._running and self._own.adopt(work):
                    self._launch(Handed(work, runs[work.run]), ahead=True)
        return soon

    async def _look_for_entries(self) -> None:
        """A function that is driven here and waits may have been sent something by another process."""
        waiting = self._driver.waiting_for_others()
        if waiting and self._store.shared:
            for run in await self._store.runs(waiting):
                self._driver.look(run.id, run.entries)

    # -- for tests and people

    async def notice_time(self) -> None:
        """Somebody turned the clock by hand: keep the lease, and look for what has become due."""
        await self._beat()
        self._delayed.forget()
        self.wake()

    async def look_after_others(self) -> None:
        """All that a caretaker does in the course of an hour, now."""
        await self._caretaker.look_after_others(self.id, everything=True)

    @property
    def running(self) -> list[dict[str, Any]]:
        return [{"run": run, "node": node, "attempt": number} for run, node, number in self._running]
