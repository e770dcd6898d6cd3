"""The closed list of what an expression of a flow may do: operators, builtins, methods, attributes.

Nothing outside these tables can be reached from a stored graph. An operation on values is Python's own, so results
and errors are Python's; what is left out is left out because it would depend on the process (hash, id, time zones,
locale), reach behind a value (`str.format` can read attributes), or keep a reference that a restart would break
(iterators and dictionary views may be consumed, not kept).
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import operator
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.core.codec_faithful import record_parts
from holdfast.core.errors import FlowNotSupported, RunFailed, UsageError
from holdfast.core.flow_sets import first_of, shown, walked
from holdfast.core.flow_values import Raised

__all__ = [
    "AUGMENTED",
    "BINARY",
    "COMPARISONS",
    "FUNCTIONS",
    "ITERATORS",
    "METHODS",
    "METHOD_NAMES",
    "MUTATOR_NAMES",
    "STANDARD_TYPES",
    "UNARY",
    "VIEW_METHODS",
    "attribute",
    "call_function",
    "call_method",
    "changes_in_place",
    "mutate",
    "text_of",
    "writable",
]

# Far above what a workflow computes with, far below what would stall the process.
LARGEST_POWER_BITS: Final = 100_000
LONGEST_REPEAT: Final = 10_000_000
LONGEST_SLEEP_SECONDS: Final = 36_525 * 86_400


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and exponent > 0 and base.bit_length() * exponent > LARGEST_POWER_BITS:
        raise FlowNotSupported(
            f"a power with the exponent {exponent} is too large to compute inside of a flow",
            hint="compute it in an action",
        )
    return base**exponent


def _times(left: Any, right: Any) -> Any:
    for sequence, count in ((left, right), (right, left)):
        repeats = isinstance(sequence, str | bytes | list | tuple) and isinstance(count, int)
        if repeats and len(sequence) * count > LONGEST_REPEAT:
            raise FlowNotSupported(
                f"repeating a sequence of {len(sequence)} items {count} times is too much inside of a flow",
                hint="build it in an action",
            )
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    if type(left) is str and (written := shown(right)) is not right:
        with suppress(TypeError):  # told with the value itself
            return left % written
    return left % right


BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": _times,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": _modulo,
    "**": _power,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}

# `a += b` on a list, set or dict changes it in place and takes more than `a + b` does.
AUGMENTED: Final[dict[str, Callable[[Any, Any], Any]]] = BINARY | {
    "+": operator.iadd,
    "*": _times,
    "-": operator.isub,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
}

_IN_PLACE: Final = {
    "+": "__iadd__", "-": "__isub__", "*": "__imul__", "/": "__itruediv__", "//": "__ifloordiv__", "%": "__imod__",
    "**": "__ipow__", "&": "__iand__", "|": "__ior__", "^": "__ixor__", "<<": "__ilshift__", ">>": "__irshift__",
}  # fmt: skip


def changes_in_place(value: Any, symbol: str) -> bool:
    """Whether `value symbol= other` would change the value itself."""
    return hasattr(type(value), _IN_PLACE[symbol])


UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "not": operator.not_,
}

COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, container: item in container,
    "not in": lambda item, container: item not in container,
    "is": operator.is_,
    "is not": operator.is_not,
}


def _replaced(record: Any, **changes: Any) -> Any:
    return dataclasses.replace(record, **changes)


_BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        abs, all, any, ascii, bin, bool, bytes, chr, dict, divmod, enumerate, float, format, frozenset, hex, int, len,
        list, max, min, oct, ord, range, repr, reversed, round, set, sorted, str, sum, tuple, zip,
    )
}  # fmt: skip
_MATHS: Final = (
    "ceil", "comb", "copysign", "dist", "exp", "fabs", "floor", "fmod", "fsum", "gcd", "hypot", "isclose", "isfinite",
    "isinf", "isnan", "isqrt", "lcm", "log", "log10", "log1p", "log2", "prod", "sqrt", "trunc",
)  # fmt: skip


def _delay(delay: Any) -> float:
    """Seconds for a timer, as asyncio.sleep takes them: what is not above 0 is no sleep."""
    return 0.0 if delay <= 0 else float(delay)


def _after(span: Any = None, /, **units: Any) -> float:
    """Seconds until a wait ends, as hf.after takes them."""
    return _span(span, what="hf.after", **units)


def _span(span: Any = None, /, what: str = "hf.sleep", **units: Any) -> float:
    """Seconds for a timer, as hf.sleep takes them: a number, a timedelta, or named units."""
    named = {unit: amount for unit, amount in units.items() if amount is not None}
    if (span is None) == (not named):
        raise UsageError(f"{what} needs one time", hint="give seconds, a timedelta, or units such as minutes=5")
    try:
        total = datetime.timedelta(**named) if span is None else span
        seconds = total.total_seconds() if isinstance(total, datetime.timedelta) else float(total)
    except (TypeError, ValueError, OverflowError) as trouble:
        raise UsageError(f"{what} can't take this time: {trouble}", hint="give a number or a timedelta") from None
    if not 0 <= seconds <= LONGEST_SLEEP_SECONDS:
        raise UsageError(f"{what} was given {seconds} seconds", hint="give a time from 0 to a century")
    return seconds


def _pow(base: Any, exponent: Any, modulus: Any = None) -> Any:
    return _power(base, exponent) if modulus is None else pow(base, exponent, modulus)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **_BUILTINS,
    **{f"math.{name}": getattr(math, name) for name in _MATHS},
    "pow": _pow,
    "asyncio.sleep": _delay,
    "hf.after": _after,
    "hf.sleep": _span,
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "dataclasses.replace": _replaced,
    "msgspec.structs.replace": msgspec.structs.replace,
}

ITERATORS: Final = frozenset({"enumerate", "reversed", "zip"})
"""Functions whose result may be consumed where it is made, but not kept in a variable."""

# Functions that show the order of what they are given: of the first argument, or of all of them.
_WALK_FIRST: Final = frozenset(
    ("bytes", "dict", "enumerate", "list", "max", "min", "sorted", "sum", "tuple", "math.fsum", "math.prod")
)
_WALK_ALL: Final = frozenset({"zip", "math.dist"})
_WRITE: Final = frozenset({"ascii", "format", "repr", "str"})


def call_function(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A listed function. Sets that it walks over, or writes, come in their fixed order."""
    if name in _WALK_ALL:
        args = [walked(each) for each in args]
    elif name in _WALK_FIRST and args and (len(args) == 1 or name not in ("max", "min")):
        args = [walked(args[0]), *args[1:]]
    elif name in _WRITE and len(args) == 1:
        args = [shown(args[0])]
    return FUNCTIONS[name](*args, **kwargs)


def text_of(value: Any, spec: str) -> str:
    """`format(value, spec)`."""
    return format(value, spec) if spec else format(shown(value))


STANDARD_TYPES: Final[dict[str, type]] = {
    "datetime.datetime": datetime.datetime,
    "datetime.date": datetime.date,
    "datetime.time": datetime.time,
    "datetime.timedelta": datetime.timedelta,
    "decimal.Decimal": decimal.Decimal,
    "uuid.UUID": uuid.UUID,
}

_SEARCHES: Final = ("count", "index")

METHODS: Final[dict[type, frozenset[str]]] = {
    str: frozenset(
        (
            *_SEARCHES, "capitalize", "casefold", "center", "encode", "endswith", "expandtabs", "find", "isalnum",
            "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable",
            "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "partition", "removeprefix",
            "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split",
            "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill",
        )
    ),
    bytes: frozenset((*_SEARCHES, "decode", "endswith", "find", "hex", "startswith")),
    list: frozenset((*_SEARCHES, "copy")),
    tuple: frozenset(_SEARCHES),
    range: frozenset(_SEARCHES),
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    set: frozenset(
        ("copy", "difference", "intersection", "isdisjoint", "issubset", "issuperset", "symmetric_difference", "union")
    ),
    frozenset: frozenset(
        ("copy", "difference", "intersection", "isdisjoint", "issubset", "issuperset", "symmetric_difference", "union")
    ),
    int: frozenset(("as_integer_ratio", "bit_count", "bit_length", "conjugate", "is_integer")),
    float: frozenset(("as_integer_ratio", "conjugate", "hex", "is_integer")),
    decimal.Decimal: frozenset(
        ("compare", "copy_abs", "is_finite", "is_nan", "is_signed", "is_zero", "max", "min", "normalize", "quantize",
         "to_integral_value")
    ),
    datetime.datetime: frozenset(
        ("date", "isocalendar", "isoformat", "isoweekday", "replace", "time", "toordinal", "utcoffset", "weekday")
    ),
    datetime.date: frozenset(("isocalendar", "isoformat", "isoweekday", "replace", "toordinal", "weekday")),
    datetime.time: frozenset(("isoformat", "replace", "utcoffset")),
    datetime.timedelta: frozenset(("total_seconds",)),
}  # fmt: skip
METHOD_NAMES: Final = frozenset(name for names in METHODS.values() for name in names)

VIEW_METHODS: Final = frozenset({"items", "keys", "values"})
"""Methods whose result may be consumed where it is made, but not kept in a variable."""

MUTATORS: Final[dict[type, frozenset[str]]] = {
    list: frozenset(("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")),
    dict: frozenset(("clear", "pop", "popitem", "setdefault", "update")),
    set: frozenset(
        ("add", "clear", "difference_update", "discard", "intersection_update", "pop", "remove",
         "symmetric_difference_update", "update")
    ),
}  # fmt: skip
MUTATOR_NAMES: Final = frozenset(name for names in MUTATORS.values() for name in names)

_ATTRIBUTES: Final[Mapping[type, frozenset[str]]] = {
    datetime.datetime: frozenset(("year", "month", "day", "hour", "minute", "second", "microsecond", "tzinfo", "fold")),
    datetime.date: frozenset(("year", "month", "day")),
    datetime.time: frozenset(("hour", "minute", "second", "microsecond", "tzinfo", "fold")),
    datetime.timedelta: frozenset(("days", "seconds", "microseconds")),
    uuid.UUID: frozenset(("hex", "int", "version")),
    range: frozenset(("start", "stop", "step")),
    int: frozenset(("real", "imag", "numerator", "denominator")),
    float: frozenset(("real", "imag")),
    complex: frozenset(("real", "imag")),
}

_OF_SYSTEM_ERRORS: Final = frozenset({"errno", "strerror", "filename", "filename2"})
_OF_FAILED_RUNS: Final = frozenset({"cause", "attempts"})
_PLAIN: Final = (str, bytes, int, float, bool, complex, list, tuple, dict, set, frozenset, range, type(None))


def attribute(value: Any, name: str) -> Any:
    """`value.name` for fields of records and the listed attributes of other values; Python's own error otherwise."""
    if name.startswith("_"):
        raise FlowNotSupported(f"a flow can't read the private attribute {name!r}", hint="give the field a public name")
    if isinstance(value, Raised):
        return _attribute_of_failure(value, name)
    kind = type(value)
    if isinstance(value, enum.Enum) and name in ("name", "value"):
        return getattr(value, name)
    if name in _ATTRIBUTES.get(kind, ()) or (isinstance(value, tuple) and name in getattr(kind, "_fields", ())):
        return getattr(value, name)
    if kind in _PLAIN or kind in STANDARD_TYPES.values():
        if hasattr(kind, name):
            raise _not_allowed(kind, name)
        return getattr(value, name)  # raises Python's own AttributeError
    parts = record_parts(value)
    if parts is None and not isinstance(value, enum.Enum | tuple):
        raise _not_allowed(kind, name)
    if any(field == name for field, _ in parts or ()):
        return getattr(value, name)
    on_class = getattr(kind, name, None)
    if isinstance(on_class, property | functools.cached_property):
        return getattr(value, name)
    if hasattr(kind, name):
        raise _not_allowed(kind, name)
    return getattr(value, name)


def _attribute_of_failure(value: Raised, name: str) -> Any:
    args = value.args
    if name == "args" and args is not None:
        return args
    if name == "exceptions" and value.record.members:
        return tuple(Raised(member) for member in value.record.members)
    attributes = value.record.attributes
    if name in attributes:
        return attributes[name]
    if name in _OF_FAILED_RUNS and value.is_a(RunFailed):
        return getattr(value, name)
    if name in _OF_SYSTEM_ERRORS and (error := value.system_error) is not None:
        return getattr(error, name)
    raise FlowNotSupported(
        f"a flow can't read {name!r} of this {value.record.type}: of a failure its text is kept, and of its args and "
        "the attributes that Python code has set those of Python's own types",
        hint="catch the exception in the action and return what the flow needs",
    )


def _not_allowed(kind: type, name: str) -> FlowNotSupported:
    return FlowNotSupported(
        f"a flow can't use {name!r} of a {kind.__name__}: it is not in the list of what expressions may do",
        hint="do it in an @hf.pure function or in an action, and let the flow have the result",
    )


def call_method(value: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`value.name(…)` for the listed methods of builtin values; Python's own error for one that does not exist."""
    kind = type(value)
    for base in kind.__mro__:
        if name in METHODS.get(base, ()) and getattr(kind, name) is getattr(base, name):
            if name == "join":
                args = [walked(each) for each in args]
            return getattr(value, name)(*args, **kwargs)
    if (kind in _PLAIN or kind in STANDARD_TYPES.values()) and not hasattr(kind, name):
        return getattr(value, name)
    raise _not_allowed(kind, name)


def writable(value: Any) -> Any:
    """A copy that may be changed; what can't be changed at all is returned as it is, to give Python's own error."""
    if type(value) in MUTATORS:
        return value.copy()
    if type(value) in _PLAIN or type(value) in STANDARD_TYPES.values():
        return value
    raise FlowNotSupported(
        f"a flow can't change a {type(value).__name__} in place",
        hint="make a new one, for example with dataclasses.replace",
    )


def mutate(value: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`value.name(…)` on a copy made by `writable`; returns what the method returns."""
    kind = type(value)
    if name in MUTATORS.get(kind, ()):
        if kind is set and name == "pop" and value and not args and not kwargs:
            taken = first_of(value)
            value.remove(taken)
            return taken
        if kind is not set and name in ("extend", "update"):
            args = [walked(each) for each in args]
        return getattr(value, name)(*args, **kwargs)
    if hasattr(kind, name):
        raise _not_allowed(kind, name)
    return getattr(value, name)
