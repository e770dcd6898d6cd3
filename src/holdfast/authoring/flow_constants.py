"""Objects of the module that a flow names: constants become part of the graph, types are referred to by name."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import decimal
import enum
import inspect
import types
import typing
import uuid
from typing import Any

import msgspec

from holdfast.authoring.flow_building import Building, Stage
from holdfast.authoring.flow_source import NOTHING, UNDEFINED
from holdfast.core.codec_faithful import MAX_INT, MIN_INT
from holdfast.core.codec_hooks import is_pydantic_model
from holdfast.core.errors import PayloadRefused
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_operations import STANDARD_TYPES
from holdfast.core.flow_values import pack, qualified_name

__all__ = [
    "constant",
    "is_record_type",
    "is_scalar_hint",
    "learn_hints",
    "named_constant",
    "refer_to",
    "type_references",
]

_SCALARS = (bytes, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID)


def constant(value: Any, building: Building) -> Expression | None:
    """The expression of a value that can never change; None for one that can, or that a flow can't hold."""
    kind = type(value)
    if kind is str and not _is_storable(value):
        return None
    if value is None or kind is bool or kind is str or (kind is int and MIN_INT <= value <= MAX_INT):
        return ("const", value)
    if kind is float and value - value == 0:
        return ("const", value)
    if kind is tuple:
        items = [constant(item, building) for item in value]
        return None if None in items else ("tuple", *items)
    if isinstance(value, enum.Enum):
        building.learn_type(kind)
    elif _is_frozen_set(value):
        # In an order that does not depend on the process, since it is part of the signature.
        packed = [pack(item, building.types, "a constant") for item in sorted(value, key=repr)]
        return ("value", {"$": "frozenset", "v": packed})
    elif kind not in _SCALARS and kind not in (int, float, complex):
        return None
    try:
        return ("value", pack(value, building.types, "a constant"))
    except PayloadRefused:
        return None


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_frozen_set(value: Any) -> bool:
    return type(value) is frozenset and all(
        item is None or type(item) in (bool, int, float, bytes) or (type(item) is str and _is_storable(item))
        for item in value
    )


def named_constant(stage: Stage, node: ast.expr, bound: frozenset[str]) -> Expression | None:
    """The value of a module's constant that the node names; None if the node is an expression of the flow.

    It is taken when the flow is compiled and belongs to the graph, like every other part of the source.
    """
    found = stage.source.object_named(node, bound)
    if found is NOTHING:
        return None
    if found is UNDEFINED:
        stage.refuse(
            node,
            f"the name `{ast.unparse(node)}`",
            "nothing is defined under it when the flow is compiled",
            "define or import it above the flow, or check its spelling",
        )
    made = constant(found, stage.building)
    if made is None:
        kind = type(found).__name__
        stage.refuse(
            node,
            f"`{ast.unparse(node)}`, a {kind} of the module,",
            "a graph can hold constants that never change, not objects that live in one process",
            "pass it as an argument of the flow, or use it inside of an action",
        )
    return made


def is_record_type(kind: type) -> bool:
    """Whether instances are plain values: dataclasses, structs, attrs, pydantic models, named tuples, enums."""
    return (
        issubclass(kind, msgspec.Struct | enum.Enum)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        or hasattr(kind, "__pydantic_validator__")
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def refer_to(stage: Stage, node: ast.expr, thing: Any) -> str:
    """The name under which the graph refers to an object of the module, the same in every process with this source."""
    name = stage.prefix + ast.unparse(node)
    stage.building.references[name] = thing
    if isinstance(thing, type) and is_record_type(thing):
        learn_hints(stage.building, thing)
    return name


def type_references(stage: Stage, node: ast.expr) -> tuple[str, ...]:
    """The classes that `isinstance` or `except` names, alone, in a tuple or joined by `|`."""
    if isinstance(node, ast.Tuple):
        return tuple(name for item in node.elts for name in type_references(stage, item))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return type_references(stage, node.left) + type_references(stage, node.right)
    found = stage.source.object_named(node)
    if not isinstance(found, type):
        stage.refuse(
            node,
            f"`{ast.unparse(node)}` as a type",
            "it is not a class that is known when the flow is compiled",
            "name a class of the module, or a tuple of classes",
        )
    return (refer_to(stage, node, found),)


def is_scalar_hint(hint: Any) -> bool:
    """Whether every value with this annotation is one that can't be changed and holds nothing that can."""
    if hint is None or (inspect.isclass(hint) and not typing.get_args(hint)):
        kinds = (str, int, float, complex, type(None), *_SCALARS)
        return hint is None or hint in kinds or hint is bool or issubclass(hint, enum.Enum)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return all(is_scalar_hint(part) for part in typing.get_args(hint))
    return False


def is_container_hint(hint: Any) -> bool:
    """Whether every value with this annotation is a list, a set or a dict."""
    return (typing.get_origin(hint) or hint) in (list, set, dict)


def learn_hints(building: Building, hint: Any, seen: dict[int, Any] | None = None) -> None:
    """Values of every type in this annotation, and in the fields of those, may be stored."""
    seen = {} if seen is None else seen
    if id(hint) in seen:
        return
    seen[id(hint)] = hint  # held, so that no later annotation gets its id
    inside = _inside_class(building, hint) if _is_class(hint) else _inside_alias(hint)
    for inner in inside:
        learn_hints(building, inner, seen)


def _is_class(hint: Any) -> bool:
    return inspect.isclass(hint) and not typing.get_args(hint)


def _inside_alias(hint: Any) -> list[Any]:
    """What `Box[int]` is made of, what a name given to another type stands for, what a type variable may be."""
    names = ("__value__", "__supertype__", "__bound__")
    others = [getattr(hint, name) for name in names if hasattr(hint, name)]
    return [typing.get_origin(hint), *typing.get_args(hint), *others, *getattr(hint, "__constraints__", ())]


def _inside_class(building: Building, kind: type) -> list[Any]:
    if kind in STANDARD_TYPES.values() or qualified_name(kind) in building.types:
        return []
    if is_record_type(kind):
        building.learn_type(kind)
    elif not typing.is_typeddict(kind):
        return []
    # A class made of `Box[Price]` has the fields of Box, whose annotations do not name Price.
    inside = [base for each in kind.__mro__ for base in vars(each).get("__orig_bases__", ())]
    if is_pydantic_model(kind):  # `Holder[Price]` is a class there, whose annotations do not name Price either
        inside += [field.annotation for field in kind.model_fields.values()]  # type: ignore[attr-defined]
    try:
        return [*inside, *typing.get_type_hints(kind).values()]
    except Exception:  # an annotation that can't be resolved here names nothing that could be stored
        return inside
