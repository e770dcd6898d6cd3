"""Whether values of a type can change under somebody's hands, as far as its annotation tells."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from holdfast.authoring.type_parameters import without_alias

__all__ = ["is_immutable"]

SCALARS = (
    str, int, float, bool, bytes, type(None), datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
    decimal.Decimal, uuid.UUID,
)  # fmt: skip


def is_immutable(annotation: object) -> bool:
    """True only if no part of such a value can be changed in place: scalars, and frozen records and tuples of them."""
    return _immutable(annotation, frozenset())


def _immutable(annotation: object, above: frozenset[object]) -> bool:
    annotation = without_alias(annotation)
    origin = get_origin(annotation)
    if origin is Literal or annotation is None or annotation in (typing.Never, typing.NoReturn):
        return True
    if origin in (Union, types.UnionType):
        return all(_immutable(member, above) for member in get_args(annotation))
    if origin in (tuple, frozenset):
        return all(member is Ellipsis or _immutable(member, above) for member in get_args(annotation))
    kind = origin or annotation
    if not isinstance(kind, type):
        return False
    if kind in SCALARS or issubclass(kind, enum.Enum) or kind in above:
        return True
    return _is_frozen(kind) and all(_immutable(each, above | {kind}) for each in _field_types(kind))


def _is_frozen(kind: type) -> bool:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_config__.frozen
    parameters: Any = getattr(kind, "__dataclass_params__", None)
    return dataclasses.is_dataclass(kind) and bool(parameters is not None and parameters.frozen)


def _field_types(kind: type) -> list[object]:
    """The annotations of a record's fields; one that cannot be read counts as anything."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception:
        return [Any]
    if issubclass(kind, msgspec.Struct):
        return [hints[name] for name in kind.__struct_fields__]
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)  # type: ignore[arg-type]  # it is frozen
    return [hints[field.name] for field in fields]
