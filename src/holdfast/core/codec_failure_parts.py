"""What an exception consists of, as text can hold it: its arguments and its attributes.

JSON's own types are written as they are. What only Python's types can tell (a Decimal, a date, bytes, a tuple) is
written in the form that values of flows have, and types of the user are left out: a record is read in processes that
may not have them. What is left out must be missing later, and never be something else. So what Python itself would
rebuild is made by the constructors of C alone, which set what they were given and nothing more; a constructor of the
user's is called only where the class says by a `__reduce__` of its own that it wants to be.

Records are JSON whatever the codec, and arguments and attributes are payloads. Where those may be encrypted only what
the exception's text tells anyway is kept of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType
from typing import Any, Final

import msgspec

from holdfast.core.codec_faithful import plain_fault

_PARTS_LIMIT: Final = 16_000
CARRIED: Final = "__attempts__"  # an attribute that is ours: the attempts before
STAND_IN: Final = "__stands_in_for__"  # what marks a class that is made here under another one's name
RECORDED: Final = "Its traceback, as it was recorded:"  # the note that a rebuilt exception has instead of frames
LEFT_OUT: Final = "__left_out__"  # in such a class: attributes that the exception had, and that were not kept
_DESCRIPTORS: Final = (MemberDescriptorType, GetSetDescriptorType)
_encode: Final = msgspec.json.Encoder().encode


class Parts(msgspec.Struct, frozen=True):
    """As `ErrorRecord` has them."""

    args: list[object] | None
    literal: str | None
    packed: list[object] | None
    exact: bool
    state: dict[str, object] | None
    typed: dict[str, object] | None
    cause_as: tuple[str, ...]
    left_out: tuple[str, ...]


def parts_of(exc: BaseException, *, with_cause: bool, told: str | None = None) -> Parts:
    """What it can be rebuilt from; `with_cause` says that its cause has a record of its own.

    With `told`, its text, only what that tells is kept.
    """
    args, attributes, exact = _reduced(exc)
    kept = _kept_arguments(args, told)
    if not exact and kept == (None, None, None):
        args, attributes, exact = _plainly_reduced(exc)
        kept = _kept_arguments(args, told)
    state: dict[str, object] = {}
    typed: dict[str, object] = {}
    cause_as: list[str] = []
    left_out: list[str] = list(getattr(type(exc), LEFT_OUT, ()))
    room: float = _PARTS_LIMIT
    for name, value in (attributes | dict(_slots(exc))).items():
        if type(name) is not str or name == CARRIED:
            continue
        if name == "__notes__" and isinstance(value, list):  # ours is in the traceback, and would be told twice
            value = [note for note in value if not (isinstance(note, str) and note.startswith(RECORDED))]
            if not value:
                continue
        if with_cause and value is not None and value is exc.__cause__:
            cause_as.append(name)
            continue
        in_slot = isinstance(_on_class(type(exc), name), _DESCRIPTORS)
        if not _is_told(value, told):
            left_out.append(name)
            continue
        if not in_slot and (size := _plain_size({name: value})) <= room:
            state[name] = value
        elif not name.isidentifier():  # nobody's code can name it
            continue
        elif (size := _plain_size(shown := {name: _packed(value)})) <= room:
            typed |= shown
        else:
            size = 0
            left_out.append(name)
        room -= size
    return Parts(*kept, exact, state or None, typed or None, tuple(cause_as), tuple(left_out))


def read_arguments(
    args: Sequence[object] | None, literal: str | None, packed: Sequence[object] | None
) -> tuple[object, ...] | None:
    """What the exception's `args` were; None if that could not be kept."""
    if args is not None:
        return tuple(args)
    try:
        read = (
            ast.literal_eval(literal) if literal is not None else None if packed is None else tuple(_unpacked(packed))
        )
    except Exception:  # the row was changed by hand or damaged
        return None
    return read if isinstance(read, tuple) else None


def read_typed(typed: Mapping[str, object] | None) -> dict[str, object]:
    """The attributes that JSON has no types for."""
    try:
        return {name: _unpacked(value) for name, value in (typed or {}).items() if not name.startswith("__")}
    except Exception:  # the row was changed by hand or damaged
        return {}


def set_attribute(exception: BaseException, name: str, value: object) -> None:
    """Set it without asking the class, which may forbid it."""
    place = _on_class(type(exception), name)
    if isinstance(place, _DESCRIPTORS):
        place.__set__(exception, value)
    else:
        exception.__dict__[name] = value


def made_plainly(kind: type[Exception], args: tuple[object, ...]) -> Exception:
    """An exception of this class with these `args`, made without any Python code of the class."""
    exception: Exception = _of_c(kind, "__new__")(kind, *args)
    _of_c(kind, "__init__")(exception, *args)
    return exception


def unmade(kind: type[Exception]) -> Exception:
    """One that nothing is known of yet: some of the built-in classes are not made from a text alone."""
    exception: Exception = _of_c(kind, "__new__")(kind)
    return exception


def _of_c(kind: type, name: str) -> Any:
    found = (vars(base)[name] for base in kind.__mro__ if name in vars(base))
    return next(each for each in found if isinstance(each, WrapperDescriptorType | BuiltinFunctionType))


def _on_class(kind: type, name: str) -> object:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def hides(kind: type, name: str) -> bool:
    """Whether an instance without the attribute shows another value, which the class has."""
    return name in dir(kind) and not isinstance(_on_class(kind, name), _DESCRIPTORS)


def _reduced(exc: BaseException) -> tuple[tuple[object, ...], dict[str, object], bool]:
    """What pickle would rebuild it from, and whether no code of its author's says so: a file error's args lack the
    file's name."""
    try:
        reduced: Any = exc.__reduce__()
        kind, args, state = (*reduced, None)[:3]
        if kind is type(exc) and isinstance(args, tuple):
            by_author = isinstance(_on_class(type(exc), "__reduce__"), FunctionType)
            return args, dict(state) if isinstance(state, dict) else {}, not by_author
    except Exception:
        return _plainly_reduced(exc)
    return _plainly_reduced(exc)


def _plainly_reduced(exc: BaseException) -> tuple[tuple[object, ...], dict[str, object], bool]:
    attributes = object.__getattribute__(exc, "__dict__")
    return BaseException.args.__get__(exc), dict(attributes), True  # type: ignore[attr-defined]


def _slots(exc: BaseException) -> Iterator[tuple[str, object]]:
    for base in type(exc).__mro__:
        if "__slots__" in vars(base) and STAND_IN not in vars(base):
            for name, place in vars(base).items():
                if isinstance(place, MemberDescriptorType):
                    try:
                        yield name, place.__get__(exc)
                    except AttributeError:  # never set
                        continue


def _is_told(value: object, told: str | None) -> bool:
    if told is None or value is None or isinstance(value, bool):
        return True
    return type(value) in (str, int, float) and (str(value) in told or repr(value) in told)


def _kept_arguments(
    args: tuple[object, ...], told: str | None
) -> tuple[list[object] | None, str | None, list[object] | None]:
    """As JSON, else as Python writes them, else as a flow would."""
    if not all(_is_told(each, told) for each in args):
        return None, None, None
    listed = list(args)
    if _plain_size(listed) <= _PARTS_LIMIT:
        return listed, None, None
    literal = _literal(args)
    if literal is not None:
        return None, literal, None
    packed = _packed(listed)
    return None, None, packed if isinstance(packed, list) and _plain_size(packed) <= _PARTS_LIMIT else None


def _literal(args: tuple[object, ...]) -> str | None:
    try:
        text = repr(args)
        # Both must agree: a repr may be that of something else, and 1 equals True.
        if len(text) <= _PARTS_LIMIT and (back := ast.literal_eval(text)) == args and repr(back) == text:
            return text
    except Exception:  # most objects are no literals
        return None
    return None


def _plain_size(value: object) -> float:
    """How long the value is as JSON; infinite if JSON can't hold it."""
    try:
        return len(_encode(value)) if plain_fault(value) is None else float("inf")
    except Exception:  # lone surrogates
        return float("inf")


def _packed(value: object) -> object:
    """The value in JSON's own types; what no plain size is found for if it can't be told without the user's types."""
    from holdfast.core.flow_values import pack  # which imports this module

    try:
        return pack(value, {}, "an attribute")
    except Exception:
        return value


def _unpacked(packed: object) -> Any:
    from holdfast.core.flow_values import unpack

    return unpack(packed, {})
