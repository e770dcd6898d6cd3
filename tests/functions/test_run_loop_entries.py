"""Entries, addresses, time and randomness of one run."""

from __future__ import annotations

import asyncio
import gc
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.authoring.functions import PYTHON
from holdfast.core.errors import NonDeterminism
from holdfast.runtime.run_calls import CANCEL, ERROR, RESULT, TIMER
from holdfast.runtime.run_loop import Entry, RunLoop
from tests.functions.programs import act, chain, run_loop
from tests.functions.schedules import SECOND_US, STARTED_US


def begun(main: Any, run_id: str = "r-7") -> RunLoop:
    loop = RunLoop(run_id, now_us=STARTED_US)
    loop.begin(main)
    return loop


def answer(loop: RunLoop, address: str, value: Any = None, at_us: int = STARTED_US) -> None:
    pending = loop.pending[address]
    loop.deliver(Entry(address, RESULT, pending.name, pending.digest, value, at_us))


def test_i48_addresses_follow_the_tree_of_tasks() -> None:
    """I48: an address says which branch asked, and as which of its requests."""

    async def child() -> None:
        await act("b")
        await asyncio.gather(act("c"), act("d"))

    async def main() -> None:
        await act("a")
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(asyncio.sleep(1))
            group.create_task(child())

    loop = begun(main)
    assert list(loop.pending) == ["#1"]
    answer(loop, "#1")
    assert list(loop.pending) == ["1#1", "3#1"]
    assert loop.next_timer() == ("2@1", STARTED_US + SECOND_US)
    answer(loop, "3#1")
    assert list(loop.pending) == ["1#1", "3.1#1", "3.2#1"]
    loop.evict()


def test_i48_another_name_at_an_address_shows_both_and_the_line() -> None:
    """I48: a renamed step is told with what the history holds, what the code asked for, and where."""

    async def main() -> None:
        await act("charge", 1)

    loop = begun(main)
    with pytest.raises(NonDeterminism) as caught:
        loop.deliver(Entry("#1", RESULT, "bill", "(1,)"))
    assert "run r-7 differs from its history at #1" in caught.value.message
    assert "expected bill((1,)), found charge((1,))" in caught.value.message
    assert f"{__file__}:{main.__code__.co_firstlineno + 1} in main" in caught.value.message
    assert list(loop.pending) == ["#1"]  # nothing is lost: the entry was refused, not consumed
    loop.evict()


def test_i48_other_arguments_at_an_address_show_both() -> None:
    """I48: without the digest, results would be handed to the wrong elements with no error at all."""
    loop = begun(lambda: chain([], "charge", 1))
    with pytest.raises(NonDeterminism, match=r"charge with other arguments: expected \(9,\), found \(0,\)"):
        loop.deliver(Entry("#1", RESULT, "charge", "(9,)"))
    loop.evict()


@pytest.mark.parametrize("address", ["#2", "1#1", "nonsense", "", "#x"])
def test_i48_an_address_that_the_code_never_asked_for_is_told(address: str) -> None:
    """I48: a removed step leaves an entry that nobody waits for."""
    loop = begun(lambda: chain([], "charge", 1))
    with pytest.raises(
        NonDeterminism, match=r"expected ship\(\(\)\), found only charge\(\(0,\)\) as #1 at .*programs.py:"
    ):
        loop.deliver(Entry(address, RESULT, "ship", "()"))
    loop.evict()


def test_i48_a_history_longer_than_the_function_is_told() -> None:
    """I48: the last step was removed, so the function ends before its history does."""
    loop = begun(lambda: chain([], "charge", 1))
    answer(loop, "#1")
    assert loop.done
    with pytest.raises(NonDeterminism, match="the function has ended without asking for it"):
        loop.deliver(Entry("#2", RESULT, "ship", "()"))
    loop.evict()


def test_i48_a_timer_that_is_not_there_is_told() -> None:
    """I48: a removed sleep, or one of another length where the driver keeps deadlines, is a difference too."""

    async def main() -> None:
        await asyncio.sleep(5)

    loop = begun(main)
    with pytest.raises(NonDeterminism, match="expected a timer, found no call that waits"):
        loop.deliver(Entry("@2", TIMER))
    with pytest.raises(
        NonDeterminism, match=rf"expected a timer due at 7, found one due at {STARTED_US + 5 * SECOND_US}"
    ):
        loop.deliver(Entry("@1", TIMER, digest="7"))
    loop.evict()


def test_i49_an_entry_for_a_withdrawn_request_changes_nothing_but_the_time() -> None:
    """I49: the action was quicker than the cancel; its result is in the history and the code no longer waits."""

    async def main() -> None:
        task = asyncio.create_task(act("slow"))
        await act("quick")
        task.cancel()
        await act("last")

    loop = begun(main)
    taken = loop.new_requests()
    assert [each.address for each in taken] == ["#1", "1#1"]
    answer(loop, "#1")
    assert [each.address for each in loop.withdrawn_requests()] == ["1#1"]
    assert loop.withdrawn_requests() == []
    loop.deliver(Entry("1#1", RESULT, "slow", "()", "late", STARTED_US + 5))
    assert list(loop.pending) == ["#2"]
    assert loop.now_us == STARTED_US + 5
    loop.evict()


def test_i49_a_request_withdrawn_before_the_driver_took_it_is_never_handed_over() -> None:
    """I49: in a replay nothing is taken until the last entry, so what the code gave up on the way never starts."""

    async def main() -> None:
        task = asyncio.create_task(act("slow"))
        await act("quick")
        task.cancel()
        await act("last")

    loop = begun(main)
    answer(loop, "#1")
    assert [each.address for each in loop.new_requests()] == ["#2"]
    assert loop.new_requests() == []
    assert loop.withdrawn_requests() == []
    loop.evict()


def test_i10_a_cancel_is_an_entry_and_the_code_may_undo() -> None:
    """I10: a cancelled function runs its rollbacks with recorded calls and ends as cancelled."""

    async def main() -> None:
        try:
            await act("work")
        except asyncio.CancelledError as error:
            await act("undo", str(error))
            raise

    loop = begun(main)
    loop.new_requests()
    loop.deliver(Entry("", CANCEL, value="by Ada", at_us=STARTED_US + 1))
    assert [each.name for each in loop.withdrawn_requests()] == ["work"]
    assert [each.digest for each in loop.pending.values()] == ["('by Ada',)"]
    answer(loop, "#2")
    assert isinstance(loop.outcome().error, asyncio.CancelledError)
    loop.deliver(Entry("", CANCEL))
    loop.evict()


def test_i54_an_error_is_raised_at_the_call_that_asked() -> None:
    """I54: a failed call replays as the same exception."""

    async def main() -> Any:
        try:
            await act("a")
        except ValueError as error:
            return str(error)

    loop = begun(main)
    loop.deliver(Entry("#1", ERROR, "a", "()", ValueError("told")))
    assert loop.outcome().value == "told"
    loop.evict()


def test_a_stop_iteration_arrives_as_what_a_coroutine_can_raise() -> None:
    """Python refuses StopIteration in a future; the run must not hang on it."""
    loop = begun(lambda: chain([], "a", 1))
    loop.deliver(Entry("#1", ERROR, "a", "(0,)", StopIteration(3)))
    error = loop.outcome().error
    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, StopIteration)
    loop.evict()


def test_i54_a_function_that_raises_or_exits_has_that_as_its_outcome() -> None:
    """I54: also SystemExit fails the run and not the worker."""

    async def main() -> None:
        await act("a")
        sys.exit(3)

    loop = begun(main)
    answer(loop, "#1")
    error = loop.outcome().error
    assert isinstance(error, SystemExit)
    assert error.code == 3
    loop.evict()


def test_the_outcome_of_a_run_that_has_not_ended_is_refused() -> None:
    """Half a result is none."""
    loop = begun(lambda: chain([], "a", 1))
    assert not loop.done
    with pytest.raises(RuntimeError, match="run r-7 has not ended"):
        loop.outcome()
    loop.evict()


def test_i56_time_is_that_of_the_last_entry_and_never_goes_back() -> None:
    """I56: monotone, and a timer is never early to the code, whatever the clocks of the machines say."""
    times: list[float] = []

    async def main() -> None:
        for number in range(3):
            times.append(run_loop().time())
            await act("a", number)
        await asyncio.sleep(2)
        times.append(run_loop().time())

    loop = begun(main)
    answer(loop, "#1", at_us=STARTED_US + 3 * SECOND_US)
    answer(loop, "#2", at_us=STARTED_US + 1 * SECOND_US)
    answer(loop, "#3", at_us=STARTED_US + 4 * SECOND_US)
    assert loop.next_timer() == ("@1", STARTED_US + 6 * SECOND_US)
    loop.deliver(Entry("@1", TIMER, at_us=STARTED_US + 5 * SECOND_US))
    assert [time - STARTED_US / SECOND_US for time in times] == [0, 3, 3, 6]
    loop.evict()


def test_i49_i56_an_answer_without_an_entry_is_delivered_like_one() -> None:
    """I49, I56: the driver's short way for results does what `deliver` does, also to a function that has ended."""
    seen: list[Any] = []

    async def main() -> None:
        seen.append((await act("a"), run_loop().time()))
        seen.append((await act("b"), run_loop().time()))
        asyncio.create_task(act("left behind"))  # noqa: RUF006 - nobody waits for it
        await asyncio.sleep(0)

    loop = begun(main)
    loop.answer(loop.pending["#1"], "first", STARTED_US + 3 * SECOND_US)
    assert [each.address for each in loop.new_requests()] == ["#2"]
    loop.answer(loop.pending["#2"], "second", STARTED_US + 1 * SECOND_US)
    at = STARTED_US / SECOND_US + 3
    assert seen == [("first", at), ("second", at)]
    assert loop.done
    loop.answer(loop.pending["1#1"], "too late", STARTED_US)
    assert list(loop.pending) == ["1#1"]
    loop.evict()


def test_timers_are_found_by_deadline_then_by_age_and_vanish_when_cancelled() -> None:
    """Timers cost no write, so there may be many; only the earliest matters to the driver."""

    async def main() -> None:
        loop = run_loop()
        later = loop.call_later(3, print)
        loop.call_later(2, print)
        loop.call_at(loop.time() + 2, print)
        never = loop.call_later(float("inf"), print)
        for _ in range(500):
            loop.call_later(60, print).cancel()
        later.cancel()
        never.cancel()
        with pytest.raises(ValueError, match="NaN"):
            loop.call_later(float("nan"), print)
        await asyncio.sleep(9)

    loop = begun(main)
    assert loop.next_timer() == ("@2", STARTED_US + 2 * SECOND_US)
    assert len(loop.timers.heap) < 300  # the five hundred that were cancelled do not pile up
    loop.deliver(Entry("@3", TIMER, at_us=STARTED_US + 2 * SECOND_US))
    loop.deliver(Entry("@2", TIMER, at_us=STARTED_US + 2 * SECOND_US))
    loop.deliver(Entry("@1", TIMER, at_us=STARTED_US + 3 * SECOND_US))
    timer = loop.next_timer()
    assert timer is not None
    assert timer[1] == STARTED_US + 9 * SECOND_US
    loop.evict()


@pytest.mark.parametrize("collect_at", [1, 2, 3])
def test_i49_a_collection_at_any_moment_moves_no_address_and_no_hash(collect_at: int) -> None:
    """I49: a generator abandoned in a circle ends whenever the collector comes by, inside a turn or between two."""
    assert tasks_and_ends(collect_at) == (tasks_and_ends(None)[0], 1)


def tasks_and_ends(collect_at: int | None) -> tuple[list[Any], int]:
    """Return hashes and names of the tasks in a set, in its order, and how many generators were ended on the way."""
    ended: list[int] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
            ended.append(1)

    async def main() -> Any:
        source = numbers()
        circle: list[Any] = [source]
        circle.append(circle)
        await anext(source)
        del source, circle
        if collect_at == 1:
            gc.collect()
        await act("a")
        if collect_at == 2:
            gc.collect()
        tasks = {asyncio.create_task(act("b", number)) for number in range(9)}
        return [(hash(task), task.get_name(), await task) for task in tasks]

    gc.collect()
    gc.disable()
    try:
        loop = begun(main)
        if collect_at == 3:
            gc.collect()
        answer(loop, "#1")
        for number in range(1, 10):
            answer(loop, f"{number}#1", number)
        tasks = loop.outcome().value
        loop.evict()
    finally:
        gc.enable()
    return tasks, len(ended)


def test_i56_randomness_is_seeded_by_run_and_branch() -> None:
    """I56: no write, the same in every replay, and no branch disturbs another's."""

    async def draw(order: list[int]) -> dict[str, Any]:
        drawn: dict[str, Any] = {}

        async def branch(number: int) -> None:
            await act("turn", number)
            loop = run_loop()
            drawn[loop.branch()] = (loop.next_uuid(), loop.rng().random(), loop.next_uuid(), loop.rng().random())

        await asyncio.gather(*[branch(number) for number in range(3)])
        return drawn

    def drawn(run_id: str, order: list[int]) -> dict[str, Any]:
        loop = begun(lambda: draw(order), run_id)
        for number in order:
            answer(loop, f"{number}#1")
        value: dict[str, Any] = loop.outcome().value
        loop.evict()
        return value

    first = drawn("r-7", [1, 2, 3])
    assert first == drawn("r-7", [3, 1, 2])
    assert first != drawn("r-8", [1, 2, 3])
    values = [value for each in first.values() for value in each]
    assert len(set(values)) == len(values)
    assert {value.version for value in values if isinstance(value, uuid.UUID)} == {4}


def test_a_task_is_named_after_its_branch_unless_it_has_a_name() -> None:
    """The names that asyncio makes count all tasks of the process, so they would differ in a replay."""
    names: list[str] = []

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())
        child = asyncio.create_task(act("a"))
        named = asyncio.create_task(act("b"), name="mine")
        names.extend([child.get_name(), named.get_name()])
        await asyncio.gather(child, named)

    loop = begun(main)
    assert names == ["main", "1", "mine"]
    loop.evict()


def test_the_python_version_is_there_to_be_kept_with_the_run() -> None:
    """asyncio's own functions make other tasks in other versions, so a change of version is a change of code."""
    assert f"python {sys.version_info.major}.{sys.version_info.minor}" == PYTHON


def test_a_run_can_be_begun_while_the_program_has_a_loop_of_its_own() -> None:
    """The run's loop lies inside the real one and leaves it as it found it."""

    async def outside() -> None:
        outer = asyncio.get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        loop = RunLoop("r-7", now_us=STARTED_US)
        after: list[Any] = []
        outer.call_soon(loop.begin, lambda: chain([], "a", 2))
        outer.call_soon(lambda: after.append((asyncio.get_running_loop(), sys.get_asyncgen_hooks())))
        outer.call_soon(loop.deliver, Entry("#1", RESULT, "a", "(0,)"))
        outer.call_soon(loop.deliver, Entry("#2", RESULT, "a", "(1,)"))
        outer.call_soon(loop.evict)
        await asyncio.sleep(0)
        assert after == [(outer, hooks)]
        assert loop.outcome().value == "a"

    asyncio.run(outside())
