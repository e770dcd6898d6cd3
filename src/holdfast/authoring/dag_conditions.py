"""`skip_if` and `cancel_if`: questions to a Dag's instance, asked before a node runs.

They are code, as methods are: they never enter the graph or its signature, and a run that follows a
stored graph asks those of the class as it is now.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from holdfast.core.errors import DagError
from holdfast.core.graph import known_names

__all__ = ["Condition", "Conditions", "bound_conditions", "check_names", "listed_conditions"]

# True or False; the name of a method, property or field; or a function of the instance, plain or async.
Condition: TypeAlias = "bool | str | Callable[[Any], object]"
Conditions: TypeAlias = "Condition | Iterable[Condition]"


def listed_conditions(given: Conditions, option: str) -> tuple[Condition, ...]:
    """One condition or several as a tuple; DagError for what cannot be asked. Names are looked up later."""
    listed = (given,) if isinstance(given, bool | str) or callable(given) else given
    try:
        members = tuple(listed)
    except TypeError:
        members = (listed,)  # type: ignore[assignment]  # refused below, with the value in the message
    for member in members:
        if isinstance(member, bool | str):
            continue
        asked: object = member
        if not callable(asked) or isinstance(asked, type):
            raise DagError(
                f"{option} holds {member!r:.80}, a {type(member).__name__}",
                hint="give a function of the instance, the name of a method or field, True or False",
            )
        _check_askable(member, [object()], f"{option}={_name_of(member)}")
    # False never holds, so there is nothing to ask.
    return tuple(member for member in members if member is not False)


def check_names(
    conditions: Iterable[Condition],
    cls: type,
    *,
    nodes: Collection[str],
    fields: Collection[str],
    option: str,
    owner: str,
) -> None:
    """DagError unless every name among the conditions is a method, property or field of the class."""
    for name in conditions:
        if not isinstance(name, str):
            continue
        shown = f"{option}={name!r} of {owner}"
        if name in nodes:
            raise DagError(f"{shown} names a node, which is run and not asked", hint="name a plain method or a field")
        if name in fields:
            continue
        found = inspect.getattr_static(cls, name, None)
        if found is None:
            known = [*fields, *_askable_names(cls, nodes)]
            raise DagError(f"{shown}: there is no such method or field", hint=known_names(name, known))
        if callable(function := getattr(cls, name)):
            bound = isinstance(found, classmethod | staticmethod)
            _check_askable(function, [] if bound else [object()], shown)


def bound_conditions(conditions: Iterable[Condition], instance: object) -> tuple[Callable[[], Any], ...]:
    """The conditions as calls without arguments. What one returns may have to be awaited."""
    return tuple(functools.partial(_asked, condition, instance) for condition in conditions)


def _asked(condition: Condition, instance: object) -> Any:
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, str):
        found = getattr(instance, condition)
        return found() if callable(found) else found
    return condition(instance)


def _check_askable(function: Callable[..., object], arguments: list[object], shown: str) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DagError(f"{shown} is a generator, which would always count as true", hint="return True or False")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C and silent about it
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise DagError(
            f"{shown} takes {signature}, but a condition is called with the instance alone",
            hint="write it as a method without parameters, or as lambda dag: …",
        ) from None


def _askable_names(cls: type, nodes: Collection[str]) -> list[str]:
    """What a misspelt name may have meant: the functions and properties of the user's own classes."""
    return [
        name
        for base in cls.__mro__
        if not base.__module__.startswith("holdfast.") and base is not object
        for name, value in vars(base).items()
        if not name.startswith("__")
        and name not in nodes
        and (inspect.isfunction(value) or isinstance(value, property))
    ]


def _name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
