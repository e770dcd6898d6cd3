"""Taking a run out of memory without letting it do anything on its way out.

Theory of operation. Python can't drop a suspended function without running its `finally` blocks, and a run that is
merely forgotten is closed by the garbage collector: outside of any run, where an action is just a function, so that
`finally: await refund()` would refund. Hence a loop holds all its tasks, and this is the only way out.

The loop is dead by the time the coroutines are closed, newest first. On a dead loop everything can be asked for and
nothing happens: calls and futures are never answered, tasks never start, timers never fire. User code sees
GeneratorExit, so `except Exception` and `except CancelledError` stay out of it; `finally`, `__aexit__` and `except
BaseException` run up to their first await, which is closed in turn, outward level by level.

What can go wrong:

- Code that swallows GeneratorExit in an endless loop never closes. It is kept for the life of the process, with a
  warning: to free it would hang.
- An async generator suspended at a `yield` is dropped by Python without running its code, because its finalizer is
  the dead loop's and does nothing. One whose `aclose()` was under way is past its finalizer, so Python closes it and
  reports an await in it as "ignored GeneratorExit". That report, and no other, is silenced.
"""

from __future__ import annotations

import asyncio.tasks
import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from holdfast.runtime.run_lines import UNKNOWN_LINE, line_of_await
from holdfast.runtime.run_task import RunTask

if TYPE_CHECKING:
    from holdfast.runtime.run_loop import RunLoop

CLOSES_AT_MOST: Final = 64

log = logging.getLogger("holdfast.functions")

# Coroutines that refuse to end. Never emptied: see above.
_unclosable: list[Any] = []


def close_tasks(loop: RunLoop, tasks: Iterable[RunTask]) -> None:
    """Close the coroutines of these tasks, in this order. The loop must be dead and the running one."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        # The task is current, so that code in `finally` finds the run around it as it always does.
        asyncio.tasks._enter_task(loop, task)
        try:
            closed = _close(task.get_coro())
        finally:
            asyncio.tasks._leave_task(loop, task)
        if not closed:
            _unclosable.append((loop, task))
            line = line_of_await(task.get_coro()) or UNKNOWN_LINE
            log.warning(
                "run %s can't be taken out of memory: its code at %s catches GeneratorExit and goes on for ever. Fix: "
                "catch Exception instead of BaseException, or raise it again",
                loop.run_id,
                line,
            )


def _close(coro: Any) -> bool:
    for _ in range(CLOSES_AT_MOST):
        try:
            coro.close()
        except RuntimeError as error:
            if "ignored GeneratorExit" not in str(error):
                return True
        except BaseException:  # whatever the code raises on its way out, it is out
            return True
        else:
            return True
    return False


def drop_quietly(generators: Iterable[Any] | None, tasks: dict[str, RunTask]) -> None:
    """Let go of the tasks, while reports about these generators' own ends are silenced."""
    ours = {id(generator) for generator in generators or ()}
    if not ours:
        tasks.clear()
        return
    report = sys.unraisablehook

    def report_others(unraisable: Any) -> None:
        if id(unraisable.object) not in ours:
            report(unraisable)

    sys.unraisablehook = report_others
    try:
        tasks.clear()
    finally:
        sys.unraisablehook = report
