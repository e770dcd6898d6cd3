"""Flows with the arguments they are run with. Every `corpus_*.py` adds to one list."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

FILES = (
    *("values", "branches", "loops", "exceptions", "gathers", "calls", "changes", "mixtures", "corners"),
    *("options", "nests", "groups"),
)


class Case(NamedTuple):
    """A plain async function and one call of it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.function.__name__}{self.args!r}"


_found: dict[str, list[Case]] = {}


def case(*argument_lists: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the decorated function to the corpus, to be called with each of these argument lists."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        assert function.__name__ not in _found, f"two flows of the corpus are called {function.__name__}"
        _found[function.__name__] = [Case(function, args) for args in argument_lists or ((),)]
        return function

    return decorate


def all_cases() -> list[Case]:
    """The whole corpus."""
    for name in FILES:
        importlib.import_module(f"tests.flows.corpus_{name}")
    return [case for cases in _found.values() for case in cases]
