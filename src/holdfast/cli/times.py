"""Times as people write and read them: `30d`, `2h30m`, ISO 8601; "3 minutes ago"."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import click

T = TypeVar("T")
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
DISTANCES: Final = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
LONGEST_SECONDS: Final = 100 * 365 * 86_400


def parse_duration(text: str) -> timedelta:
    """`90s`, `5m`, `2h30m`, `30d` or `1w`; ValueError otherwise."""
    if DURATION.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no length of time: write 90s, 5m, 2h30m, 30d or 1w")
    seconds = sum(float(number) * UNITS[unit] for number, unit in PART.findall(text))
    if seconds > LONGEST_SECONDS:
        raise ValueError(f"{text!r} is more than a hundred years")
    return timedelta(seconds=seconds)


def parse_instant(text: str, now: datetime, sign: int) -> datetime:
    """An ISO 8601 time (this machine's zone unless it names one), or a length of time from now (sign 1) or ago (-1)."""
    duration = text.removeprefix("+")
    if DURATION.fullmatch(duration):
        return now + sign * parse_duration(duration)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2031-05-01T12:00:00Z or a length of time such as 2h30m") from None
    return moment if moment.tzinfo is not None else moment.astimezone()


def read_with(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """An option's callback that parses its text, and refuses it in the words of the parser."""

    def read(ctx: click.Context, param: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return read


read_age: Final = read_with(parse_duration)
read_future: Final = read_with(lambda text: parse_instant(text, datetime.now(UTC), 1))
read_past: Final = read_with(lambda text: parse_instant(text, datetime.now(UTC), -1))


def shown_moment(moment: datetime, now: datetime) -> str:
    """A time with how long ago it was: `2031-05-01 12:00:00 UTC (3 minutes ago)`."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({shown_distance(moment, now)})"


def shown_distance(moment: datetime, now: datetime) -> str:
    """`3 minutes ago`, `in 2 hours`, `just now`."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    unit, size = next(pair for pair in DISTANCES if abs(seconds) >= pair[1])
    count = int(abs(seconds) // size)
    words = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def shown_age(moment: datetime, now: datetime) -> str:
    """How long ago, as short as a column wants it: `25s ago`."""
    seconds = max(0.0, (now - moment).total_seconds())
    unit, size = next((pair for pair in DISTANCES if seconds >= pair[1]), DISTANCES[-1])
    return f"{int(seconds // size)}{unit[0]} ago"


def shown_seconds(seconds: float) -> str:
    """A length of time with as many digits as matter: `3 ms`, `2.5 s`, `4m 10s`, `2h 05m`, `3d 4h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600}h"
