"""`@hf.workflow`: an async function whose progress is recorded, so that it goes on after any crash.

A Workflow is called like the function it wraps. Inside another workflow that is a child run; outside it is plain
asyncio, with nothing recorded; `engine.start` makes it a run. Its code is executed again from the beginning after a
crash, so everything in it that touches the world belongs in actions.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Never, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast.authoring.actions import UNSET, Bound, Unset, check_function
from holdfast.authoring.context import current, entered_function, from_an_action, is_running
from holdfast.authoring.function_calls import Call, ChildCall, request_to_go_on, running_function
from holdfast.authoring.plain_run import PlainRun
from holdfast.authoring.registry import Definition, Registry, default_registry, own_queue, validated_name
from holdfast.core.codec import MAX_INT, CallCodec
from holdfast.core.errors import UsageError
from holdfast.core.graph import known_names

if TYPE_CHECKING:
    from holdfast.authoring.flows import Flow

__all__ = ["Workflow", "child_call", "workflow"]

# Recorded with a run: how asyncio schedules differs a little between versions, and a history is replayed by one.
PYTHON: Final = f"python {sys.version_info.major}.{sys.version_info.minor}"

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """A registered durable function. Calling it gives a coroutine: a child run inside a run, plain asyncio outside."""

    __holdfast__: Definition
    __name__: str
    __qualname__: str
    # Plain attributes and no properties: each is read several times with every step.
    name: str
    """The name it is registered and stored under."""
    fn: Callable[P, Coroutine[Any, Any, R]]
    """The plain function."""
    queue: str | None
    """The queue of its runs, unless the start names one; None is the default queue, for a child its parent's."""
    registered_queue: str | None
    """Its queue without what `options` changed for one call."""

    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, R]],
        *,
        definition: Definition,
        queue: str | None,
        registry: Registry,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.__holdfast__ = definition
        self.name = definition.name
        self.fn = fn
        self.queue = self.registered_queue = own_queue(queue)
        self._registry = registry
        # Shared with the copies that options() makes, so that hints are read once for all of them.
        self._codec: list[CallCodec] = []

    def __repr__(self) -> str:
        return f"<workflow {self.name} of {self.__holdfast__.place}>"

    @functools.cached_property
    def call(self) -> CallCodec:
        """Encodes and decodes its arguments and results. Made at the first use: annotations may name what is later."""
        if not self._codec:
            self._codec.append(CallCodec(self.fn, name=f"workflow {self.name}"))
        return self._codec[0]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        if is_running():
            raise UsageError(
                f"workflow {self.name} was called inside {current().node.name}, where nothing of it could be recorded",
                hint=from_an_action(f"engine.start({self.name}, …, key=hf.current().idempotency_key)"),
            )
        run = running_function.get()
        if run is None or isinstance(run, PlainRun):
            return self.outside(*args, **kwargs)
        return run.call(self.child_call(args, kwargs))

    def child_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ChildCall:
        """The request that a call inside a run makes."""
        return child_call(self, args, kwargs, queue=self.queue)

    async def outside(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it as plain asyncio: nothing is recorded, rollbacks and continue_as do what they say."""
        workflow: Workflow[..., Any] = self
        call_args: tuple[Any, ...] = args
        call_kwargs: Mapping[str, Any] = kwargs
        run: PlainRun | None = None
        while True:
            run = PlainRun(workflow.name, workflow._registry, run)
            try:
                with entered_function(run):
                    return cast(R, await workflow.fn(*call_args, **call_kwargs))
            except GeneratorExit:  # it is being closed, and may not await any more
                raise
            except BaseException as error:
                request = request_to_go_on(error)
                if request is None:
                    await run.roll_back(error)
                    raise
                workflow, call_args, call_kwargs = request.workflow, request.call_args, request.call_kwargs

    def options(self, *, queue: str | Unset | None = UNSET, **unknown: Never) -> Workflow[P, R]:
        """A copy of the workflow with another queue, for one call or one start. The registered one stays."""
        for name in unknown:
            raise UsageError(
                f"workflow {self.name} has no option {name!r}",
                hint=f"{known_names(name, ('queue',))}; a key is given to engine.start or hf.start_child, "
                "and retries and timeouts belong to actions",
            )
        changed = copy.copy(self)
        if queue is not UNSET:
            changed.queue = _checked_queue(queue, self.name)
        return changed

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """The workflow with these arguments, for `engine.start`. Wrong arguments are refused here."""
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
                f"workflow {self.name} cannot be called like this: {error}",
                hint=f"its signature is {self.name}{signature}",
            ) from None


def child_call(
    target: Workflow[..., Any] | Flow[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    queue: str | None,
    unwraps: bool = False,
) -> ChildCall:
    """The request that a call of a workflow or a flow makes inside a run."""
    data = target.call.encode_call(args, kwargs, limit=MAX_INT)
    return ChildCall(
        name=target.name,
        startable=Bound(target, args, kwargs) if kwargs else target,
        args=() if kwargs else args,
        input_digest=target.call.input_digest(data),
        result_codec=target.call,
        awaits=True,
        queue=queue,
        unwraps=unwraps,
    )


class WorkflowDecorator(Protocol):
    """What `@hf.workflow(…)` with options returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = ...,
    aliases: tuple[str, ...] | list[str] = ...,
    queue: str | None = ...,
    registry: Registry | None = ...,
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    aliases: tuple[str, ...] | list[str] = (),
    queue: str | None = None,
    registry: Registry | None = None,
) -> Any:
    """Make an `async def` durable: every action it awaits is recorded, and after a crash it goes on from there.

    `queue` is where its runs are worked on unless their start says otherwise; `aliases` are names it had before.
    """

    def decorate(function: Callable[..., Any]) -> Workflow[..., Any]:
        _check_workflow(function)
        home = default_registry if registry is None else registry
        made: Workflow[..., Any] = Workflow(
            function,
            definition=Definition.of(function, "workflow", name, aliases),
            queue=_checked_queue(queue, function.__qualname__),
            registry=home,
        )
        home.add(made)
        return made

    return decorate if fn is None else decorate(fn)


def _checked_queue(queue: object, owner: str) -> str | None:
    return None if queue is None else validated_name(queue, f"the queue of workflow {owner}")


def _check_workflow(function: object) -> None:
    if isinstance(function, Workflow):
        raise UsageError(
            f"@hf.workflow was given {function.name}, which is a workflow already", hint="decorate a function once"
        )
    check_function(function, "@hf.workflow")
    made = cast("Callable[..., Any]", function)
    parent, _, _ = made.__qualname__.rpartition(".")
    if parent and not parent.endswith("<locals>") and [*inspect.signature(made).parameters][:1] in (["self"], ["cls"]):
        raise UsageError(
            f"{made.__qualname__} is a method, and a workflow has no instance to be called on after a crash",
            hint="make it a function of its module and pass what it needs as arguments",
        )
    if not inspect.iscoroutinefunction(made):
        raise UsageError(
            f"workflow {made.__qualname__} is a plain def, which cannot await what is to be recorded",
            hint="make it an async def; code that blocks belongs in an @hf.action, which may be a plain def",
        )
