"""Blocks that may take only so long: cut short as `asyncio.timeout` does it, for one timer instead of thousands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.runtime.time_limits import TimeLimits

Within = Callable[[float | None], Any]
SOON = 0.01


@pytest.fixture(params=["asyncio", "ours"])
def within(request: pytest.FixtureRequest) -> Within:
    """Both: whatever holds for asyncio's holds for ours."""
    return asyncio.timeout if request.param == "asyncio" else TimeLimits()


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_i5_a_block_that_takes_too_long_is_cut_short(within: Within) -> None:
    limit = within(SOON)
    with pytest.raises(TimeoutError):
        async with limit:
            await for_ever()
    assert limit.expired()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_i5_a_block_that_ends_in_time_is_left_alone(within: Within) -> None:
    limit = within(SOON)
    async with limit:
        await asyncio.sleep(0)
    async with within(None):
        await asyncio.sleep(SOON * 3)  # past the end of the block before
    assert not limit.expired()


async def test_i5_of_blocks_at_the_same_time_each_has_its_own_end(within: Within) -> None:
    """The shortest is entered last: the timer that waits for another must not be too late for it."""
    order: list[float] = []

    async def waits(seconds: float) -> None:
        with pytest.raises(TimeoutError):
            async with within(seconds):
                await for_ever()
        order.append(seconds)

    await asyncio.gather(*[waits(seconds) for seconds in (SOON * 4, SOON * 2, SOON, 0.0)])
    assert order == sorted(order)


async def test_i5_a_cancel_from_outside_stays_a_cancel(within: Within) -> None:
    async def waits() -> None:
        async with within(60.0):
            await for_ever()

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_i5_a_cancel_beside_the_end_stays_a_cancel(within: Within) -> None:
    """Both come: whoever asked for the cancel waits for it, and must not be told of a timeout."""
    entered = asyncio.Event()

    async def waits() -> None:
        async with within(SOON):
            entered.set()
            try:
                await for_ever()
            except asyncio.CancelledError:
                asyncio.current_task().cancel()  # type: ignore[union-attr]
                raise

    task = asyncio.ensure_future(waits())
    await entered.wait()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_i5_code_that_swallows_the_end_is_told_of_by_expired(within: Within) -> None:
    limit = within(SOON)
    async with limit:
        with contextlib.suppress(asyncio.CancelledError):
            await for_ever()
    assert limit.expired()


async def test_i5_other_errors_pass_also_after_the_end(within: Within) -> None:
    async def fails() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError as cut:
            raise LookupError("of the code's own") from cut

    with pytest.raises(LookupError):
        async with within(SOON):
            await fails()


async def test_thousands_of_short_blocks_make_one_timer() -> None:
    limits, loop = TimeLimits(), asyncio.get_running_loop()
    made: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        made.append(when)
        return call_at(when, *args, **kwargs)

    loop.call_at = counted  # type: ignore[method-assign]
    try:
        for _ in range(1000):
            async with limits(30.0):
                pass
    finally:
        loop.call_at = call_at  # type: ignore[method-assign]
    assert len(made) == 1
