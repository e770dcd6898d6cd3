"""`@hf.projection`: a function that keeps a table of the user's in step with the events of deciders.

This is the definition only. A worker runs it: one owner at a time, events in order, and the rows that it writes
through `tx` commit together with how far it has come.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast, overload

from holdfast.authoring.context import Tx
from holdfast.authoring.registry import Definition, Registry, validated_name
from holdfast.core.errors import UsageError
from holdfast.core.retry import EFFECT_RETRY, Retry

if TYPE_CHECKING:
    from holdfast.authoring.deciders import Decider
    from holdfast.authoring.recorded import Recorded

__all__ = ["PREFIX", "Projection", "projection"]

PREFIX: Final = "projection:"  # of the workflow under which a projection's run is stored
BATCH_SIZE: Final = 100

A = TypeVar("A")  # what the function takes: an event, or a list of them
E = TypeVar("E")
Hook = TypeVar("Hook", bound=Callable[[Tx], Awaitable[None]])


class Projection(Generic[A]):
    """A registered projection. Calling it in a test calls the function, with whatever `tx` the test has."""

    __holdfast__: Definition
    __name__: str
    __qualname__: str

    def __init__(
        self,
        fn: Callable[[A, Tx], Awaitable[None]],
        *,
        definition: Definition,
        deciders: tuple[type[Decider[Any, Any, Any, Any]], ...],
        batch: bool,
        batch_size: int,
        retry: Retry,
        queue: str,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.__holdfast__ = definition
        self.fn = fn
        self.deciders = deciders
        self.batch = batch
        self.batch_size = batch_size
        self.retry = retry
        self.queue = queue
        self.reset_hook: Callable[[Tx], Awaitable[None]] | None = None

    def __repr__(self) -> str:
        return f"<projection {self.name} of {self.__holdfast__.place}>"

    @property
    def name(self) -> str:
        """Its name, without the prefix of its run's workflow."""
        return self.__holdfast__.name.removeprefix(PREFIX)

    @property
    def workflow(self) -> str:
        """The name that its run is stored under."""
        return self.__holdfast__.name

    @property
    def sources(self) -> tuple[str, ...]:
        """The workflows whose events it is given: the names of its deciders, earlier ones included."""
        return tuple(dict.fromkeys(name for decider in self.deciders for name in decider.__holdfast__.names))

    async def __call__(self, event: A, tx: Tx) -> None:
        await self.fn(event, tx)

    def reset(self, hook: Hook, /) -> Hook:
        """Decorate the function that empties the projection's tables before a rebuild, in the same transaction."""
        awaitable: bool = inspect.iscoroutinefunction(hook)  # a guard of its own would narrow the type
        if not awaitable:
            raise UsageError(
                f"the reset of projection {self.name} is {hook!r:.80}, which cannot be awaited",
                hint="decorate an async def that takes tx",
            )
        _check_parameters(hook, 1, f"the reset of projection {self.name}", "tx")
        self.reset_hook = hook
        return hook


Handler = Callable[[A, Tx], Awaitable[None]]


@overload
def projection(
    decider: type[Decider[Any, Any, E, Any]],
    /,
    *,
    name: str | None = ...,
    aliases: tuple[str, ...] | list[str] = ...,
    batch: Literal[False] = ...,
    batch_size: int = ...,
    retry: Retry = ...,
    queue: str = ...,
    registry: Registry | None = ...,
) -> Callable[[Handler[Recorded[E]]], Projection[Recorded[E]]]: ...
@overload
def projection(
    decider: type[Decider[Any, Any, E, Any]],
    /,
    *,
    batch: Literal[True],
    name: str | None = ...,
    aliases: tuple[str, ...] | list[str] = ...,
    batch_size: int = ...,
    retry: Retry = ...,
    queue: str = ...,
    registry: Registry | None = ...,
) -> Callable[[Handler[list[Recorded[E]]]], Projection[list[Recorded[E]]]]: ...
@overload
def projection(
    deciders: Sequence[type[Decider[Any, Any, Any, Any]]],
    /,
    *,
    name: str | None = ...,
    aliases: tuple[str, ...] | list[str] = ...,
    batch: bool = ...,
    batch_size: int = ...,
    retry: Retry = ...,
    queue: str = ...,
    registry: Registry | None = ...,
) -> Callable[[Handler[A]], Projection[A]]: ...
def projection(
    deciders: Any,
    /,
    *,
    name: str | None = None,
    aliases: tuple[str, ...] | list[str] | str = (),
    batch: bool = False,
    batch_size: int = BATCH_SIZE,
    retry: Retry = EFFECT_RETRY,
    queue: str = "default",
    registry: Registry | None = None,
) -> Any:
    """Give every event of a decider, or of several, to an `async def f(event, tx)`, in order and none left out.

    With `batch=True` it gets lists of up to `batch_size`. An event that it cannot handle is retried as `retry` says,
    and then stops this projection, and only this one.

    Up to `batch_size` events share a transaction, and what is written through `tx` commits with the position: exactly
    once. Whatever else a handler does (a mail, another database, a list in memory) happens at least once: a batch that
    is rolled back, or whose owner dies, is given again. `tx` holds SQLite's one writer, so keep the handler short.
    """
    sources = _checked_deciders(deciders)
    if type(batch) is not bool:
        raise UsageError(f"batch={batch!r:.80} of a projection", hint="give True or False; batch_size is the number")
    if type(batch_size) is not int or not 1 <= batch_size <= 10_000:
        raise UsageError(f"batch_size={batch_size!r:.80} of a projection", hint="give a number from 1 to 10,000")
    if not isinstance(retry, Retry):
        raise UsageError(f"retry={retry!r:.80} of a projection", hint="give hf.Retry(attempts=…)")

    def decorate(fn: Callable[..., Any]) -> Projection[Any]:
        if isinstance(fn, Projection):
            raise UsageError(f"@hf.projection was given {fn.name}, which is one already", hint="decorate it once")
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(
                f"projection {getattr(fn, '__qualname__', repr(fn))} is no async def, and tx has to be awaited",
                hint="write async def f(event, tx)",
            )
        _check_parameters(fn, 2, f"projection {fn.__qualname__}", "events, tx" if batch else "event, tx")
        own = validated_name(fn.__name__ if name is None else name, f"projection {fn.__qualname__}")
        earlier = [aliases] if isinstance(aliases, str) else aliases
        made: Projection[Any] = Projection(
            fn,
            definition=Definition.of(fn, "workflow", PREFIX + own, [PREFIX + alias for alias in earlier]),
            deciders=sources,
            batch=batch,
            batch_size=batch_size,
            retry=retry,
            queue=validated_name(queue, f"the queue of projection {own}"),
        )
        (sources[0].__decider__.registry if registry is None else registry).add(made)
        return made

    return decorate


def _checked_deciders(given: object) -> tuple[type[Decider[Any, Any, Any, Any]], ...]:
    several = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    for each in several:
        if not isinstance(each, type) or not hasattr(each, "__decider__"):
            raise UsageError(
                f"hf.projection was given {each!r:.80}, which is no decider",
                hint="give the class of a decider, or several: @hf.projection(Order), @hf.projection((Order, Account))",
            )
    if not several:
        raise UsageError("hf.projection was given no decider", hint="name at least one: @hf.projection(Order)")
    return cast("tuple[type[Decider[Any, Any, Any, Any]], ...]", several)


def _check_parameters(fn: Callable[..., Any], wanted: int, owner: str, shown: str) -> None:
    try:
        inspect.signature(fn).bind(*range(wanted))
    except TypeError:
        raise UsageError(
            f"{owner} cannot be called with ({shown}): its signature is {inspect.signature(fn)}",
            hint=f"write async def {getattr(fn, '__name__', 'f')}({shown})",
        ) from None
