"""One durable function in memory: its code on its own loop, and what the driver must know of it.

It is a pure function of its input and the entries delivered so far. Nothing here touches the store.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Never

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.context import enter_function
from holdfast.authoring.function_calls import (
    ActionCall,
    BroadcastCall,
    ChildCall,
    ChildResult,
    ContinueRequested,
    Request,
    SendCall,
    SideEffect,
    Wait,
    request_to_go_on,
)
from holdfast.authoring.functions import Workflow
from holdfast.authoring.registry import Registered, Registry
from holdfast.authoring.startable import result_codec_of
from holdfast.core.codec import (
    MAX_INT,
    Codecs,
    ResultCodec,
    decode_stored_result,
    encode_stored_result,
    unlabelled,
)
from holdfast.core.codec import (
    digest as digest_of_bytes,
)
from holdfast.core.errors import NonDeterminism, PayloadRefused, RunCancelled, RunFailed, UsageError
from holdfast.core.function_operations import CANCEL as CANCEL_ENTRY
from holdfast.core.function_operations import (
    ENDED_RUN,
    EVENT,
    FAILURE,
    PATCH,
    RESULT,
    TIMER,
    Entry,
    Numbered,
    QueuedCall,
    Rollback,
    Sent,
)
from holdfast.core.rows import COMPLETED, Run
from holdfast.core.stored import moment
from holdfast.models.delivery import RunEnd
from holdfast.runtime import run_calls
from holdfast.runtime.child_failures import child_failure, what_it_raised
from holdfast.runtime.exception_classes import as_it_was_raised
from holdfast.runtime.prepared_call import PreparedCall, prepared
from holdfast.runtime.rare_lists import extended
from holdfast.runtime.run_calls import DurableCall, Pending
from holdfast.runtime.run_loop import RunLoop
from holdfast.runtime.run_mismatch import waits_for_something_else
from holdfast.runtime.run_watchdog import RunWatchdog

# A request that the store knows of and that has no answer yet: its name and digest.
StoredRequest = tuple[str, str]

LONG_HISTORY = 10_000
# One for all functions, as very many may wait here: an empty set takes 200 bytes.
_NO_NAMES: Final[frozenset[str]] = frozenset()
_NOTHING_STORED: Final[dict[str, StoredRequest]] = {}  # never written to, nor are these
_NOTHING_RUNNING: Final[dict[str, asyncio.Task[None]]] = {}
_NOTHING_OPENED: Final[set[str]] = set()
_NO_DEADLINES: Final[dict[str, int]] = {}
_FAILURES: Final = frozenset({FAILURE, ENDED_RUN})  # kinds of entries that may be some
_NOTHING_REFUSED: Final[dict[int, RefusedEvent]] = {}
_NOTHING_EXPOSED: Final[dict[str, Callable[[], Any]]] = {}
_decode_end = msgspec.msgpack.Decoder(RunEnd).decode
_decode_sent = msgspec.json.Decoder(Sent).decode


class Ended(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How the function ended: with a result, an error, or by going on as another call."""

    result: bytes | None = None
    error: BaseException | None = None
    cause: int = 0  # the entry of a failed call or child, if the function ended with it and did nothing more
    cancelled: bool = False
    continued: tuple[str, bytes, str] | None = None
    rollbacks: tuple[Rollback, ...] = ()  # that it leaves to the call that it goes on as


class RefusedEvent(msgspec.Struct, frozen=True, eq=False):
    """An event that is not of the type that the function's code waits for."""

    pending: Pending
    event: str
    id: str
    reason: str


class News(msgspec.Struct, eq=False):
    """Something came in for a function: an asyncio.Event for one who waits, at a tenth of its weight."""

    _is_set: bool = False
    _waiter: asyncio.Future[None] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        if self._is_set:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class LiveFunction:
    """A function that is driven here, or waits here for its next turn. Implements `FunctionRun` for its code."""

    __slots__ = (
        "_asked_unpatched", "_behind", "_codecs", "_ended_by", "_limit_bytes", "_patches", "_rollbacks",
        "_stored", "_workflow", "base", "cancelled_at", "cut_off", "deadlines", "exposed", "given_up", "in_table",
        "known", "long_from", "loop", "losses", "new_patches", "news", "opened", "outcomes", "refused", "registry",
        "rolls_back", "run_id", "running", "unread", "workflow_name",
    )  # fmt: skip

    def __init__(
        self,
        run: Run,
        workflow: Workflow[..., Any],
        registry: Registry,
        *,
        codecs: Codecs,
        limit_bytes: int,
        now_us: int,
        watchdog: RunWatchdog | None = None,
    ) -> None:
        self.run_id = run.id
        self.workflow_name = workflow.name
        self.registry = registry
        self.base = run.base
        self.known = run.base
        self.cancelled_at = 0  # the entry that told it of a cancel
        self.rolls_back = False
        self.cut_off = _NO_NAMES  # what it had asked for when a cancel took its turn away in a rollback
        self.losses = 0  # how often its calls were begun by drivers that died before anything of it was recorded
        self.long_from = LONG_HISTORY  # entries at which its length is warned of, the next time
        self.loop = RunLoop(run.id, now_us=now_us, watchdog=watchdog)
        self.news = News()
        self.running = _NOTHING_RUNNING  # calls that are in flight in this process, by address
        self.outcomes: Sequence[Any] = ()  # what came of them, not yet committed
        self.opened = _NOTHING_OPENED  # waits that the store knows of
        self.deadlines = _NO_DEADLINES
        self.exposed = _NOTHING_EXPOSED
        self.refused = _NOTHING_REFUSED  # events that were not let in, by sequence, not yet recorded so
        self._behind = True  # what the code does has been done before: entries are left to deliver
        self._stored = _NOTHING_STORED
        self.given_up: Sequence[str] = ()  # waits and calls of the store that the code does not wait for any more
        self.in_table = _NO_NAMES  # calls that are waited for and that somebody carries out from the work table
        self.unread: Sequence[int] = ()  # events that came for such a wait, by sequence: they are for the next one
        self._workflow = workflow
        self._codecs = codecs
        self._limit_bytes = limit_bytes
        self._ended_by = 0
        self._rollbacks: list[ActionCall | Rollback] | None = None
        self._patches = _NO_NAMES
        self.new_patches: Sequence[str] = ()  # asked for, and not yet recorded
        self._asked_unpatched = _NO_NAMES

    # -- for the driver

    def replay(self, patches: Iterable[str], stored: Mapping[str, StoredRequest], *, behind: bool) -> None:
        """What follows has been done before, up to the last entry and to what the store says is being waited for."""
        self.learn(patches)
        self._stored = dict(stored) if stored else _NOTHING_STORED
        self._behind = behind

    def learn(self, patches: Iterable[str]) -> None:
        for name in patches:
            self._patches |= {name}

    def caught_up(self) -> None:
        """All is delivered. NonDeterminism unless the code now waits for what the store says (I48)."""
        stored, self._stored, self._behind = self._stored, _NOTHING_STORED, False
        self.in_table, self.given_up = _NO_NAMES, ()
        if not stored:
            return
        for address, (name, digest) in sorted(stored.items()):
            asked = self.loop.pending.get(address)
            if asked is None and self.loop.asked_for(address):
                continue
            if asked is None or (self._present_name(name, asked), digest) != (asked.name, asked.digest):
                raise self._told(waits_for_something_else(self.run_id, address, name, asked, self.loop.done))
        asked_now = self.loop.pending
        calls = [each for each in stored if each in asked_now and isinstance(asked_now[each].payload, ActionCall)]
        if calls:
            self.in_table = frozenset(calls)
        # Given up by the code, and then the process died: no event must be taken for such a wait any more, and no such
        # call be made.
        self.given_up = tuple(address for address in stored if address not in self.loop.pending)

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], entries: Sequence[Numbered] = ()) -> None:
        """Start the function, and let in what is recorded."""
        self.loop.begin(lambda: self._main(args, kwargs), context=contextvars.copy_context())
        self.deliver(entries)

    async def _main(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The function, and its result as it is stored: one that cannot be is a failure like any other."""
        enter_function(self)
        try:
            value = await self._workflow.fn(*args, **kwargs)
            if self.cancelled_at:  # I10: it has had its last turn, whatever its code makes of that
                raise asyncio.CancelledError
            return encode_stored_result(self._workflow.call, self._codecs, self._limit_bytes, value)
        except GeneratorExit:
            raise
        except BaseException as error:
            if self.cancelled_at or request_to_go_on(error) is None:
                await self._roll_back(error)
            raise

    async def _roll_back(self, cause: BaseException) -> None:
        """Undo in reverse. One that fails is noted on the cause, and does not keep the others from running."""
        self.rolls_back = True
        while self._rollbacks:
            undo = self._rollbacks.pop()
            try:
                await self.call(self._undoing(undo) if isinstance(undo, Rollback) else undo)
            except (Exception, asyncio.CancelledError) as error:
                cause.add_note(f"its rollback {undo.name} failed: {type(error).__name__}: {error}")

    async def _undo_what_was_done(self) -> Never:
        """Its code had come to an end that was never committed, because a cancel was first."""
        enter_function(self)
        cancelled = asyncio.CancelledError()
        await self._roll_back(cancelled)
        raise cancelled

    def _cancel(self, numbered: Numbered) -> None:
        self.cancelled_at = numbered.sequence
        if self.loop.done and self._rollbacks:
            self.loop.begin(self._undo_what_was_done, context=contextvars.copy_context())
        elif self.rolls_back:  # I10: a cancelled run does nothing else, so it goes on
            self.cut_off = frozenset(self.loop.pending)
        else:
            self._let_in(numbered.entry, run_calls.CANCEL, "", numbered.entry.name, numbered.at)

    def inherit(self, rollbacks: Sequence[Rollback]) -> None:
        """What was registered before the run went on as this call is undone with it, and after what this one does."""
        self._rollbacks = list(rollbacks)

    def _undoing(self, undo: Rollback) -> ActionCall:
        action = self.registry.action(undo.name)
        return ActionCall(action, *action.call.decode_call(undo.input, undo.codec, codecs=self._codecs))

    def _left_behind(self, undo: ActionCall | Rollback) -> Rollback:
        if isinstance(undo, Rollback):
            return undo
        data = undo.encoded(limit=MAX_INT, codecs=self._codecs)
        return Rollback(name=undo.name, input=data, codec=self._codecs.default.tag)

    def deliver(self, entries: Sequence[Numbered]) -> None:
        """Let entries in, one by one, in order."""
        self.losses = 0
        for numbered in entries:
            # What the code does after the last entry has not been done before, unless the store says so.
            if self._behind and numbered is entries[-1]:
                self._behind = False
            if self._stored:
                self._stored.pop(numbered.entry.address, None)
            sequence = numbered.sequence
            may_end_it = numbered.entry.kind in _FAILURES and not self.loop.done and not self.rolls_back
            self._deliver(numbered)
            if may_end_it and self.loop.done:
                self._ended_by = sequence
            if sequence > self.known:
                self.known = sequence

    def _deliver(self, numbered: Numbered) -> None:
        entry = numbered.entry
        if self.opened:
            self.opened.discard(entry.address)
        pending = self.loop.pending.get(entry.address)
        if (
            entry.kind == RESULT
            and pending is not None
            and entry.name == pending.name
            and entry.digest == pending.digest
        ):
            # Most entries are this: what was asked for.
            self.loop.answer(pending, self._value(entry, pending.payload, numbered.at), numbered.at)
            return
        if entry.kind == PATCH:
            self._patches |= {entry.name}
            return
        if entry.kind == CANCEL_ENTRY:
            self._cancel(numbered)
            return
        if entry.kind == EVENT and pending is None:
            self.unread = extended(self.unread, numbered.sequence)
        try:
            kind, value = self._decoded(entry, pending, numbered.at)
        except PayloadRefused as error:
            if entry.kind != EVENT or pending is None or (entry.name, entry.digest) != (pending.name, pending.digest):
                raise
            # Sent by who did not know its type. The function is not to be told, now or in a replay: it goes on waiting.
            refused = RefusedEvent(pending, entry.event, entry.source, str(error))
            self.refused = {**self.refused, numbered.sequence: refused}
            return
        name = entry.name if pending is None else self._present_name(entry.name, pending)
        self._let_in(entry, kind, name, value, numbered.at)

    def _let_in(self, entry: Entry, kind: str, name: str, value: Any, at: int) -> None:
        if self.deadlines:
            self.deadlines.pop(entry.address, None)
        try:
            self.loop.deliver(run_calls.Entry(entry.address, kind, name, entry.digest, value, at))
        except NonDeterminism as error:
            raise self._told(error) from None

    def _told(self, error: NonDeterminism) -> NonDeterminism:
        """An event that was let in before, and that the code of now cannot read, had led on to something."""
        if not self.refused:
            return error
        refused = next(iter(self.refused.values()))
        return NonDeterminism(
            f"{error.message}; the event {refused.event} before that is not let in by this code: {refused.reason}",
            hint="let the type of the event read what was sent before as well, or go back to the code before",
        )

    def _present_name(self, recorded: str, asked: Pending) -> str:
        """I15: what was recorded under an alias is the same call; otherwise the name as it was recorded."""
        if recorded == asked.name:
            return recorded
        found: Registered | None = None
        if isinstance(asked.payload, ActionCall):
            found = self.registry.actions.get(recorded)
        elif isinstance(asked.payload, ChildCall):
            found = self.registry.workflows.get(recorded)
        return recorded if found is None else found.__holdfast__.name

    def _decoded(self, entry: Entry, pending: Pending | None, at: int) -> tuple[str, Any]:
        if entry.kind == TIMER and pending is None:
            return run_calls.TIMER, None
        if pending is None:
            return run_calls.RESULT, None  # given up by the code, or never asked for: the loop knows which
        if entry.digest != pending.digest or self._present_name(entry.name, pending) != pending.name:
            return run_calls.RESULT, None  # the answer to something else: the loop tells what differs
        if entry.kind == FAILURE:
            return run_calls.ERROR, as_it_was_raised(entry.value or b"{}")
        try:
            return run_calls.RESULT, self._value(entry, pending.payload, at)
        except RunFailed as error:
            unwraps = isinstance(pending.payload, ChildCall) and pending.payload.unwraps
            return run_calls.ERROR, what_it_raised(error) if unwraps else error
        except RunCancelled as error:
            return run_calls.ERROR, error

    def _value(self, entry: Entry, request: Request, at: int) -> Any:
        data, codec = entry.value, entry.codec
        if request.__class__ is PreparedCall:
            return decode_stored_result(request.action.call, self._codecs, data or b"null")
        match request:
            case SideEffect():
                return request.decode(data or b"null", codec, codecs=self._codecs)
            case SendCall() | BroadcastCall():
                return _decode_sent(data or b"null")
            case ChildCall() if entry.kind != ENDED_RUN:
                return (data or b"").decode()
            case ChildCall() | ChildResult():
                name = request.name if isinstance(request, ChildCall) else request.workflow
                return self._child_result(name, _decode_end(data or b""), request.result_codec)
            case Wait() if entry.kind == EVENT:
                return request.received(
                    entry.event, data or b"null", codec, id=entry.source, at_us=at, codecs=self._codecs
                )
            case Wait() if entry.kind == ENDED_RUN:
                end = _decode_end(data or b"")
                told = None if end.result is None else unlabelled(end.result)
                return request.run_ended(
                    end.run,
                    end.status,
                    None if told is None else told.data,
                    None if told is None else told.codec,
                    codecs=self._codecs,
                    result_codec=self._result_codec(end, request.results.get(end.run)),
                )
            case Wait():
                return request.time_reached()
            case _:
                return None

    def _child_result(self, name: str, end: RunEnd, codec: ResultCodec | None) -> Any:
        if end.status == COMPLETED:
            if end.result is None:
                return None
            codec = self._result_codec(end, codec)
            if codec is not None:
                return decode_stored_result(codec, self._codecs, end.result)
            plain = unlabelled(end.result)
            return self._codecs.decode(plain.data, where=f"the result of run {end.run}", codec=plain.codec)
        raise child_failure(name, end, self.registry)

    def _result_codec(self, end: RunEnd, asked: ResultCodec | None) -> ResultCodec | None:
        """Of what a run returned, which may have gone on as another workflow; None if that is not known here."""
        if asked is not None and not end.went_on_as:
            return asked
        name = end.went_on_as or end.workflow
        return result_codec_of(self.registry.workflows.get(name) or self.registry.actions.get(name))

    def next_due(self) -> int | None:
        """When a time comes that the function waits for."""
        if not self.deadlines and not self.loop.timers.heap:
            return None
        timer = self.loop.next_timer()
        if not self.deadlines:
            return None if timer is None else timer[1]
        earliest = min(self.deadlines.values())
        return earliest if timer is None else min(earliest, timer[1])

    def wake(self) -> None:
        """Wake its driver, from any thread."""
        if self.loop.outer is not None:
            self.loop.outer.call_soon_threadsafe(self.news.set)

    def set_opened(self, addresses: Iterable[str]) -> None:
        if self.opened is _NOTHING_OPENED:
            self.opened = set()
        self.opened.update(addresses)

    def set_deadline(self, address: str, at: int) -> None:
        if self.deadlines is _NO_DEADLINES:
            self.deadlines = {}
        self.deadlines[address] = at

    def set_running(self, address: str, task: asyncio.Task[None]) -> None:
        if self.running is _NOTHING_RUNNING:
            self.running = {}
        self.running[address] = task

    def take_outcomes(self) -> Sequence[Any]:
        """What came of calls; but one that failed, and that the code has given up meanwhile, is not tried again."""
        outcomes, self.outcomes = self.outcomes, ()
        return [each for each in outcomes if each.__class__ is not QueuedCall or self._waits_for(each)]

    def _waits_for(self, call: QueuedCall) -> bool:
        return call.address.rpartition("|")[2] in self.loop.pending

    def take_refused(self) -> Mapping[int, RefusedEvent]:
        refused, self.refused = self.refused, _NOTHING_REFUSED
        return refused

    def take_patches(self) -> list[Entry]:
        names, self.new_patches = self.new_patches, ()
        return [Entry(address="", kind=PATCH, name=name) for name in names]

    async def stop_calls(self) -> None:
        """Ask what is in flight here to stop; what it still returns is not recorded."""
        tasks = list(self.running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)
        self.running.clear()

    @property
    def over(self) -> bool:
        return self.loop.over

    def evict(self) -> None:
        self._behind = True
        if self.over:
            self.loop.evict()
            return
        # Coroutines are closed in the context of whoever closes them. In a copy of it, since what a `finally` sets must
        # not reach the caller, nor the run that is driven next.
        contextvars.copy_context().run(self._close)

    def _close(self) -> None:
        # Without the run, an action that is awaited in a `finally` would be a plain call, and would really run.
        enter_function(self)
        self.loop.evict()

    def ended(self) -> Ended:
        outcome = self.loop.outcome()
        error = outcome.error
        if error is None:
            return Ended(result=outcome.value)
        request = request_to_go_on(error)
        if self.cancelled_at and (request is not None or isinstance(error, asyncio.CancelledError)):
            return Ended(error=error, cancelled=True)
        if request is None:
            return Ended(error=error, cause=self._ended_by)
        data = self._encoded_call(request.workflow, request.call_args, request.call_kwargs)
        rollbacks = tuple(map(self._left_behind, self._rollbacks or ()))
        return Ended(continued=(request.workflow.name, data, self._codecs.default.tag), rollbacks=rollbacks)

    def _encoded_call(self, target: Workflow[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        return target.call.encode_call(args, kwargs, limit=self._limit_bytes, codecs=self._codecs)

    # -- for the function's code: `FunctionRun`

    @property
    def replaying(self) -> bool:
        return self._behind or any(not self.loop.asked_for(address) for address in self._stored)

    def call(self, request: Request) -> Coroutine[Any, Any, Any]:
        if request.__class__ is ActionCall:
            call = prepared(request)
            return DurableCall(self.loop, "action", call.action.name, digest_of_bytes(call.data), call)
        return DurableCall(self.loop, request.kind, request.name, request.digest(), request)

    def not_durable(self, what: str, hint: str) -> UsageError:
        return self.loop.not_durable(what, hint)

    def now(self) -> datetime:
        return moment(self.loop.now_us)

    def uuid4(self) -> uuid.UUID:
        return self.loop.next_uuid()

    def rng(self) -> random.Random:
        return self.loop.rng()

    def on_rollback(self, action: Action[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._rollbacks = extended(self._rollbacks or (), ActionCall(action, args, kwargs))

    def expose(self, name: str, fn: Callable[[], Any]) -> None:
        self.exposed = {**self.exposed, name: fn}

    def patched(self, name: str) -> bool:
        if name in self._patches:
            return True
        if self.replaying or name in self._asked_unpatched:
            self._asked_unpatched |= {name}
            return False
        self._patches |= {name}
        self.new_patches = extended(self.new_patches, name)
        return True

    def continue_as(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Never:
        self._encoded_call(workflow, args, kwargs)  # what is too large is refused at the author's line
        raise ContinueRequested(workflow, args, kwargs)

    def query(self, name: str) -> Any:
        """What the function exposes under this name, as of the entries delivered."""
        if name not in self.exposed:
            raise UsageError(
                f"run {self.run_id} of {self.workflow_name} exposes nothing as {name!r}",
                hint=f"it exposes: {', '.join(sorted(self.exposed)) or 'nothing yet'}",
            )
        return self.exposed[name]()
