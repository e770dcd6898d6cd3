"""Stored times as values of Python's."""

from __future__ import annotations

from datetime import datetime

from holdfast.core.stored import moment


def moment_of(microseconds: int | None) -> datetime | None:
    """A stored time, aware and in UTC; None stays None."""
    return None if microseconds is None else moment(microseconds)
