"""Spans and instants as people give them, in microseconds as the engine counts them.

Whole microseconds throughout: a deadline is a function of recorded times, and a rounding that differed between two
processes would move it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from holdfast.core.errors import UsageError
from holdfast.core.stored import moment

__all__ = ["LONGEST_SPAN", "instant", "instant_us", "span_us"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
LONGEST_SPAN = timedelta(days=36_525)  # a century: beyond it lies a mistake, or a number of another unit


def span_us(what: str, span: object = None, **units: float | None) -> int:
    """A span given as seconds, as a timedelta or in named units, in microseconds; `what` names the call in errors."""
    named = {unit: amount for unit, amount in units.items() if amount is not None}
    choices = ", ".join(f"{unit}=…" for unit in units)
    if span is None and not named:
        raise UsageError(f"{what} was given no time", hint=f"give seconds, a timedelta, or one of {choices}")
    if span is not None and named:
        raise UsageError(
            f"{what} was given {span!r:.80} and {', '.join(named)} as well", hint="give the time in one way"
        )
    if span is not None:
        return _checked(what, _timedelta(what, "seconds", span), span)
    total = timedelta()
    for unit, amount in named.items():
        part = _timedelta(what, unit, amount)
        _checked(what, part, amount)
        total += part
    return _checked(what, total, total)


def instant_us(what: str, at: object) -> int:
    """An aware datetime in microseconds since 1970."""
    if not isinstance(at, datetime):
        raise UsageError(f"{what} was given {at!r:.80}, a {type(at).__name__}", hint="give an aware datetime")
    if at.utcoffset() is None:
        raise UsageError(
            f"{what} was given {at!r}, which has no time zone",
            hint="give an aware datetime, such as hf.now() + timedelta(hours=1) or datetime(2031, 5, 1, tzinfo=UTC)",
        )
    return (at - EPOCH) // MICROSECOND


def instant(microseconds: int) -> datetime:
    """Microseconds since 1970 as an aware datetime in UTC."""
    return moment(microseconds)


def _timedelta(what: str, unit: str, amount: object) -> timedelta:
    if isinstance(amount, timedelta):
        if unit == "seconds":
            return amount
    elif isinstance(amount, int | float) and not isinstance(amount, bool) and math.isfinite(amount):
        try:
            return timedelta(**{unit: amount})
        except OverflowError:
            return timedelta.max
    raise UsageError(
        f"{what} was given {unit}={amount!r:.80}, a {type(amount).__name__}",
        hint="give a finite number, or a timedelta",
    )


def _checked(what: str, span: timedelta, given: object) -> int:
    if span < timedelta():
        raise UsageError(
            f"{what} was given {given!r:.80}, which is negative",
            hint="give a time of 0 or more; for an instant that may have passed use an aware datetime",
        )
    if span > LONGEST_SPAN:
        raise UsageError(
            f"{what} was given {given!r:.80}, which is over a century", hint="check the unit; seconds are meant"
        )
    return span // MICROSECOND
