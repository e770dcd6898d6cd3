"""Which attempt an action of a function is, when drivers died while it ran."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.store.contract import ClaimRequest
from tests.worker.support import engine_on

registry = hf.Registry()
made: list[tuple[str, int]] = []
broken: set[int] = set()


def note(name: str) -> int:
    number = hf.current().attempt
    made.append((name, number))
    if number in broken:
        raise ConnectionError(f"attempt {number}")
    return number


@hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.001))
async def first() -> int:
    return note("first")


@hf.action(registry=registry)
async def second() -> int:
    return note("second")


@hf.action(registry=registry, timeout=30.0)
def in_a_thread() -> int:
    return note("in a thread")


@hf.workflow(registry=registry)
async def sequence() -> list[int]:
    return [await first(), await second()]


@hf.workflow(registry=registry)
async def threaded() -> int:
    return await in_a_thread()


async def lose_the_turn(engine: hf.Engine) -> None:
    """A worker takes the turn and is never heard of again."""
    names = ("sequence", "threaded")
    gone = ClaimRequest(worker="gone", queue="default", limit=1, workflows=names, actions=names)
    assert len(await engine.store.claim(gone)) == 1


@pytest.fixture(autouse=True)
def anew() -> None:
    made.clear()
    broken.clear()


@pytest.mark.parametrize("workflow", [sequence, threaded], ids=lambda each: str(each.name))
async def test_i3_an_action_whose_driver_died_is_at_its_next_attempt(shared_url: str, workflow: Any) -> None:
    """I3: attempts are total executions, in functions too; what comes after it is at its first."""
    async with engine_on(shared_url, registry) as engine:
        handle = await engine.start(workflow)
        await lose_the_turn(engine)
        async with engine.worker():
            await handle.result(timeout=10)
    assert made[0][1] == 2
    assert [number for _, number in made[1:]] == [1] * (len(made) - 1)


async def test_i3_what_is_retried_after_a_loss_is_counted_on(shared_url: str) -> None:
    """I3, I6: lost, failed, done: three executions, and the loss uses nothing of the two that the policy allows."""
    broken.add(2)
    async with engine_on(shared_url, registry) as engine:
        handle = await engine.start(sequence)
        await lose_the_turn(engine)
        async with engine.worker():
            assert await handle.result(timeout=10) == [3, 1]
    assert made == [("first", 2), ("first", 3), ("second", 1)]
