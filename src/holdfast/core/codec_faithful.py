"""Would this value come back as itself? The checks that stand between user values and the store.

Encoders are obliging: they write NaN as null, tuples as lists and number keys as strings, and say nothing. A durable
engine can't be obliging, because the changed value would only show up after a crash, in a replay. So values without
an annotation must consist of JSON's own types (`plain_fault`), and values with one are decoded again and compared
part by part (`difference`).

Both return None or a Fault. A Fault starts at the part at fault and learns its path while the recursion unwinds, so
that values without fault, nearly all of them, pay nothing for paths.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import uuid
from collections.abc import Container, Hashable, Iterator
from functools import lru_cache
from math import isfinite
from typing import Final, cast

import msgspec

from holdfast.core import quoting
from holdfast.core.codec_hooks import is_pydantic_model

MAX_NESTING: Final = 100
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1

_LONG: Final = 64
_MISSING: Final = object()
_KEYS: Final = (
    str, int, float, bytes, decimal.Decimal, uuid.UUID, datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip
_TOO_DEEP: Final = f"is nested more than {MAX_NESTING} levels deep"
_FLATTEN: Final = "flatten the value, and check that it does not contain itself"


class Fault:
    """What is wrong with one part of a value, where that part is, and what would help."""

    __slots__ = ("_steps", "fix", "reason")

    def __init__(self, reason: str, fix: str) -> None:
        self.reason = reason
        self.fix = fix
        self._steps: list[str] = []

    def inside(self, step: str) -> Fault:
        """The same fault, seen from the container that holds it under `step`."""
        self._steps.append(step)
        return self

    @property
    def path(self) -> str:
        """For example `$.items[3].price`; a path through very deep nesting is shortened."""
        steps = self._steps[::-1]
        if len(steps) > 12:
            steps = [*steps[:8], "…", *steps[-2:]]
        return "$" + "".join(steps)


def plain_fault(value: object, depth: int = 0) -> Fault | None:
    """None if the value consists of JSON's own types and JSON gives every part of it back unchanged.

    Lone surrogates are left to the encoder, which notices them at no cost; `unwritten_fault` then finds the place.
    """
    kind = type(value)
    if kind is int:
        return None if MIN_INT <= value <= MAX_INT else _too_big(value)  # type: ignore[operator]
    if kind is str or kind is bool or value is None:
        return None
    if kind is float:
        return None if isfinite(value) else _not_finite(value)  # type: ignore[arg-type]
    if isinstance(value, dict) and kind is dict:
        if depth >= MAX_NESTING:
            return Fault(_TOO_DEEP, _FLATTEN)
        for key, item in value.items():
            if type(key) is not str:
                return _bad_key(key)
            if type(item) is not str:
                fault = plain_fault(item, depth + 1)
                if fault is not None:
                    return fault.inside(_key_step(key))
        return None
    if isinstance(value, list) and kind is list:
        if depth >= MAX_NESTING:
            return Fault(_TOO_DEEP, _FLATTEN)
        if len(value) > _LONG and _uniform_and_fine(value):
            return None
        for index, item in enumerate(value):
            if type(item) is not str:
                fault = plain_fault(item, depth + 1)
                if fault is not None:
                    return fault.inside(f"[{index}]")
        return None
    return _not_plain(value)


def _uniform_and_fine(items: list[object]) -> bool:
    """Settle long lists of one scalar type at the speed of C; False only means: look closer."""
    kinds = set(map(type, items))
    if kinds == {str}:
        return True
    if kinds == {int}:
        return bool(min(items) >= MIN_INT and max(items) <= MAX_INT)  # type: ignore[operator, type-var]
    if kinds == {float}:
        return all(map(isfinite, items))  # type: ignore[arg-type]
    return False


def difference(given: object, back: object, depth: int = 0) -> Fault | None:
    """None if `back`, the decoded form, equals the given value part by part.

    Stricter than `==`, which takes True for 1 and a subclass for its base, and more patient: a dataclass with
    eq=False is compared by its fields. An int may come back as the equal float that the annotation asked for, and a
    subclass of a plain type (numpy's float, defaultdict) as the plain type; an enum member or a record may not.
    """
    kind = type(given)
    if kind is not type(back):
        if not _may_become(given, back):
            return _became(given, back)
        kind = type(back)
    if kind is str:
        return None if given == back else _became(given, back)
    if given is back:  # None, True, False, enum members
        return None
    if isinstance(back, int) and kind is int:
        return None if given == back and MIN_INT <= back <= MAX_INT else _became(given, back)
    if isinstance(back, float) and kind is float:
        return None if given == back and isfinite(back) else _became(given, back)
    if depth > MAX_NESTING:
        return Fault(_TOO_DEEP, _FLATTEN)
    if isinstance(back, dict):
        return _dict_difference(given, back, depth)  # type: ignore[arg-type]
    if isinstance(back, list | tuple):
        return _sequence_difference(given, back, depth)  # type: ignore[arg-type]
    if isinstance(back, set | frozenset):
        return _set_difference(given, back, depth)  # type: ignore[arg-type]
    if isinstance(back, datetime.datetime | datetime.time) and not _same_zone(given, back):  # type: ignore[arg-type]
        return Fault(
            f"is {short(given)} and would come back as {short(back)}",
            "pass it as .astimezone(datetime.timezone.utc), and the name of its time zone as a string beside it",
        )
    if isinstance(back, datetime.datetime):
        if _same_moment(given, back):  # type: ignore[arg-type]
            return None
        return Fault(
            f"is {short(given)} and would come back as {short(back)}",
            "give it a time zone whose offset is in whole minutes, and no fold without a time zone",
        )
    if isinstance(back, decimal.Decimal):
        return None if given == back and back.is_finite() else _became(given, back)
    names = _field_names(cast("Hashable", kind))
    if names is not None:
        return _fields_difference(given, back, names, depth)
    parts = record_parts(back)
    if parts is not None:
        return _record_difference(given, parts, depth)
    return None if given == back else _became(given, back)


def record_difference(given: object, back: object) -> Fault | None:
    """`difference` for an instance of a class of records and what is known to be of the same class."""
    names = _field_names(cast("Hashable", type(back)))
    return difference(given, back) if names is None else _fields_difference(given, back, names, 0)


def _may_become(given: object, back: object) -> bool:
    if isinstance(given, enum.Enum | bool):
        return False
    if type(back) is float and isinstance(given, int):
        return True
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return False
    return type(back) in (str, int, float, list, dict, tuple, set, frozenset) and isinstance(given, type(back))


def _dict_difference(given: dict[object, object], back: dict[object, object], depth: int) -> Fault | None:
    if depth >= MAX_NESTING:
        return Fault(_TOO_DEEP, _FLATTEN)
    keys_back: dict[object, object] | None = None
    for key, item in given.items():
        if key not in back:
            if type(key) is not str:
                return _bad_key(key)
            return Fault(f"has the key {short(key)}, which its annotation lacks", "annotate it with every key it has")
        if type(key) is not str:
            keys_back = keys_back or {each: each for each in back}
            if difference(key, keys_back[key], depth + 1) is not None:
                return _bad_key(key)
        fault = difference(item, back[key], depth + 1)
        if fault is not None:
            return fault.inside(_key_step(key))
    if len(given) != len(back):
        return Fault("would come back with other keys", "give the keys one type that JSON can tell apart")
    return None


def _sequence_difference(
    given: list[object] | tuple[object, ...], back: list[object] | tuple[object, ...], depth: int
) -> Fault | None:
    if depth >= MAX_NESTING:
        return Fault(_TOO_DEEP, _FLATTEN)
    if len(given) != len(back):
        return Fault(f"has {len(given)} elements and would come back with {len(back)}", "check its annotation")
    if len(given) > _LONG and type(given) is list and set(map(type, given)) == {str} and given == back:
        return None
    for index, (item, item_back) in enumerate(zip(given, back, strict=True)):
        if item is not item_back:  # small numbers, None, True: nothing to compare
            fault = difference(item, item_back, depth + 1)
            if fault is not None:
                return fault.inside(f"[{index}]")
    return None


def _set_difference(given: set[object], back: set[object], depth: int) -> Fault | None:
    if depth >= MAX_NESTING:
        return Fault(_TOO_DEEP, _FLATTEN)
    lookup = {item: item for item in back}
    for item in given:
        item_back = lookup.get(item, _MISSING)
        if item_back is _MISSING or difference(item, item_back, depth + 1) is not None:
            return Fault(
                f"has the element {short(item)}, which would come back as something else",
                "annotate the elements with their own type, or use a list",
            )
    return None if len(given) == len(back) else Fault("would lose elements", "use a list")


def _fields_difference(given: object, back: object, names: tuple[str, ...], depth: int) -> Fault | None:
    if depth >= MAX_NESTING:
        return Fault(_TOO_DEEP, _FLATTEN)
    for name in names:
        item, item_back = getattr(given, name, _MISSING), getattr(back, name, _MISSING)
        if item is not item_back:
            fault = difference(item, item_back, depth + 1)
            if fault is not None:
                return fault.inside(f".{name}")
    return None


def _record_difference(given: object, parts_back: list[tuple[str, object]], depth: int) -> Fault | None:
    if depth >= MAX_NESTING:
        return Fault(_TOO_DEEP, _FLATTEN)
    parts = record_parts(given) or []
    if len(parts) != len(parts_back):
        return Fault(f"is a {_type_name(given)} that would come back with other fields", "declare all of its fields")
    for (name, item), (_, item_back) in zip(parts, parts_back, strict=True):
        if item is not item_back:
            fault = difference(item, item_back, depth + 1)
            if fault is not None:
                return fault.inside(f".{name}")
    return None


def record_parts(value: object) -> list[tuple[str, object]] | None:
    """The fields of a struct, dataclass, attrs or pydantic instance in order; None for anything else."""
    names = _field_names(cast("Hashable", type(value)))
    if names is not None:
        return [(name, getattr(value, name, _MISSING)) for name in names]
    if hasattr(type(value), "__pydantic_validator__"):
        # Extra and private values live outside of __dict__. Private ones are never written, so they show up here.
        # What else is in __dict__ are cached properties that somebody has read.
        declared: Container[str] = type(value).model_fields  # type: ignore[attr-defined]
        parts = sorted((name, item) for name, item in vars(value).items() if name in declared)
        for store in ("__pydantic_extra__", "__pydantic_private__"):
            parts.extend(sorted((getattr(value, store, None) or {}).items()))
        return parts
    return None


@lru_cache(maxsize=4096)
def _field_names(kind: Hashable) -> tuple[str, ...] | None:
    if not isinstance(kind, type):
        return None
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attrs_fields = getattr(kind, "__attrs_attrs__", None)
    return None if attrs_fields is None else tuple(field.name for field in attrs_fields)


def parts_of(value: object) -> Iterator[tuple[str, object]]:
    """The parts of any container or record with the step that leads to each."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield _key_step(key), key
            yield _key_step(key), item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    else:
        for name, item in record_parts(value) or ():
            yield f".{name}", item


def unwritten_fault(value: object, of_keys: bool, seen: set[int] | None = None) -> Fault | None:
    """Find the part that has no form in JSON; called only after a codec complained, about a key or about anything."""
    fault = _unwritten(value)
    if fault is None and of_keys and isinstance(value, dict):
        fault = next((_wordless_key(key) for key in value if not _has_a_text(key)), None)
    seen = set() if seen is None else seen  # what holds itself twice has no end
    if fault is not None or id(value) in seen:
        return fault
    seen.add(id(value))
    for step, item in parts_of(value):
        fault = unwritten_fault(item, of_keys, seen)
        if fault is not None:
            return fault.inside(step)
    return None


def _unwritten(value: object) -> Fault | None:
    if isinstance(value, str):
        if value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value):
            return None
        return Fault("holds a lone surrogate, which UTF-8 can't hold", "decode the text with errors='replace'")
    if isinstance(value, int):
        return None if MIN_INT <= value <= MAX_INT else _too_big(value)
    if isinstance(value, decimal.Decimal):
        return None if value.is_finite() else _not_finite(value)
    return _not_finite(value) if isinstance(value, float) and not isfinite(value) else None


def _has_a_text(key: object) -> bool:
    """Whether JSON can write it as a key and read it again; it writes True too, and has no way back."""
    if isinstance(key, enum.Enum):
        return _has_a_text(key.value)
    return isinstance(key, _KEYS) and not isinstance(key, bool)


def nesting_fault() -> Fault:
    """The fault of a value whose encoding ended in a RecursionError."""
    return Fault(_TOO_DEEP, _FLATTEN)


def short(value: object) -> str:
    """A representation fit for a message: never long, never raising, and only the type where nothing may be quoted."""
    try:
        text = repr(value) if quoting.is_allowed() else f"<{_type_name(value)}>"
    except Exception:
        return f"<{_type_name(value)}>"
    return text if len(text) <= 80 else f"{text[:60]}…"


def _same_zone(given: datetime.datetime | datetime.time, back: datetime.datetime | datetime.time) -> bool:
    """Whether the two have the same offset, and would at any other time of the year.

    What comes back has an offset and no rules, so that a day later it may be another hour than in Europe/Berlin. Zones
    without rules, ZoneInfo("UTC") among them, tell their offset without being asked about a moment.
    """
    zone, zone_back = given.tzinfo, back.tzinfo
    if zone is None or zone_back is None or zone == zone_back:
        return zone is zone_back or zone == zone_back
    return zone.utcoffset(None) is not None and zone.utcoffset(None) == back.utcoffset()


def _same_moment(given: datetime.datetime, back: datetime.datetime) -> bool:
    offset, offset_back = given.utcoffset(), back.utcoffset()
    if offset is None or offset_back is None:
        return offset is offset_back and given == back and given.fold == back.fold
    # Not `==`: Python calls every moment of an autumn's doubled hour unequal to the same moment in another zone.
    return given.replace(tzinfo=None) - offset == back.replace(tzinfo=None) - offset_back


def _too_big(value: object) -> Fault:
    del value  # its digits may be more than Python agrees to print
    return Fault("is an integer outside of 64 bits", "pass it as a str, or annotate it as decimal.Decimal")


def _not_finite(value: object) -> Fault:
    return Fault(
        f"is {short(value)}, a {_type_name(value)} that JSON does not have", "pass None or leave the value out"
    )


def _bad_key(key: object) -> Fault:
    return Fault(
        f"has the key {short(key)} of type {_type_name(key)}, which JSON would turn into a string",
        f"annotate it, for example as dict[{_type_name(key)}, ...], or use string keys",
    )


def _wordless_key(key: object) -> Fault:
    return Fault(
        f"has the key {short(key)} of type {_type_name(key)}, which JSON has no text for",
        "use keys that have one (str, int, an enum, a date), or a list of pairs",
    )


AWAIT_IT: Final = "write await before the call that gives it"
_SUGGESTIONS: Final[dict[type[object], str]] = {tuple: "tuple[...]", set: "set[...]", frozenset: "frozenset[...]"}


def _not_plain(value: object) -> Fault:
    kind = type(value)
    for plain in (bool, int, float, str, list, dict):
        if isinstance(value, plain) and not isinstance(value, enum.Enum):
            return Fault(
                f"is a {_type_name(value)}, a subclass of {plain.__name__}",
                f"convert it with {plain.__name__}(...), or annotate it",
            )
    if inspect.isawaitable(value):
        return Fault(f"is a {_type_name(value)}, which was not awaited", AWAIT_IT)
    fix = f"annotate it as {_SUGGESTIONS.get(kind, _type_name(value))}, or convert it"
    if not _may_be_annotated(kind):
        fix = "convert it to JSON's own types, or to a dataclass that its annotation names"
    return Fault(f"is a {_type_name(value)}, which JSON does not have and no annotation announces", fix)


def _may_be_annotated(kind: type) -> bool:
    """Whether values of this class can be stored under its name."""
    try:
        return is_pydantic_model(kind) or not isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except Exception:  # it is the annotation that will be refused then, with the reason
        return True


def _became(given: object, back: object) -> Fault:
    fault = _unwritten(given) if back is None or isinstance(given, type(back)) else None
    if fault is not None:
        return fault
    if type(given) is not type(back):
        return Fault(
            f"is a {_type_name(given)} and would come back as a {_type_name(back)}",
            f"make it a {_type_name(back)} first, or annotate it as {_SUGGESTIONS.get(type(given), _type_name(given))}",
        )
    if hasattr(type(given), "get_secret_value"):
        return Fault(
            f"is a {_type_name(given)}, of which pydantic writes asterisks",
            "pass the name of the secret and look it up where it is used, or give the field a serializer",
        )
    return Fault(
        f"is {short(given)} and would come back as {short(back)}",
        "let its class write all of it and read it unchanged: see its __post_init__, validators and excluded fields",
    )


def _type_name(value: object) -> str:
    return type(value).__name__


def _key_step(key: object) -> str:
    named = isinstance(key, str) and key.isidentifier() and quoting.is_allowed()
    return f".{key}" if named else f"[{short(key)}]"
