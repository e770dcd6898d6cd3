"""Which line of the user's program: of a running stack, of a suspended task.

An error about a run is only useful with the line that a person can change. That is the deepest frame that belongs
neither to Python, nor to Holdfast, nor, where there is a choice, to an installed package.
"""

from __future__ import annotations

import functools
import os
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

_PYTHON: Final = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_HOLDFAST: Final = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

OURS, PACKAGE, USERS = 0, 1, 2
UNKNOWN_LINE: Final = "an unknown line"


@functools.lru_cache(maxsize=4096)
def owner_of(filename: str) -> int:
    """Say whose code a file holds: USERS, an installed PACKAGE, or OURS (Python's and Holdfast's)."""
    if filename.startswith((_HOLDFAST, "<frozen")):
        return OURS
    if any(part in filename for part in _INSTALLED):
        return PACKAGE
    return OURS if filename.startswith(_PYTHON) else USERS


class _Deepest:
    """Keeps the deepest line seen so far, the user's before an installed package's."""

    __slots__ = ("owner", "text")

    def __init__(self) -> None:
        self.owner = OURS
        self.text = ""

    def see(self, code: CodeType, line: int | None) -> None:
        owner = owner_of(code.co_filename)
        if owner != OURS and owner >= self.owner:
            self.owner = owner
            self.text = f"{code.co_filename}:{line or code.co_firstlineno} in {code.co_name}"


def line_of_stack(frame: FrameType | None, boundary: frozenset[CodeType]) -> str:
    """Return the user's line that is running in this stack, or "" if there is none above the run's loop.

    `boundary` holds the code of the loop itself: below it lies the program that drives the run, which is not at fault.
    """
    frames = []
    while frame is not None and frame.f_code not in boundary:
        frames.append(frame)
        frame = frame.f_back
    deepest = _Deepest()
    for each in reversed(frames):
        deepest.see(each.f_code, each.f_lineno)
    return deepest.text


def line_of_await(awaited: Any) -> str:
    """Return the user's line at which a suspended coroutine waits, or "" if it holds no frame of the user's."""
    deepest = _Deepest()
    for _ in range(1_000):  # a chain of awaits is as deep as the stack may be; a cycle would be a bug of the program
        frame = frame_of(awaited)
        if frame is not None:
            deepest.see(frame.f_code, frame.f_lineno)
        awaited = awaited_by(awaited)
        if awaited is None:
            break
    return deepest.text


def line_of_error(error: BaseException) -> str:
    """Return the user's line that an exception passed through last, or "" if it never did."""
    deepest = _Deepest()
    step: TracebackType | None = error.__traceback__
    while step is not None:
        deepest.see(step.tb_frame.f_code, step.tb_lineno)
        step = step.tb_next
    return deepest.text


def frame_of(awaited: Any) -> FrameType | None:
    """Return the frame of an unfinished coroutine or generator; None if it has ended or is something else."""
    frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
    return frame if isinstance(frame, FrameType) else None


def awaited_by(awaited: Any) -> Any:
    """Return what a suspended coroutine or generator waits for, if anything."""
    return _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")


def _first(owner: Any, *names: str) -> Any:
    for name in names:
        found = getattr(owner, name, None)
        if found is not None:
            return found
    return None
