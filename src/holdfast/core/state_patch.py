"""What changed between two states, small where little changed: a long run must not store its whole state every step.

Fields are canonical JSON. A list that only grew is kept as its new tail, a large object as the keys that changed,
everything else as the new value of the field. Nothing of the author's code is needed to put a state together again.
"""

from __future__ import annotations

import msgspec

from holdfast.core.state_outcomes import Fields, joined, split
from holdfast.core.stored import read_stored, unreadable

LARGE_OBJECT_BYTES = 512


class Patch(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields that were set anew, lists that were added to, and objects of which some keys were set."""

    set: dict[str, msgspec.Raw] = {}
    add: dict[str, msgspec.Raw] = {}
    merge: dict[str, dict[str, msgspec.Raw]] = {}


_decoder = msgspec.json.Decoder(Patch)
_encoder = msgspec.json.Encoder()


def difference(old: Fields, new: Fields) -> bytes:
    """The patch that makes `new` of `old`, as it is stored. Fields are never taken away."""
    changed: dict[str, msgspec.Raw] = {}
    added: dict[str, msgspec.Raw] = {}
    merged: dict[str, dict[str, msgspec.Raw]] = {}
    for name, value in new.items():
        before = old.get(name)
        if before == value:
            continue
        if before is not None and _has_grown(before, value):
            added[name] = msgspec.Raw(b"[" + value[len(before) :])
        elif before is not None and (keys := _changed_keys(before, value)) is not None:
            merged[name] = keys
        else:
            changed[name] = msgspec.Raw(value)
    return _encoder.encode(Patch(changed, added, merged))


def patched(old: Fields, patch: bytes) -> dict[str, bytes]:
    """The state that a stored patch makes of `old`."""
    change = read_stored(_decoder.decode, patch, "a change of the state of a graph")
    new = dict(old)
    if missing := (change.add.keys() | change.merge.keys()) - new.keys():
        raise unreadable(
            "a change of the state of a graph", KeyError(f"it is about {', '.join(sorted(missing))!r:.80}")
        )
    for name, value in change.set.items():
        new[name] = bytes(value)
    for name, tail in change.add.items():
        new[name] = new[name][:-1] + b"," + bytes(tail)[1:]
    for name, keys in change.merge.items():
        fields = split(new[name])
        fields.update((key, bytes(value)) for key, value in keys.items())
        new[name] = joined(fields)
    return new


def _has_grown(before: bytes, value: bytes) -> bool:
    length = len(before)
    return length > 2 and before[:1] == b"[" and value[length - 1 : length] == b"," and value.startswith(before[:-1])


def _changed_keys(before: bytes, value: bytes) -> dict[str, msgspec.Raw] | None:
    """The keys that differ, if this is a large object that lost none."""
    if len(before) < LARGE_OBJECT_BYTES or before[:1] != b"{" or value[:1] != b"{":
        return None
    old, new = split(before), split(value)
    if not old.keys() <= new.keys():
        return None
    return {key: msgspec.Raw(field) for key, field in new.items() if old.get(key) != field}
