"""From an annotation to a Shape: how values of that type are written and read.

Most annotations are msgspec's business and their shape passes values through. Three kinds need help:

- without a type (no annotation, Any, object) only JSON's own types are allowed;
- sets are put in order before they are written, see codec_order;
- a union of untagged records, such as `Created | Paid` of dataclasses, is ambiguous on the wire. Its members are
  written as objects with a "type" field that holds the class's name. This is done for the annotation itself, not for
  unions deeper inside of it; those need msgspec's own tags.

Shapes are computed once per annotation and do not depend on the codec.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import inspect
import types
import typing
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

import msgspec

from holdfast.core.codec_hooks import decode_hook, encode_hook, is_custom, is_pydantic_model
from holdfast.core.codec_order import with_sets_in_order
from holdfast.core.errors import PayloadRefused

UNTYPED: Final[object] = Any
"""The annotation of what has none. `Any`, `object` and an absent annotation mean the same, inside of others too."""

TAG_FIELD: Final = "type"

_SCALARS: Final = (str, int, float, bool, type(None))
_CACHE_LIMIT: Final = 4096
# Left alone when a record is made plain, because each codec has its own way to write them.
_LEFT_TO_THE_CODEC: Final = (
    bytes, bytearray, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal,
)  # fmt: skip


def unchanged(value: object) -> object:
    return value


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How values of one annotation travel: `to_plain`, then any codec, which decodes to `wire`, then `from_plain`.

    `exact` is the one scalar type whose values need no decoding to be checked.
    """

    annotation: object
    wire: object
    to_plain: Callable[[object], object] = unchanged
    from_plain: Callable[[object], object] = unchanged
    untyped: bool = False
    exact: type | None = None
    checked: bool = False  # whoever writes such a value has looked at all of it

    @property
    def direct(self) -> bool:
        """True if values are handed to the codec and back without any help."""
        return self.to_plain is unchanged and self.from_plain is unchanged


_UNTYPED_SHAPE: Final = Shape(annotation=UNTYPED, wire=UNTYPED, untyped=True)
_shapes: dict[object, Shape] = {}


def shape_of(annotation: object, where: str) -> Shape:
    """The shape for an annotation; PayloadRefused, naming `where`, if values of it can't be stored."""
    try:
        known = _shapes.get(annotation)
    except TypeError:  # unhashable, for example Annotated[int, {...}]
        return _build(annotation, where)
    if known is None:
        known = _build(annotation, where)
        if len(_shapes) >= _CACHE_LIMIT:  # somebody makes types at run time; forget rather than leak
            _shapes.clear()
        _shapes[annotation] = known
    return known


def _build(annotation: object, where: str) -> Shape:
    while hasattr(annotation, "__value__"):  # `type Name = ...` of Python 3.12
        annotation = annotation.__value__
    if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
        return _UNTYPED_SHAPE
    if annotation is typing.NoReturn or annotation is typing.Never or annotation is None:
        annotation = type(None)
    if annotation in _SCALARS:
        return Shape(annotation=annotation, wire=annotation, exact=cast("type", annotation))
    try:
        info = msgspec.inspect.type_info(annotation)
    except Exception as trouble:
        if isinstance(trouble, TypeError) and get_origin(annotation) in (Union, types.UnionType):
            return _union_shape(annotation, where, trouble)
        raise _unsupported(annotation, where, str(trouble)) from trouble
    has_sets = False
    for part in _parts(info):
        if isinstance(part, msgspec.inspect.SetType | msgspec.inspect.FrozenSetType):
            has_sets = True
        if isinstance(part, msgspec.inspect.CustomType) and not is_custom(part.cls):
            raise _unsupported(annotation, where, f"no way is known to store a {display(part.cls)}")
    return Shape(annotation=annotation, wire=annotation, to_plain=with_sets_in_order if has_sets else unchanged)


def _parts(info: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """The type and all types inside of it, each once: a struct may hold itself."""
    seen: set[int] = set()
    todo: list[object] = [info]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, tuple):
            todo.extend(part)
        elif isinstance(part, msgspec.inspect.Field):
            todo.append(part.type)
        elif isinstance(part, msgspec.inspect.Type):
            yield part
            todo.extend(getattr(part, name) for name in part.__struct_fields__)


def _is_record(kind: object) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or is_pydantic_model(kind)
        or hasattr(kind, "__attrs_attrs__")
    )


def _union_shape(annotation: object, where: str, trouble: TypeError) -> Shape:
    """A union that msgspec can't tell apart: tag its records, leave the rest to msgspec."""
    members = get_args(annotation)
    records = [member for member in members if _is_record(get_origin(member) or member)]
    rest = [member for member in members if member not in records]
    if not records:
        raise _unsupported(annotation, where, str(trouble)) from trouble
    by_name: dict[str, object] = {}
    by_class: dict[type, tuple[str, Shape]] = {}
    for record in records:
        kind = cast("type", get_origin(record) or record)
        name = kind.__name__
        if name in by_name:
            raise _unsupported(annotation, where, f"two of its members are called {name}") from trouble
        _refuse_untaggable(kind, annotation, where)
        by_name[name] = record
        by_class[kind] = name, shape_of(record, where)
    # Union[()] does not exist; a union of nothing but records refuses whatever is no record by its type.
    rest_shape = shape_of(Union.__getitem__(tuple(rest)), where) if rest else None
    if rest_shape is not None and rest_shape.untyped:
        raise _unsupported(annotation, where, "beside Any its members can't be told apart") from trouble
    if rest_shape is not None and _takes_objects(rest_shape.annotation):
        raise _unsupported(annotation, where, "its dict and its records can't be told apart") from trouble

    def to_plain(value: object) -> object:
        found = by_class.get(type(value))
        if found is None:
            if rest_shape is None:
                raise TypeError(f"expected one of {', '.join(by_name)}, got {type(value).__name__}")
            return rest_shape.to_plain(value)
        name, shape = found
        plain = msgspec.to_builtins(shape.to_plain(value), enc_hook=encode_hook, builtin_types=_LEFT_TO_THE_CODEC)
        if type(plain) is not dict or TAG_FIELD in plain:
            raise TypeError(f"{name} is not written as an object without a {TAG_FIELD!r} field, so it can't be tagged")
        return {TAG_FIELD: name, **plain}

    def from_plain(plain: object) -> object:
        if type(plain) is dict and TAG_FIELD in plain:
            fields = dict(plain)
            name = fields.pop(TAG_FIELD)
            if name not in by_name:
                raise msgspec.ValidationError(f"unknown {TAG_FIELD} {name!r}, expected one of {', '.join(by_name)}")
            return _convert(fields, by_name[name])
        if rest_shape is None:
            raise msgspec.ValidationError(f"expected one of {', '.join(by_name)}, got {type(plain).__name__}")
        return _convert(plain, rest_shape.annotation)

    return Shape(annotation=annotation, wire=Any, to_plain=to_plain, from_plain=from_plain)


def _convert(plain: object, annotation: object) -> object:
    return msgspec.convert(plain, cast("type[object]", annotation), dec_hook=decode_hook, str_keys=True)


def _refuse_untaggable(kind: type, annotation: object, where: str) -> None:
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        if config.array_like:
            raise _unsupported(annotation, where, f"{kind.__name__} is array_like, so it can't be tagged")
        if config.tag is not None:
            raise _unsupported(annotation, where, f"{kind.__name__} has a tag and other members have none")
    names: set[str] = set()
    if issubclass(kind, msgspec.Struct):
        names = set(kind.__struct_encode_fields__)
    elif dataclasses.is_dataclass(kind):
        names = {field.name for field in dataclasses.fields(kind)}
    if TAG_FIELD in names:
        raise _unsupported(annotation, where, f"{kind.__name__} has a field {TAG_FIELD!r} of its own")


def _takes_objects(annotation: object) -> bool:
    info = msgspec.inspect.type_info(annotation)
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    return any(
        isinstance(member, msgspec.inspect.DictType | msgspec.inspect.TypedDictType | msgspec.inspect.AnyType)
        for member in members
    )


def _unsupported(annotation: object, where: str, why: str) -> PayloadRefused:
    hint = "use a struct, dataclass, pydantic model or standard type"
    if get_origin(annotation) in (Union, types.UnionType) or "union" in why:
        hint = "keep one of these types in the union, or make all of them msgspec structs with tag=True"
    return PayloadRefused(f"{where} is annotated {display(annotation)}, which can't be stored: {why}", hint=hint)


def display(annotation: object) -> str:
    """The annotation as its author would write it."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__name__
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(repr(choice) for choice in get_args(annotation))}]"
    return str(annotation).replace("typing.", "")
