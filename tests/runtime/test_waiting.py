"""Waiting in turns of the loop, which takes no time when nothing else is left to do."""

from __future__ import annotations

import asyncio

from holdfast.batches import turn_of_the_loop
from holdfast.runtime.waiting import until_it_rests


async def test_a_number_that_stands_still_is_waited_for_in_few_turns() -> None:
    asked = 0

    def count() -> int:
        nonlocal asked
        asked += 1
        return 7

    await until_it_rests(count, still=4)
    assert asked == 5, "once before, and after each of four turns"


async def test_it_goes_on_as_long_as_the_number_changes() -> None:
    """As slots do that become free one after another, some turns of the loop apart."""
    free = 0

    async def become_free() -> None:
        nonlocal free
        for _ in range(5):
            free += 1
            for _ in range(3):
                await turn_of_the_loop()

    others = asyncio.ensure_future(become_free())
    await until_it_rests(lambda: free, still=4)
    assert free == 5
    await others


async def test_it_ends_though_the_number_never_rests() -> None:
    free = 0

    def count() -> int:
        nonlocal free
        free += 1
        return free

    await until_it_rests(count, longest=20)
    assert free == 21
