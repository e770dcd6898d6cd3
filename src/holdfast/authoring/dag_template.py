"""`@hf.dag_template`: a function that builds a DAG from arguments, started by its name.

The function runs once, in the process that starts the run. What it built is stored, so the run goes on
whatever becomes of the template.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, overload

from holdfast.authoring.actions import check_function
from holdfast.authoring.dag_builder import BuiltDag, DagBuilder
from holdfast.authoring.registry import Definition, Registry, default_registry
from holdfast.core.codec import CallCodec
from holdfast.core.errors import DagError, UsageError

__all__ = ["BoundTemplate", "DagTemplate", "dag_template"]

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class BoundTemplate:
    """A template together with its arguments: a value that `engine.start` accepts."""

    template: DagTemplate[...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class DagTemplate(Generic[P]):
    """A registered function that builds a DAG. Calling it gives the BuiltDag; starting it gives a run."""

    __holdfast__: Definition
    __name__: str
    __qualname__: str

    def __init__(self, fn: Callable[P, DagBuilder | BuiltDag], definition: Definition) -> None:
        functools.update_wrapper(self, fn)
        self.__holdfast__ = definition
        self.fn = fn
        self._codec: CallCodec | None = None

    def __repr__(self) -> str:
        return f"<dag_template {self.name} of {self.__holdfast__.place}>"

    @property
    def name(self) -> str:
        """The name it is registered under, which its runs have as their workflow."""
        return self.__holdfast__.name

    @property
    def call(self) -> CallCodec:
        """Encodes and decodes its arguments. Made at the first use: annotations may name what is defined later."""
        if self._codec is None:
            self._codec = CallCodec(self.fn, name=f"template {self.name}", stores_result=False)
        return self._codec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> BuiltDag:
        made: object = self.fn(*args, **kwargs)
        if isinstance(made, DagBuilder):
            return made.build()
        if isinstance(made, BuiltDag):
            return made
        raise DagError(
            f"template {self.name} returned {made!r:.80}, a {type(made).__name__}",
            hint="return the DagBuilder, or what its build() gives",
        )

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundTemplate:
        """The template with these arguments, for `engine.start`. Wrong arguments are refused here."""
        self.check_arguments(args, kwargs)
        return BoundTemplate(self, args, kwargs)

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """UsageError that shows the signature unless the function can be called like this."""
        signature = inspect.signature(self.fn)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"template {self.name} cannot be called like this: {error}",
                hint=f"its signature is {self.name}{signature}",
            ) from None


class TemplateDecorator(Protocol):
    """What `@hf.dag_template(…)` with options returns."""

    def __call__(self, fn: Callable[P, DagBuilder | BuiltDag], /) -> DagTemplate[P]: ...


@overload
def dag_template(fn: Callable[P, DagBuilder | BuiltDag], /) -> DagTemplate[P]: ...
@overload
def dag_template(
    *, name: str | None = ..., aliases: tuple[str, ...] | list[str] = ..., registry: Registry | None = ...
) -> TemplateDecorator: ...
def dag_template(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    aliases: tuple[str, ...] | list[str] = (),
    registry: Registry | None = None,
) -> Any:
    """Register a plain function that returns a DagBuilder or a BuiltDag, so that it can be started by name.

    An `async def` is refused: what it would wait for is input, to be read before the start and passed in, so
    that the same key with the same arguments means the same DAG.
    """

    def decorate(function: Callable[..., Any]) -> DagTemplate[...]:
        check_function(function, "@hf.dag_template")
        if inspect.iscoroutinefunction(function):
            raise UsageError(
                f"template {function.__qualname__} is an async def, and a template only describes",
                hint="make it a plain def, read what it needs before the start, and pass that as arguments",
            )
        made: DagTemplate[...] = DagTemplate(function, Definition.of(function, "workflow", name, aliases))
        (default_registry if registry is None else registry).add(made)
        return made

    return decorate if fn is None else decorate(fn)
