"""Sets have no order, bytes need one.

Two processes iterate the same set differently, because string hashes are seeded per process. Written as they come,
equal inputs would have different digests: a false KeyConflict, a false NonDeterminism. So before encoding, every set
is replaced by a list sorted by the bytes of its elements. Sorting by bytes works for elements that `<` can't
compare (enum members, None beside numbers) and for those it compares only partly (frozensets).

Dicts keep the order they have: it is visible to user code, and digests sort keys for themselves.
"""

from __future__ import annotations

import copy
import dataclasses

import msgspec

from holdfast.core.codec_hooks import encode_hook

_key_encoder = msgspec.json.Encoder(enc_hook=encode_hook, order="sorted")


def with_sets_in_order(value: object) -> object:
    """The value with each set replaced by a sorted list; the same object if it holds none."""
    if isinstance(value, set | frozenset):
        return sorted((with_sets_in_order(item) for item in value), key=_key_encoder.encode)
    if isinstance(value, dict):
        changed_items = {key: with_sets_in_order(item) for key, item in value.items()}
        return changed_items if any(changed_items[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        return _sequence_in_order(value)
    if isinstance(value, msgspec.Struct):
        return _record_in_order(value, value.__struct_fields__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _record_in_order(value, tuple(field.name for field in dataclasses.fields(value)))
    return value


def _sequence_in_order(value: list[object] | tuple[object, ...]) -> object:
    changed = [with_sets_in_order(item) for item in value]
    if all(after is before for after, before in zip(changed, value, strict=True)):
        return value
    return changed if isinstance(value, list) else tuple(changed)  # a NamedTuple is written as an array anyway


def _record_in_order(value: object, names: tuple[str, ...]) -> object:
    """A shallow copy for the encoder only: its fields hold lists where the class declares sets."""
    copied: object = None
    for name in names:
        before = getattr(value, name, None)
        after = with_sets_in_order(before)
        if after is not before:
            # copy.copy runs neither __init__ nor __post_init__, which might object to a list.
            copied = copied if copied is not None else copy.copy(value)
            if isinstance(copied, msgspec.Struct):
                msgspec.structs.force_setattr(copied, name, after)
            else:
                object.__setattr__(copied, name, after)
    return value if copied is None else copied
