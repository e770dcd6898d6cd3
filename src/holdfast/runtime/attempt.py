"""One attempt: run the user's code where it belongs, within its time, and say what came of it.

User code always runs outside any transaction, and its outcome comes back as an operation. The one
exception is a transactional action: it runs inside a transaction of its own, and its result is decided
and written in that same transaction, with the run locked last, so its writes and its result commit
together or not at all.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Never, cast

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.context import Context, current_context, entered
from holdfast.authoring.flow_control import (
    CancelThisRun,
    FinishThisRun,
    FlowControl,
    PauseThisRun,
    ReattemptThisNode,
    SkipThisNode,
    WaitForPerson,
    signal_in,
)
from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, Codecs, decode_error, encode_error, encode_record
from holdfast.core.errors import StoreError, StoreUnavailable, UsageError
from holdfast.core.operations import (
    RECORDED,
    CompleteWork,
    FailWork,
    KillWork,
    Offer,
    Operation,
    ReleaseWork,
    Settled,
    SteerWork,
)
from holdfast.core.retry import Retry
from holdfast.core.rows import COMPLETED, EFFECT, SET_IN_PLACE, SLEEP, Run, Work
from holdfast.core.seams import Clock
from holdfast.models.flow_code import FLOW, FlowNotLoaded
from holdfast.models.folding import FoldFirst
from holdfast.models.state_code import GRAPH
from holdfast.runtime import telemetry as t
from holdfast.runtime.attempt_context import AttemptContext, CallContext
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.flow_work import SETTLED_BY_FLOWS, FlowWork
from holdfast.runtime.folds import submit
from holdfast.runtime.instance_work import InstanceWork
from holdfast.runtime.interrupts import is_ctrl_c
from holdfast.runtime.invocation import Invocation, Steps, Unrepeatable, invocation_of
from holdfast.runtime.outcome import Meter, ThreadClock, metered
from holdfast.runtime.process_call import call_in_process
from holdfast.runtime.processes import ProcessDied, ProcessSlots, RemoteFailure
from holdfast.runtime.stores import check_transactional
from holdfast.runtime.system import Within
from holdfast.runtime.threads import ThreadSlots
from holdfast.runtime.time_limits import TimeLimits
from holdfast.store.contract import Conflict, Store

if TYPE_CHECKING:
    from holdfast.runtime.graph_work import GraphWork

log = logging.getLogger("holdfast.worker")

WISHES: dict[type[FlowControl], str] = {
    SkipThisNode: "skip",
    PauseThisRun: "pause",
    CancelThisRun: "cancel",
    ReattemptThisNode: "reattempt",
    FinishThisRun: "finish",
}
LOST_RACES_LIMIT = 8  # after that a transactional action has failed


class _RollBack(Exception):
    """Leave a user's transaction without committing; what happened is kept beside it."""


class TimedOut(TimeoutError):
    """An attempt took longer than its timeout."""


class Attempt(msgspec.Struct, eq=False):
    """An item that is running here."""

    work: Work
    run: Run
    stop_requested: bool = False  # the run was cancelled, or the lease is lost
    notes: list[str] = msgspec.field(default_factory=list)
    meter: Meter = msgspec.field(default_factory=Meter)
    task: asyncio.Task[None] | None = None
    metered: bool = True  # False: nobody will read what it used and returned, so it is not looked at
    ahead: bool = False  # it may have been claimed ahead of its time, and must not begin before


class AttemptRunner:
    """Runs attempts for a worker."""

    def __init__(
        self,
        *,
        worker: str,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        clock: Clock,
        threads: ThreadSlots,
        processes: ProcessSlots,
        heartbeat: Callable[[], Awaitable[None]],
        tell_what_is_new: Callable[[], Awaitable[None]],
        metrics: t.Metrics,
        levels: t.Levels,
        codecs: Codecs,
        payload_limit_bytes: int = DEFAULT_LIMIT_BYTES,
        observe_inputs: str = "off",
        until: Callable[[int], Awaitable[bool]],
        within: Within = asyncio.timeout,
    ) -> None:
        self._until = until
        self._within = TimeLimits() if within is asyncio.timeout else within
        self._worker = worker
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._clock = clock
        self._threads = threads
        self._processes = processes
        self._heartbeat = heartbeat
        self._tell_what_is_new = tell_what_is_new
        self._metrics = metrics
        self._levels = levels
        self._codecs = codecs
        self._shows_values = codecs.default.tag in DEFAULT_CODECS  # no repr in the clear beside an encrypted result
        self._payload_limit_bytes = payload_limit_bytes
        self._steps = Steps(definitions, codecs)
        self._thread_clock = ThreadClock()  # of the thread that this worker's event loop runs in
        self._flows = FlowWork(
            store=store, coordinator=coordinator, definitions=definitions, codecs=codecs, limit=payload_limit_bytes
        )
        self._of_graphs: GraphWork | None = None
        self._instances = InstanceWork(
            store=store, coordinator=coordinator, definitions=definitions, observe=observe_inputs
        )

    @property
    def _graphs(self) -> GraphWork:
        """Made for the first item of a state graph: not everybody has them."""
        if self._of_graphs is None:
            from holdfast.runtime.graph_work import GraphWork

            self._of_graphs = GraphWork(
                store=self._store,
                coordinator=self._coordinator,
                definitions=self._definitions,
                codecs=self._codecs,
                limit=self._payload_limit_bytes,
                clock=self._clock,
                heartbeat=self._heartbeat,
            )
        return self._of_graphs

    async def run(self, attempt: Attempt, offer: Callable[[], Offer | None]) -> Settled:
        """Run it and settle it, and not before its time."""
        work = attempt.work
        if attempt.ahead:
            if work.kind == SLEEP and (told := await self._flows.wake_ahead(work, attempt.run, offer)) is not None:
                return told  # what follows from it is held in its turn
            if not await self._until(work.due):
                return await self._submit(release(work))
            attempt.ahead = False
        if work.kind in SET_IN_PLACE:
            return await self._instances.settle(work, offer)
        if work.kind in SETTLED_BY_FLOWS:
            settling = self._flows if attempt.run.model != GRAPH else self._graphs
            return await settling.settle(work, attempt.run, offer)
        try:
            invocation = self._steps.invocation_of(work, attempt.run) or await self._invocation_of(attempt)
        except StoreError:
            raise
        except Exception as error:
            log.error("%s cannot be run and becomes a dead letter: %s", named(work), error, extra=log_keys(work))
            return await self._submit(_kill(work, error))
        if failpoints.armed:
            await failpoints.reach("action.before")
        if invocation.transactional:
            return await self._run_in_transaction(attempt, invocation, offer)
        started = self._clock.monotonic()
        attempt.meter.bytes_in = len(invocation.arguments[0])
        operation: Operation
        try:
            context = AttemptContext(attempt, invocation, self._worker, None, self._heartbeat)
            result = await self._call(attempt, invocation, context)
            operation = self._completed(attempt, result, started, offer())
        except asyncio.CancelledError:
            raise
        except WaitForPerson as wish:
            operation = cast(Operation, wish.question)
        except FlowControl as wish:
            if work.kind == EFFECT:  # an instance goes on by its inputs alone
                operation = self._failed(attempt, invocation, _not_steered(invocation.name, wish), started)
            else:
                operation = self._steered(attempt, wish, started)
        except Exception as error:
            try:
                operation = self._failed(attempt, invocation, error, started)
            except Exception as trouble:  # unsettled, it would be taken for an orphan and run again and again (G3)
                operation = _kill(work, trouble)
        if failpoints.armed:
            await failpoints.reach("action.after")
        try:
            if self._definitions.has_news():  # I31: a class that was defined again while this ran decides what follows
                await self._tell_what_is_new()
            settled: Settled = await self._coordinator.submit(operation)
            return settled
        except (FlowNotLoaded, FoldFirst):  # something has to be read first
            return await self._submit(operation)
        except StoreError:
            raise
        except Exception as error:
            if work.kind == EFFECT:  # what followed from it could not be decided (I16): the attempt has failed
                return await self._submit(self._failed(attempt, invocation, error, started))
            # The outcome itself was refused, and would be again: a dead letter, not one execution after another (G3).
            return await self._submit(_kill(work, error))

    async def _invocation_of(self, attempt: Attempt) -> Invocation:
        run, graph = attempt.run, None
        if run.model == GRAPH:
            return await self._graphs.invocation_of(attempt)
        if run.model != FLOW:  # whose calls are whole in their items
            graph = self._definitions.at_hand(run) or await self._definitions.load(self._store, run)
        return invocation_of(self._definitions, attempt.work, run, graph, self._payload_limit_bytes, self._codecs)

    async def call_once(self, attempt: Attempt, invocation: Invocation) -> bytes:
        """Carry out a call that a function made in this process; its encoded result, or whatever it raised."""
        try:
            return await self._call(attempt, invocation, self._context(attempt, invocation))
        except FlowControl as wish:
            raise _not_steered(invocation.name, wish) from None

    async def call_async(
        self,
        action: Action[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        run: Run,
        node: str,
        number: int,
    ) -> Any:
        """The same for an `async def` without a time limit, which is most of them: what it returned, not encoded."""
        began = self._clock.monotonic()
        self._levels.change(t.RUNNING_ACTIONS, 1)
        entered_as = current_context.set(CallContext(run, node, number, action.name, self._worker, self._heartbeat))
        try:
            return await action.fn(*args, **kwargs)
        except Exception:
            raise
        except BaseException as error:
            if (wish := signal_in(error)) is not None:
                raise _not_steered(action.name, wish) from None
            _raise_as_failure(error)
        finally:
            current_context.reset(entered_as)
            self._levels.change(t.RUNNING_ACTIONS, -1)
            self._metrics.observe(t.ACTION_SECONDS, self._clock.monotonic() - began)

    def failure_of(self, attempt: Attempt, invocation: Invocation, error: Exception) -> tuple[bytes, bool]:
        """A failure as it is stored, and whether another attempt is worth it."""
        failed = self._failed(attempt, invocation, error, self._clock.monotonic())
        return failed.error, failed.retryable

    async def _submit(self, operation: Operation) -> Settled:
        settled: Settled = await submit(
            operation, coordinator=self._coordinator, store=self._store, definitions=self._definitions
        )
        return settled

    # -- calling user code

    def _call(self, attempt: Attempt, invocation: Invocation, context: Context) -> Awaitable[bytes]:
        """The encoded result; raises what the code raised, or TimedOut."""
        timeout = attempt.work.timeout or invocation.timeout
        if timeout is None:
            return self._call_here(attempt, invocation, context)
        now = self._store.now()  # I5: the deadline is counted from the start that the database stamped
        remaining = ((attempt.work.started or now) + timeout - now) / 1e6
        return self._call_within(remaining, attempt, invocation, context)

    async def _call_within(self, remaining: float, attempt: Attempt, invocation: Invocation, context: Context) -> bytes:
        limit = self._within(max(0.0, remaining))
        try:
            async with limit:
                result = await self._call_here(attempt, invocation, context)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise _timed_out(attempt, invocation) from error
        if limit.expired():  # the code caught the cancellation and returned after its time
            raise _timed_out(attempt, invocation)
        return result

    async def _call_here(self, attempt: Attempt, invocation: Invocation, context: Context) -> bytes:
        meter, began = attempt.meter, self._clock.monotonic()
        of_graph = attempt.run.model == GRAPH
        self._levels.change(t.RUNNING_ACTIONS, 1)
        if of_graph:
            self._levels.change(t.GRAPH_NODES_RUNNING, 1)
        try:
            if invocation.cancel_if or invocation.skip_if:
                await self._check_conditions(attempt, invocation, context)
            if invocation.depends_on_run:
                await self._check_runs(attempt, invocation, context)
            if invocation.isolation == "process" and invocation.action is not None:
                return await call_in_process(
                    self._processes,
                    attempt,
                    invocation,
                    invocation.action,
                    worker=self._worker,
                    codecs=self._codecs,
                    limit=self._payload_limit_bytes,
                )
            if invocation.is_async:
                entered_as = current_context.set(context)  # `entered`, without its three calls
                try:
                    call = invocation.call()
                    value = await (metered(meter, call, self._thread_clock) if attempt.metered else call)
                finally:
                    current_context.reset(entered_as)
            else:
                value = await self._threads.run(_in_context, context, meter, invocation.call)
                if inspect.isawaitable(value):
                    with entered(context):
                        value = await value
        except (Exception, FlowControl):
            raise
        except BaseException as error:
            if (signal := signal_in(error)) is not None:
                raise signal from error
            _raise_as_failure(error, attempt.stop_requested)
        finally:
            self._levels.change(t.RUNNING_ACTIONS, -1)
            if of_graph:
                self._levels.change(t.GRAPH_NODES_RUNNING, -1)
            self._metrics.observe(t.ACTION_SECONDS, self._clock.monotonic() - began)
        if attempt.metered and not of_graph and self._shows_values:  # what a graph's node returned is stored as it is
            meter.saw(value)
        return invocation.encoded(value)

    async def _check_conditions(self, attempt: Attempt, invocation: Invocation, context: Context) -> None:
        """`cancel_if` and `skip_if`, in that order; what they raise is the node's own failure."""
        for conditions, signal in ((invocation.cancel_if, CancelThisRun), (invocation.skip_if, SkipThisNode)):
            for condition in conditions:
                if await self._asked(attempt, context, condition):
                    raise signal("cancel_if holds" if signal is CancelThisRun else "skip_if holds")

    async def _check_runs(self, attempt: Attempt, invocation: Invocation, context: Context) -> None:
        """`depends_on_run`: not before these runs have completed; they hold no slot meanwhile."""
        from holdfast.authoring.conditions import checked_run_id  # for those who wait

        wanted: list[str] = []
        for condition in invocation.depends_on_run:
            given = await self._asked(attempt, context, condition)
            for each in given if isinstance(given, list | tuple) else (given,):
                if each is not None and each is not False:
                    wanted.append(checked_run_id(f"depends_on_run of {invocation.name}", each))
        found = {run.id: run for run in await self._store.runs(wanted)}
        for run in wanted:
            if run not in found:
                raise UsageError(f"{invocation.name} depends on run {run}, and there is no such run")
            if found[run].ended and found[run].status != COMPLETED:
                raise UsageError(
                    f"{invocation.name} depends on run {run} of {found[run].workflow}, which is {found[run].status}",
                    hint=f"retry that run, then this node; or skip the node; see `holdfast explain {run}`",
                )
        waiting = tuple(run for run in wanted if not found[run].ended)
        if waiting:
            raise ReattemptThisNode(0.0, f"waits for run {', '.join(waiting)}", waiting)

    async def _asked(self, attempt: Attempt, context: Context, condition: Callable[[], Any]) -> Any:
        answer = await self._threads.run(_in_context, context, attempt.meter, condition)
        if inspect.isawaitable(answer):
            with entered(context):
                answer = await metered(attempt.meter, answer, self._thread_clock)
        return answer

    def _context(self, attempt: Attempt, invocation: Invocation, tx: Any = None) -> Context:
        return AttemptContext(attempt, invocation, self._worker, tx, self._heartbeat)

    # -- what came of it

    def _completed(self, attempt: Attempt, result: bytes, started: float, offer: Offer | None) -> CompleteWork:
        work = attempt.work
        return CompleteWork(
            run=work.run,
            node=work.node,
            attempt=work.attempt,
            token=work.token,
            result=result or None,  # an effect that no input follows has none
            outcome=self._outcome(attempt, started, result),
            offer=offer,
        )

    def _failed(self, attempt: Attempt, invocation: Invocation, error: Exception, started: float) -> FailWork:
        work, retry = attempt.work, invocation.retry
        timed_out, repeatable = isinstance(error, TimedOut), True
        at_home = self._definitions.registry.has_code_of(attempt.run.workflow)
        if isinstance(error, Unrepeatable):
            error, repeatable = error.error, False
        if isinstance(error, ProcessDied):
            error = RuntimeError(f"the process that ran {named(work)} died: {error.message}; {error.hint}")
        if isinstance(error, RemoteFailure):
            repeatable = error.repeatable
            failed = msgspec.structs.replace(error.record, at_home=at_home)
            record, error = encode_record(failed), error.to_exception()
        else:
            record = encode_error(error, earlier=work.error, at_home=at_home)
        failed = decode_error(record)  # not the exception itself: its __str__ may raise
        retryable = repeatable and (timed_out or retry.allows(error))
        who, then = named(work, invocation.name), ""
        if work.kind == EFFECT:  # of an instance people know its name, and what becomes of the effect is known here
            who, then = _effect_named(work, attempt.run), _what_follows(work, retry, retryable)
        log.warning("%s failed: %s: %s%s", who, failed.type, failed.message, then, extra=log_keys(work))
        return FailWork(
            run=work.run,
            node=work.node,
            attempt=work.attempt,
            token=work.token,
            error=record,
            outcome=self._outcome(attempt, started),
            timed_out=timed_out,
            retryable=retryable,
            attempts=retry.attempts,
            base_seconds=retry.base,
            cap_seconds=retry.cap,
        )

    def _steered(self, attempt: Attempt, wish: FlowControl, started: float) -> SteerWork:
        work = attempt.work
        after = wish.after_seconds if isinstance(wish, ReattemptThisNode) else 0.0
        after_runs = wish.after_runs if isinstance(wish, ReattemptThisNode) else ()
        return SteerWork(
            run=work.run,
            node=work.node,
            attempt=work.attempt,
            token=work.token,
            wish=next(name for kind, name in WISHES.items() if isinstance(wish, kind)),
            reason=wish.reason,
            after=int(after * 1_000_000),
            after_runs=after_runs,
            outcome=self._outcome(attempt, started),
        )

    def _outcome(self, attempt: Attempt, started: float, result: bytes = b"") -> bytes:
        attempt.meter.bytes_out = len(result)
        return attempt.meter.outcome(self._worker, self._clock.monotonic() - started, attempt.notes)

    # -- transactional actions

    async def _run_in_transaction(
        self, attempt: Attempt, invocation: Invocation, offer: Callable[[], Offer | None]
    ) -> Settled:
        """G3: writes and result in one commit. A lost race rolls both back, so running it again is safe."""
        started = self._clock.monotonic()
        try:
            check_transactional(self._store, invocation.name)
        except UsageError as refused:
            return await self._submit(self._failed(attempt, invocation, Unrepeatable(refused), started))
        for lost_races in itertools.count(1):
            failure: Exception | None = None
            settled: Settled | None = None
            try:
                async with self._store.transaction(user=True) as tx:
                    try:
                        context = self._context(attempt, invocation, tx.user)
                        result = await self._call(attempt, invocation, context)
                        operation: Operation = self._completed(attempt, result, started, offer())
                    except FinishThisRun as wish:  # it did what it had to do, so what it wrote stays
                        operation = self._steered(attempt, wish, started)
                    except Exception as error:
                        failure = error
                        raise _RollBack from None
                    if not tx.user.is_open:
                        raise _ended_itself(invocation.name)
                    settled, committed = await self._coordinator.apply_in(tx, operation)
                    if settled.verdict != RECORDED:
                        raise _RollBack  # stale: nothing that the action wrote may stay
                    if failpoints.armed:
                        await failpoints.reach("action.tx.before_commit")
                if failpoints.armed:
                    await failpoints.reach("action.tx.after_commit")
                committed()
                return settled
            except FlowControl as wish:
                return await self._submit(self._steered(attempt, wish, started))
            except _RollBack:
                if failure is not None:
                    return await self._submit(self._failed(attempt, invocation, failure, started))
                return settled if settled is not None else Settled(verdict="stale")
            except Conflict as error:
                # Someone changed the run: everything was rolled back, run it again. But a deferred constraint of the
                # user's own looks the same, and would be broken every time.
                if lost_races == LOST_RACES_LIMIT:
                    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
                    return await self._submit(self._failed(attempt, invocation, cause, started))
                await asyncio.sleep(0.001 * 2**lost_races)
            except StoreUnavailable:
                # The commit may have happened or not. If the lease is still ours it has not.
                return await self._submit(release(attempt.work))
            except Exception as error:  # also a statement of the user's that failed and was hidden from us
                return await self._submit(self._failed(attempt, invocation, error, started))
        raise AssertionError("counted to infinity")


def _ended_itself(name: str) -> Unrepeatable:
    """G3: what it wrote before is committed, or gone, and the result would be alone in a commit of its own."""
    return Unrepeatable(
        UsageError(
            f"{name} is transactional and ended its transaction itself: its result can't commit with its writes",
            hint="leave COMMIT and ROLLBACK out: returning commits, and raising rolls back",
        )
    )


def _not_steered(name: str, wish: FlowControl) -> UsageError:
    return UsageError(
        f"{name} used {type(wish).__name__}, and only a node of a DAG can decide that",
        hint="return a value, or raise, and let the workflow decide",
    )


def _raise_as_failure(error: BaseException, stop_requested: bool = False) -> Never:
    """A sys.exit, a cancel or an interrupt of the code's own making: it ends the action, not the worker (I8, G9)."""
    task = asyncio.current_task()
    asked = stop_requested or (task is not None and task.cancelling() > 0)
    if asked and isinstance(error, asyncio.CancelledError):
        raise error
    if isinstance(error, KeyboardInterrupt) and is_ctrl_c(error):
        raise error
    raise RuntimeError(f"the action raised {error!r}, which is no Exception") from error


def _timed_out(attempt: Attempt, invocation: Invocation) -> TimedOut:
    attempt.stop_requested = True
    seconds = (attempt.work.timeout or invocation.timeout or 0) / 1e6
    return TimedOut(f"{named(attempt.work)} took longer than its timeout of {seconds:g} s")


def _in_context(context: Context, meter: Meter, call: Callable[[], Any]) -> Any:
    with entered(context):
        return meter.call(call)


def _kill(work: Work, error: Exception) -> KillWork:
    return KillWork(run=work.run, node=work.node, attempt=work.attempt, token=work.token, error=encode_error(error))


def release(work: Work) -> ReleaseWork:
    return ReleaseWork(run=work.run, node=work.node, attempt=work.attempt, token=work.token)


def _effect_named(work: Work, run: Run) -> str:
    kind = work.name[len(work.workflow) + 1 :]
    return f"effect {kind} of {run.workflow}/{run.key} ({work.node}, attempt {work.attempt})"


def _what_follows(work: Work, retry: Retry, retryable: bool) -> str:
    failures = work.failures + 1
    if not retryable or not retry.gives_another(failures):
        return "; given up: a dead letter"
    return f"; tried again in {retry.delay_seconds(work.run, work.node, failures):.1f} s"


def named(work: Work, name: str | None = None) -> str:
    return f"node {name or work.node} of {work.workflow} (run {work.run}, attempt {work.attempt})"


def log_keys(work: Work) -> dict[str, Any]:
    keys = {"run": work.run, "workflow": work.workflow, "node": work.node, "attempt": work.attempt}
    return {**keys, "worker": work.worker}
