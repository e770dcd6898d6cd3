"""Times, lists and commands as people read them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from holdfast.core.stored import moment

NAMES_SHOWN: Final = 3
MESSAGE_WIDTH: Final = 300
_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def clock(microseconds: int) -> str:
    """A moment: `2031-05-01 12:00:00 UTC`."""
    return moment(microseconds).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(microseconds: int) -> str:
    """A length of time in its largest unit: `2 hours`, `1 second`."""
    seconds = max(0, microseconds) // 1_000_000
    for unit, size in _UNITS:
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a second"


def long_span(microseconds: int) -> str:
    """A length of time in its two largest units: `1 minute 27 seconds`, `2 hours`."""
    seconds = max(0, microseconds) // 1_000_000
    for (_, size), (_, below) in pairwise(_UNITS):
        if seconds >= size:
            rest = seconds % size
            return span(seconds * 1_000_000) + (f" {span(rest * 1_000_000)}" if rest >= below else "")
    return span(microseconds)


def listed(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    """`a, b, c and 197 more`."""
    if len(names) <= shown + 1:  # "and 1 more" is longer than most names
        return ", ".join(names)
    return f"{', '.join(names[:shown])} and {len(names) - shown:,} more"


def nodes(names: Sequence[str]) -> str:
    """The subject of a sentence: `node a`, or `200 nodes (a, b, c and 197 more)`."""
    return f"node {names[0]}" if len(names) == 1 else f"{len(names):,} nodes ({listed(names)})"


def verb(subjects: Sequence[object], one: str, many: str) -> str:
    """The verb that fits so many."""
    return one if len(subjects) == 1 else many


def brief(text: str, width: int = MESSAGE_WIDTH) -> str:
    """The text on one line, cut if it is long: an error's message may be a page."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def command(*words: str) -> str:
    """A line for a shell that means exactly these words, whatever is in them."""
    return shlex.join(("holdfast", *words))
