"""Waiting for something to happen, but not for ever."""

from __future__ import annotations

import asyncio
import contextlib

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
