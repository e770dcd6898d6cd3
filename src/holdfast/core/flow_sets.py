"""The order in which a flow walks over a set.

Python walks over one set object in one order, as long as it lives. A set of a flow does not live: it is stored and read
again, maybe in a process where texts have other hashes, and then its own order is another one. So whatever can show an
order (loops, comprehensions, `list`, `zip`, unpacking, `pop`, texts) takes the items of a set from here, in an order
that depends on the items alone: all walks over one value agree, before and after it was stored (I24).

Functions marked pure, and records, are given the set itself.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.errors import PayloadRefused
from holdfast.core.flow_values import pack

__all__ = ["first_of", "shown", "walked"]

_SETS: Final = (set, frozenset)


def walked(value: Any) -> Any:
    """What Python may walk over instead of the value: the items of a set in their order, else the value itself."""
    return sorted(value, key=_key_for(value)) if type(value) in _SETS else value


def first_of(value: set[Any]) -> Any:
    """The item that `pop` takes out of a set that is not empty."""
    return min(value, key=_key_for(value))


def shown(value: Any) -> Any:
    """What `str` and `repr` may be given instead of the value: sets in it are written in their order."""
    kind = type(value)
    if kind in _SETS:
        if not value:
            return value
        text = f"{{{', '.join(repr(shown(item)) for item in walked(value))}}}"
        return _Text(text if kind is set else f"frozenset({text})")
    if kind is list or kind is tuple:
        items = [shown(item) for item in value]
        return value if all(map(_is_same, items, value)) else kind(items)
    if kind is dict:
        pairs = {shown(key): shown(item) for key, item in value.items()}
        same = all(map(_is_same, pairs, value)) and all(map(_is_same, pairs.values(), value.values()))
        return value if same else pairs
    return value


class _Text:
    """Stands for a set inside of what is written."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _is_same(one: object, other: object) -> bool:
    return one is other


def _key_for(items: Any) -> Any:
    """Numbers and texts go by themselves; others by what would be stored, which tells all values apart."""
    return None if set(map(type, items)) in ({int}, {str}) else _stored


def _stored(item: object) -> str:
    try:
        return repr(pack(item, None, "an item of a set"))
    except PayloadRefused:  # it can't outlive this step, so that any order will do
        return repr(item)
