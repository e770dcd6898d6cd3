"""The values a flow's variables may hold, and their bytes in an inbox.

A flow's variables have no annotations, so their bytes describe themselves: JSON's own types are plain JSON, and
everything else is `{"$": kind, …}`. What comes back is exactly what went in, or it is refused before it is written.
Types of the user are written by name and read through `known`, which holds the types that the flow's code and its
actions name: bytes never decide what gets imported.

Failures are values too (`Raised`): an `except` clause and `return_exceptions=True` hand them to the flow, and they
must survive a restart in a process that may not have their class.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from holdfast.core.codec_failure import ErrorRecord, decode_error, encode_error
from holdfast.core.codec_faithful import MAX_INT, MIN_INT, record_parts, short
from holdfast.core.codec_hooks import is_pydantic_model
from holdfast.core.errors import PayloadRefused
from holdfast.core.stored import UNREADABLE, unreadable

__all__ = [
    "UNBOUND",
    "KnownTypes",
    "Raised",
    "Unbound",
    "decode_value",
    "encode_value",
    "pack",
    "raised",
    "raised_group",
    "unpack",
    "with_record",
]

KnownTypes = Mapping[str, type]
"""Types by qualified name."""

_MAIN: Final = ("__main__", "__mp_main__")
_TAG: Final = "$"


class Unbound(enum.Enum):
    """Marks a variable that was deleted, so that an older value in the inbox does not come back."""

    UNBOUND = "unbound"


UNBOUND: Final = Unbound.UNBOUND


class Raised(msgspec.Struct, frozen=True, eq=False):
    """An exception as a value of a flow: its text, arguments and types, without its class."""

    record: ErrorRecord
    made_from: tuple[object, ...] | None = None
    """The arguments, if the flow itself made the exception: values of any kind, where a record has JSON's only."""

    def __str__(self) -> str:
        return self.record.message

    def __repr__(self) -> str:
        args = self.args
        return f"{self.record.type}({'<arguments not kept>' if args is None else ', '.join(map(repr, args))})"

    @property
    def args(self) -> tuple[object, ...] | None:
        """What the exception's `args` were; None if that could not be kept."""
        if self.made_from is not None:
            return self.made_from
        kept = self.record.arguments
        # What the system's errors are rebuilt from has the file's name too, which their args lack.
        return OSError(*kept).args if kept is not None and len(kept) > 2 and self.is_a(OSError) else kept

    @property
    def system_error(self) -> OSError | None:
        """An error of the system with its number and file; None unless its text shows that they are what they were."""
        kept = self.record.arguments
        if kept is None or len(kept) < 2 or not self.is_a(OSError):
            return None
        rebuilt = OSError(*kept)
        return rebuilt if str(rebuilt) == self.record.message else None

    @property
    def cause(self) -> Raised | None:
        """Of a child that failed: what ended it."""
        return None if self.record.cause is None else Raised(self.record.cause)

    @property
    def attempts(self) -> tuple[Raised, ...]:
        """Of a child that failed: what each attempt of its call or node raised, the oldest first and the cause last."""
        cause = self.record.cause
        return () if cause is None else tuple(Raised(each) for each in (*cause.earlier, cause))

    def is_a(self, kind: type) -> bool:
        """Whether `except kind` catches it: by the names of its types, since it may come from another process."""
        wanted = qualified_name(kind)
        if not self.record.bases and kind in (Exception, BaseException):
            return True  # a record without its bases is that of a failure all the same
        return any(_same_type(wanted, name) for name in (self.record.qualified, *self.record.bases))


def raised(error: BaseException, traceback: str = "") -> Raised:
    """The exception as a value, with the flow's own place instead of the interpreter's frames."""
    record = decode_error(encode_error(error.with_traceback(None)))
    made_from = None if isinstance(error, BaseExceptionGroup) else error.args
    return Raised(msgspec.structs.replace(record, traceback=traceback), made_from)


def raised_group(message: str, failures: Sequence[Raised]) -> Raised:
    """An ExceptionGroup of these failures, as a value."""
    several = "" if len(failures) == 1 else "s"
    return Raised(
        ErrorRecord(
            type=ExceptionGroup.__name__,
            qualified=qualified_name(ExceptionGroup),
            message=f"{message} ({len(failures)} sub-exception{several})",
            bases=tuple(qualified_name(base) for base in ExceptionGroup.__mro__[1:] if issubclass(base, BaseException)),
            state={"message": message},
            members=tuple(failure.record for failure in failures),
        )
    )


def with_record(failure: Raised, **changes: object) -> Raised:
    """The same failure with another place or cause."""
    fields = {name: getattr(failure.record, name) for name in failure.record.__struct_fields__}
    return Raised(ErrorRecord(**(fields | changes)), failure.made_from)


def qualified_name(kind: type) -> str:
    """Module and qualified name, as records of failures have it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _same_type(one: str, other: str) -> bool:
    """Equal, or equal but for a main program whose file another process imports under its name."""
    if one == other:
        return True
    for main, name in ((one, other), (other, one)):
        module, _, rest = main.partition(".")
        if module in _MAIN and name.endswith("." + rest):
            return True
    return False


# --- writing -----------------------------------------------------------------------------------------------------

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
DAMAGED: Final = (*UNREADABLE, LookupError, TypeError, ValueError, ArithmeticError, AttributeError)


def encode_value(
    value: object,
    known: KnownTypes,
    owner: str = "a variable of a flow",
    encode: Callable[[object], bytes] = _encode,
) -> bytes:
    """The value as bytes; PayloadRefused if it would not come back as itself."""
    try:
        return encode(pack(value, known, owner))
    except RecursionError:
        raise PayloadRefused(f"{owner} is nested too deeply", hint="flatten the value") from None
    except (UnicodeEncodeError, ValueError, OverflowError) as trouble:
        raise PayloadRefused(
            f"{owner} can't be written: {trouble}", hint="decode texts with errors='replace'"
        ) from None


def decode_value(data: bytes, known: KnownTypes) -> Any:
    """The value that these bytes hold, new with every call."""
    try:
        return unpack(_decode(data), known)
    except DAMAGED as error:
        raise unreadable("a value of a flow", error) from error


def pack(value: object, known: KnownTypes | None, owner: str) -> Any:
    """The value in JSON's own types; without `known`, which is for telling values apart only, of any type."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if isinstance(value, int) and kind is int:
        return value if MIN_INT <= value <= MAX_INT else {_TAG: "int", "v": hex(value)}
    if isinstance(value, float) and kind is float:
        return value if math.isfinite(value) else {_TAG: "float", "v": repr(value)}
    if isinstance(value, list) and kind is list:
        return [pack(item, known, owner) for item in value]
    if isinstance(value, dict) and kind is dict:
        if all(type(key) is str and key != _TAG for key in value):
            return {key: pack(item, known, owner) for key, item in value.items()}
        pairs = [[pack(key, known, owner), pack(item, known, owner)] for key, item in value.items()]
        return {_TAG: "dict", "v": pairs}
    writer = _WRITERS.get(kind)
    if writer is not None:
        return {_TAG: kind.__name__, "v": writer(value, known, owner)}
    return _pack_user_type(value, known, owner)


def _pack_user_type(value: object, known: KnownTypes | None, owner: str) -> Any:
    if isinstance(value, Raised):
        packed = {_TAG: "raised", "v": msgspec.to_builtins(value.record)}
        if value.made_from is not None and list(value.made_from) != value.record.args:
            packed["a"] = [pack(item, known, owner) for item in value.made_from]
        return packed
    if value is UNBOUND:
        return {_TAG: "unbound"}
    kind = type(value)
    name = qualified_name(kind)
    if isinstance(value, enum.Enum):
        _require_known(kind, name, known, owner)
        return _readable({_TAG: "enum", "t": name, "v": pack(value.value, known, owner)}, kind, known, owner)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        _require_known(kind, name, known, owner)
        items = [pack(item, known, owner) for item in value]
        return _readable({_TAG: "namedtuple", "t": name, "v": items}, kind, known, owner)
    parts = record_parts(value)
    if parts is None:
        raise PayloadRefused(
            f"{owner} is {short(value)}, a {kind.__name__}, which a flow's variable can't hold",
            hint="use JSON's types, dates, Decimal, bytes, enums, dataclasses or structs, or keep it inside an action",
        )
    _require_known(kind, name, known, owner)
    fields = {field: pack(item, known, owner) for field, item in parts}
    packed = {_TAG: "record", "t": name, "v": fields}
    given: set[str] | None = getattr(value, "__pydantic_fields_set__", None)
    if given is not None and known is not None and (unset := sorted(fields.keys() - given)):
        packed["u"] = unset  # of a pydantic model: what nobody gave, so that it has its default
    return _readable(packed, kind, known, owner)


def _readable(packed: dict[str, Any], kind: type, known: KnownTypes | None, owner: str) -> dict[str, Any]:
    """The packed form of a value, once it is known to be of use: where code of its type reads it, that is tried."""
    if known is None or not _is_read_by_its_own_code(cast("Hashable", kind)):
        return packed
    try:
        back = pack(unpack(packed, known), None, owner)
        trouble = None if back["v"] == packed["v"] else f"it would come back as {short(back['v'])}"
    except Exception as error:  # whatever the user's code raises
        trouble = f"{type(error).__name__}: {error}"
    if trouble is None:
        return packed
    raise PayloadRefused(
        f"{owner} is a {qualified_name(kind)}, which can't be made again of its own values: {trouble}",
        hint="let its __new__ need no arguments and its __post_init__ take what it holds, or keep it inside an action",
    )


@lru_cache(maxsize=4096)
def _is_read_by_its_own_code(kind: type) -> bool:
    if issubclass(kind, enum.Enum):
        return any(type(member.value) not in (str, int) or member.value != member._value_ for member in kind)
    if issubclass(kind, tuple):
        return tuple not in kind.__bases__  # the __new__ of a named tuple itself takes what it holds
    if issubclass(kind, msgspec.Struct):
        return hasattr(kind, "__post_init__")
    return kind.__new__ is not object.__new__


def _require_known(kind: type, name: str, known: KnownTypes | None, owner: str) -> None:
    if known is not None and _find_type(name, known) is not kind:
        raise PayloadRefused(
            f"{owner} is a {name}, which neither the flow nor the annotations of its actions name",
            hint=f"annotate the action's result or the flow's parameter with {kind.__name__}",
        )


def _find_type(name: str, known: KnownTypes) -> type | None:
    found = known.get(name)
    if found is not None:
        return found
    alike = [kind for other, kind in known.items() if _same_type(name, other)]
    return alike[0] if len(alike) == 1 else None


def _items(value: Any, known: KnownTypes | None, owner: str) -> Any:
    return [pack(item, known, owner) for item in value]


def _in_order(value: Any, known: KnownTypes | None, owner: str) -> Any:
    return sorted(_items(value, known, owner), key=repr)  # equal sets have equal bytes in every process


def _datetime_text(value: Any, known: KnownTypes | None, owner: str) -> Any:
    if not _has_an_offset_only(value):
        raise PayloadRefused(
            f"{owner} is {short(value)} in a time zone with rules, which a flow's variable can't hold",
            hint="convert it with astimezone(datetime.timezone.utc) in the action",
        )
    return [value.isoformat(), value.fold]


def _has_an_offset_only(value: Any) -> bool:
    """Whether its zone is, or says that it equals, a `datetime.timezone`: pydantic has a class of its own for those."""
    zone, offset = value.tzinfo, value.utcoffset()
    return zone is None or (offset is not None and zone == datetime.timezone(offset))


def _text(value: Any, known: KnownTypes | None, owner: str) -> Any:
    return str(value)


_WRITERS: Final[dict[type, Callable[[Any, KnownTypes | None, str], Any]]] = {
    tuple: _items,
    set: _in_order,
    frozenset: _in_order,
    bytes: lambda value, known, owner: value.hex(),
    range: lambda value, known, owner: [value.start, value.stop, value.step],
    datetime.datetime: _datetime_text,
    datetime.time: _datetime_text,
    datetime.date: lambda value, known, owner: value.isoformat(),
    datetime.timedelta: lambda value, known, owner: [value.days, value.seconds, value.microseconds],
    decimal.Decimal: _text,
    uuid.UUID: _text,
    complex: lambda value, known, owner: repr(value),
}

# --- reading -----------------------------------------------------------------------------------------------------


def unpack(packed: Any, known: KnownTypes) -> Any:
    """The value that `pack` was given."""
    if isinstance(packed, list):
        return [unpack(item, known) for item in packed]
    if not isinstance(packed, dict):
        return packed
    tag = packed.get(_TAG)
    if tag is None:
        return {key: unpack(item, known) for key, item in packed.items()}
    return _READERS[tag](packed, known)


def _record(packed: Any, known: KnownTypes) -> Any:
    kind = _known_type(packed["t"], known)
    fields = {name: unpack(item, known) for name, item in packed["v"].items()}
    if is_pydantic_model(kind):
        return _model(kind, fields, frozenset(packed.get("u", ())))
    if issubclass(kind, msgspec.Struct):
        made = kind(**fields)
        for name, item in fields.items():  # whatever its __post_init__ did, it had done when it was written
            msgspec.structs.force_setattr(made, name, item)
        return made
    made = kind.__new__(kind)
    for name, item in fields.items():
        object.__setattr__(made, name, item)
    return made


def _model(kind: Any, fields: dict[str, Any], unset: frozenset[str]) -> Any:
    """A pydantic model with just these values: aliases and model_post_init had been at work when it was written."""
    declared, private = kind.model_fields, kind.__private_attributes__
    if not declared.keys() <= fields.keys():  # pydantic knows the defaults of fields that were added since
        return kind.model_construct(_fields_set=fields.keys() - unset, **fields)
    made = kind.__new__(kind)
    extra = {name: item for name, item in fields.items() if name not in declared and name not in private}
    made.__setstate__(
        {
            "__dict__": {name: fields[name] for name in declared},
            "__pydantic_extra__": extra if kind.model_config.get("extra") == "allow" else None,
            "__pydantic_private__": {name: fields[name] for name in private if name in fields} if private else None,
            "__pydantic_fields_set__": (declared.keys() | extra.keys()) - unset,
        }
    )
    return made


def _known_type(name: str, known: KnownTypes) -> Any:
    found = _find_type(name, known)
    if found is None:
        raise PayloadRefused(
            f"a stored value is a {name}, which neither the flow nor its actions name any more",
            hint="keep the type in the annotations while runs that use it are alive",
        )
    return found


def _with_fold(parts: list[Any], kind: Any) -> Any:
    made = kind.fromisoformat(parts[0])
    return made.replace(fold=parts[1]) if parts[1] else made


_READERS: Final[dict[str, Callable[[Any, KnownTypes], Any]]] = {
    "int": lambda packed, known: int(packed["v"], 16),
    "float": lambda packed, known: float(packed["v"]),
    "dict": lambda packed, known: {unpack(key, known): unpack(item, known) for key, item in packed["v"]},
    "tuple": lambda packed, known: tuple(unpack(item, known) for item in packed["v"]),
    "set": lambda packed, known: {unpack(item, known) for item in packed["v"]},
    "frozenset": lambda packed, known: frozenset(unpack(item, known) for item in packed["v"]),
    "bytes": lambda packed, known: bytes.fromhex(packed["v"]),
    "range": lambda packed, known: range(*packed["v"]),
    "datetime": lambda packed, known: _with_fold(packed["v"], datetime.datetime),
    "time": lambda packed, known: _with_fold(packed["v"], datetime.time),
    "date": lambda packed, known: datetime.date.fromisoformat(packed["v"]),
    "timedelta": lambda packed, known: datetime.timedelta(*packed["v"]),
    "Decimal": lambda packed, known: decimal.Decimal(packed["v"]),
    "UUID": lambda packed, known: uuid.UUID(packed["v"]),
    "complex": lambda packed, known: complex(packed["v"]),
    "raised": lambda packed, known: Raised(
        msgspec.convert(packed["v"], ErrorRecord), tuple(unpack(packed["a"], known)) if "a" in packed else None
    ),
    "unbound": lambda packed, known: UNBOUND,
    "enum": lambda packed, known: _known_type(packed["t"], known)(unpack(packed["v"], known)),
    "namedtuple": lambda packed, known: _known_type(packed["t"], known)(*unpack(packed["v"], known)),
    "record": _record,
}
