"""The testing kit under the type checker: what must pass, and lines that must fail.

Never run, only checked. A line that must fail has an ignore with its code; unused ignores are errors, so a line that
stops failing is noticed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_type

import holdfast as hf
from holdfast.testing import VirtualClock, action_context, engine_in_memory, parity


@hf.workflow
async def onboard(user: str) -> int:
    await hf.sleep(days=2)
    return len(user)


@hf.action
async def greet(name: str, times: int) -> list[str]:
    return [name] * times


async def time_is_turned() -> None:
    async with engine_in_memory() as (engine, clock):
        assert_type(engine, hf.Engine)
        assert_type(clock, VirtualClock)
        run = await engine.start(onboard, "u1")
        assert_type(await clock.advance(days=2), None)
        await clock.advance(timedelta(hours=1))
        await clock.advance(weeks=1, hours=0.5, minutes=3, seconds=2)
        await clock.advance(5)
        await clock.advance("5")  # type: ignore[arg-type]
        await clock.advance(months=1)  # type: ignore[call-arg]
        assert_type(clock.now(), datetime)
        assert_type(await run.result(), int)
        assert_type(await engine.settle(timeout=1), None)


async def engines_are_made() -> None:
    async with engine_in_memory(seed=7, start=datetime(2031, 5, 1, tzinfo=UTC), registry=hf.Registry(), threads=1):
        pass
    async with engine_in_memory(patience_seconds=0.1, concurrency=5):
        pass
    engine_in_memory(seed="7")  # type: ignore[arg-type]


async def stores_are_compared() -> None:
    assert_type(await parity(onboard, "u1"), int)
    assert_type(await parity(greet, "Ada", 2, stores=["memory://"], timeout=1.0), list[str])
    await parity(greet, "Ada", "2")  # type: ignore[arg-type]


def contexts_are_made() -> None:
    with action_context("debit", attempt=2) as context:
        assert_type(context, hf.Context)


async def dead_letters_are_events_too(engine: hf.Engine) -> None:
    for letter in await engine.dead():
        _ = letter.run  # type: ignore[union-attr]
    assert_type(await engine.replay_dead("event"), bool)
    assert_type(await engine.discard_dead("run", "node"), bool)
