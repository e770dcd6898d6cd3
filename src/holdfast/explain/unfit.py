"""A payload that does not fit its type, in plain words: what is missing, or what is there instead.

The codec speaks of what was stored under another annotation, as that is what happens to a run. Somebody who has just
typed a value, or who looks at an event that nobody could take, wants to know what is wrong with the value.
"""

from __future__ import annotations

import re
from typing import Final

_REFUSED: Final = re.compile(
    r"^(?P<of>.*?) (?:was stored as \S+ that does not decode to|does not fit its annotation) "
    r"(?P<wanted>.*?): (?P<why>.*)$",
    re.S,
)
_FIX: Final = re.compile(r"\. Fix: .*$", re.S)
_MISSING: Final = (
    re.compile(r"^Object missing required field `(?P<name>[^`]*)`(?: - at `\$\.?(?P<place>.*)`)?$"),
    re.compile(r"^(?P<place>)(?P<name>[\w.]+): Field required$"),  # of a pydantic model
)
_OTHER_TYPE: Final = re.compile(r"^Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`(?: - at `\$\.?(?P<place>.*)`)?$")
_NO_CHOICE: Final = re.compile(r"^Invalid enum value (?P<got>.*?)(?: - at `\$\.?(?P<place>.*)`)?$")
_JSON_NAMES: Final = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"} | {
    "null": "null",
    "object": "an object",
    "array": "a list",
}


def not_a(wanted: str, why: str, *, subject: str = "This") -> str:
    """`This is not a Decision: field `by` is missing`, from the name of a type and what the codec says."""
    article = "an" if wanted[:1].lower() in "aeio" else "a"
    return f"{subject} is not {article} {wanted}: {plainly(why)}"


def plainly(why: str) -> str:
    """What a codec says of a value, as one says it to whoever has typed it."""
    for pattern in _MISSING:
        if found := pattern.match(why):
            place = found["place"]
            return f"field `{f'{place}.' if place else ''}{found['name']}` is missing"
    if found := _OTHER_TYPE.match(why):
        place = f"field `{found['place']}`" if found["place"] else "it"
        return f"{place} is {_in_json(found['got'])}, not {_in_json(found['wanted'])}"
    if found := _NO_CHOICE.match(why):
        place = f"field `{found['place']}`" if found["place"] else "it"
        return f"{place} is {found['got']}, which is none of the choices"
    return why


def plain_refusal(reason: str) -> str:
    """Why a payload was refused, to its sender: what was sent is wrong, so that nothing is said of annotations."""
    found = _REFUSED.match(_FIX.sub("", reason))
    if found is None:
        return reason
    return not_a(found["wanted"], found["why"], subject=found["of"])


def _in_json(names: str) -> str:
    return " or ".join(_JSON_NAMES.get(name, name) for name in names.split(" | "))
