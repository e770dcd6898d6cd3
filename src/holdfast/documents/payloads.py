"""What an event carries: its type with the fields, and a value that was just given made into one."""

from __future__ import annotations

import inspect
import typing
from typing import Any, Final

import msgspec

from holdfast.core.codec import DEFAULT_CODECS, UNTYPED, Codecs
from holdfast.core.codec_shape import display
from holdfast.core.errors import PayloadRefused
from holdfast.explain.unfit import not_a

LONGEST_DEFAULT: Final = 200
LONGEST_PAYLOAD: Final = 2_000


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter or a field; `default` as it is written, null if it has to be given.

    Of a decider it is one of its input classes, and `type` has the fields of that.
    """

    name: str
    type: str
    default: str | None


class TakesView(msgspec.Struct, frozen=True, kw_only=True):
    """What an event carries; without fields it is one value of that type."""

    type: str
    fields: tuple[ParameterView, ...]


def takes(annotation: Any) -> TakesView | None:
    """What has to be sent, for a person; None if nothing is known of it."""
    if annotation is UNTYPED or annotation is Any:
        return None
    return TakesView(
        type="null" if annotation in (None, type(None)) else display(annotation), fields=fields_of(annotation)
    )


def fields_of(annotation: Any) -> tuple[ParameterView, ...]:
    """The fields of a struct, a dataclass or a model; nothing of other types."""
    if not isinstance(annotation, type) or not _has_fields(annotation):
        return ()
    if typing.is_typeddict(annotation):
        hints = typing.get_type_hints(annotation)
        return tuple(ParameterView(name=name, type=display(hint), default=None) for name, hint in hints.items())
    return parameters_of(annotation)


def parameters_of(callable_: Any) -> tuple[ParameterView, ...]:
    """The parameters of a function, or the fields that a class is made with."""
    try:
        signature = inspect.signature(callable_)
    except (TypeError, ValueError):
        return ()
    return tuple(
        ParameterView(
            name=each.name,
            type="" if each.annotation is each.empty else _written(each.annotation),
            default=None if each.default is each.empty else f"{each.default!r:.{LONGEST_DEFAULT}}",
        )
        for each in signature.parameters.values()
    )


def fitted(value: Any, annotation: Any, *, subject: str) -> Any:
    """A value that came as JSON, as its annotation has it. PayloadRefused tells its sender what is wrong with it."""
    try:
        return DEFAULT_CODECS.decode(msgspec.json.encode(value), annotation, where=subject)
    except PayloadRefused as refused:
        if refused.__cause__ is None:
            raise  # it is the annotation that cannot be used, whatever the value
        why = " ".join(str(refused.__cause__).split())[:500]
        raise PayloadRefused(
            not_a(display(annotation), why, subject=subject), hint=_what_fits(annotation)
        ) from refused.__cause__


def brief_payload(codecs: Codecs, data: bytes, codec: str) -> Any:
    """A stored payload without its types; of a long one, or one that cannot be read here, how long it is."""
    if len(data) <= LONGEST_PAYLOAD:
        try:
            return msgspec.to_builtins(codecs.decode(data, where="a payload", codec=codec))
        except PayloadRefused:
            pass
    return f"<{len(data):,} bytes of {codec}>"


def _what_fits(annotation: Any) -> str:
    fields = fields_of(annotation)
    if not fields:
        return f"give {display(annotation)}, as JSON"
    told = [f"{each.name}: {each.type}" + ("" if each.default is None else f" = {each.default}") for each in fields]
    return f"give an object with {', '.join(told)}"


def _has_fields(kind: type) -> bool:
    marks = ("__struct_fields__", "__dataclass_fields__", "model_fields", "__attrs_attrs__")
    return typing.is_typeddict(kind) or any(hasattr(kind, mark) for mark in marks)


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else display(annotation)
