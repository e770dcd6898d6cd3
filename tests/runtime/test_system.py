"""The real clock, ids and executors."""

from __future__ import annotations

import ast
import asyncio
import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core.errors import EngineClosed
from holdfast.core.seams import StatementExecutor
from holdfast.runtime.system import InlineExecutor, RealClock, RealIds, SystemRandomness, ThreadExecutor, real_system

DEADLINE_SECONDS = 30.0


class SetClock:
    """A clock that stands where it is put."""

    def __init__(self, now_us: int) -> None:
        self.now = now_us

    def now_us(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return 0.0


class FixedRandomness:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def test_a_fork_does_not_go_on_with_the_numbers_of_its_parent() -> None:
    """They are drawn many at a time: two processes that made the same ids would be taken for one."""
    randomness = SystemRandomness()
    randomness.random()  # there are some in stock now
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr([randomness.random() for _ in range(200)]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        drawn_there = ast.literal_eval(told.read())
    os.waitpid(child, 0)
    drawn_here = [randomness.random() for _ in range(200)]
    assert len(drawn_there) == 200
    assert not set(drawn_here) & set(drawn_there)


def test_random_numbers_are_spread_over_the_unit_interval_and_each_is_given_once() -> None:
    drawn = [SystemRandomness().random() for _ in range(10_000)]
    assert len(set(drawn)) == 10_000
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1
    assert sum(drawn) / 10_000 == pytest.approx(0.5, abs=0.05)


def test_an_id_is_a_uuid7_of_the_clocks_millisecond() -> None:
    """Ids are ordinary UUIDs: any database and any tool can read their time."""
    made = uuid.UUID(RealIds(SetClock(1_700_000_000_123_456), SystemRandomness()).new())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123


def test_ids_made_in_order_sort_in_order_even_when_the_clock_is_set_back() -> None:
    clock = SetClock(5_000_000)
    ids = RealIds(clock, SystemRandomness())
    made = [ids.new() for _ in range(1_000)]
    clock.now = 1_000
    made += [ids.new() for _ in range(1_000)]
    clock.now = 6_000_000
    made += [ids.new() for _ in range(1_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_more_ids_than_a_millisecond_can_hold_borrow_the_next_one() -> None:
    ids = RealIds(SetClock(5_000), FixedRandomness(1 - 2**-53))
    ids.new()
    ids._counter = (1 << 21) - 2
    last, borrowed = ids.new(), ids.new()
    assert last < borrowed
    assert uuid.UUID(borrowed).int >> 80 == 6


def test_ids_of_many_threads_are_all_different() -> None:
    ids = real_system().ids
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [ids.new() for _ in range(500)], range(8)))
    assert all(batch == sorted(batch) for batch in batches)
    assert len({made for batch in batches for made in batch}) == 4_000


def test_the_real_clock_counts_microseconds_and_never_goes_back() -> None:
    clock = RealClock()
    assert clock.now_us() > 1_700_000_000_000_000
    assert clock.monotonic() <= clock.monotonic()


@pytest.mark.parametrize("executor", [InlineExecutor(), ThreadExecutor("statements")], ids=["inline", "threaded"])
async def test_an_executor_returns_and_raises_what_the_call_does(executor: StatementExecutor) -> None:
    def fail() -> None:
        raise KeyError("no such row")

    assert await executor.run(lambda: 41 + 1) == 42
    with pytest.raises(KeyError, match="no such row"):
        await executor.run(fail)
    assert await executor.run(lambda: "still there") == "still there"
    executor.close()


async def test_statements_of_a_thread_executor_run_on_one_thread_in_the_order_given() -> None:
    executor = ThreadExecutor("statements")
    order: list[int] = []

    def statement(number: int) -> int:
        order.append(number)
        return threading.get_ident()

    threads = await asyncio.gather(*(executor.run(lambda n=n: statement(n)) for n in range(50)))  # type: ignore[misc]
    assert order == list(range(50))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    executor.close()


async def test_a_cancelled_caller_leaves_only_when_its_statement_has_ended() -> None:
    """A rollback right after a cancel must not meet a connection on which the statement still runs."""
    executor = ThreadExecutor("statements")
    entered, leave = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    ended = False

    def statement() -> None:
        nonlocal ended
        loop.call_soon_threadsafe(entered.set)
        assert leave.wait(DEADLINE_SECONDS)
        ended = True

    caller = asyncio.create_task(executor.run(statement))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await entered.wait()
        for _ in range(3):  # impatient shutdowns cancel more than once
            caller.cancel()
            await asyncio.wait([caller], timeout=0)
            assert not caller.done()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert ended
    executor.close()


async def test_a_timeout_around_a_statement_is_a_timeout_and_nothing_after_it() -> None:
    executor = ThreadExecutor("statements")
    leave = threading.Event()

    async def impatient() -> None:
        async with asyncio.timeout(0):
            asyncio.get_running_loop().call_later(0, leave.set)
            await executor.run(lambda: leave.wait(DEADLINE_SECONDS))

    with pytest.raises(TimeoutError):
        await impatient()
    assert await executor.run(lambda: 1) == 1
    executor.close()


async def test_a_closed_executor_finishes_what_it_has_and_refuses_more() -> None:
    executor = ThreadExecutor("statements")
    handed_over = asyncio.create_task(executor.run(lambda: "done"))
    await asyncio.wait([handed_over], timeout=0)
    executor.close()
    executor.close()
    assert await handed_over == "done"
    with pytest.raises(EngineClosed, match="statements"):
        await executor.run(lambda: "too late")


async def test_the_real_system_makes_executors_that_work() -> None:
    system = real_system()
    for executor in (system.make_inline(), system.make_threaded("writer")):
        assert await executor.run(lambda: 1) == 1
        executor.close()
    assert 0 <= system.randomness.random() < 1
    system.sleep(0)
