"""`@hf.flow`: an async function whose source is compiled to a graph before anything runs.

The function is never executed by the engine: its graph is. Called in a workflow it is a child run, called in another
flow a part of that one's graph, and outside of a run plain asyncio, so it can be tried and tested like any coroutine;
`flow.graph` is what the engine follows, to be drawn, stored and compared.
"""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from holdfast.authoring.actions import Bound, check_function
from holdfast.authoring.context import is_running
from holdfast.authoring.function_calls import Call, running_function
from holdfast.authoring.functions import child_call
from holdfast.authoring.plain_run import PlainRun
from holdfast.authoring.pure import Pure
from holdfast.authoring.registry import Definition, Registry, default_registry, own_queue, validated_name
from holdfast.core.codec import CallCodec
from holdfast.core.errors import MissingJob, UsageError

if TYPE_CHECKING:
    from holdfast.authoring.events import Event
    from holdfast.authoring.flow_compiler import Compiled
    from holdfast.authoring.flow_source import FlowSource
    from holdfast.core.flow_graph import FlowGraph

__all__ = ["Flow", "FlowEnvironment", "flow"]

P = ParamSpec("P")
R = TypeVar("R")


class FlowEnvironment:
    """What a graph's expressions may name in this process: the types and pure functions of the flow's source."""

    __slots__ = ("_references", "known_types")

    def __init__(self, compiled: Compiled) -> None:
        self.known_types: Mapping[str, type] = compiled.types
        """Types whose instances may be stored, by qualified name."""
        self._references = compiled.references

    def type_named(self, reference: str) -> type:
        """The class that the flow's source calls by this name."""
        found = self._references.get(reference)
        if isinstance(found, type):
            return found
        from holdfast.core.flow_operations import STANDARD_TYPES

        short = reference.rpartition("/")[2]
        plain = getattr(builtins, short, None) or STANDARD_TYPES.get(short)
        if found is None and isinstance(plain, type):
            return plain
        raise self._missing(reference, "class")

    def pure_function(self, reference: str) -> Callable[..., Any]:
        """The function marked pure that the flow's source calls by this name."""
        found = self._references.get(reference)
        if isinstance(found, Pure):
            return found.fn
        raise self._missing(reference, "@hf.pure function")

    def event_named(self, name: str) -> Event[Any] | None:
        """The event of this name that the flow's source waits for, if it names it as an object."""
        from holdfast.authoring.events import Event  # for those who have events

        for found in self._references.values():
            if isinstance(found, Event) and found.name == name:
                return found
        return None

    def _missing(self, reference: str, what: str) -> MissingJob:
        return MissingJob(
            f"a run follows a version of its flow that uses the {what} {reference!r}, which the code no longer names",
            hint=f"keep {reference!r} importable in the flow's module until the old runs have ended",
        )


class Flow(Generic[P, R]):
    """A compiled function. Calling it gives a coroutine: a child run inside a workflow's run, plain asyncio outside."""

    __holdfast__: Definition
    __name__: str
    __qualname__: str

    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, R]],
        *,
        definition: Definition,
        source: FlowSource,
        queue: str = "default",
    ) -> None:
        self.queue = queue
        functools.update_wrapper(self, fn)
        self.__holdfast__ = definition
        self._fn = fn
        self._signature = inspect.signature(fn)
        self._source = source
        from holdfast.authoring.flow_compiler import compile_flow  # of use to those who have flows only

        compiled = compile_flow(definition.name, fn, source)
        self._graph = compiled.graph
        self._environment = FlowEnvironment(compiled)
        self._codec: list[CallCodec] = []

    def __repr__(self) -> str:
        return f"<flow {self.name} of {self.__holdfast__.place}>"

    @property
    def name(self) -> str:
        """The name it is registered and stored under."""
        return self.__holdfast__.name

    @property
    def fn(self) -> Callable[P, Coroutine[Any, Any, R]]:
        """The plain function."""
        return self._fn

    @property
    def source(self) -> FlowSource:
        """The text it was compiled from; other flows inline it."""
        return self._source

    @property
    def graph(self) -> FlowGraph:
        """What the engine follows."""
        return self._graph

    @property
    def environment(self) -> FlowEnvironment:
        """The types and functions that its expressions name."""
        return self._environment

    @property
    def call(self) -> CallCodec:
        """Encodes and decodes its arguments and result. Made at the first use: annotations may name what is later."""
        if not self._codec:
            self._codec.append(CallCodec(self._fn, name=f"flow {self.name}"))
        return self._codec[0]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        run = running_function.get()
        if run is None or isinstance(run, PlainRun) or is_running():
            return self._fn(*args, **kwargs)
        # What it raises comes as it does where the flow is part of another's graph, and in plain asyncio.
        return run.call(child_call(self, args, kwargs, queue=own_queue(self.queue), unwraps=True))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """This flow with these arguments, to be started: `engine.start(flow.bind(order=17))`."""
        self.check_arguments(args, kwargs)
        return Bound(self, args, kwargs)

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """UsageError that shows the signature unless the function can be called like this."""
        if self._codec and self._codec[0].fits(args, kwargs):
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"flow {self.name} cannot be called like this: {error}",
                hint=f"its signature is {self.name}{self._signature}",
            ) from None


class FlowDecorator(Protocol):
    """What `@hf.flow(…)` with options returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, R]: ...


@overload
def flow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, R]: ...
@overload
def flow(
    *,
    name: str | None = ...,
    aliases: tuple[str, ...] | list[str] = ...,
    queue: str = ...,
    registry: Registry | None = ...,
) -> FlowDecorator: ...
def flow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    aliases: tuple[str, ...] | list[str] = (),
    queue: str = "default",
    registry: Registry | None = None,
) -> Any:
    """Compile an `async def` to a graph. What can't be compiled is refused here, with its place and an alternative."""

    def decorate(function: Callable[..., Any]) -> Flow[..., Any]:
        from holdfast.authoring.flow_source import read_source

        _check(function)
        made: Flow[..., Any] = Flow(
            function,
            definition=Definition.of(function, "workflow", name, aliases),
            source=read_source(function),
            queue=validated_name(queue, f"the queue of flow {function.__qualname__}"),
        )
        (default_registry if registry is None else registry).add(made)
        return made

    return decorate if fn is None else decorate(fn)


def _check(function: object) -> None:
    if isinstance(function, Flow):
        raise UsageError(
            f"@hf.flow was given {function.name}, which is a flow already", hint="decorate a function once"
        )
    if not inspect.isfunction(function):  # what is wrong with a function is told with its place in it
        check_function(function, "@hf.flow")
