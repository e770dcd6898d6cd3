"""Events of a stream as readers get them: `hf.Recorded` around what a decision recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

__all__ = ["Recorded", "TimerCancelled"]

E_co = TypeVar("E_co", covariant=True)


@dataclass(frozen=True, slots=True)
class TimerCancelled:
    """The engine's own record that a timer was removed before it fired. `evolve` and projections never see it (I33)."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Generic[E_co]):
    """An event with its place: `sequence` counts within its instance from 1, `position` across all of them."""

    workflow: str
    workflow_id: str
    sequence: int
    type: str
    event: E_co
    at: datetime
    position: int = 0
    version: int = 1
    system: bool = False  # a record of the engine's own
    cause: str = ""  # the submission, the effect or the timer whose input it came from
