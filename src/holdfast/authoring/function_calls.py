"""The seam between a workflow's code and whoever runs it: what the code asks for, as data.

Code of a workflow never talks to an engine. Each `await` of an action, a child, an event is a *request*, a frozen
value that says what is wanted; `running_function` holds the run that the code belongs to, and `call(request)` makes
the request an awaitable. A driver records requests and their outcomes; outside a run a stand-in simply does them.

A request has a `kind`, a `name`, and a `digest()` over all else that decides what happens: another name or digest at
the same place of a replay is a changed program (I48). The name is not part of the digest, so that a driver can let an
action go on under a new name that lists the old one in its aliases (I15). Policies are not part of it either: giving
a call another timeout must not strand the runs that made it under the old one.
"""

from __future__ import annotations

import typing
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Never, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.authoring.durations import instant
from holdfast.core.codec import (
    DEFAULT_CODECS,
    DEFAULT_LIMIT_BYTES,
    MAX_INT,
    UNTYPED,
    Codecs,
    Encoded,
    ResultCodec,
    digest,
)
from holdfast.core.errors import UsageError
from holdfast.core.ids import hashed

if TYPE_CHECKING:
    import random

    from holdfast.authoring.actions import Action
    from holdfast.authoring.conditions import Received, RunEnded, TimeReached
    from holdfast.authoring.events import Event
    from holdfast.authoring.functions import Workflow
    from holdfast.authoring.registry import Registry

__all__ = [
    "ActionCall",
    "BroadcastCall",
    "Call",
    "ChildCall",
    "ChildResult",
    "ContinueRequested",
    "ExecuteCall",
    "FunctionRun",
    "Request",
    "SendCall",
    "SideEffect",
    "Wait",
    "running_function",
]


R = TypeVar("R")

LONGEST_NAME = 200  # of what a wait is for
JSON_TYPES = frozenset({dict, list, str, int, float, bool, type(None)})

# What every call gives. Not Coroutine[Any, Any, R]: those two Any would make a call match several overloads of
# asyncio.gather, for which mypy then says Any.
Call: TypeAlias = Coroutine[object, None, R]


class FunctionRun(Protocol):
    """The run that a workflow's code belongs to, as that code sees it."""

    @property
    def run_id(self) -> str: ...

    @property
    def workflow_name(self) -> str: ...

    @property
    def replaying(self) -> bool:
        """True while what is executed has been executed before, or is being thrown away: logs are silent then."""
        ...

    @property
    def registry(self) -> Registry:
        """Where names of events and workflows are looked up."""
        ...

    def call(self, request: Request) -> Coroutine[Any, Any, Any]:
        """The outcome of a request, asked for when it is first awaited."""
        ...

    def not_durable(self, what: str, hint: str) -> Exception:
        """What to raise where its code used something that no history repeats."""
        ...

    def now(self) -> datetime:
        """I56: the time of the run's last entry, aware and in UTC."""
        ...

    def uuid4(self) -> uuid.UUID: ...

    def rng(self) -> random.Random: ...

    def on_rollback(self, action: Action[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None: ...

    def expose(self, name: str, fn: Callable[[], Any]) -> None: ...

    def patched(self, name: str) -> bool: ...

    def continue_as(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Never: ...


running_function: ContextVar[FunctionRun | None] = ContextVar("holdfast_function", default=None)
"""The run whose code is executing. Inside an action that it called, the action's own context comes first."""


class ContinueRequested(BaseException):
    """hf.continue_as was called: unwinds the workflow's code, past every `except Exception`."""

    def __init__(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        super().__init__(workflow.name)
        self.workflow = workflow
        self.call_args = args
        self.call_kwargs = kwargs


def request_to_go_on(error: BaseException) -> ContinueRequested | None:
    """The request that an exception is, or that alone left a TaskGroup, which wraps what its tasks raise."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error if isinstance(error, ContinueRequested) else None


class ActionCall(msgspec.Struct, frozen=True):
    """Run an action; gives its result. Its policy and queue are those of `action`, options included."""

    kind: ClassVar[str] = "action"

    action: Action[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.action.name

    def encoded(self, *, limit: int = DEFAULT_LIMIT_BYTES, codecs: Codecs = DEFAULT_CODECS) -> bytes:
        """The arguments as bytes; PayloadRefused or UsageError if they cannot be stored or do not fit."""
        return self.action.call.encode_call(self.args, self.kwargs, limit=limit, codecs=codecs)

    def digest_of(self, data: bytes, *, codecs: Codecs = DEFAULT_CODECS) -> str:
        """The digest, for who has encoded the arguments already."""
        return self.action.call.input_digest(data, codecs=codecs)

    def digest(self) -> str:
        return self.digest_of(self.encoded(limit=MAX_INT))


class ChildCall(msgspec.Struct, frozen=True, kw_only=True):
    """Start another run. `awaits`: gives its result, or raises as `Handle.result` does; otherwise gives its id.

    `startable` and `args` are what `resolve_start` takes. `detached`: a cancel of this run leaves the child alone.
    `queue`: None is this run's own. `unwraps`: what ended the child is raised as it is, without a RunFailed around it.
    """

    kind: ClassVar[str] = "child"

    name: str
    startable: Any
    args: tuple[Any, ...]
    input_digest: str
    result_codec: ResultCodec | None
    awaits: bool
    key: str | None = None
    queue: str | None = None
    detached: bool = False
    unwraps: bool = False

    def digest(self) -> str:
        return hashed("child", self.input_digest, _optional(self.key), str(self.detached), str(self.awaits))


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for the end of a child that was started before; gives its result, or raises as `Handle.result` does."""

    kind: ClassVar[str] = "child result"

    workflow: str
    run_id: str
    result_codec: ResultCodec | None

    @property
    def name(self) -> str:
        return f"result of {self.workflow}"

    def digest(self) -> str:
        return hashed("child result", self.run_id)


class SendCall(msgspec.Struct, frozen=True, kw_only=True):
    """Send an event to one run; gives Delivered, Queued, TargetEnded or TargetNotFound."""

    kind: ClassVar[str] = "send"

    event: Event[Any]
    payload: Any
    to: str
    id: str | None

    @property
    def name(self) -> str:
        return f"send {self.event.name}"

    def digest(self) -> str:
        return hashed("send", self.to, _optional(self.id), self.event.digest(self.payload))


class BroadcastCall(msgspec.Struct, frozen=True, kw_only=True):
    """Send an event to whoever has waited for it longest, or to all who wait; gives Delivered or Queued."""

    kind: ClassVar[str] = "broadcast"

    event: Event[Any]
    payload: Any
    to_all: bool
    id: str | None

    @property
    def name(self) -> str:
        return f"broadcast {self.event.name}"

    def digest(self) -> str:
        return hashed("broadcast", str(self.to_all), _optional(self.id), self.event.digest(self.payload))


class ExecuteCall(msgspec.Struct, frozen=True, kw_only=True):
    """Give an input to a decider; gives None."""

    kind: ClassVar[str] = "execute"

    decider: str
    input: Any
    command_id: str | None

    @property
    def name(self) -> str:
        return f"execute {self.decider}"

    def check(self) -> None:
        """PayloadRefused unless the input can be stored, whatever its size: the limit is the engine's."""
        DEFAULT_CODECS.encode(self.input, self._annotation, where=self._where, limit=MAX_INT)

    def digest(self) -> str:
        data = DEFAULT_CODECS.canonical(self.input, self._annotation, where=self._where)
        # The variants of an input may have equal fields, so that the class counts too.
        return hashed("execute", _optional(self.command_id), type(self.input).__qualname__, digest(data))

    @property
    def _annotation(self) -> object:
        return UNTYPED if type(self.input) in JSON_TYPES else type(self.input)

    @property
    def _where(self) -> str:
        return f"the input of {self.decider}"


class SideEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Call a plain function once, record what it returned, and give that in every replay."""

    kind: ClassVar[str] = "side effect"

    fn: Callable[[], Any]
    name: str

    @property
    def annotation(self) -> object:
        """The type of its value, if it declares one."""
        if not getattr(self.fn, "__annotations__", None):  # a lambda has none, and most are lambdas
            return UNTYPED
        return typing.get_type_hints(self.fn, include_extras=True).get("return", UNTYPED)

    def encode(self, value: object, *, limit: int = DEFAULT_LIMIT_BYTES, codecs: Codecs = DEFAULT_CODECS) -> Encoded:
        """The value as it is recorded."""
        return codecs.encode(value, self.annotation, where=self._where, limit=limit)

    def decode(self, data: bytes, codec: str | None = None, *, codecs: Codecs = DEFAULT_CODECS) -> Any:
        """The value as the workflow receives it, the first time too (I14)."""
        return codecs.decode(data, self.annotation, where=self._where, codec=codec)

    def digest(self) -> str:
        return hashed("side effect")

    @property
    def _where(self) -> str:
        return f"the value of side effect {self.name}"


class PayloadType(Protocol):
    """What knows the payloads of an event: an hf.Event."""

    @property
    def name(self) -> str: ...

    def decode(self, data: bytes, codec: str | None = None, *, codecs: Codecs = ...) -> Any: ...


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait as a run records it: for the first of these events, ends of runs, or the deadline.

    The digest covers the conditions as they were written, so `after(days=2)` is the same whenever it begins; their
    order means nothing.
    """

    kind: ClassVar[str] = "wait"

    events: tuple[str, ...]
    runs: tuple[str, ...]
    until_us: int | None
    shown: tuple[str, ...]
    payloads: dict[str, PayloadType]
    results: dict[str, ResultCodec]

    @property
    def name(self) -> str:
        """What is waited for, for people and for the comparison on replay."""
        text = f"wait_for({' | '.join(self.shown)})"
        return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"

    def digest(self) -> str:
        """Equal for equal conditions, in every process."""
        return hashed("wait", *self.shown)

    # What the wait gives, from what was stored about its winner. The classes are loaded for those who wait.

    def received(
        self,
        event: str,
        data: bytes,
        codec: str | None = None,
        *,
        id: str = "",
        at_us: int | None = None,
        codecs: Codecs = DEFAULT_CODECS,
    ) -> Received[Any]:
        """An event won. PayloadRefused if its payload does not have the type that this process expects."""
        payload = self.payloads.get(event)
        if payload is not None:
            value = payload.decode(data, codec, codecs=codecs)
        else:
            value = codecs.decode(data, where=f"the payload of event {event}", codec=codec)
        from holdfast.authoring.conditions import Received

        return Received(value, event, id, None if at_us is None else instant(at_us))

    def time_reached(self) -> TimeReached:
        """The deadline won."""
        if self.until_us is None:
            raise UsageError(f"{self.name} has no deadline", hint="report this: a timer was delivered to another wait")
        from holdfast.authoring.conditions import TimeReached

        return TimeReached(instant(self.until_us))

    def run_ended(
        self,
        run_id: str,
        status: str,
        data: bytes | None = None,
        codec: str | None = None,
        *,
        codecs: Codecs = DEFAULT_CODECS,
        result_codec: ResultCodec | None = None,
    ) -> RunEnded[Any]:
        """The end of a run won. `data` is its result, if it has one, and `result_codec` reads it, if it is known."""
        from holdfast.authoring.conditions import RunEnded

        if data is None:
            return RunEnded(run_id, status)
        if result_codec is not None:
            return RunEnded(run_id, status, result_codec.decode_result(data, codec, codecs=codecs))
        return RunEnded(run_id, status, codecs.decode(data, where=f"the result of run {run_id}", codec=codec))


Request = ActionCall | ChildCall | ChildResult | Wait | SendCall | BroadcastCall | ExecuteCall | SideEffect


def _optional(text: str | None) -> str:
    """None and "" are not the same."""
    return "-" if text is None else f"+{text}"
