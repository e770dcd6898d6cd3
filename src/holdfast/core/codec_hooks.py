"""What msgspec does not know by itself: pydantic models, subclasses of str, int and float, and that `object` is Any.

Pydantic is never imported here. A model brings its own methods, and is known by the validator on its class.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import cast

import msgspec

from holdfast.core.codec_unset import is_noted_in, note_unset, take_back, without_notes

_json_encode = msgspec.json.Encoder().encode


class NotAwaited(NotImplementedError):
    """A value is the coroutine that would have given it."""


def is_pydantic_model(kind: object) -> bool:
    """True for a pydantic model class; a pydantic dataclass is a dataclass and needs no hook."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_dump")


def is_custom(kind: object) -> bool:
    """True for a class that msgspec leaves to `decode_hook`, and that this knows."""
    return kind is object or is_pydantic_model(kind)


def encode_hook(value: object) -> object:
    """For msgspec: the plain form of a value it does not know."""
    kind = type(value)
    if is_pydantic_model(kind):
        return _plain_model(value)
    if not isinstance(value, enum.Enum):
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value)
    if inspect.isawaitable(value):
        raise NotAwaited(f"a {kind.__name__} was not awaited")
    raise NotImplementedError(f"no way is known to write a {kind.__module__}.{kind.__qualname__}")


def decode_hook(kind: type, plain: object) -> object:
    """For msgspec: a value of a class it does not know, from its plain form."""
    if kind is object:
        return plain
    if not is_pydantic_model(kind):
        raise NotImplementedError(f"no way is known to read a {kind.__module__}.{kind.__qualname__}")
    validate = cast("Callable[[bytes], object]", kind.model_validate_json)  # type: ignore[attr-defined]
    try:
        # Through JSON text, not through Python values: strict models take an ISO string for a datetime only there.
        text = _json_encode(plain)
        if not is_noted_in(text):
            return validate(text)
        model = validate(_json_encode(without_notes(plain)))
        take_back(model, plain)
        return model
    except ValueError as refused:
        raise ValueError(_first_line_of(refused)) from refused


def _plain_model(model: object) -> object:
    dump = cast("Callable[..., object]", model.model_dump)  # type: ignore[attr-defined]
    # warnings="error": a field that was assigned a wrong type must be refused here, not found out on decoding.
    plain = dump(mode="json", round_trip=True, by_alias=True, warnings="error")
    if _may_hold_sets(cast("Hashable", type(model))):
        plain = _lists_of_sets_sorted(plain, dump(mode="python", round_trip=True, by_alias=True))
    note_unset(model, plain)
    return plain


@lru_cache(maxsize=1024)
def _may_hold_sets(kind: Hashable) -> bool:
    schema = repr(getattr(kind, "__pydantic_core_schema__", ""))
    return "set'" in schema or "Mock" in schema


def _lists_of_sets_sorted(plain: object, original: object) -> object:
    """Sort each list that stands for a set: equal models must have equal bytes in every process."""
    if isinstance(plain, dict) and isinstance(original, dict) and len(plain) == len(original):
        pairs = zip(plain.items(), original.values(), strict=True)
        return {key: _lists_of_sets_sorted(item, source) for (key, item), source in pairs}
    if isinstance(plain, list) and isinstance(original, list | tuple) and len(plain) == len(original):
        return [_lists_of_sets_sorted(item, source) for item, source in zip(plain, original, strict=True)]
    if isinstance(plain, list) and isinstance(original, set | frozenset):
        if all(isinstance(source, frozenset) for source in original):  # the two orders differ, so none is paired
            plain = [sorted(item, key=_json_encode) if isinstance(item, list) else item for item in plain]
        return sorted(plain, key=_json_encode)
    return plain


def _first_line_of(refused: ValueError) -> str:
    """Pydantic's message spans several lines and ends in an address; keep the first field and what it lacks."""
    errors = getattr(refused, "errors", None)
    if errors is None:
        return str(refused)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
