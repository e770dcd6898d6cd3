"""A projection while this worker owns it: take events in order, a transaction for each batch, until told to stop.

Theory of operation. The handler's rows and the new position are written in one transaction, with the run locked last;
the position is written only under the token of the lease. So an owner that lost its lease, and does not know it yet,
rolls back what it wrote: it cannot skip or repeat an event (I36). On the memory store there is no transaction to write
in: the handler is called, then the position moves, and a crash between the two repeats a batch.

An event that makes the handler raise is tried alone, so that those before it count. Then the failure is recorded: the
lease is given up, the item is due again when the retry policy says so, and whoever owns it next begins with that event
alone. In the end the projection stops there, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence
from typing import Any, Never

from msgspec.structs import replace

from holdfast.authoring.context import Context, NodeInfo, entered
from holdfast.authoring.projections import Projection
from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import decode_error, encode_error
from holdfast.core.errors import StoreError, UsageError
from holdfast.core.ids import idempotency_key
from holdfast.core.operations import RECORDED, REPEATED, STALE, RecordProgress, ReleaseWork, Settled
from holdfast.core.projection_operations import AdvanceProjection, FailProjection
from holdfast.core.queries import Attempts
from holdfast.core.rows import FAILED, LEASED, PAUSED, Run, Work
from holdfast.models.projection import failed_place
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.projection_events import NextEvent, decoded, read_facts
from holdfast.store.contract import Conflict, Store

log = logging.getLogger("holdfast.projections")

LOST_RACES_LIMIT = 8
AGAIN_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)


class _RollBack(Exception):
    """Leave the transaction without committing; what happened is kept beside it."""


class HandlerFailed(Exception):
    """The handler raised. `taken` of its events were through by then; None if nobody can tell which one it was."""

    def __init__(self, error: Exception, taken: int | None) -> None:
        super().__init__(error)
        self.error = error
        self.taken = taken


class NoTransaction:
    """`tx` on the memory store, where there is nothing to write to: using it says so."""

    def __init__(self, projection: str) -> None:
        self._projection = projection

    @property
    def raw(self) -> Any:
        self._refuse()

    async def execute(self, sql: str, *args: object) -> int:
        self._refuse()

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        self._refuse()

    async def fetchrow(self, sql: str, *args: object) -> Any:
        self._refuse()

    async def fetchval(self, sql: str, *args: object) -> Any:
        self._refuse()

    def _refuse(self) -> Never:
        raise UsageError(
            f"projection {self._projection} used tx, and memory:// has no database to write to",
            hint="use a SQLite file or PostgreSQL for this engine; on memory:// let it keep what it learns in Python",
        )


class ProjectionOwner:
    """Runs one projection until it is told to stop, loses its lease, or stands before an event that it cannot take."""

    def __init__(
        self,
        *,
        projection: Projection[Any],
        work: Work,
        run: Run,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
    ) -> None:
        self.projection = projection
        self.work = work
        self.run_id = run.id
        self.position = run.base  # committed
        self.bound = 0  # how far may be read; the one who watches the streams moves it
        self.wake = asyncio.Event()
        self.stopping = False  # give the lease back after the batch that is under way
        self.task: asyncio.Task[None] | None = None
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._looked = run.base  # up to here there is nothing for us that was not taken
        self._alone = (0, -1)  # positions of events that are taken one by one
        self._culprit: tuple[int, Exception] | None = None  # the position of the event on which the last batch failed
        if (place := failed_place(work)) is not None:
            self._alone = (place.position, place.position)

    @property
    def _named(self) -> str:
        return f"projection {self.projection.name}"

    def stop(self) -> None:
        """Give it back as soon as the batch that is under way is committed."""
        self.stopping = True
        self.wake.set()

    def may_read_to(self, bound: int) -> None:
        if bound > self.bound:
            self.bound = bound
            self.wake.set()

    # -- the loop

    async def run(self) -> None:
        """Until it is over. The lease is given back, unless it is lost."""
        failures = 0
        while not self.stopping:
            try:
                if failures and not await self._still_owned():
                    return
                if not await self._go_on():
                    return
                failures = 0
            except StoreError as error:
                # Whether the last commit happened is read from the store before anything else.
                log.log(logging.INFO if failures else logging.WARNING, "%s: %s; trying again", self._named, error)
                await asyncio.sleep(AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS) - 1)])
                failures += 1
        await self._release()

    async def _still_owned(self) -> bool:
        """Read again where the projection stands, and whether it is ours."""
        items: list[Work] = await self._store.rows(Attempts(self.run_id, frozenset({self.work.node})))
        runs = await self._store.runs([self.run_id])
        if not any(item.status == LEASED and item.token == self.work.token for item in items) or not runs:
            return False
        self.position = self._looked = runs[0].base
        return True

    async def _go_on(self) -> bool:
        """Take what there is, then wait for more. False: it is not ours any more."""
        self.wake.clear()
        self.projection = self._definitions.projections().get(self.work.workflow, self.projection)  # it may be reloaded
        bound = self.bound
        facts = []
        if bound > self._looked:
            facts = await read_facts(self._store, self.projection.sources, self._looked, bound)
        if not facts:
            self._looked = max(self._looked, bound)
            if bound and self.work.losses:  # I6: an owner that dies while there is nothing to do is no culprit
                await self._coordinator.submit(RecordProgress(**self._lease()))
                self.work = replace(self.work, losses=0)
            await self.wake.wait()
            return True
        events = decoded(self.projection, facts, self._definitions)
        while events and not self.stopping:
            batch = self._next_batch(events)
            if batch[0].error is not None:
                await self._failed(batch[0], batch[0].error, retryable=False)
                return False
            if self._culprit is not None and self._culprit[0] == batch[0].position:
                await self._failed(batch[0], self._culprit[1])
                return False
            if not await self._take(batch):
                return self.stopping  # paused: to be given back
            del events[: sum(each.position <= self.position for each in batch)]
        return True

    def _next_batch(self, events: Sequence[NextEvent]) -> list[NextEvent]:
        low, high = self._alone
        if events[0].error is not None or low <= events[0].position <= high:
            return [events[0]]
        readable = itertools.takewhile(lambda each: each.error is None and not low <= each.position <= high, events)
        return list(itertools.islice(readable, self.projection.batch_size))

    async def _take(self, batch: list[NextEvent]) -> bool:
        """Hand a batch to the handler and move on. False: it is not ours any more, or it is paused."""
        try:
            settled = await self._commit(batch)
        except HandlerFailed as failed:
            if len(batch) == 1:
                await self._failed(batch[0], failed.error)
                return False
            if failed.taken is not None:  # those before it are taken again, and its own attempt counts as one (I3)
                self._culprit = (batch[failed.taken].position, failed.error)
                self._alone = (batch[failed.taken].position,) * 2
            else:
                self._alone = (batch[0].position, batch[-1].position)
                log.info("%s failed on %d events and tries them apart: %r", self._named, len(batch), failed.error)
            return True
        if settled.verdict in (RECORDED, REPEATED):
            self.position = self._looked = batch[-1].position
            return True
        if settled.run_status == PAUSED:
            self.stopping = True
        else:
            log.info("%s is not owned here any more; what it wrote was rolled back", self._named)
        return False

    # -- one transaction

    async def _commit(self, batch: list[NextEvent]) -> Settled:
        """The handler's rows and the new position in one commit; neither, if the position may not be moved."""
        if self._store.kind == "memory":
            return await self._move_without_transaction(batch)
        moved = AdvanceProjection(**self._lease(), after=self.position, position=batch[-1].position)
        for lost_races in itertools.count(1):
            failure: HandlerFailed | None = None
            settled: Settled | None = None
            try:
                async with self._store.transaction(user=True) as tx:
                    try:
                        await self._call(batch, tx.user)
                    except HandlerFailed as failed:
                        failure = failed
                        raise _RollBack from None
                    settled, committed = await self._coordinator.apply_in(tx, moved)
                    if settled.verdict != RECORDED:
                        raise _RollBack
                    if failpoints.armed:
                        await failpoints.reach("projection.before_commit")
                if failpoints.armed:
                    await failpoints.reach("projection.after_commit")
                committed()
                return settled
            except _RollBack:
                if failure is not None:
                    raise failure from failure.error
                return settled or Settled(verdict=STALE)
            except Conflict as error:
                # Somebody changed the run, or a constraint of the user's own that is checked at the end was broken.
                if lost_races == LOST_RACES_LIMIT:
                    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
                    raise HandlerFailed(cause, None) from error
                await asyncio.sleep(0.001 * 2**lost_races)
            except StoreError:
                raise
            except Exception as error:  # a statement of the handler's that failed, and that it hid from us
                raise HandlerFailed(error, None) from error
        raise AssertionError("counted to infinity")

    async def _move_without_transaction(self, batch: list[NextEvent]) -> Settled:
        """Call, then move. What was taken before the handler raised is not undone, so it counts."""
        failure: HandlerFailed | None = None
        try:
            await self._call(batch, NoTransaction(self.projection.name))
        except HandlerFailed as failed:
            if not failed.taken:
                raise
            failure, last = failed, batch[failed.taken - 1]
        else:
            last = batch[-1]
        settled: Settled = await self._coordinator.submit(
            AdvanceProjection(**self._lease(), after=self.position, position=last.position)
        )
        if failure is not None and settled.verdict in (RECORDED, REPEATED):
            self.position = self._looked = last.position
            raise failure
        return settled

    async def _call(self, batch: list[NextEvent], tx: Any) -> None:
        projection = self.projection
        taken = None if projection.batch else 0
        try:
            with entered(self._context(tx)):
                if projection.batch:
                    await projection.fn([each.event for each in batch], tx)
                else:
                    for number, each in enumerate(batch):
                        taken = number
                        await projection.fn(each.event, tx)
        except Exception as error:
            raise HandlerFailed(error, taken) from error
        except BaseException as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling() and isinstance(error, asyncio.CancelledError):
                raise
            # A sys.exit or a cancellation of the handler's own making must not end the worker (I8).
            raise HandlerFailed(RuntimeError(f"the handler raised {error!r}, which is no Exception"), taken) from error

    def _context(self, tx: Any) -> Context:
        work = self.work
        return Context(
            run_id=work.run,
            workflow_name=work.workflow,
            node=NodeInfo(id=work.node, name=self._named, attempt=work.failures + 1),
            idempotency_key=idempotency_key(work.workflow, work.run, work.node),
            worker=work.worker or "",
            tx=tx,
            is_cancelled=lambda: self.stopping,
        )

    # -- what came of it

    async def _failed(self, event: NextEvent, error: Exception, *, retryable: bool = True) -> None:
        retry = self.projection.retry
        record = encode_error(error, earlier=self.work.error)
        settled: Settled = await self._coordinator.submit(
            FailProjection(
                **self._lease(),
                error=record,
                place=event.place,
                # Ours about a wrong use, such as `tx` on memory://, is the same however often it is tried.
                retryable=retryable and not isinstance(error, UsageError) and retry.allows(error),
                attempts=retry.attempts,
                base_seconds=retry.base,
                cap_seconds=retry.cap,
            )
        )
        if settled.verdict != RECORDED:
            return
        stopped = settled.run_status == FAILED
        told = decode_error(record)  # not the exception itself: its __str__ may raise
        log.log(
            logging.ERROR if stopped else logging.WARNING,
            "%s cannot take %s and %s: %s: %s",
            self._named,
            event.place,
            "stops there" if stopped else "tries again later",
            told.type,
            told.message,
            extra={"run": self.run_id, "workflow": self.work.workflow},
        )

    async def _release(self) -> None:
        with contextlib.suppress(StoreError):  # then it is taken over when the lease runs out
            await self._coordinator.submit(ReleaseWork(**self._lease()))

    def _lease(self) -> dict[str, Any]:
        work = self.work
        return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}
