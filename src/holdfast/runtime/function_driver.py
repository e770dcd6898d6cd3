"""Driving durable functions: whoever holds a turn replays what is recorded, starts what is missing, and records it.

Theory of operation. A function lives on a loop of its own (run_loop.py) and is moved by entries of its history only,
one at a time. The driver holds the lease of the run's turn and goes round:

    replay what is recorded -> start what the function asks for -> commit what came of it -> deliver that -> …

An entry is delivered only when it is committed, so that no other driver can come to know another order (I49). When
nothing is running here any more and the function still waits (for events, times, other runs, calls in the work
table), its turn is parked in one transaction with its waits, and costs nothing but rows. The loop may stay in memory
for a while: it is a pure function of the entries delivered, so whoever takes the turn next in this process goes on
from there. Everybody else replays.

Losing the lease loses nothing: what was not committed was not delivered, and what this driver still says is refused
by its token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from holdfast.authoring.functions import PYTHON, Workflow
from holdfast.coordinator import Commit, Coordinator
from holdfast.core.ahead import MOST_AHEAD_US
from holdfast.core.codec import Codecs, encode_error
from holdfast.core.errors import MissingJob, RunError, UsageError
from holdfast.core.function_operations import (
    CONTINUED,
    ENTRY_KINDS,
    PATCH,
    ROLLBACKS,
    ContinueAs,
    Numbered,
    Stepped,
    TakeTurn,
    entry_of,
    rollbacks_of,
)
from holdfast.core.operations import (
    RECORDED,
    STALE,
    CompleteWork,
    FailWork,
    ReleaseWork,
    Settled,
)
from holdfast.core.queries import OpenWork, WaitsOf
from holdfast.core.rows import CALL, CANCELLING, HISTORY, PAUSED, SUSPENDED, History, Run, Work
from holdfast.core.seams import Clock
from holdfast.core.settings import Settings
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.function_calls import CallRunner, Step
from holdfast.runtime.run_watchdog import RunWatchdog
from holdfast.runtime.system import Within
from holdfast.store.contract import Store, brought_by_time

if TYPE_CHECKING:
    from holdfast.runtime.function_run import Ended, LiveFunction, StoredRequest

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")


class Lost(Exception):
    """The turn is not ours any more."""


class FunctionDriver:
    """Drives the functions whose turns a worker has claimed, and keeps those that wait in memory for a while."""

    def __init__(
        self,
        *,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        settings: Settings,
        clock: Clock,
        calls: CallRunner,
        until: Callable[[int], Awaitable[bool]],
        within: Within = asyncio.timeout,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._settings = settings
        self._clock = clock
        self._calls = calls
        self._until = until
        self._within = within
        self._watchdog = RunWatchdog()
        self.stopping = False  # finish what is in flight, record it, and give the turns back
        self._driven: dict[str, LiveFunction] = {}
        self._resting: OrderedDict[str, tuple[float, LiveFunction]] = OrderedDict()
        self._noted: dict[str, list[History]] = {}  # what this process wrote for those that rest

    # -- memory

    async def close(self) -> None:
        """Take every function out of memory; a function that is merely dropped would run its `finally` blocks."""
        while self._resting:
            _, (_, function) = self._resting.popitem()
            function.evict()
        self._noted.clear()
        self._watchdog.stop()

    def rest(self) -> None:
        """Evict what has been waiting for long."""
        before = self._clock.monotonic() - self._settings.resident_seconds
        while self._resting:
            run, (since, function) = next(iter(self._resting.items()))
            if since > before and len(self._resting) <= self._settings.resident_functions:
                return
            del self._resting[run]
            self._noted.pop(run, None)
            function.evict()

    def on_commit(self, commit: Commit) -> None:
        """Entries that somebody else of this process wrote for a function that is driven here, or rests here."""
        for row in commit.changes.inserts.get(HISTORY, ()):
            function = self._driven.get(row.run)
            if function is not None:
                function.news.set()
            elif row.run in self._resting:
                self._noted.setdefault(row.run, []).append(row)

    def has_calls(self, run: str) -> bool:
        """Whether calls of a function that is driven here are running, which it may have left behind."""
        function = self._driven.get(run)
        return function is not None and bool(function.running)

    def waiting_for_others(self) -> list[str]:
        """Runs that are driven here and wait for something from outside: another process may have written it."""
        driven = self._driven.items()
        return [run for run, function in driven if len(function.loop.pending) > len(function.running)]

    def look(self, run: str, entries: int) -> None:
        function = self._driven.get(run)
        if function is not None and entries > function.known:
            function.news.set()

    # -- a turn

    async def drive(self, work: Work, run: Run, *, ahead: bool = False) -> Settled:
        """Hold the turn until the function has ended or waits. It may have been claimed ahead of its time."""
        if ahead and (ahead := self._store.time_left(work.due) > 0) and not self._rests(run):
            if not await self._until(work.due):
                return await self._give_back(work)
            ahead = False
        leased_at = run.entries
        while True:
            function: LiveFunction | None = None
            try:
                function = await self._resident(run)
                self._driven[run.id] = function
                function.losses = work.losses
                settled = await self._go_round(function, work, run, leased_at, ahead)
                ahead = False
                if settled is not None:
                    return settled
            except Lost:
                return Settled(verdict=STALE)
            except (RunError, UsageError) as error:
                log.error("run %s of %s cannot go on: %s", run.id, run.workflow, error, extra={"run": run.id})
                return await self._fail(work, error)
            finally:
                self._driven.pop(run.id, None)
                if function is not None and not function.loop.is_closed() and run.id not in self._resting:
                    await function.stop_calls()
                    function.evict()
            (run,) = await self._store.runs([run.id])  # it goes on as another call, in the same turn

    def _rests(self, run: Run) -> bool:
        """Whether it is here as it was parked, with nothing recorded since."""
        _, function = self._resting.get(run.id, (0.0, None))
        if function is None or run.status != SUSPENDED:
            return False
        return run.entries == function.known and run.base == function.base and not self._noted.get(run.id)

    async def _resident(self, run: Run) -> LiveFunction:
        """The function with everything delivered that is recorded."""
        _, function = self._resting.pop(run.id, (0.0, None))
        noted = self._noted.pop(run.id, [])
        # A cancel that came while it rolled back has ended its calls in the work table: a replay asks for them again.
        cut_off = run.status == CANCELLING and function is not None and function.rolls_back
        if function is not None and (function.base != run.base or (cut_off and not function.cancelled_at)):
            function.evict()
            function = None
        if function is None:
            self._watchdog.start()
            function = await begun(
                self._store,
                self._definitions,
                self._calls.codecs,
                run,
                limit_bytes=self._calls.payload_limit_bytes,
                watchdog=self._watchdog,
            )
            function.loop.on_fault = function.wake
        elif run.entries > function.known:  # somebody else may have driven it meanwhile
            function.replay((), await stored_requests(self._store, run), behind=True)
        try:
            if run.entries > function.known:
                complete = [row.sequence for row in noted] == list(range(function.known + 1, run.entries + 1))
                await catch_up(self._store, function, noted if complete else None)
            function.caught_up()
        except BaseException:
            function.evict()
            raise
        return function

    async def _go_round(
        self, function: LiveFunction, work: Work, run: Run, leased_at: int, ahead: bool
    ) -> Settled | None:
        lease_is_stored = not brought_by_time(work, run)  # else it need not be on the disk yet
        while True:
            if function.cancelled_at > leased_at:  # G3: it took this lease away, and the next owner rolls back
                raise Lost
            if function.loop.fault is not None:
                raise function.loop.fault
            if function.refused:
                step = Step()
                step.add_refusals(function)
                await self._say(function, work, step, park=False)
                continue
            if function.loop.done:
                return await self._end(function, work, leased_at)
            if function.new_patches or (function.loop.fresh and not lease_is_stored):
                # Which path the code takes is recorded before anything on it is started, and so is the lease.
                await self._say(function, work, Step(), park=False)
                lease_is_stored = True
                continue
            step = self._calls.plan(function, run)
            inline = None if step.inline is None else await step.inline  # then there is nothing else in this step
            for outcome in function.take_outcomes() if function.outcomes else ():
                step.add_outcome(outcome)
            sleeps = ahead and not function.loop.pending  # for times alone: what is recorded of them is told then
            if inline is not None:
                step.add_outcome(inline)
            elif function.next_due() is not None:
                step.add_due_timers(function, work.due if sleeps else self._store.now())
            may_park = not function.running and not step.entries
            if may_park and (stuck := function.loop.stuck()) is not None:
                from holdfast.runtime.run_refusals import NotDurable

                raise NotDurable(stuck, hint="await an action, a timer, an event or another run")
            if ahead and may_park and not step.asks():
                ahead = False  # its time comes in a moment, and something else may come before
                await self._wait(function, min(self._store.time_left(work.due), MOST_AHEAD_US) / 1e6)
                continue
            if may_park or step.entries or step.asks():
                answer = await self._say(function, work, step, park=may_park, ahead=sleeps)
                lease_is_stored, ahead = True, False
                if answer.parked:
                    function.news.clear()  # of what was written here; who drives it next looks for what others wrote
                    self._resting[run.id] = (self._clock.monotonic(), function)
                    self.rest()
                    return Settled(verdict=RECORDED, run_status=answer.run_status)
                if answer.run_status == PAUSED and await self._still_paused(function, work):
                    return await self._give_back(work)
                if self.stopping and not function.running:
                    return await self._give_back(work)
                continue
            due = function.next_due()
            await self._wait(function, None if due is None else (due - self._store.now()) / 1e6)

    async def _still_paused(self, function: LiveFunction, work: Work) -> bool:
        """I11: start nothing more; what is running goes on to its end, and is recorded. False: it was resumed."""
        while function.running or function.outcomes:
            step = Step()
            for outcome in function.take_outcomes():
                step.add_outcome(outcome)
            if step.entries or step.asks():
                if (await self._say(function, work, step, park=False)).run_status != PAUSED:
                    return False
            elif function.running:
                await function.news.wait()
                function.news.clear()
        return True

    async def _say(self, function: LiveFunction, work: Work, step: Step, *, park: bool, ahead: bool = False) -> Stepped:
        """Commit what there is to say, and deliver what was written, whoever wrote it."""
        operation = TakeTurn(
            run=work.run,
            node=work.node,
            attempt=work.attempt,
            token=work.token,
            known=function.known,
            entries=(*function.take_patches(), *step.entries) if function.new_patches else tuple(step.entries),
            park=park,
            due=function.next_due() if park else None,
            python=PYTHON,
        )
        if ahead:
            operation = replace(operation, ahead=True)
        if step.asks():
            operation = replace(
                operation,
                calls=tuple(step.calls),
                opens=tuple(step.opens),
                closes=tuple(step.closes),
                withdraws=tuple(step.withdraws),
                children=tuple(step.children),
                refuses=tuple(step.refuses),
                unread=tuple(step.unread),
            )
        answer: Stepped = await self._coordinator.submit(operation)
        if answer.verdict == STALE:
            raise Lost
        if step.opens:
            function.set_opened(wait.address for wait in step.opens)
        if ahead:
            await self._until(work.due)
        if answer.verdict == RECORDED and answer.last == function.known + len(answer.entries):
            function.deliver(answer.entries)
        elif answer.last > function.known:
            await catch_up(self._store, function)
        if function.known - function.base >= function.long_from:
            self._warn_of_length(function)
        return answer

    def _warn_of_length(self, function: LiveFunction) -> None:
        """Before it hurts: a history is replayed as a whole when its function was evicted, or its process died."""
        log.warning(
            "run %s of %s has recorded %d entries, which are replayed whenever it is taken up again. Fix: go on with "
            "hf.continue_as(…) now and then, which begins a fresh history",
            function.run_id,
            function.workflow_name,
            function.known - function.base,
            extra={"run": function.run_id},
        )
        function.long_from *= 2

    async def _wait(self, function: LiveFunction, seconds: float | None) -> None:
        """Until a call returns, a time comes, or somebody else writes an entry."""
        with contextlib.suppress(TimeoutError):
            async with self._within(None if seconds is None else max(0.0, seconds)):
                await function.news.wait()
        foreign = function.news.is_set() and not function.outcomes
        function.news.clear()
        if foreign:
            await catch_up(self._store, function)

    # -- the end of a turn

    async def _end(self, function: LiveFunction, work: Work, leased_at: int) -> Settled | None:
        ended: Ended = function.ended()
        key: dict[str, Any] = {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}
        if ended.continued is not None:
            workflow, data, codec = ended.continued
            settled: Settled = await self._coordinator.submit(
                ContinueAs(
                    **key,
                    known=function.known,
                    workflow=workflow,
                    input=data,
                    codec=codec,
                    rollbacks=ended.rollbacks,
                )
            )
            return settled if settled.verdict == STALE else None
        if ended.error is None or ended.cancelled:
            submitted = self._coordinator.submit(CompleteWork(**key, result=ended.result, outcome=None))
            if not function.running:  # whatever is answered, its code has nothing more to do
                function.evict()
            settled = await submitted
            return settled
        if work.attempt > 1 and not ended.cause and function.known <= leased_at:
            self._warn_of_repetition(function, ended.error)
        return await self._fail(work, ended.error, ended.cause)

    def _warn_of_repetition(self, function: LiveFunction, error: BaseException) -> None:
        """Whoever had it tried again believes that something was: a retry forgets no failure that was acted upon."""
        told = (
            "it failed as before, and nothing was called again: what its code did after a failure, in an except, a "
            "finally or a rollback, is recorded and stays. Fix: change the code, or start the run anew"
        )
        error.add_note(told)
        name = (function.run_id, function.workflow_name)
        log.warning("run %s of %s was tried again: %s", *name, told, extra={"run": function.run_id})

    async def _fail(self, work: Work, error: BaseException, cause: int = 0) -> Settled:
        record = encode_error(error, at_home=True)
        key: dict[str, Any] = {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}
        return await self._submit(FailWork(**key, error=record, retryable=False, cause=cause))

    async def _give_back(self, work: Work) -> Settled:
        return await self._submit(ReleaseWork(run=work.run, node=work.node, attempt=work.attempt, token=work.token))

    async def _submit(self, operation: Any) -> Settled:
        settled: Settled = await self._coordinator.submit(operation)
        return settled


async def begun(
    store: Store,
    definitions: RegistryDefinitions,
    codecs: Codecs,
    run: Run,
    *,
    limit_bytes: int,
    watchdog: RunWatchdog | None = None,
    parked: bool = False,
) -> LiveFunction:
    """The function of a run with everything delivered that is recorded since it began, or went on as another call."""
    # A run may have been started for a later time, or paused: to its code, time begins when it does.
    name, data, codec, at, seed = run.workflow, run.input, run.codec, run.started or run.created, run.id
    # Before the history, so that each is answered there or still open.
    waits = bool(run.remaining) or run.active > (0 if parked else 1)
    stored = await stored_requests(store, run, parked=parked) if waits else {}
    # What was waited for when the turn was leased may have been answered since, by the first entry that there is.
    recorded = run.entries or waits
    rows = await store.history(run.id, max(run.base - 2, 0)) if recorded else []
    before = rows[0] if rows and rows[0].sequence < run.base else None
    rows = rows if before is None else rows[1:]
    if run.base and rows and rows[0].kind == CONTINUED:
        entry = entry_of(rows[0].data)
        name, data, codec, at = entry.name, entry.value or b"", entry.codec, rows[0].at
        seed = entry.digest or seed  # it must not draw again what the call before it drew
    found = definitions.thing(name)
    if not isinstance(found, Workflow):
        raise MissingJob(f"workflow {name} is not registered here", hint="import its module in this worker")
    from holdfast.runtime.function_run import LiveFunction  # with a loop of its own, for those who have functions

    function = LiveFunction(
        run, found, definitions.registry, codecs=codecs, limit_bytes=limit_bytes, now_us=at, watchdog=watchdog
    )
    function.loop.seed = seed
    args, kwargs = found.call.decode_call(data, codec, codecs=codecs)
    entries = _entries(row for row in rows if row.sequence > run.base) if rows else []
    if entries and (other := another_python(run)) is not None:
        log.warning("run %s of %s: %s", run.id, run.workflow, other, extra={"run": run.id, "workflow": run.workflow})
    if before is not None and before.kind == ROLLBACKS:
        function.inherit(rollbacks_of(entry_of(before.data)))
    function.replay(_patches(entries), stored, behind=bool(entries))
    try:
        function.begin(args, kwargs, entries)
    except BaseException:
        function.evict()
        raise
    function.known = max(function.known, rows[-1].sequence if rows else 0)
    return function


def another_python(run: Run) -> str | None:
    """What to tell of a history that another version of Python has recorded; None if this one has."""
    if run.signature is None or run.signature == PYTHON or not run.entries:
        return None
    return (
        f"its history was recorded by {run.signature}, and this is {PYTHON}; asyncio may order things differently, "
        "which would be refused as NonDeterminism, not passed over"
    )


async def catch_up(store: Store, function: LiveFunction, rows: list[History] | None = None) -> None:
    """Deliver what is recorded beyond what the function knows; who knows that already gives the rows."""
    if rows is None:
        rows = await store.history(function.run_id, function.known)
    entries = _entries(rows)
    function.learn(_patches(entries))
    last = rows[-1].sequence if rows else function.known
    function.deliver(entries)
    function.known = max(function.known, last)


async def replayed(
    store: Store, definitions: RegistryDefinitions, codecs: Codecs, run: Run, *, limit_bytes: int
) -> LiveFunction:
    """The function as its history leaves it, with nothing started. Evict it afterwards."""
    function = await begun(store, definitions, codecs, run, limit_bytes=limit_bytes, parked=True)
    try:
        function.caught_up()
    except BaseException:
        function.evict()
        raise
    return function


async def stored_requests(store: Store, run: Run, *, parked: bool = False) -> dict[str, StoredRequest]:
    """What the store knows the function to wait for, by address: events, other runs, calls in the work table.

    Whoever drives it holds its turn, which is active too; of a run that may be `parked` a call may be all that is.
    """
    stored: dict[str, StoredRequest] = {}
    if run.remaining:
        for wait in await store.rows(WaitsOf(run.id)):
            stored[wait.address] = (wait.name, wait.digest)
    if run.active > (0 if parked else 1):
        for work in await store.rows(OpenWork(run.id)):
            if work.kind == CALL:
                stored[work.node.rpartition("|")[2]] = (work.name, work.parents or "")
    return stored


def _entries(rows: Iterable[History]) -> list[Numbered]:
    return [Numbered(row.sequence, row.at, entry_of(row.data)) for row in rows if row.kind in ENTRY_KINDS]


def _patches(entries: Iterable[Numbered]) -> list[str]:
    return [numbered.entry.name for numbered in entries if numbered.entry.kind == PATCH]


__all__ = ["FunctionDriver", "replayed"]
