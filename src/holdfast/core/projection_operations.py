"""Operations of projections: their owner moves on, stops at an event, and what people ask of them.

A projection is a run that never ends by itself. Its position is the run's `base`, its ownership the lease of its one
work item: whoever moves it proves with the token that nobody else may.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.core.operations import RunOperation, WorkOperation
from holdfast.core.rows import Run

PROJECTION_MODEL = "projection"
PROJECTION_NODE = "projection"  # its one work item


class EventPlace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which event a projection could not take, for people; stored in the payload of its work item."""

    position: int
    type: str
    workflow: str
    key: str
    sequence: int

    def __str__(self) -> str:
        return f"position {self.position:,} ({self.type}, event {self.sequence} of {self.workflow} {self.key!r})"


def sources_in(workflows: tuple[str, ...]) -> bytes:
    """The workflows whose events a projection takes, as its run keeps them: for people whose process lacks its code."""
    return msgspec.json.encode(workflows)


def sources_of(run: Run) -> tuple[str, ...]:
    """Those of a projection's run, as its code had them when it began."""
    try:
        return msgspec.json.decode(run.input, type=tuple[str, ...])
    except msgspec.DecodeError:  # changed by hand
        return ()


class AdvanceProjection(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The owner has taken every event after `after` up to `position`. Identity: the token and both positions.

    Always decided on what is stored: it shares a transaction with rows that its handler wrote.
    """

    locked: ClassVar[bool] = True
    after: int
    position: int


class FailProjection(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """An event could not be taken. Tried again when its time has come, or the projection stops there. By token."""

    locked: ClassVar[bool] = True
    error: bytes
    place: EventPlace
    retryable: bool = False
    attempts: int = 1
    base_seconds: float = 1.0
    cap_seconds: float = 300.0


class RebuildProjection(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Begin with the first event again. Whoever owns it now does not any more. Repeating it does no harm."""

    locked: ClassVar[bool] = True
    by: str = "an operator"


class SkipEvent(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Pass over the event at this position, at which the projection stands. Identity: the position."""

    locked: ClassVar[bool] = True
    position: int
    by: str = "an operator"
