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

Async generators are the hard part: no chain of awaits leads from a task into one, so what it awaits is closed through
the list of generators that the loop keeps. One that is suspended in its own code is then dropped: its finalizer is the
dead loop's and does nothing, so Python frees it without running it. Only one whose `aclose()` is under way is past its
finalizer; Python closes that one when it is freed, so it must be freed here, on the dead loop, and not later by a
collection.

What can go wrong:

- Code that swallows GeneratorExit in an endless loop never closes. It is kept for the life of the process, with a
  warning: to free it would run it outside of any run.
- Python reports "ignored GeneratorExit" on standard error for what it closes by itself. During an eviction that says
  nothing new, so this one report is silenced; all others pass.
"""

from __future__ import annotations

import asyncio.tasks
import contextlib
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.runtime.run_lines import UNKNOWN_LINE, awaited_by, frame_of, line_of_await
from holdfast.runtime.run_task import RunTask

if TYPE_CHECKING:
    from holdfast.runtime.run_loop import RunLoop

CLOSES_A_LEVEL: Final = 64
_IGNORED: Final = "ignored GeneratorExit"
_STEPS: Final = frozenset({"async_generator_asend", "async_generator_athrow"})

log = logging.getLogger("holdfast.functions")

# Coroutines that refuse to end. Never emptied: see above.
_unclosable: list[Any] = []


def _keep_for_ever(coro: Any) -> None:
    _unclosable.append(coro)
    # The interpreter empties this module when it exits, and that would run the code outside of any run. An object
    # with one reference too many is not freed even then.
    with contextlib.suppress(ImportError, AttributeError):
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))


class LiveGenerators:
    """The async generators that a run has begun and not finished, held weakly, in the order they were begun."""

    __slots__ = ("_refs", "_sweep_at")

    def __init__(self) -> None:
        self._refs: list[weakref.ref[Any]] = []
        self._sweep_at = 64

    def add(self, generator: Any) -> None:
        if len(self._refs) >= self._sweep_at:
            self._refs = [ref for ref in self._refs if ref() is not None]
            self._sweep_at = 2 * len(self._refs) + 64
        self._refs.append(weakref.ref(generator))

    def newest_first(self) -> list[Any]:
        return [generator for ref in reversed(self._refs) if (generator := ref()) is not None]


def close_everything(loop: RunLoop, tasks: dict[str, RunTask], generators: LiveGenerators | None) -> None:
    """Close and let go of all code of the run. The loop must be dead, the running one, and hold nothing else of it."""
    with _ignored_exits_silenced():
        _close_tasks(loop, [task for task in reversed(tasks.values()) if not task.done()], generators)
        tasks.clear()
        if generators is not None:
            _free(generators)


def _close_tasks(loop: RunLoop, unfinished: list[RunTask], generators: LiveGenerators | None) -> None:
    for task in unfinished:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        _close_as(task, loop, generators)
    if generators is not None:
        _close_what_generators_await(generators)
        for task in unfinished:
            _part_from_future(task)


def _close_as(task: RunTask, loop: RunLoop, generators: LiveGenerators | None) -> None:
    # The task is current, so that code in `finally` finds the run around it as it always does.
    asyncio.tasks._enter_task(loop, task)
    try:
        closed = _close(task.get_coro(), generators)
    finally:
        asyncio.tasks._leave_task(loop, task)
    if not closed:
        _keep_for_ever(task.get_coro())
        log.warning(
            "run %s can't be taken out of memory: its code at %s catches GeneratorExit and goes on for ever. Fix: "
            "catch Exception instead of BaseException, or raise it again",
            loop.run_id,
            line_of_await(task.get_coro()) or UNKNOWN_LINE,
        )


def _close(coro: Any, generators: LiveGenerators | None) -> bool:
    innermost, depth = _innermost(coro)
    for _ in range(CLOSES_A_LEVEL * depth):
        if generators is not None:
            _close_what_generators_await(generators)
            _close_step(awaited_by(innermost), generators)
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


# --- async generators -----------------------------------------------------------------------------------------------


def _close_what_generators_await(generators: LiveGenerators) -> None:
    for generator in generators.newest_first():  # the inner ones: a generator that awaits another was begun before it
        awaited = awaited_by(generator)
        if awaited is None:
            continue
        if frame_of(awaited) is None:
            _close_step(awaited, generators)
        elif not _close(awaited, None):
            _keep_for_ever(awaited)


def _close_step(step: Any, generators: LiveGenerators) -> None:
    """Close the step of a generator that somebody waits for, before whoever waits.

    Since 3.13 that closes the generator's own code, which may await again each time; before, it does nothing.
    """
    if type(step).__name__ not in _STEPS:
        return
    for _ in range(CLOSES_A_LEVEL):
        try:
            step.close()
        except RuntimeError as error:
            if _IGNORED not in str(error):
                return
        except BaseException:
            return
        else:
            return
        for generator in generators.newest_first():
            awaited = awaited_by(generator)
            if awaited is not None and frame_of(awaited) is not None and not _close(awaited, None):
                _keep_for_ever(awaited)


def _part_from_future(task: RunTask) -> None:
    """Break the circle of a task and the future it waits for, which only a collection would free."""
    future = task._fut_waiter  # type: ignore[attr-defined]
    for callback, _ in list(getattr(future, "_callbacks", None) or ()):
        if getattr(callback, "__self__", None) is task:
            future.remove_done_callback(callback)


def _free(generators: LiveGenerators) -> None:
    """See to it that no generator of the run is closed later, outside of it."""
    if not any(map(frame_of, generators.newest_first())):
        return
    gc.collect()  # dear, but only runs that hold a generator in a circle come here
    for generator in generators.newest_first():
        if frame_of(generator) is not None:
            _keep_for_ever(generator)  # somebody outside of the run holds it


@contextlib.contextmanager
def _ignored_exits_silenced() -> Iterator[None]:
    report, here = sys.unraisablehook, threading.get_ident()

    def report_others(unraisable: Any) -> None:
        error = unraisable.exc_value
        if threading.get_ident() != here or not isinstance(error, RuntimeError) or _IGNORED not in str(error):
            report(unraisable)

    sys.unraisablehook = report_others
    try:
        yield
    finally:
        sys.unraisablehook = report
