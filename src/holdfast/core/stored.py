"""Reading what is stored, which may have been changed by hand or damaged: what cannot be read is named, not guessed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from holdfast.core.errors import RunError
from holdfast.core.operations import Operation

T = TypeVar("T")
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_000_000  # the years 1 and 9999


def read_stored(decode: Callable[[Any], T], data: object, what: str) -> T:
    """What `decode` makes of stored bytes; RunError that names `what` if it can make nothing of them."""
    try:
        return decode(data)
    except UNREADABLE as error:
        raise unreadable(what, error) from error


def unreadable(what: str, error: BaseException) -> RunError:
    return RunError(
        f"{what} cannot be read: {error}",
        hint="the row was changed by hand or damaged, or newer code wrote it: restore it, or cancel the run",
    )


def stored_number(text: str, what: str) -> int:
    """A number that is stored as text."""
    if not text.isdecimal():
        raise unreadable(what, ValueError(f"{text!r:.80} is not a number"))
    return int(text)


def stored_names(text: str | bytes) -> tuple[str, ...]:
    """Names that a worker has told of itself; none if they cannot be read, since others must not fail over it."""
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except UNREADABLE:
        return ()


def stored_tags(text: str | bytes) -> dict[str, str]:
    """A run's tags; none if they cannot be read, since a listing must not fail over one row."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (*UNREADABLE, msgspec.ValidationError):
        return {}


def undecided(operation: Operation, error: Exception) -> RunError:
    """An operation on a run could not be decided for no reason that we know of: what its rows hold makes no sense."""
    return RunError(
        f"{type(operation).__name__} of run {', '.join(operation.runs)} could not be decided: {error!r:.200}",
        hint="see `holdfast doctor`; its rows were changed by hand or damaged, or this is a bug of Holdfast's",
    )


def moment(microseconds: int) -> datetime:
    """A stored time, aware and in UTC; one that no calendar has is the first or last that there is."""
    return _EPOCH + timedelta(microseconds=min(max(microseconds, _FIRST), _LAST))


def iso_text(microseconds: int) -> str:
    """A stored time as documents have it."""
    return moment(microseconds).isoformat().replace("+00:00", "Z")
