"""`@hf.pure`: a helper function that flows may call between actions.

A flow's inline code runs inside of the engine's decision, which may be made again: the function must be quick, have no
side effects, not change its arguments and give the same result for the same arguments. Nobody can check that; the mark
is the author's word.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast.core.errors import UsageError

__all__ = ["Pure", "pure"]

P = ParamSpec("P")
R = TypeVar("R")


class Pure(Generic[P, R]):
    """A function that its author has promised to be pure. Called, it is the function."""

    __name__: str
    __qualname__: str

    def __init__(self, fn: Callable[P, R]) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn

    def __repr__(self) -> str:
        return f"<pure function {self.__module__}.{self.__qualname__}>"

    @property
    def fn(self) -> Callable[P, R]:
        """The plain function."""
        return self._fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._fn(*args, **kwargs)


def pure(fn: Callable[P, R]) -> Pure[P, R]:
    """Mark a plain `def` as pure, so that flows may call it without an action."""
    function: Any = fn
    if isinstance(function, Pure):
        raise UsageError(f"@hf.pure was given {function!r}, which is marked already", hint="decorate a function once")
    if not inspect.isfunction(function):
        raise UsageError(
            f"@hf.pure was given {function!r}, a {type(function).__name__}", hint="decorate a function made with def"
        )
    for test, what in (
        (inspect.iscoroutinefunction, "async def"),
        (inspect.isgeneratorfunction, "generator"),
        (inspect.isasyncgenfunction, "async generator"),
    ):
        if test(function):
            raise UsageError(
                f"@hf.pure was given {function.__qualname__}, which is an {what}",
                hint="make it a plain def that returns its result, or an @hf.action if it awaits anything",
            )
    return Pure(fn)
