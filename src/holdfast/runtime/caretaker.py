"""What a worker does for others: whatever nobody else would notice is noticed here, by every worker a little.

Leases of the dead lapse, work that nobody knows becomes a dead letter, old runs are pruned. None of it needs a leader:
each duty is an operation or a statement that does no harm when two workers do it at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import encode_error
from holdfast.core.errors import MissingJob, StoreError
from holdfast.core.operations import BuryUnknown, LapseWork, ReshapeRun
from holdfast.core.queries import DefinitionById, RunsLeftBehind, RunsToReshape
from holdfast.core.rows import CALL, JOB, Run, Work
from holdfast.core.seams import Clock, Randomness
from holdfast.core.settings import Settings
from holdfast.core.stored import iso_text
from holdfast.runtime import telemetry as t
from holdfast.runtime.attempt import log_keys, named
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.stray_events import StrayEventKeeper
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.worker")

OFTEN = 5  # rounds between two looks at what others should have done
SELDOM = 30  # rounds between two looks at what changes slowly
UNKNOWN_LIMIT = 100
UNKNOWN_SEEN_SECONDS = 300.0  # for how long at most a worker must have seen that nobody knows it
UNKNOWN_LOOKS = 10  # in that time
PRUNE_LIMIT = 500
PRUNE_TIMES = 100  # in a row, so that a busy database does not grow faster than it is pruned
HEAL_SECONDS = 60.0
HEAL_LIMIT = 200


class Caretaker:
    """Looks after workers and work that are not this worker's own. One round every `sweep_seconds`."""

    def __init__(
        self,
        *,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        settings: Settings,
        clock: Clock,
        randomness: Randomness,
        metrics: t.Metrics,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        self.stray_events = StrayEventKeeper(store, coordinator)
        self._rounds = 0
        self._heal_at = clock.monotonic()
        self._healed_version = -1  # of the registry, when we last healed with it
        self._unknown_at = clock.monotonic()
        self._unknown_since: dict[tuple[str, str, str], float] = {}  # by queue, workflow and action: without a gap

    async def begin(self, own_id: str) -> None:
        """What a new worker does before its first claim, so that a restart goes on at once."""
        await self.take_over(own_id)
        await self._heal_if_due()

    async def look_after_others(self, own_id: str, *, everything: bool = False) -> None:
        """One round of duties, the seldom ones too if asked; `own_id` must not be taken over from by itself."""
        await self.take_over(own_id)
        if everything or self._rounds % OFTEN == 0:
            await self.stray_events.see_to_all()
        seldom = everything or self._rounds % SELDOM == 0
        if everything or self._clock.monotonic() >= self._unknown_at:
            await self._bury_unknown(notice_new=everything)
        if seldom:
            await self._prune()
            await self._forget_commands()
        await self._heal_if_due()
        await self._heal_left_behind()
        self._rounds += 1

    # -- the dead

    async def take_over(self, own_id: str) -> None:
        """Leases of workers that are dead, or whose time ran out, lapse: each is an operation (I6, I7)."""
        for worker in await self._store.lapsed_workers(own_id):
            if failpoints.armed:
                await failpoints.reach("takeover.before")
            # First its row: should it be alive after all, it learns that from its next look and takes a new id.
            await self._store.retire(worker)
            if failpoints.armed:
                await failpoints.reach("takeover.retired")
            items = await self._store.leased_to(worker)
            if items:
                log.warning(
                    "worker %s is gone; taking over what it ran: %d", worker, len(items), extra={"worker": worker}
                )
                self._metrics.count(t.TAKEOVERS)
            await self._lapse(items)
            if failpoints.armed:
                await failpoints.reach("takeover.after")

    async def _lapse(self, items: list[Work]) -> None:
        lapses = [
            LapseWork(
                run=work.run,
                node=work.node,
                attempt=work.attempt,
                token=work.token,
                lost_limit=self._settings.lost_limit,
            )
            for work in items
        ]
        for work, answer in zip(items, await self._coordinator.submit_batch(lapses), strict=True):
            if isinstance(answer, StoreError):
                raise answer
            if isinstance(answer, Exception):  # one that cannot be decided here must not hold up the others (I8)
                log.error("%s could not be taken over: %s", named(work), answer, extra=log_keys(work))

    async def _forget_commands(self) -> None:
        """Command ids are remembered for as long as their decider says (I12)."""
        for workflow, retention_us, last in self._definitions.command_retentions():
            before = self._store.now() - retention_us
            await _while_full(partial(self._store.forget_commands, workflow, before, PRUNE_LIMIT, last))

    # -- the unknown

    async def _bury_unknown(self, *, notice_new: bool) -> None:
        """I8: work that no live worker has known for long becomes a dead letter that says what to do.

        Old is not the same as unknown: in a deploy a backlog is unknown for the moment between two workers, and after
        a night without any the first may be one of another application. So it must also have been seen for a while.
        """
        limit, now, now_us = self._settings.unknown_after_seconds, self._clock.monotonic(), self._store.now()
        seen_for = min(limit, UNKNOWN_SEEN_SECONDS)
        self._unknown_at = now + seen_for / UNKNOWN_LOOKS
        # Work is first seen just in time to be buried at the limit; whoever turns the clock by hand skips that moment.
        noticed_after = 0.0 if notice_new else limit - seen_for
        unknown = await self._store.unknown(now_us - int(noticed_after * 1e6), UNKNOWN_LIMIT)
        since, self._unknown_since = self._unknown_since, {}
        for work in unknown:
            name = (work.queue, work.workflow, work.name)
            first = self._unknown_since[name] = since.get(name, now)
            if now - first < seen_for or now_us - work.due < int(limit * 1e6):
                continue
            try:
                error = await self._missing(work)
                await self._coordinator.submit(
                    BuryUnknown(run=work.run, node=work.node, attempt=work.attempt, error=encode_error(error))
                )
            except StoreError:
                raise
            except Exception as trouble:
                log.error("%s could not be buried: %s", named(work), trouble, extra=log_keys(work))

    async def _missing(self, work: Work) -> MissingJob:
        waited = f"{self._settings.unknown_after_seconds:g} s"
        runs = await self._store.runs([work.run])
        if work.kind == JOB and runs and runs[0].definition is not None:
            for stored in await self._store.rows(DefinitionById(runs[0].definition)):
                node = self._definitions.parsed(stored).node(work.node)
                return MissingJob(
                    f"run {work.run} of {work.workflow} needs the action {work.name!r} for node {node.name} "
                    f"({node.id}), and no live worker of queue {work.queue} has known it for {waited}; its graph was "
                    f"frozen at {iso_text(stored.frozen)}, and a deploy does not change a frozen graph",
                    hint=f"(1) bring {work.name!r} back, or give another action aliases=[{work.name!r}], and "
                    f"`holdfast dead replay {work.run} {node.name}`; (2) cancel the run and start a new one; "
                    "(3) change its graph: `holdfast export`, edit, `holdfast import`",
                )
        return MissingJob(
            f"no live worker has known {work.name} of workflow {work.workflow} for {waited} (run {work.run}, "
            f"node {work.node}, queue {work.queue})",
            hint="start a worker that imports the module that defines it, or give the new definition aliases=[…] "
            f"with the old name, or cancel the run; then `holdfast {'retry' if work.kind == CALL else 'dead replay'}`",
        )

    # -- the old

    async def _prune(self) -> None:
        retention = self._settings.retention_seconds
        if retention is not None:
            before = self._store.now() - int(retention * 1e6)
            await _while_full(partial(self._store.prune, before, PRUNE_LIMIT))

    # -- the changed

    async def _heal_if_due(self) -> None:
        now, version = self._clock.monotonic(), self._definitions.registry.version
        if now < self._heal_at and version == self._healed_version:
            return
        # Jitter: workers that a deploy started together need not ask together for ever.
        self._heal_at = now + HEAL_SECONDS * (0.8 + 0.4 * self._randomness.random())
        await self._heal_changed_classes()
        self._healed_version = version

    async def _heal_changed_classes(self) -> None:
        """I31: open runs whose class has changed since they were last decided go on with the new graph."""
        if not self._definitions.versions():
            return
        await self._definitions.see_code(self._store, serve=True)
        await self._definitions.see_code_again(self._store)
        changed: list[Run] = await self._store.rows(
            RunsToReshape(code=self._definitions.versions_seen(), limit=HEAL_LIMIT)
        )
        await self._reshape(changed)
        if len(changed) == HEAL_LIMIT:
            self._heal_at = self._clock.monotonic()  # there may be more

    async def _heal_left_behind(self) -> None:
        """Older workers settle what they ran, and leave what follows to us: at once, where we can."""
        left: list[Run] = await self._store.rows(RunsLeftBehind(HEAL_LIMIT))
        await self._reshape([run for run in left if self._is_ours_to_shape(run)])

    def _is_ours_to_shape(self, run: Run) -> bool:
        graph = self._definitions.of_code(run.workflow)
        return graph is not None and run.adopted <= self._definitions.seen(run, graph)

    async def _reshape(self, changed: list[Run]) -> None:
        answers = await self._coordinator.submit_batch([ReshapeRun(run=run.id) for run in changed])
        for run, answer in zip(changed, answers, strict=True):
            if isinstance(answer, StoreError):
                raise answer
            if isinstance(answer, Exception):
                log.error("run %s of %s could not follow its changed class: %s", run.id, run.workflow, answer)


async def _while_full(delete_some: Callable[[], Awaitable[int]]) -> None:
    for _ in range(PRUNE_TIMES):
        if await delete_some() < PRUNE_LIMIT:
            return
