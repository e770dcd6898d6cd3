"""What is known of a reducer before it runs: where a field begins, what it makes of bytes, what a change of it is.

States may be large and a step has to stay cheap, so that a reducer whose effect on JSON is known works on the stored
bytes. All others get decoded values.
"""

from __future__ import annotations

import collections.abc as abc
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from holdfast.authoring import reducers
from holdfast.authoring.type_parameters import without_alias
from holdfast.core.codec_shape import display
from holdfast.core.errors import GraphError

__all__ = ["Law", "Reducer", "is_async", "kind_of", "law_of", "takes_two"]

Reducer = Callable[[Any, Any], Any]
Change = Literal["value", "tail", "difference"]

_LISTS: Final = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_SETS: Final = (set, frozenset, abc.Set, abc.MutableSet)
_DICTS: Final = (dict, abc.Mapping, abc.MutableMapping)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_sorted = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A reducer and what is known of it.

    `on_bytes` gives the merged JSON, or None if these values have to be decoded after all. `empty` is what the field
    holds before anybody wrote it. `change` says what a subgraph gives back for a field that it changed: the value, what
    was added at the end, or by how much a number grew; None if that cannot be known.
    """

    name: str
    reduce: Reducer
    on_bytes: Callable[[bytes, Sequence[bytes]], bytes | None] | None = None
    empty: bytes | None = None
    change: Change | None = None


def kind_of(annotation: object) -> str:
    """What JSON makes of values of this type: "list", "tuple", "set", "dict", "int", "float", "str", "any" or ""."""
    plain = without_alias(annotation)
    if plain is Any or plain is object:
        return "any"
    origin = get_origin(plain) or plain
    if origin is tuple:
        arguments = get_args(plain)
        return "tuple" if not arguments or arguments[-1] is Ellipsis else ""
    for kind, types in (("list", _LISTS), ("set", _SETS), ("dict", _DICTS)):
        if origin in types:
            return kind
    return {int: "int", float: "float", str: "str"}.get(origin, "") if isinstance(origin, type) else ""


def is_async(function: object) -> bool:
    """Whether what is called gives a coroutine, which as a condition always holds and as a value cannot be stored."""
    if inspect.iscoroutinefunction(function):
        return True
    return callable(function) and inspect.iscoroutinefunction(type(function).__call__)


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether it can be called with two values. One without a signature is believed: many builtins have none."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return inspect.isroutine(function)
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def law_of(reducer: Reducer, annotation: object, where: str) -> Law:
    """The law of a reducer for a field of this type; GraphError if the two cannot go together."""
    if is_async(reducer):
        raise GraphError(
            f"the reducer {_name(reducer)} of {where} is an async def",
            hint="make it a plain def: it runs inside the commit; what has to be awaited belongs in a node",
        )
    if not takes_two(reducer):
        raise GraphError(
            f"the reducer {_name(reducer)} of {where} cannot be called with two values",
            hint="a reducer takes the field's value and what a node gave: def merge(value, given): …",
        )
    kind = kind_of(annotation)
    if reducer is operator.add or reducer is operator.iadd:
        return _law_of_add(kind, annotation, where)
    known = _KNOWN.get(reducer) if inspect.isroutine(reducer) else None
    if known is None:
        return Law(name=_name(reducer), reduce=reducer, empty=_EMPTY_CONTAINERS.get(kind))
    law, kinds, instead = known
    if kind and kind != "any" and kind not in kinds:
        raise GraphError(
            f"{where} is annotated {display(annotation)} and has the reducer {law.name}, which is for {_listed(kinds)}",
            hint=instead,
        )
    if reducer is reducers.counter and kind == "float":
        return Law(name=law.name, reduce=reducer, empty=b"0.0", change="difference")
    return law


def _law_of_add(kind: str, annotation: object, where: str) -> Law:
    if kind in ("set", "dict"):
        better = "hf.reducers.union" if kind == "set" else "hf.reducers.merge_dicts"
        raise GraphError(
            f"{where} is annotated {display(annotation)} and has the reducer add, but two of these cannot be added",
            hint=f"use {better}",
        )
    if kind in ("list", "tuple"):
        return Law(name="add", reduce=operator.add, on_bytes=_lists_joined, empty=b"[]", change="tail")
    if kind == "str":
        return Law(name="add", reduce=operator.add, on_bytes=_texts_joined, empty=b'""', change="tail")
    if kind in ("int", "float"):
        empty = b"0" if kind == "int" else b"0.0"
        return Law(name="add", reduce=operator.add, empty=empty, change="difference")
    return Law(name="add", reduce=operator.add, on_bytes=_lists_joined if kind == "any" else None)


def _lists_joined(current: bytes, given: Sequence[bytes]) -> bytes | None:
    parts = []
    for each in (current, *given):
        if not each.startswith(b"["):
            return None
        if len(each) > 2:
            parts.append(each[1:-1])
    return b"[" + b",".join(parts) + b"]"


def _texts_joined(current: bytes, given: Sequence[bytes]) -> bytes:
    return b'"' + b"".join(each[1:-1] for each in (current, *given)) + b'"'


def _objects_joined(current: bytes, given: Sequence[bytes]) -> bytes | None:
    merged: dict[str, msgspec.Raw] = {}
    for each in (current, *given):
        if not each.startswith(b"{"):
            return None
        merged.update(_members(each))
    return _sorted(merged)


def _the_last(current: bytes, given: Sequence[bytes]) -> bytes:
    return given[-1]


def _name(reducer: object) -> str:
    return str(getattr(reducer, "__qualname__", None) or type(reducer).__qualname__)


def _listed(kinds: Sequence[str]) -> str:
    return " or ".join(kinds)


_EMPTY_CONTAINERS: Final = {"list": b"[]", "tuple": b"[]", "set": b"[]", "dict": b"{}"}
_EVERYTHING: Final = ("list", "tuple", "set", "dict", "int", "float", "str")

# The law, the kinds of fields that it is for, and what to do about another one.
_KNOWN: Final[dict[Any, tuple[Law, tuple[str, ...], str]]] = {
    reducers.last_writer: (
        Law(name="last_writer", reduce=reducers.last_writer, on_bytes=_the_last, change="value"),
        _EVERYTHING,
        "",
    ),
    reducers.append: (
        Law(name="append", reduce=reducers.append, on_bytes=_lists_joined, empty=b"[]", change="tail"),
        ("list", "tuple"),
        "annotate the field with a list, or use hf.reducers.union for a set, merge_dicts for a dict, counter for a sum",
    ),
    reducers.union: (
        Law(name="union", reduce=reducers.union, empty=b"[]", change="value"),
        ("set", "list", "tuple"),
        "annotate the field with a set or a list, or use hf.reducers.merge_dicts for a dict",
    ),
    reducers.counter: (
        Law(name="counter", reduce=reducers.counter, empty=b"0", change="difference"),
        ("int", "float"),
        "annotate the field with int or float, or use hf.reducers.append for a list",
    ),
    reducers.maximum: (Law(name="maximum", reduce=reducers.maximum, change="value"), _EVERYTHING, ""),
    reducers.minimum: (Law(name="minimum", reduce=reducers.minimum, change="value"), _EVERYTHING, ""),
    reducers.merge_dicts: (
        Law(name="merge_dicts", reduce=reducers.merge_dicts, on_bytes=_objects_joined, empty=b"{}", change="value"),
        ("dict",),
        "annotate the field with a dict, or use hf.reducers.append for a list and union for a set",
    ),
    max: (Law(name="max", reduce=reducers.maximum, change="value"), _EVERYTHING, ""),
    min: (Law(name="min", reduce=reducers.minimum, change="value"), _EVERYTHING, ""),
}
