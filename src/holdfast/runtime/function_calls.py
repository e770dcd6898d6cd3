"""What a function asks for, carried out: calls in this process, calls for the work table, waits, children, events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.function_calls import (
    ActionCall,
    BroadcastCall,
    ChildCall,
    ChildResult,
    ExecuteCall,
    SendCall,
    SideEffect,
    Wait,
)
from holdfast.authoring.startable import resolve_start
from holdfast.coordinator import Coordinator
from holdfast.core.codec import Codecs, encode_error, encode_stored_result
from holdfast.core.decider_operations import ExecuteInput
from holdfast.core.errors import UnknownWorkflow, UsageError
from holdfast.core.function_operations import (
    CHILD_CODEC,
    FAILURE,
    RESULT,
    TIMER,
    BroadcastEvent,
    Entry,
    OpenWait,
    QueuedCall,
    Refusal,
    SendEvent,
)
from holdfast.core.ids import child_id, hashed
from holdfast.core.operations import StartRun
from holdfast.core.retry import Retry
from holdfast.core.rows import CALL, LEASED, Run, Work
from holdfast.runtime.attempt import Attempt, AttemptRunner
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.folds import submit
from holdfast.runtime.instances import run_of_instance
from holdfast.runtime.invocation import Invocation, invocation_of_call, stored
from holdfast.runtime.prepared_call import PreparedCall
from holdfast.runtime.rare_lists import extended
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.runtime.function_run import LiveFunction
    from holdfast.runtime.run_calls import Pending

Outcome = Entry | QueuedCall


class Step(msgspec.Struct, eq=False):
    """What there is to say in one turn. Mostly one entry and nothing else: lists are made when needed."""

    entries: Sequence[Entry] = ()
    calls: Sequence[QueuedCall] = ()
    opens: Sequence[OpenWait] = ()
    closes: Sequence[str] = ()
    withdraws: Sequence[str] = ()
    children: Sequence[StartRun] = ()
    refuses: Sequence[Refusal] = ()
    unread: Sequence[int] = ()
    inline: Awaitable[Outcome] | None = None

    def asks(self) -> bool:
        """Whether there is more to say than what came of calls."""
        return bool(
            self.calls or self.opens or self.closes or self.withdraws or self.children or self.refuses or self.unread
        )

    def add_outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, Entry):
            self.entries = extended(self.entries, outcome)
        else:
            self.calls = extended(self.calls, outcome)

    def add_refusals(self, function: LiveFunction) -> None:
        """Events that could not be let in: dead letters, while the function waits on."""
        for sequence, refused in function.take_refused().items():
            wait: Wait = refused.pending.payload
            self.refuses = extended(self.refuses, Refusal(sequence, refused.reason))
            if refused.pending.address in function.loop.pending:
                self.opens = extended(self.opens, _open(refused.pending, wait.events, wait.runs))

    def add_due_timers(self, function: LiveFunction, now: int) -> None:
        """The times that have come. One that the function gives up meanwhile is skipped when it is delivered.

        A wait that is opened with this very turn takes what is there for it first, even if its time has come.
        """
        timer = function.loop.next_timer()
        if timer is not None and timer[1] <= now:
            self.entries = extended(self.entries, Entry(address=timer[0], kind=TIMER))
        if not function.deadlines:
            return
        opening = {wait.address for wait in self.opens}
        for address, due in sorted(function.deadlines.items(), key=lambda each: (each[1], each[0])):
            pending = function.loop.pending.get(address)
            if due <= now and pending is not None and address not in opening:
                entry = Entry(address=address, kind=TIMER, name=pending.name, digest=pending.digest)
                self.entries = extended(self.entries, entry)
                if address in function.opened:
                    self.closes = extended(self.closes, address)


class CallRunner:
    """Carries out requests for a driver."""

    def __init__(
        self,
        *,
        runner: AttemptRunner,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        codecs: Codecs,
        payload_limit_bytes: int,
        worker: str,
        child_depth: int = 100,
        observe_inputs: str = "off",
    ) -> None:
        self._observe = observe_inputs
        self._child_depth = child_depth
        self.codecs = codecs
        self.payload_limit_bytes = payload_limit_bytes
        self._runner = runner
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._worker = worker

    def plan(self, function: LiveFunction, run: Run) -> Step:
        """Start what is new, and say what of it the store must know."""
        step = Step()
        if function.given_up or function.unread:
            step.closes, step.unread = function.given_up, function.unread
            # Waits and calls: the store knows which.
            step.withdraws = [node_of(function.base, address) for address in function.given_up]
            function.given_up = function.unread = ()
        for given_up in function.loop.withdrawn_requests() if function.loop.withdrawn else ():
            task = function.running.pop(given_up.address, None)
            if task is not None:
                task.cancel()
            elif isinstance(given_up.payload, ActionCall):  # in the work table, unless it has just come to its end
                step.withdraws = extended(step.withdraws, node_of(function.base, given_up.address))
            function.deadlines.pop(given_up.address, None)
            if given_up.address in function.opened:
                function.opened.discard(given_up.address)
                step.closes = extended(step.closes, given_up.address)
        # G3: what another driver has left to the work table, for its second attempt, is not made here once more.
        new = function.loop.new_requests()
        if function.in_table:
            new = [pending for pending in new if pending.address not in function.in_table]
        for pending in new:
            if pending.payload.__class__ is PreparedCall:
                self._take_call(function, run, pending, step, alone=len(new) == 1)
            else:
                self._take(function, run, pending, step, alone=len(new) == 1)
        return step

    def _take_call(self, function: LiveFunction, run: Run, pending: Pending, step: Step, *, alone: bool) -> None:
        request: PreparedCall = pending.payload
        action = request.action
        if pending.address in function.cut_off:
            # I3, G3: it may have been begun, so this is another attempt; the work table knows which.
            self._queue(function, run, pending, request, step, attempt=function.losses + 2)
        elif action.transactional or action.policy.queue is not None:
            # A transactional one commits with its result, and so is settled by whoever runs it.
            self._queue(function, run, pending, request, step, attempt=1)
        else:
            self._carry_out(function, pending, self._act(function, run, pending, request), step, alone)

    def _take(self, function: LiveFunction, run: Run, pending: Pending, step: Step, *, alone: bool) -> None:
        request = pending.payload
        match request:
            case SideEffect():
                step.entries = extended(step.entries, self._side_effect(pending, request))
            case Wait():
                if request.until_us is not None:
                    function.set_deadline(pending.address, request.until_us)
                if request.events or request.runs:
                    step.opens = extended(step.opens, _open(pending, request.events, request.runs))
            case ChildCall():
                self._child(function, run, pending, request, step)
            case ChildResult():
                step.opens = extended(step.opens, _open(pending, (), (request.run_id,)))
            case _:
                self._carry_out(function, pending, self._perform(function, run, pending), step, alone)

    def _carry_out(
        self, function: LiveFunction, pending: Pending, work: Awaitable[Outcome], step: Step, alone: bool
    ) -> None:
        # A lone call needs no task of its own, as nothing else of the function is going on. A wait that was
        # given up is closed first, as it must not take events while the call runs, and so is a call in the work table.
        quiet = not function.running and not function.opened and not step.closes and not step.withdraws
        if alone and quiet and function.next_due() is None:
            step.inline = work
            return
        address = pending.address

        async def carry_out() -> None:
            try:
                outcome = await work  # first: what it is added to must be what is there then, not now
                function.outcomes = extended(function.outcomes, outcome)
            finally:
                function.running.pop(address, None)
                function.news.set()

        function.set_running(address, asyncio.get_running_loop().create_task(carry_out()))

    async def _perform(self, function: LiveFunction, run: Run, pending: Pending) -> Outcome:
        request = pending.payload
        try:
            match request:
                case SendCall() | BroadcastCall():
                    return _result(pending, await self._send(run, function.base, pending, request), "json")
                case ExecuteCall():
                    await self._execute(run, function.base, pending, request)
                    return _result(pending, b"null", "json")
                case _:
                    raise UsageError(f"{pending.name} cannot be carried out")
        except asyncio.CancelledError:
            raise
        except Exception as error:
            return _failure(pending, encode_error(error, at_home=True))

    async def _act(self, function: LiveFunction, run: Run, pending: Pending, request: PreparedCall) -> Outcome:
        action = request.action
        number = function.losses + 1  # I3: executions that were lost are attempts too
        try:
            data = request.encoded(limit=self.payload_limit_bytes, codecs=self.codecs)
            try:
                if action.is_async and action.policy.timeout_seconds is None:
                    args, kwargs = request.arguments(data, self.codecs)
                    node = node_of(function.base, pending.address)
                    returned = await self._runner.call_async(action, args, kwargs, run, node, number)
                    limit = self.payload_limit_bytes
                    value = stored(encode_stored_result, action.call, self.codecs, limit, returned)
                else:
                    value = await self._runner.call_once(*self._attempt(function, run, pending, action, data, number))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                attempt, invocation = self._attempt(function, run, pending, action, data, number)
                record, retryable = self._runner.failure_of(attempt, invocation, error)
                if retryable and action.policy.retry.attempts > 1:
                    return self._retried(function, run, pending, request, data, record, number)
                return _failure(pending, record)
            return _result(pending, value, self.codecs.default.tag)
        except Exception as error:  # neither the call nor its failure could be made out
            return _failure(pending, encode_error(error, at_home=True))

    def _attempt(
        self, function: LiveFunction, run: Run, pending: Pending, action: Action[..., Any], data: bytes, number: int
    ) -> tuple[Attempt, Invocation]:
        """The call as an attempt of a node: for what runs elsewhere or has a limit, and for what failed."""
        timeout = action.policy.timeout_seconds
        work = Work(
            run=run.id,
            node=node_of(function.base, pending.address),
            attempt=number,
            workflow=run.workflow,
            kind=CALL,
            name=action.name,
            status=LEASED,
            queue=run.queue,
            timeout=None if timeout is None else int(timeout * 1_000_000),
            worker=self._worker,
            payload=data,
            codec=self.codecs.default.tag,
            started=None if timeout is None else self._store.now(),
        )
        invocation = invocation_of_call(action, work, run, self.payload_limit_bytes, self.codecs)
        return Attempt(work, run, metered=False), invocation

    def _queue(
        self, function: LiveFunction, run: Run, pending: Pending, request: ActionCall, step: Step, *, attempt: int
    ) -> None:
        try:
            data = request.encoded(limit=self.payload_limit_bytes, codecs=self.codecs)
        except Exception as error:  # a failure of the call, which its code may catch
            step.entries = extended(step.entries, _failure(pending, encode_error(error)))
            return
        call = self._queued_call(function, run, pending, request, data)
        step.calls = extended(step.calls, msgspec.structs.replace(call, attempt=attempt))

    def _retried(
        self,
        function: LiveFunction,
        run: Run,
        pending: Pending,
        request: ActionCall,
        data: bytes,
        error: bytes,
        number: int,
    ) -> QueuedCall:
        """I3: nothing sleeps while holding a slot, so the next attempt goes through the work table, with its time."""
        retry = request.action.policy.retry
        node = node_of(function.base, pending.address)
        delay = int(retry.delay_seconds(run.id, node, 1) * 1_000_000)
        call = self._queued_call(function, run, pending, request, data)
        return msgspec.structs.replace(
            call, due=self._store.now() + delay, attempt=number + 1, failures=1, error=error, queue=run.queue
        )

    def _queued_call(
        self, function: LiveFunction, run: Run, pending: Pending, request: ActionCall, data: bytes
    ) -> QueuedCall:
        policy = request.action.policy
        retry: Retry = policy.retry
        numbers = {"attempts": retry.attempts, "base": retry.base, "cap": retry.cap}
        timeout = policy.timeout_seconds
        return QueuedCall(
            address=node_of(function.base, pending.address),
            action=request.action.name,
            name=pending.name,
            digest=pending.digest,
            queue=policy.queue or run.queue,
            payload=data,
            codec=self.codecs.default.tag,
            timeout=None if timeout is None else int(timeout * 1_000_000),
            policy=msgspec.json.encode(numbers).decode(),
        )

    def _side_effect(self, pending: Pending, request: SideEffect) -> Entry:
        try:
            encoded = request.encode(request.fn(), limit=self.payload_limit_bytes, codecs=self.codecs)
        except Exception as error:
            return _failure(pending, encode_error(error, at_home=True))
        return _result(pending, encoded.data, encoded.codec)

    def _child(self, function: LiveFunction, run: Run, pending: Pending, request: ChildCall, step: Step) -> None:
        try:
            start = self._child_start(function, run, pending, request)
        except Exception as error:
            step.entries = extended(step.entries, _failure(pending, encode_error(error, at_home=True)))
            return
        step.children = extended(step.children, start)
        if request.awaits:
            step.opens = extended(step.opens, _open(pending, (), (start.run,)))
        else:
            step.entries = extended(step.entries, _result(pending, start.run.encode(), CHILD_CODEC))

    def _child_start(self, function: LiveFunction, run: Run, pending: Pending, request: ChildCall) -> StartRun:
        if run.depth >= self._child_depth:
            raise UsageError(
                f"run {run.id} of {run.workflow} has {run.depth} runs above it that started each other, and may not "
                f"start {request.name} as one more",
                hint="see that a workflow which starts itself comes to an end; one that lives long goes on with "
                f"hf.continue_as(…); where so many levels are meant, set child_depth (now {self._child_depth})",
            )
        registry = self._definitions.registry
        spec = resolve_start(request.startable, request.args, registry, self.payload_limit_bytes, self.codecs)
        return StartRun(
            run=child_id(run.id, f"{function.base}{pending.address}"),
            workflow=spec.workflow,
            model=spec.model,
            key=request.key,
            aliases=registry.names_of(spec.workflow)[1:],
            input=spec.input,
            codec=spec.codec,
            input_digest=spec.input_digest,
            on_failure=spec.on_failure,
            queue=request.queue or run.queue,
            priority=run.priority,
            tags=run.tags,
            parent=None if request.detached else run.id,
            depth=run.depth + 1,
            nodes=spec.document,
            signature=spec.signature,
        )

    async def _send(self, run: Run, base: int, pending: Pending, request: SendCall | BroadcastCall) -> bytes:
        event = request.event
        data = event.encode(request.payload, limit=self.payload_limit_bytes, codecs=self.codecs)
        # Addresses begin anew where the run goes on as another call; the base tells its sends from those before.
        identity = request.id or hashed("event", run.id, node_of(base, pending.address))
        expires = event.expires_us
        operation: SendEvent | BroadcastEvent
        if isinstance(request, SendCall):
            operation = SendEvent(
                run=request.to,
                event=identity,
                name=event.name,
                payload=data.data,
                codec=data.codec,
                expires=expires,
                on_target_end=event.on_target_end,
            )
        else:
            operation = BroadcastEvent(
                event=identity,
                name=event.name,
                payload=data.data,
                codec=data.codec,
                expires=expires,
                to_all=request.to_all,
            )
        return msgspec.json.encode(await self._coordinator.submit(operation))

    async def _execute(self, run: Run, base: int, pending: Pending, request: ExecuteCall) -> None:
        """Give an instance an input, under a command id of the call's own: a crash before the record costs nothing."""
        code = self._definitions.decider(request.decider)
        if code is None:
            raise UnknownWorkflow(
                f"no decider is registered as {request.decider!r} in this process",
                hint="import its module where this function runs",
            )
        given = request.input
        routed = code.route_mapping(given) if isinstance(given, Mapping) else code.route(given)
        command = request.command_id or routed.command or hashed("input", run.id, node_of(base, pending.address))
        operation = ExecuteInput(
            run=await run_of_instance(self._store, code, routed.key),
            workflow=code.name,
            key=routed.key,
            data=routed.data,
            codec=routed.codec,
            input_type=routed.type,
            command=command,
            id=command,
            observe=self._observe,
        )
        await submit(operation, coordinator=self._coordinator, store=self._store, definitions=self._definitions)


def node_of(base: int, address: str) -> str:
    """The node of a call: its address, within the history that it belongs to."""
    return f"{base}|{address}" if base else address


def _open(pending: Pending, events: tuple[str, ...], runs: tuple[str, ...]) -> OpenWait:
    return OpenWait(address=pending.address, name=pending.name, digest=pending.digest, events=events, runs=runs)


def _result(pending: Pending, value: bytes, codec: str) -> Entry:
    return Entry(
        address=pending.address, kind=RESULT, name=pending.name, digest=pending.digest, value=value, codec=codec
    )


def _failure(pending: Pending, error: bytes) -> Entry:
    return Entry(address=pending.address, kind=FAILURE, name=pending.name, digest=pending.digest, value=error)
