"""Patterns: the names on the left of an assignment, of a loop, of a comprehension."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.flow_sets import walked
from holdfast.core.flow_values import Raised

__all__ = ["bind_pattern", "type_name_of"]


def _says_how_many() -> bool:
    """Whether this Python's message for too many values has their number, so that ours has it too."""
    two: list[int] = [1, 2]
    try:
        (_,) = two
    except ValueError as error:
        return "got" in str(error)
    return False


_SAYS_HOW_MANY: Final = _says_how_many()


def bind_pattern(pattern: Any, value: Any, names: dict[str, Any]) -> None:
    """Assign as Python does: a name, or `("tuple", …)` with at most one `("rest", name)`.

    A tuple is taken apart before anything of it is assigned; a tuple inside of it, when those before it are assigned.
    """
    if isinstance(pattern, str):
        names[pattern] = value
        return
    targets = pattern[1:]
    star = next((i for i, target in enumerate(targets) if not isinstance(target, str) and target[0] == "rest"), None)
    try:
        values = list(walked(value))
    except TypeError:
        raise TypeError(f"cannot unpack non-iterable {type_name_of(value)} object") from None
    if star is None:
        if len(values) > len(targets):
            got = f", got {len(values)}" if _SAYS_HOW_MANY and type(value) in (list, tuple, dict) else ""
            raise ValueError(f"too many values to unpack (expected {len(targets)}{got})")
        if len(values) < len(targets):
            raise ValueError(f"not enough values to unpack (expected {len(targets)}, got {len(values)})")
    else:
        after = len(targets) - star - 1
        if len(values) < star + after:
            raise ValueError(f"not enough values to unpack (expected at least {star + after}, got {len(values)})")
        middle = values[star : len(values) - after]
        values = [*values[:star], middle, *values[len(values) - after :]]
        targets = tuple(target[1] if i == star else target for i, target in enumerate(targets))
    for target, item in zip(targets, values, strict=True):
        bind_pattern(target, item, names)


def type_name_of(value: Any) -> str:
    """The name of the value's type, as messages of Python have it."""
    return value.record.type if isinstance(value, Raised) else type(value).__name__
