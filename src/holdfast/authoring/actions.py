"""`@hf.action`: a user's function with side effects, with a name and a policy.

An Action is called like the function it wraps and always gives a coroutine. In the code of a workflow
that is a request, recorded and done by the engine; inside a step or another action it runs as part of
that, with an idempotency key of its own; outside it simply runs. Policies (retry, timeout, queue) are the
engine's business and are not applied to direct calls.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from holdfast.authoring.context import current_context, entered, require_transaction, stand_in_context
from holdfast.authoring.function_calls import ActionCall, Call, running_function
from holdfast.authoring.registry import Definition, Registry, default_registry, validated_name
from holdfast.core.codec import DEFAULT_LIMIT_BYTES, CallCodec
from holdfast.core.errors import UsageError
from holdfast.core.graph import NodePolicy, known_names, validated_timeout
from holdfast.core.retry import ACTION_RETRY, Retry

if TYPE_CHECKING:
    from holdfast.authoring.flows import Flow
    from holdfast.authoring.functions import Workflow

__all__ = ["UNSET", "Action", "Bound", "Isolation", "Unset", "action", "overridden"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Isolation = Literal["thread", "process"]
ISOLATIONS = (None, "thread", "process")
# Asked with every call. Bound here: Python takes what is imported for a module, and would bind it anew each time.
_function_here: Final = running_function.get
_context_here: Final = current_context.get
ORDERS_LIMIT = 256


class Unset(enum.Enum):
    """Tells an option that was not given from one that was given as None."""

    UNSET = "not given"


UNSET: Final = Unset.UNSET


def overridden(
    policy: NodePolicy, retry: Retry | Unset, timeout: float | Unset | None, queue: str | Unset | None, owner: str
) -> NodePolicy:
    """The policy with every given option replaced, validated with its owner's name in the message."""
    changes: dict[str, Any] = {}
    if retry is not UNSET:
        changes["retry"] = retry
    if timeout is not UNSET:
        changes["timeout_seconds"] = validated_timeout(timeout, owner)
    if queue is not UNSET:
        changes["queue"] = queue if queue is None else validated_name(queue, f"the queue of {owner}")
    return msgspec.structs.replace(policy, **changes) if changes else policy


@dataclass(frozen=True, slots=True)
class Bound(Generic[R_co]):
    """An action, a workflow or a flow together with its arguments: a value that `engine.start` accepts."""

    target: Action[..., R_co] | Workflow[..., R_co] | Flow[..., R_co]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Action(Generic[P, R]):
    """A registered function with side effects. Calling it gives a coroutine, also for a plain `def`."""

    __holdfast__: Definition
    __name__: str
    __qualname__: str
    # Plain attributes and no properties: each is read several times with every step.
    name: str
    """The name it is registered and stored under."""
    fn: Callable[P, Any]
    """The plain function: no coroutine for a plain `def`, no context."""
    policy: NodePolicy
    """How the engine runs it."""
    registered_policy: NodePolicy
    """Its policy without what `options` changed for one call."""
    isolation: Isolation | None
    """Where it runs: None is the event loop for `async def` and a thread for a plain `def`."""
    transactional: bool
    """Whether its writes and its result commit together."""
    is_async: bool
    """Whether the function is an `async def`."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        definition: Definition,
        policy: NodePolicy,
        isolation: Isolation | None,
        transactional: bool,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.__holdfast__ = definition
        self.name = definition.name
        self.fn = fn
        self.policy = self.registered_policy = policy
        self.isolation = isolation
        self.transactional = transactional
        self.is_async = inspect.iscoroutinefunction(fn)
        # Shared with the copies that options() makes, so that hints are read once for all of them.
        self._codec: list[CallCodec] = []
        self._orders: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<action {self.name} of {self.__holdfast__.place}>"

    @functools.cached_property
    def call(self) -> CallCodec:
        """Encodes and decodes its arguments and results.

        Made at the first use and not at decoration, so that annotations may name what is defined later.
        """
        if not self._codec:
            self._codec.append(CallCodec(self.fn, name=f"action {self.name}"))
        return self._codec[0]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        run = _function_here()
        # The context of an action comes first: what an action calls is part of it, also where a workflow called it.
        if run is None or _context_here() is not None:
            return self.directly(*args, **kwargs)
        return run.call(ActionCall(self, args, kwargs))

    async def directly(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here and now, as part of the action that runs already or with a stand-in context; for the engine."""
        if self.transactional:
            require_transaction(f"action {self.name}")
        outer = current_context.get()
        with entered(stand_in_context(self.name) if outer is None else outer.for_call(self.name)):
            if self.is_async:
                return cast(R, await self.fn(*args, **kwargs))
            return cast(R, await asyncio.to_thread(self.fn, *args, **kwargs))

    def options(
        self,
        *,
        retry: Retry | Unset = UNSET,
        timeout: float | Unset | None = UNSET,
        queue: str | Unset | None = UNSET,
        **unknown: Never,
    ) -> Action[P, R]:
        """A copy of the action with another policy, for one call or one start. The registered one stays."""
        for name in unknown:
            raise UsageError(
                f"action {self.name} has no option {name!r}", hint=known_names(name, ("retry", "timeout", "queue"))
            )
        changed = copy.copy(self)
        changed.policy = overridden(self.policy, retry, timeout, queue, f"action {self.name}")
        return changed

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """The action with these arguments, for `engine.start`. Wrong arguments are refused here."""
        self.check_arguments(args, kwargs)
        return Bound(self, args, kwargs)

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """UsageError that shows the signature unless the function can be called like this."""
        if self._codec and self._codec[0].fits(args, kwargs):
            return
        signature = inspect.signature(self.fn)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"action {self.name} cannot be called like this: {error}",
                hint=f"its signature is {self.name}{signature}",
            ) from None

    def encode_keywords(self, args: Mapping[str, Any], limit: int = DEFAULT_LIMIT_BYTES) -> bytes | None:
        """The call with these arguments by name, as a node of a DAG keeps it; None for no arguments.

        UsageError that shows the signature unless it can be called like this.
        """
        names = tuple(args)
        order = self._orders.get(names)
        if order is None:
            # Whether a call fits depends on the names alone, so a fan-out of thousands is checked once.
            self.check_arguments((), args)
            if len(self._orders) >= ORDERS_LIMIT:  # a function with **kwargs has no end of them
                self._orders.clear()
            order = self._orders[names] = self._in_order(names)
        return self.call.encode_keywords({name: args[name] for name in order}, limit=limit) or None

    def _in_order(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """As the function declares them, so that the same arguments are the same bytes in whatever order given."""
        declared = {name: position for position, name in enumerate(inspect.signature(self.fn).parameters)}
        return tuple(sorted(names, key=lambda name: (declared.get(name, len(declared)), name)))


class ActionDecorator(Protocol):
    """What `@hf.action(…)` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Action[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Action[P, R]: ...


@overload
def action(fn: Callable[P, Awaitable[R]], /) -> Action[P, R]: ...
@overload
def action(fn: Callable[P, R], /) -> Action[P, R]: ...
@overload
def action(
    *,
    retry: Retry = ...,
    timeout: float | None = ...,
    queue: str | None = ...,
    name: str | None = ...,
    aliases: tuple[str, ...] | list[str] = ...,
    isolation: Isolation | None = ...,
    transactional: bool = ...,
    registry: Registry | None = ...,
) -> ActionDecorator: ...
def action(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    retry: Retry = ACTION_RETRY,
    timeout: float | None = None,
    queue: str | None = None,
    name: str | None = None,
    aliases: tuple[str, ...] | list[str] = (),
    isolation: Isolation | None = None,
    transactional: bool = False,
    registry: Registry | None = None,
) -> Any:
    """Make a function an action: registered by name, retried, timed and recorded inside runs.

    `isolation="process"` runs a plain `def` in a process that can be killed; `transactional=True`
    commits an `async def`'s writes through `hf.current().tx` together with its result.
    """

    def decorate(function: Callable[..., Any]) -> Action[..., Any]:
        check_function(function, "@hf.action")
        owner = f"action {function.__qualname__}"
        _check_isolation(function, isolation, owner)
        check_transactional(function, transactional, owner)
        made: Action[..., Any] = Action(
            function,
            definition=Definition.of(function, "action", name, aliases),
            policy=overridden(NodePolicy(), retry, timeout, queue, owner),
            isolation=isolation,
            transactional=transactional,
        )
        (default_registry if registry is None else registry).add(made)
        return made

    return decorate if fn is None else decorate(fn)


def check_function(function: object, decorator: str) -> None:
    """UsageError unless this is a plain or async function that returns once."""
    if isinstance(function, Action):
        raise UsageError(
            f"{decorator} was given {function.name}, which is an action already", hint="decorate a function once"
        )
    if not inspect.isfunction(function):
        raise UsageError(
            f"{decorator} was given {function!r}, a {type(function).__name__}",
            hint="decorate a function made with def or async def; below @staticmethod, not above it",
        )
    if function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        raise UsageError(
            f"{function.__qualname__} is a generator: its items could not be recorded as one result",
            hint="return a list instead of using yield",
        )
    parent, _, _ = function.__qualname__.rpartition(".")
    if (
        decorator == "@hf.action"
        and parent
        and not parent.endswith("<locals>")
        and list(inspect.signature(function).parameters)[:1] in (["self"], ["cls"])
    ):
        raise UsageError(
            f"{function.__qualname__} is a method, and an action has no instance to be called on",
            hint="make it a function of its module, or a @hf.step of an hf.Dag class",
        )


def check_transactional(function: Callable[..., Any], transactional: bool, owner: str) -> None:
    """UsageError for a transactional plain `def`: its thread could not await the transaction."""
    if transactional and not inspect.iscoroutinefunction(function):
        raise UsageError(
            f"{owner} is transactional and a plain def, which cannot await hf.current().tx",
            hint="make it an async def",
        )


def _check_isolation(function: Callable[..., Any], isolation: object, owner: str) -> None:
    if isolation not in ISOLATIONS:
        raise UsageError(
            f"isolation={isolation!r} of {owner} is unknown",
            hint='choose "thread" or "process", or None for the default',
        )
    if isolation is None:
        return
    if inspect.iscoroutinefunction(function):
        raise UsageError(
            f"{owner} is an async def with isolation={isolation!r}, but an async def runs on the event loop",
            hint="make it a plain def, or leave isolation out",
        )
    if isolation == "process" and ("<locals>" in function.__qualname__ or "<lambda>" in function.__qualname__):
        raise UsageError(
            f'{owner} has isolation="process" and is a lambda or nested in a function, where another process '
            "cannot import it",
            hint="define it with def at the top level of a module",
        )
