"""Taking a run out of memory without letting it do anything on its way out.

Theory of operation. Python can't drop a suspended function without running its `finally` blocks, and a run that is
merely forgotten is closed by the garbage collector: outside of any run, where an action is just a function, so that
`finally: await refund()` would refund. Hence a loop holds all its tasks, and this is the only way out.

The loop is dead by the time the coroutines are closed, newest task first. On a dead loop everything can be asked for
and nothing happens: calls and futures are never answered, tasks never start, timers never fire. (Raising there would
leave the other arguments of a `gather` in a `finally` as coroutines that were never awaited, and Python says so.) User
code sees GeneratorExit, so `except Exception` and `except CancelledError` stay out of it; `finally`, `__aexit__` and
`except BaseException` run up to their first await.

That await is closed in turn, and always the innermost coroutine first. Closing the outer one would throw "ignored
GeneratorExit" into it as soon as the inner one awaits again; the outer then lets go of the inner, half closed, and the
collector closes the rest with a report on standard error.

What can go wrong:

- Code that swallows GeneratorExit in an endless loop never closes. It is kept for the life of the process, with a
  warning: to free it would hang.
- An async generator suspended at a `yield` is dropped by Python without running its code, because its finalizer is
  the dead loop's and does nothing. One whose `aclose()` was under way is past its finalizer, so Python closes it and
  reports an await in it. That report, and no other, is silenced.
"""

from __future__ import annotations

import asyncio.tasks
import logging
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from holdfast.runtime.run_lines import UNKNOWN_LINE, awaited_by, frame_of, line_of_await
from holdfast.runtime.run_task import RunTask

if TYPE_CHECKING:
    from holdfast.runtime.run_loop import RunLoop

CLOSES_A_LEVEL: Final = 64
_IGNORED: Final = "ignored GeneratorExit"

log = logging.getLogger("holdfast.functions")

# Coroutines that refuse to end. Never emptied: see above.
_unclosable: list[Any] = []


def close_tasks(loop: RunLoop, tasks: Iterable[RunTask]) -> None:
    """Close the coroutines of these tasks, in this order. The loop must be dead and the running one."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        _close_as(task, task.get_coro(), loop)


def close_what_generators_await(loop: RunLoop, task: RunTask, generators: Iterable[Any]) -> None:
    """Close the coroutines that async generators wait for: no chain of awaits from a task leads to them."""
    for generator in list(generators):
        awaited = awaited_by(generator)
        if awaited is not None and frame_of(awaited) is not None:
            _close_as(task, awaited, loop)


def _close_as(task: RunTask, coro: Any, loop: RunLoop) -> None:
    # The task is current, so that code in `finally` finds the run around it as it always does.
    asyncio.tasks._enter_task(loop, task)
    try:
        closed = _close(coro)
    finally:
        asyncio.tasks._leave_task(loop, task)
    if not closed:
        _unclosable.append((loop, task, coro))
        log.warning(
            "run %s can't be taken out of memory: its code at %s catches GeneratorExit and goes on for ever. Fix: "
            "catch Exception instead of BaseException, or raise it again",
            loop.run_id,
            line_of_await(coro) or UNKNOWN_LINE,
        )


def _close(coro: Any) -> bool:
    innermost, depth = _innermost(coro)
    for _ in range(CLOSES_A_LEVEL * depth):
        try:
            innermost.close()
        except RuntimeError as error:
            if _IGNORED in str(error) and frame_of(innermost) is not None:
                innermost, _ = _innermost(coro)
                continue
        except BaseException:  # noqa: S110 - whatever the code raises on its way out, it is out
            pass
        if innermost is coro:
            return True
        innermost, _ = _innermost(coro)
    return False


def _innermost(coro: Any) -> tuple[Any, int]:
    """Return the last unfinished coroutine in the chain of awaits, and how deep it lies."""
    depth = 1
    while (awaited := awaited_by(coro)) is not None and frame_of(awaited) is not None:
        coro, depth = awaited, depth + 1
    return coro, depth


def drop_quietly(generators: Iterable[Any] | None, tasks: dict[str, RunTask]) -> None:
    """Let go of the tasks, while Python's reports about generators that await once more are silenced."""
    if not any(True for _ in generators or ()):
        tasks.clear()
        return
    report, here = sys.unraisablehook, threading.get_ident()

    def report_others(unraisable: Any) -> None:
        error = unraisable.exc_value
        expected = isinstance(error, RuntimeError) and _IGNORED in str(error)
        if not expected or threading.get_ident() != here:
            report(unraisable)

    sys.unraisablehook = report_others
    try:
        tasks.clear()
    finally:
        sys.unraisablehook = report
