"""The coordinator: load, decide, flush. The file to read first.

Theory of operation. Everything that changes goes through `submit`. Operations that are waiting when
the coordinator is free form a batch; there is no time window, so a lone caller pays one commit at
once and a crowd shares one.

The fast path decides on rows that this process remembers and lets one guarded flush check that they
are still true: no read, one commit, on PostgreSQL one round trip. Whatever is not remembered, or must
not be decided on memory (a cancel, a broadcast), or lost a race, takes the locked path: lock topics,
then runs in sorted order, load rows in later statements, decide, write, commit. Both paths decide with
the same functions over a View, so they cannot disagree about what an operation means.

Where the store writes while this process computes (PostgreSQL), a crowd is served in two batches that take turns: one
is *under way* while the other is decided. They share no run and no key, and whatever takes the locked path waits for
both, so that the order in which operations are decided is the same as without this.

What can go wrong, and what happens then:
- a decision refuses or raises: its own changes are undone, its caller gets the error, the rest of the
  batch commits (K7); no exception and no cancelled caller stops this loop (K9);
- the guard misses: the runs that did not match are forgotten and take the locked path;
- the flush fails for another reason: the batch is halved until the poison operation is alone;
- a run is locked by someone slow: its operations are set aside and the others go on;
- the connection breaks, perhaps after the commit: the batch is decided again on the locked path, and
  every operation's identity makes the repetition harmless (K8).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Any

from holdfast.audience import Audience
from holdfast.batches import (
    Commit,
    Decided,
    Spent,
    Submitted,
    gave_up,
    named,
    named_with_code,
    turn_of_the_loop,
)
from holdfast.core import failpoints
from holdfast.core.errors import EngineClosed, HoldfastError, StoreUnavailable
from holdfast.core.operations import Handed, Operation, names_its_runs
from holdfast.core.queries import WaitersOf
from holdfast.core.rows import RUNS, Run
from holdfast.core.seams import Clock
from holdfast.core.view import Changes, NotLoaded, Query, RowCache, View
from holdfast.needs import is_run, likely_needs, run_of
from holdfast.store.contract import Busy, Conflict, Need, Store, Transaction

log = logging.getLogger("holdfast.coordinator")

SLOW_DECISION_SECONDS = 0.1
CONFLICTS_BEFORE_HALVING = 10
UNDER_WAY_LIMIT = 2  # batches that are flushed at the same time, where the store gains by it
CROWD = 32  # operations that wait from which on they are worth two commits
GATHERING = 5  # turns in which what a batch let go on comes back, to share the next commit
LINGERING = 2  # turns of the event loop that it takes an attempt to come back with what it led to
ASIDE_LIMIT = 3  # connections that may wait for runs which someone slow has locked; the store has six
RECONNECT_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)


class Coordinator:
    """Batches operations and applies each batch in one transaction."""

    def __init__(
        self,
        store: Store,
        decisions: Mapping[type[Operation], Any],
        clock: Clock,
        *,
        batch_limit: int = 200,
        cache_rows: int = 200_000,
        store_timeout_seconds: float = 30.0,
    ) -> None:
        self.store = store
        self.cache = RowCache(cache_rows)
        self.audience = Audience()
        self.observers = self.audience.observers
        self.claim_observers: list[Callable[[Sequence[Handed]], None]] = []
        self.flush_observers: list[Callable[[Sequence[Submitted]], None]] = []  # told of what is about to be written
        store.on_foreign_write = self.cache.clear
        self._decisions = decisions
        self._clock = clock
        self._batch_limit = batch_limit
        self._timeout = store_timeout_seconds
        self._queue: deque[Submitted] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: asyncio.Task[None] | None = None
        self._closed = False
        self._submitted = 0
        self._handed = 0  # items that the last batch handed over, if it was one operation
        self._aside: dict[str, asyncio.Task[None]] = {}  # who is the last to work on a run that someone slow has locked
        self._aside_tasks: set[asyncio.Task[None]] = set()
        self._aside_room = asyncio.Semaphore(ASIDE_LIMIT)
        self._under_way: dict[asyncio.Task[None], frozenset[str]] = {}  # batches, with the names that they concern

    # -- the public verbs

    def submit(self, operation: Operation) -> asyncio.Future[Any]:
        """Apply one operation; the future has its result once it is committed."""
        if (loop := self._loop) is None:  # always the same, and on Python 3.11 asking which is a system call
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = asyncio.Future(loop=loop)
        if self._closed:
            future.set_exception(EngineClosed("the engine is closed and takes no more operations"))
            return future
        self._submitted += 1
        self._queue.append(Submitted(operation, future, self._submitted))
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._drain(), name="holdfast-coordinator")
        return future

    async def submit_batch(self, operations: Sequence[Operation]) -> list[Any]:
        """One result per operation, in order, equal to submitting them one by one; an error is a value here."""
        futures = [self.submit(operation) for operation in operations]
        return list(await asyncio.gather(*futures, return_exceptions=True))

    def get_active(self, run: str) -> Run | None:
        """A run that has not ended, as this process last read or wrote it; None if it does not remember it.

        Asks neither the queue nor the store, so it may be stale by a batch, or by what another process wrote since:
        for people and metrics. No decision is made on it.
        """
        return self.cache.run_row(run)

    async def close(self) -> None:
        """Finish what was submitted; whatever cannot be gets `EngineClosed`."""
        self._closed = True
        runner = self._runner
        if runner is not None and not runner.done():
            await asyncio.wait([runner], timeout=self._timeout)
            runner.cancel()
        for tasks in (set(self._under_way), self._aside_tasks):
            if left := set(tasks):
                await asyncio.wait(left, timeout=self._timeout)
                for task in left:
                    task.cancel()
                await asyncio.wait(left)
        while self._queue:
            self._fail([self._queue.popleft()], EngineClosed("the engine was closed before this was recorded"))

    # -- batches

    async def _drain(self) -> None:
        try:
            while self._queue:
                if await self._serve_next() > 1:
                    for _ in range(GATHERING):
                        await turn_of_the_loop()
                    continue
                # Whoever was alone often comes back at once with its next step: cheaper than a task for each.
                for _ in range(LINGERING):
                    await turn_of_the_loop()
                    if self._queue:
                        if self._handed > 1:
                            await turn_of_the_loop()  # what was handed over together also comes back together
                        break
        finally:
            self.audience.catch_up()

    async def _serve_next(self) -> int:
        """Serve what waits, and return how many operations that were."""
        waiting = min(len(self._queue), self._batch_limit)
        takes_turns = self.store.flushes_overlap and (waiting >= CROWD or bool(self._under_way))
        if takes_turns and self._under_way and not self._is_apart(waiting):
            # It concerns what is under way, and so comes after it: meanwhile more may join it.
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            return waiting
        if takes_turns and not self._under_way:
            waiting = self._first_part(waiting)
        batch = [self._queue.popleft() for _ in range(waiting)]
        if failpoints.armed:
            await failpoints.reach("batch.taken")
        await self._guarded(batch, self._take_turns(batch) if takes_turns else self._serve(batch))
        return waiting

    def _is_apart(self, waiting: int) -> bool:
        """Whether what waits concerns nothing that is under way."""
        names = {name for item in islice(self._queue, waiting) for name in item.operation.ordered_by}
        return all(names.isdisjoint(others) for others in self._under_way.values())

    def _first_part(self, waiting: int) -> int:
        """Half of what waits, if the other half can be decided beside it; all of it, if both are about one run."""
        half = (waiting + 1) // 2
        first = {name for item in islice(self._queue, half) for name in item.operation.ordered_by}
        second = (name for item in islice(self._queue, half, waiting) for name in item.operation.ordered_by)
        return half if first.isdisjoint(second) else waiting

    async def _guarded(self, batch: list[Submitted], served: Coroutine[Any, Any, None]) -> None:
        try:
            await served
        except asyncio.CancelledError:
            self._fail(batch, EngineClosed("the engine was closed before this was recorded"))
            raise
        except Exception as error:  # K9: whatever happened, the next batch must still be served
            log.exception("a batch of %d operations failed", len(batch))
            self._fail(batch, error)

    async def _serve(self, batch: list[Submitted]) -> None:
        if self._aside:
            batch = self._behind_those_aside(batch)
        await self._apply(batch)

    async def _take_turns(self, batch: list[Submitted]) -> None:
        """Decide it at once and leave it to a task to flush it, unless it concerns what is under way; then after that.

        What has to take the locked path does so when nothing is under way any more.
        """
        names = frozenset(name for item in batch for name in item.operation.ordered_by)
        alone = any(item.operation.locked or item.operation.concerns_all for item in batch)
        while self._under_way and (
            alone
            or len(self._under_way) >= UNDER_WAY_LIMIT
            or not all(names.isdisjoint(others) for others in self._under_way.values())
        ):
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        if alone or self._aside:
            await self._all_done()
            await self._serve(batch)
            return
        decided = self._decide_fast(batch, [])
        if decided.fast:
            flush = self._guarded(decided.fast, self._finish(decided))
            task = asyncio.get_running_loop().create_task(flush, name="holdfast-flush")
            self._under_way[task] = names
            task.add_done_callback(self._under_way.pop)
        if decided.slow:
            await self._all_done()
            await self._apply_locked(decided.slow)

    async def _all_done(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _finish(self, decided: Decided) -> None:
        """Flush what was decided; whatever that shows to be out of date takes the locked path."""
        slow = await self._apply_fast(decided.fast, decided)
        if slow:
            await self._apply_locked(sorted(slow, key=lambda item: item.number))

    def _fail(self, batch: list[Submitted], error: BaseException) -> None:
        for item in batch:
            if not item.future.done():
                item.future.set_exception(error)

    async def _apply(self, batch: list[Submitted]) -> None:
        """The fast path for what it can serve, then the locked path for the rest."""
        slow = batch
        kinds = {type(item.operation) for item in batch}
        if all(map(names_its_runs, kinds)) or not any(item.operation.concerns_all for item in batch):
            slow = await self._apply_fast(batch)
        if slow:
            await self._apply_locked(sorted(slow, key=lambda item: item.number))

    # -- the fast path

    async def _apply_fast(self, batch: list[Submitted], decided: Decided | None = None) -> list[Submitted]:
        """Decide on remembered rows, flush guarded. What is returned must take the locked path."""
        slow: list[Submitted] = []
        pending, is_drained = batch, decided is None and self.store.flushes_overlap
        for _ in range(2):  # a second time for those that the guard did not miss
            if decided is None:
                decided = self._decide_fast(pending, slow)
                slow += decided.slow
            fast, changes = decided.fast, decided.changes
            if not fast:
                return slow
            started = self._clock.monotonic()
            for watch_flush in self.flush_observers:
                watch_flush(fast)
            if self.audience.untold:  # while the store writes
                asyncio.get_running_loop().call_soon(self.audience.catch_up)
            try:
                missed = await self.store.flush(changes) if changes else frozenset[str]()
            except Busy:
                self._set_aside(sorted(slow + fast, key=lambda item: item.number))
                return []
            except Exception as error:
                # A unique key, a deadlock, a poison operation, or a connection that broke, maybe after
                # the commit: the locked path decides again, and halves the batch where it must.
                log.debug("the fast flush failed: %r", error)
                self._forget(fast)
                for item in fast:
                    item.may_repeat = not isinstance(error, Conflict)
                return slow + fast
            if not missed:
                spent = Spent(decide=decided.seconds, write=self._clock.monotonic() - started)
                # Whoever was handed something over comes back with it, and waits for this process meanwhile.
                self._handed = len(getattr(fast[0].result, "handed", ()))
                soon = is_drained and len(fast) == 1 and self._handed > 0
                commit = self._absorb(fast, decided.view, changes, spent, locked=False)
                try:
                    if self.audience.herald(commit):  # it goes out now, and not behind all that follows from this here
                        await turn_of_the_loop()
                finally:  # also if this is cancelled meanwhile: it is committed
                    self.audience.tell(another_follows=soon)
                return slow
            decided = None
            for run in missed:
                self.cache.drop(run)
            slow += [item for item in fast if not missed.isdisjoint(item.operation.runs)]
            pending = [item for item in fast if missed.isdisjoint(item.operation.runs)]
        return slow + pending

    def _decide_fast(self, batch: list[Submitted], already_slow: list[Submitted]) -> Decided:
        began = self._clock.monotonic()
        view = View(self.cache, now=self.store.now(), optimistic=True)
        fast: list[Submitted] = []
        slow: list[Submitted] = []
        waiting: set[str] = set()
        locked = {item for item in batch if item.operation.locked}
        for item in (*locked, *already_slow):
            waiting.update(item.operation.ordered_by)
        # What reaches out may concern any run, so all that was submitted later is decided later.
        reaching = min([item.number for item in already_slow if item.reaches_out], default=self._submitted + 1)
        for item in batch:
            operation = item.operation
            needs: Sequence[Need] = ()
            # Once one operation on a run or key takes the locked path so do all later ones: order is kept.
            late = item.number > reaching or bool(waiting and not waiting.isdisjoint(operation.ordered_by))
            if late or item in locked or (needs := self._decide(view, item)):
                slow.append(item)
                waiting.update(operation.ordered_by)
                beyond = any(isinstance(need, Query) and need.of_run is None for need in needs)
                item.reaches_out = beyond or operation.may_reach_out
                reaching = min(reaching, item.number) if item.reaches_out else reaching
            else:
                fast.append(item)
        changes = view.changes()
        return Decided(fast, slow, view, changes, self._clock.monotonic() - began)

    def _decide(self, view: View, item: Submitted) -> Sequence[Need]:
        """Decide one operation. What it needs but the View has not loaded, if anything."""
        mark, wrote = view.begin(), False
        operation = item.operation
        item.result = item.error = None
        view.may_repeat = item.may_repeat
        monotonic = self._clock.monotonic
        started = monotonic()
        try:
            item.result = self._decisions[type(operation)](view, operation)
            wrote = view.finish(mark)
        except NotLoaded as missing:
            view.undo(mark)
            return missing.needs
        except KeyboardInterrupt:  # meant for the program, whatever it does just now
            raise
        except BaseException as error:  # K9: also a SystemExit, or a CancelledError that nobody asked for
            view.undo(mark)
            item.error = item.tellable(error)
        if view.optimistic and not wrote:
            # The guard proves only what is written: an answer or a refusal that writes nothing (stale, ended) must not
            # rest on memory, because a claim elsewhere leaves the version as it is.
            return [(RUNS, operation.runs)]
        if item.error is not None and not isinstance(item.error, HoldfastError):
            log.error("deciding %s raised", type(operation).__name__, exc_info=item.error)
        if (spent := monotonic() - started) > SLOW_DECISION_SECONDS:
            slow = named_with_code(operation, view)
            log.warning("deciding %s took %.0f ms: code inside a decision must be quick", slow, spent * 1000)
        return ()

    # -- the locked path

    async def _apply_locked(self, batch: list[Submitted], *, aside_already: bool = False) -> None:
        deadline = self._clock.monotonic() + self._timeout
        tries = 0
        aside: set[str] = set()  # runs that were found to be needed, and are locked the next time
        while batch:
            spent = Spent()
            try:
                async with self._aside_room if aside_already else contextlib.nullcontext():
                    started = self._clock.monotonic()
                    view, changes, again = await self._locked_once(batch, aside, spent)
                if again:
                    aside |= again
                    continue
                spent.write = self._clock.monotonic() - started - spent.load - spent.decide
                self._commit(batch, view, changes, spent)
                return
            except StoreUnavailable as error:
                self.cache.clear()
                for item in batch:
                    item.may_repeat = True
                if self._clock.monotonic() > deadline:
                    self._fail(batch, error)
                    return
                await asyncio.sleep(RECONNECT_SECONDS[min(tries, len(RECONNECT_SECONDS) - 1)])
            except Conflict as error:
                self._forget(batch)
                if self._clock.monotonic() > deadline:
                    self._fail(batch, gave_up(error))
                    return
                if isinstance(error, Busy) and not aside_already:
                    self._set_aside(batch)
                    return
                if tries > 2:
                    await asyncio.sleep(0.001 * min(tries, 50))
                if tries > CONFLICTS_BEFORE_HALVING and len(batch) > 1:  # one that always conflicts must be alone,
                    await self._apply_halves(batch, aside_already)
                    return
                if tries > CONFLICTS_BEFORE_HALVING and not aside_already:  # and must not keep the others waiting
                    self._set_aside(batch)
                    return
            except HoldfastError as error:
                if len(batch) == 1:
                    self._fail(batch, error)
                    return
                await self._apply_halves(batch, aside_already)
                return
            except Exception as error:
                self._forget(batch)
                if len(batch) == 1:
                    log.exception("%s could not be written", named(batch[0].operation))
                    self._fail(batch, error)
                    return
                await self._apply_halves(batch, aside_already)
                return
            tries += 1

    async def _apply_halves(self, batch: list[Submitted], aside_already: bool) -> None:
        middle = len(batch) // 2
        await self._apply_locked(batch[:middle], aside_already=aside_already)
        rest = batch[middle:] if aside_already else self._behind_those_aside(batch[middle:])
        await self._apply_locked(rest, aside_already=aside_already)

    def _set_aside(self, batch: list[Submitted]) -> None:
        """Somebody holds a run: each run goes on in a task of its own, so that one cannot hold up the rest."""
        groups: dict[tuple[str, ...], list[Submitted]] = {}
        for item in batch:
            groups.setdefault(item.operation.runs, []).append(item)
        for group in groups.values():
            self._forget(group)
            names = {name for item in group for name in item.operation.ordered_by}
            before = {self._aside[name] for name in names if name in self._aside}
            task = asyncio.get_running_loop().create_task(self._apply_aside(group, before), name="holdfast-aside")
            self._aside.update(dict.fromkeys(names, task))
            self._aside_tasks.add(task)
            task.add_done_callback(self._no_longer_aside)

    def _no_longer_aside(self, done: asyncio.Task[None]) -> None:
        self._aside_tasks.discard(done)
        self._aside = {name: task for name, task in self._aside.items() if task is not done}

    def _behind_those_aside(self, batch: list[Submitted]) -> list[Submitted]:
        """What may go on at once; the others follow the operations that were set aside before them."""
        held, free, names = [], [], set(self._aside)
        for item in batch:
            if names.isdisjoint(item.operation.ordered_by):
                free.append(item)
            else:
                held.append(item)
                names.update(item.operation.ordered_by)
        self._set_aside(held)
        return free

    async def _apply_aside(self, group: list[Submitted], before: set[asyncio.Task[None]]) -> None:
        try:
            if before:
                await asyncio.wait(before)
            await self._apply_locked(group, aside_already=True)
        except asyncio.CancelledError:
            self._fail(group, EngineClosed("the engine was closed before this was recorded"))
            raise
        except Exception as error:  # K9, as in the main loop
            log.exception("%d operations that were set aside failed", len(group))
            self._fail(group, error)

    async def _locked_once(
        self, batch: list[Submitted], aside: set[str], spent: Spent
    ) -> tuple[View, Changes, set[str]]:
        async with self.store.transaction() as tx:
            return await self.decide_in(tx, batch, aside, spent, self.cache)

    async def decide_in(
        self, tx: Transaction, batch: list[Submitted], aside: set[str], spent: Spent, cache: RowCache
    ) -> tuple[View, Changes, set[str]]:
        """Lock, load, decide and write inside a transaction that the caller commits.

        The last value names runs that turned out to be needed and were not locked: nothing was written then.
        """
        monotonic, since = self._clock.monotonic, self._clock.monotonic()
        topics = sorted({topic for item in batch for topic in item.operation.topics})
        runs = {run for item in batch for run in item.operation.runs} | aside
        supplied: list[tuple[Need, list[Any]]] = []
        woken = sorted({topic for item in batch for topic in item.operation.wakes})
        waiters: list[Need] = [WaitersOf(topic) for topic in woken]
        if topics:
            await tx.lock_topics(topics)
            runs |= {wait.run for rows in await tx.load(waiters) for wait in rows}
            if failpoints.armed:
                await failpoints.reach("load.after_topics")
        for run in runs:
            cache.drop(run)  # what another process wrote is visible only from here on
        locked = await tx.lock_runs(sorted(runs))
        if failpoints.armed:
            await failpoints.reach("load.after_locks")
        needs: list[Need] = [(RUNS, (run,)) for run in sorted(runs)]
        needs += waiters  # again: while their runs were waited for they can only have become fewer
        needs += [need for item in batch for need in likely_needs(item.operation)]
        while True:
            if needs:
                supplied += zip(needs, await tx.load(needs), strict=True)
                if failpoints.armed:
                    await failpoints.reach("load.after_rows")
            loaded = monotonic()
            spent.load += loaded - since
            view = View(cache, now=tx.now, optimistic=False)
            # Created after they were to be locked: what else is read of them may be of another moment.
            if created := {row.id for need, rows in supplied if is_run(need) for row in rows} - locked:
                return view, Changes(), created
            for need, rows in supplied:
                view.supply(need, rows)
            # Every missing row of the whole batch is collected before the next load: rounds, not trips.
            needs = list(dict.fromkeys(need for item in batch for need in self._decide(view, item)))
            since = monotonic()
            spent.decide += since - loaded
            if not needs:
                break
            # K2: no row is read, and so perhaps locked, before its run is.
            if beyond := {owner for need in needs if (owner := run_of(need)) is not None} - runs:
                return view, Changes(), beyond
        changes = view.changes()
        unlocked = {row.id for row, _ in changes.updates.get(RUNS, ())} - runs
        if unlocked:
            return view, Changes(), unlocked
        if changes:
            await tx.write(changes)
        return view, changes, set()

    def remember(self, handed: Sequence[Handed]) -> bool:
        """Take the rows that a claim returned, so that the completion need not read them.

        Whether all of it was remembered as it was: then the next claim may be told what is (`recall`).
        """
        self.audience.tell()  # what was committed before
        for watch_claims in self.claim_observers:
            watch_claims(handed)
        return self.cache.learn_claims(handed)

    async def apply_in(self, tx: Transaction, operation: Operation) -> tuple[Any, Callable[[], None]]:
        """Apply one operation inside a transaction that the caller commits: its result, and what to call then.

        For transactional actions and for `tx=`: a private batch of one, with the run locked last. It may read what the
        transaction wrote before, which is not committed and perhaps never will be: nobody else may remember that (K4).
        """
        item = Submitted(operation, asyncio.get_running_loop().create_future(), 0)
        aside: set[str] = set()
        spent = Spent()
        started = self._clock.monotonic()
        while True:
            view, changes, again = await self.decide_in(tx, [item], aside, spent, RowCache())
            if not again:
                break
            aside |= again
        if item.error is not None:
            raise item.error

        def committed() -> None:
            spent.write = self._clock.monotonic() - started - spent.load - spent.decide
            self._commit([item], view, changes, spent)

        return item.result, committed

    # -- afterwards

    def _commit(self, batch: list[Submitted], view: View, changes: Changes, spent: Spent) -> None:
        """All that follows a commit of the locked path."""
        self.audience.herald(self._absorb(batch, view, changes, spent, locked=True))
        self.audience.tell()

    def _absorb(self, batch: list[Submitted], view: View, changes: Changes, spent: Spent, *, locked: bool) -> Commit:
        self.cache.absorb(changes)
        pairs = [(item.operation, item.result if item.error is None else item.error) for item in batch]
        commit = Commit(view.now, changes, pairs, spent, locked)
        self.audience.owe(batch, commit)
        return commit

    def _forget(self, batch: list[Submitted]) -> None:
        for item in batch:
            for run in item.operation.runs:
                self.cache.drop(run)


__all__ = ["Commit", "Coordinator", "Spent"]
