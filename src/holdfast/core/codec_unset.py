"""Which fields of a pydantic model were given, and which only have their defaults.

`model_dump(exclude_unset=True)` of a patch must say the same after a restart, or None is written over data. A model is
stored with all of its values, since defaults may change with a deploy; beside them stands a note of those that nobody
gave: `{"name": "Ada", "email": null, "pydantic:unset": ["email"]}`. Without a note, as in rows of older versions,
whatever is stored was given.

A note needs an object to stand in, and a place that is found again: models that serialize themselves as something else
than an object, and those inside of sets, come back with all of their fields given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

NOTE: Final = "pydantic:unset"
_NOTE_IN_JSON: Final = f'"{NOTE}":'.encode()
_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None)})

_decode: Final = msgspec.json.Decoder().decode
_sorted_encode: Final = msgspec.json.Encoder(order="sorted").encode


def is_noted_in(data: bytes) -> bool:
    """False if JSON surely holds no note."""
    return _NOTE_IN_JSON in data


def note_unset(value: Any, plain: Any) -> None:
    """Add the notes of a model, and of those inside of it, to what it was dumped as."""
    for model, written in _models(value, plain):
        unset = [name for name in _not_given(model) if _key(type(model), name) in written]
        if unset:
            written[NOTE] = unset


def take_back(value: Any, plain: Any) -> None:
    """Make what the notes name unset again in a model that was validated with all of its values."""
    for model, written in _models(value, plain):
        model.__pydantic_fields_set__.difference_update(written.get(NOTE, ()))


def without_notes(plain: Any) -> Any:
    """A copy of JSON's own types without any note."""
    if isinstance(plain, dict):
        return {key: without_notes(item) for key, item in plain.items() if key != NOTE}
    return [without_notes(item) for item in plain] if isinstance(plain, list) else plain


def unnoted(data: bytes) -> bytes:
    """Canonical JSON as it is compared: pydantic calls models equal whichever of their fields were given."""
    return _sorted_encode(without_notes(_decode(data))) if is_noted_in(data) else data


def _models(value: Any, plain: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The models in a value, each with the object that it was dumped as."""
    kind = type(value)
    if kind in _SCALARS:
        return
    if hasattr(kind, "__pydantic_fields_set__") and getattr(kind, "__pydantic_root_model__", False):
        yield from _models(value.root, plain)
    elif isinstance(plain, dict):
        if hasattr(kind, "__pydantic_fields_set__"):
            yield value, plain
            parts = [(item, _key(kind, name)) for name, item in vars(value).items()]
            parts += [(item, name) for name, item in (value.__pydantic_extra__ or {}).items()]
        elif dataclasses.is_dataclass(kind):
            parts = [(getattr(value, field.name, None), field.name) for field in dataclasses.fields(kind)]
        elif isinstance(value, Mapping) and len(value) == len(plain):  # keys may be written as texts, in their order
            parts = list(zip(value.values(), plain, strict=True))
        else:
            parts = []
        for item, key in parts:
            if key in plain:
                yield from _models(item, plain[key])
    elif isinstance(value, list | tuple) and isinstance(plain, list) and len(value) == len(plain):
        for item, written in zip(value, plain, strict=True):
            yield from _models(item, written)


def _not_given(model: Any) -> list[str]:
    return sorted(type(model).model_fields.keys() - model.model_fields_set)


def _key(kind: Any, name: str) -> str:
    """The key that a field is dumped under."""
    field = kind.model_fields.get(name)
    return name if field is None else field.serialization_alias or name
