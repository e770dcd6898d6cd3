"""The schedules can fail: without order, without quiet or with default hashes they do.

A property test that no bug can break proves nothing. Each test here takes one of the three rules away, the way a
simpler design would, and expects the same schedules to notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.errors import NonDeterminism
from holdfast.runtime.run_loop import DurableCall, Entry, RunLoop
from holdfast.runtime.run_task import RunFuture, RunTask
from tests.functions.programs import PROGRAMS
from tests.functions.schedules import Diverged, Schedule

SCHEDULES = 25

# Measured: each of these breaks in at least a quarter of the schedules, on every version of Python tried.
BROKEN_WITHOUT_ORDER = {
    "abandoned_async_generator",
    "as_completed_of_calls",
    "as_completed_of_tasks_with_a_timeout",
    "async_generators",
    "background_task_and_cancel",
    "barrier",
    "condition",
    "done_callbacks_that_make_tasks",
    "event",
    "finally_with_calls",
    "first_of_several_kinds",
    "gather_that_fails",
    "lock",
    "priority_queue",
    "queue_and_a_pool",
    "semaphore",
    "shared_variable_first_wins",
    "shield",
    "sleeps",
    "task_group_with_a_failing_child",
    "timeout_around_calls",
    "wait_for_all_with_a_timeout",
    "wait_for_the_first_and_cancel_the_losers",
    "wait_for_the_first_exception",
}
BROKEN_WITHOUT_QUIET = {
    "as_completed_of_tasks_with_a_timeout",
    "condition",
    "done_callbacks_that_make_tasks",
    "finally_with_calls",
    "gather_that_fails",
    "priority_queue",
    "semaphore",
    "sleeps",
    "task_group_with_a_failing_child",
    "wait_for_the_first_and_cancel_the_losers",
    "wait_for_the_first_exception",
}
BROKEN_WITH_DEFAULT_HASHES = {
    "as_completed_of_calls",
    "set_of_tasks_walked_by_the_user",
    "wait_for_all_with_a_timeout",
    "wait_for_the_first_and_cancel_the_losers",
    "wait_for_the_first_exception",
}
# What decides nothing by order repeats without any of the rules; if it broke too, the schedules would be at fault.
NEVER_BROKEN = {"sequence", "gather_of_calls_and_coroutines", "exit_stack"}


def test_i49_a_replay_that_ignores_the_order_is_noticed() -> None:
    """I49: the order of entries is part of the history, not an accident of it."""
    broken = {name for name in PROGRAMS if breaks(name, replay=as_soon_as_asked_for)}
    assert broken >= BROKEN_WITHOUT_ORDER, BROKEN_WITHOUT_ORDER - broken
    assert not broken & NEVER_BROKEN


def test_i49_a_replay_without_quiet_between_entries_is_noticed() -> None:
    """I49: the loop runs dry between two entries, on replay as it did live."""
    broken = {name for name in PROGRAMS if breaks(name, replay=in_order_but_never_quiet)}
    assert broken >= BROKEN_WITHOUT_QUIET, BROKEN_WITHOUT_QUIET - broken
    assert not broken & NEVER_BROKEN


def test_i49_hashes_by_memory_address_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """I49: sets of tasks and futures are walked in the same order in every replay."""
    for kind in (RunTask, RunFuture, DurableCall):
        monkeypatch.setattr(kind, "__hash__", object.__hash__)
    broken = {name for name in PROGRAMS if breaks(name, replay=in_order_elsewhere_in_memory)}
    assert broken >= BROKEN_WITH_DEFAULT_HASHES, BROKEN_WITH_DEFAULT_HASHES - broken
    assert not broken & NEVER_BROKEN


def breaks(name: str, **options: Any) -> bool:
    """Say whether any schedule of the program ends in an error that names a difference."""
    for seed in range(SCHEDULES):
        schedule = Schedule(name, seed, crash_chance=0.2, **options)
        try:
            schedule.play()
        except (Diverged, NonDeterminism):
            schedule.loop.evict()
            return True
    return False


def as_soon_as_asked_for(schedule: Schedule, loop: RunLoop) -> None:
    """Answer each request from the journal when it is made; fire a timer only when no answer is left to give."""
    remaining = {entry.address: entry for entry in schedule.journal}
    while not loop.done:
        entry = next((remaining.pop(address) for address in loop.pending if address in remaining), None)
        timer = loop.next_timer()
        if entry is None and timer is not None:
            entry = remaining.pop(timer[0], None)
        if entry is None:
            break
        loop.deliver(entry)
    schedule.observe(loop, len(schedule.journal))


def in_order_but_never_quiet(schedule: Schedule, loop: RunLoop) -> None:
    """Hand over all that is asked for in the order of the journal, and let the code run only then."""
    entries: Iterator[Entry] = iter(schedule.journal)
    entry = next(entries, None)
    run_dry = loop._run_dry
    loop._run_dry = lambda: None  # type: ignore[method-assign]
    while entry is not None:
        timer = loop.next_timer()
        asked = entry.address in loop.pending or (timer is not None and timer[0] == entry.address)
        if not asked:
            outer = loop._enter(loop.outer)
            try:
                run_dry()
            finally:
                loop._leave(outer)
        loop.deliver(entry)
        entry = next(entries, None)
    outer = loop._enter(loop.outer)
    try:
        run_dry()
    finally:
        loop._leave(outer)
        del loop._run_dry
    schedule.observe(loop, len(schedule.journal))


_elsewhere: list[Any] = []


def in_order_elsewhere_in_memory(schedule: Schedule, loop: RunLoop) -> None:
    """Replay correctly, in a process whose memory is laid out differently each time."""
    _elsewhere[:] = [bytearray(schedule.random.randrange(16, 400)) for _ in range(schedule.random.randrange(300))]
    for place, entry in enumerate(schedule.journal):
        schedule.deliver(loop, place, entry)
        _elsewhere.extend(bytearray(schedule.random.randrange(100, 300)) for _ in range(schedule.random.randrange(9)))
