"""A digest of the code that folds a state, so that a snapshot which other code has made is not used (I38).

It covers `evolve` and `initial` with what they call: methods of the class and of its state and events, and functions of
the same module; and the plain values that this code names: of its module, of its closure and of these classes. What it
reaches in other ways (a function or an attribute of another module, a table of functions, a value of another kind) is
not seen; `state_version` is there for that. Line numbers, comments and formatting do not count.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from types import CodeType, EllipsisType, FunctionType, NoneType

import msgspec

from holdfast.authoring.dag_fields import own_annotations

__all__ = ["code_digest", "described_types"]

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in a repr: another one in every process
LARGEST = 10_000  # members of a value that is looked at
DEEPEST = 8
# Types that look the same in every process. Not those that are derived from them: these may say anything.
PLAIN = frozenset({NoneType, bool, float, complex, str, bytes, EllipsisType, Decimal, date, timedelta})
CONTAINERS = frozenset({tuple, list, set, frozenset, dict})


def code_digest(functions: Iterable[object], owners: Iterable[type], parts: Iterable[str]) -> str:
    """A digest of these functions, of what they call by name on one of the owners or in their module, and of parts."""
    digest, owners = hashlib.sha256(), tuple(owners)
    for part in parts:
        digest.update(f"{len(part)}:{part};".encode("utf-8", "surrogatepass"))
    for function in _reachable(functions, owners):
        for piece in _pieces(function.__code__):
            digest.update(f"{len(piece)}:".encode() + piece)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            digest.update(_shown(default).encode("utf-8", "surrogatepass"))
        for name, value in _values(function, owners):
            digest.update(f"{name}={_shown(value)};".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _reachable(functions: Iterable[object], owners: tuple[type, ...]) -> list[FunctionType]:
    """In the order in which they are met, which depends on the code alone."""
    found: dict[int, FunctionType] = {}
    todo = [behind for each in functions for behind in _behind(each)]
    while todo:
        function = todo.pop(0)
        if id(function) in found:
            continue
        found[id(function)] = function
        for name in _names(function.__code__):
            for owner in owners:
                todo += _behind(inspect.getattr_static(owner, name, None))
            beside = _behind(function.__globals__.get(name))
            todo += [each for each in beside if each.__module__ == function.__module__]
        for cell in function.__closure__ or ():
            try:
                todo += _behind(cell.cell_contents)
            except ValueError:  # not filled yet
                continue
    return list(found.values())


def _values(function: FunctionType, owners: tuple[type, ...]) -> Iterator[tuple[str, object]]:
    """What a function can mean by its names, also by those of attributes: one too many costs a fold, not a state."""
    for name in dict.fromkeys(_names(function.__code__)):
        if name.startswith("__"):  # of the module's file, say
            continue
        yield name, function.__globals__.get(name)
        for owner in owners:
            yield name, inspect.getattr_static(owner, name, None)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _behind(thing: object) -> list[FunctionType]:
    """The Python functions behind a method, a property, a dispatcher or a decorator."""
    if isinstance(thing, functools.singledispatchmethod):
        return [each for one in thing.dispatcher.registry.values() for each in _behind(one)]
    if isinstance(thing, staticmethod | classmethod):
        thing = thing.__func__
    if isinstance(thing, property):
        thing = thing.fget
    registry = getattr(thing, "registry", None)
    if registry is not None and hasattr(thing, "dispatch"):  # functools.singledispatch
        return [each for one in registry.values() for each in _behind(one)]
    if callable(thing) and not isinstance(thing, type):
        thing = inspect.unwrap(getattr(thing, "__func__", thing))
    return [thing] if isinstance(thing, FunctionType) else []


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _pieces(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        yield repr(names).encode("utf-8", "surrogatepass")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _pieces(constant)
        else:
            yield _shown(constant).encode("utf-8", "surrogatepass")


def _shown(value: object, depth: int = 0) -> str:
    """A plain value as a text that every process makes of it; a question mark for what is not plain, or too large."""
    kind, inside = type(value).__name__, depth + 1
    if isinstance(value, Enum):
        return f"{kind}:{value.name}={_shown(value.value, inside)}" if depth < DEEPEST else "?"
    if isinstance(value, tuple | list | set | frozenset | dict) and type(value) in CONTAINERS:
        if depth >= DEEPEST or len(value) > LARGEST:
            return "?"
        if isinstance(value, dict):
            members = sorted(f"{_shown(key, inside)}:{_shown(each, inside)}" for key, each in value.items())
        elif isinstance(value, tuple | list):
            members = [_shown(each, inside) for each in value]
        else:
            members = sorted(_shown(each, inside) for each in value)
        return f"{kind}({','.join(members)})"
    if type(value) is int:
        return f"{kind}:{value:x}"  # there is no limit to how long this may be
    return f"{kind}:{value!r}" if type(value) in PLAIN else "?"


def described_types(kinds: Iterable[type]) -> Iterator[str]:
    """The fields of classes with their annotations and plain defaults, as texts."""
    for kind in kinds:
        yield kind.__qualname__
        for base in reversed(kind.__mro__):
            for name, annotation in own_annotations(base).items():
                text = annotation.__qualname__ if isinstance(annotation, type) else ADDRESS.sub("", str(annotation))
                yield f"{name}:{text}"
        if issubclass(kind, msgspec.Struct):
            yield repr(kind.__struct_encode_fields__)
            yield ",".join(_shown(default) for default in kind.__struct_defaults__)
        elif dataclasses.is_dataclass(kind):
            yield ",".join(_shown(each.default) for each in dataclasses.fields(kind))
