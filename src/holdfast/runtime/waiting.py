"""Waiting for something to happen, but not for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from holdfast.batches import turn_of_the_loop


async def either(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, but not longer than this.

    Not with `asyncio.wait_for`: on Python 3.11 it swallows a cancel that comes in the tick in which the event is set,
    and a loop that waits like that would never stop.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def behind_others(turns: int = 16) -> None:
    """Let what is ready go first, and what follows from it at once: a claim, its action, the commit of its result."""
    for _ in range(turns):
        await turn_of_the_loop()


async def until_it_rests(count: Callable[[], int], still: int = 4, longest: int = 100) -> None:
    """Until a number has stayed as it is for some turns of the loop, or so many have passed.

    Not a sleep: no timer of the loop is shorter than a millisecond, which is long when nothing else is left to do.
    """
    before, unchanged = count(), 0
    for _ in range(longest):
        await turn_of_the_loop()
        now = count()
        unchanged = unchanged + 1 if now == before else 0
        if unchanged == still:
            return
        before = now
