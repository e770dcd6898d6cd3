"""Signals by which running code tells the engine what becomes of its node or its run.

They are raised by `hf.current().skip()`, `.pause()`, `.cancel()`, `.reattempt()` and `.finish()`. They
derive from BaseException, as cancellation does, so that an `except Exception` around a call does not
take a decision about the run for an error of that call.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.core.errors import UsageError

__all__ = [
    "SIGNALS",
    "CancelThisRun",
    "FinishThisRun",
    "FlowControl",
    "PauseThisRun",
    "ReattemptThisNode",
    "SkipThisNode",
    "WaitForPerson",
    "checked_delay",
    "checked_reason",
    "signal_in",
]

LONGEST_REASON = 1_000
LONGEST_DELAY_SECONDS = 100 * 365.25 * 86_400


class FlowControl(BaseException):
    """Base of the signals; `reason` is a text for people, possibly empty. Let it pass: the engine catches it."""

    def __init__(self, reason: str = "") -> None:
        if not isinstance(self, SIGNALS):
            raise UsageError(
                f"{type(self).__name__} says nothing that the engine could do",
                hint=f"raise one of {', '.join(kind.__name__ for kind in SIGNALS)}",
            )
        self.reason = checked_reason(reason, type(self).__name__)
        super().__init__(self.reason)


class SkipThisNode(FlowControl):
    """This node counts as skipped, which satisfies what depends on it."""


class PauseThisRun(FlowControl):
    """The run pauses; this node runs again when somebody resumes it."""


class CancelThisRun(FlowControl):
    """The run is cancelled, by its own code."""


class FinishThisRun(FlowControl):
    """The run completes now: nodes that have not started are not wanted any more."""


class ReattemptThisNode(FlowControl):
    """This node runs again, `after_seconds` from now or when these runs have ended, without having failed."""

    def __init__(self, after_seconds: float = 0.0, reason: str = "", after_runs: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.after_seconds = checked_delay(after_seconds, type(self).__name__)
        self.after_runs = after_runs
        self.args = (self.after_seconds, self.reason, after_runs)  # what unpickling calls the class with


class WaitForPerson(FlowControl):
    """This node of a state graph goes on when somebody has answered; raised by `ctx.interrupt(…)` alone."""

    def __init__(self, question: object = None) -> None:
        super().__init__()
        self.question = question
        self.args = (question,)


# The weightiest first: of several at once, the one that says most about the run counts.
SIGNALS: tuple[type[FlowControl], ...] = (
    *(CancelThisRun, FinishThisRun, PauseThisRun, ReattemptThisNode, SkipThisNode, WaitForPerson),
)


def signal_in(error: BaseException) -> FlowControl | None:
    """The signal that this exception is, or that came out of a TaskGroup as a group of nothing but signals.

    Of several the one that says most about the run wins: cancel, finish, pause, reattempt, skip.
    """
    if isinstance(error, FlowControl):
        return error
    if not isinstance(error, BaseExceptionGroup) or error.split(FlowControl)[1] is not None:
        return None
    found = _leaves(error)
    return next(signal for kind in SIGNALS for signal in found if isinstance(signal, kind))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[FlowControl]:
    found: list[FlowControl] = []
    for member in group.exceptions:
        if isinstance(member, BaseExceptionGroup):
            found += _leaves(member)
        elif isinstance(member, FlowControl):
            found.append(member)
    return found


def checked_reason(reason: object, where: str) -> str:
    """The reason as every store can hold it; UsageError unless it is a text."""
    if not isinstance(reason, str):
        raise UsageError(
            f"the reason given in {where} is a {type(reason).__name__}, not a text", hint="write str(reason)"
        )
    safe = reason.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return safe if len(safe) <= LONGEST_REASON else f"{safe[: LONGEST_REASON - 1]}…"


def checked_delay(after: object, where: str) -> float:
    """The delay in seconds, 0 for None; UsageError unless it can elapse."""
    if after is None:
        return 0.0
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError(
            f"reattempt(after={after!r:.80}) in {where}: after is a {type(after).__name__}",
            hint="give seconds or a timedelta, or leave it out to run again at once",
        )
    if not 0 <= seconds <= LONGEST_DELAY_SECONDS:  # which no NaN is
        raise UsageError(
            f"reattempt(after={after!r:.80}) in {where}: after is no number between 0 and a century",
            hint="give a number of seconds of 0 or more",
        )
    return float(seconds)
