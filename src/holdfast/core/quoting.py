"""Whether what the engine writes in the clear may quote a piece of a payload.

"Invalid enum value 'gold'" helps whoever wrote it, and is logged and stored in the clear like every refusal. Where
payloads are JSON anyway that is no loss. Whoever gave an engine a codec of his own may have done so to encrypt: then
refusals name the place and the types, and no value, no key of a dict and no text of code that was shown the value; and
the record of an exception holds, of its arguments and attributes, what its text tells.

One answer for the process: values are refused far from any engine, when a function is called or a flow's variable is
kept. The promise is kept for the strictest of the engines that are open.
"""

from __future__ import annotations

import re
from typing import Final
from weakref import WeakSet

_silent: Final[WeakSet[object]] = WeakSet()
# What msgspec says in front of a value, and the place behind it, in which keys of dicts are dots already.
_QUOTES: Final = r"Invalid enum value|Invalid value|Object contains unknown field"
_PLACE: Final = r" - at `[^`]*`$"


def forbid_for(owner: object) -> None:
    """From now on nothing is quoted, until `allow_for`, or until nobody holds the owner any more."""
    _silent.add(owner)


def allow_for(owner: object) -> None:
    """The owner has no objection any more."""
    _silent.discard(owner)


def is_allowed() -> bool:
    """Whether values, keys and texts about them may be quoted."""
    return not _silent


def cause(trouble: Exception) -> Exception | None:
    """For `raise … from`: the exception that quotes, unless that is not allowed: tracebacks have its text too."""
    return trouble if is_allowed() else None


def text_of(trouble: Exception) -> str:
    """What an exception says about a value, on one line; without the value if it may not be quoted."""
    if is_allowed():
        return " ".join(str(trouble).split())
    if not type(trouble).__module__.startswith("msgspec"):
        return "its text is not shown beside a codec of your own"
    text = str(trouble)
    found = re.search(_PLACE, text)
    place = "" if found is None else found[0]
    if trouble.__cause__ is not None:  # the text of a validator, of the author's or of another library
        return f"refused with {type(trouble.__cause__).__name__}{place}"
    quoting = re.match(_QUOTES, text)
    return text if quoting is None else f"{quoting[0]} <hidden>{place}"
