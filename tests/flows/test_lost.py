"""An action of a flow that kills whoever runs it: a dead letter, unless the flow does something about it."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.store.contract import ClaimRequest
from tests.worker.support import assert_sound, engine_on

registry = hf.Registry()
NAMES = ("poison", "careless", "careful")


@hf.action(registry=registry)
async def poison() -> str:
    return "survived"


@hf.flow(registry=registry)
async def careless() -> str:
    return await poison()


@hf.flow(registry=registry)
async def careful() -> str:
    try:
        return await poison()
    except hf.RunError:
        return "without it"


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database, of each kind in turn."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


async def killed_by_it(engine: hf.Engine) -> None:
    """A worker takes the action and is never heard of again."""
    gone = ClaimRequest(worker="gone", queue="default", limit=1, workflows=NAMES, actions=NAMES)
    assert len(await engine.store.claim(gone)) == 1


async def test_i6_i9_an_action_of_a_flow_that_kills_its_worker_is_a_dead_letter(shared_url: str) -> None:
    """I6, I9: listed as those of other models are; brought back, it wakes the flow that waits for it."""
    async with engine_on(shared_url, registry, lost_limit=1) as engine:
        handle = await engine.start(careless)
        await killed_by_it(engine)
        async with engine.worker():
            with pytest.raises(hf.RunFailed, match="the worker died 1 times while running"):
                await handle.result(timeout=10)
            (letter,) = await engine.dead()
            assert (letter.run, letter.name) == (handle.id, "poison")
            assert await engine.replay_dead(letter.run, letter.node)
            assert await handle.result(timeout=10) == "survived"
            assert await engine.dead() == []
        await assert_sound(engine)


async def test_i9_i21_what_a_flow_caught_is_no_dead_letter(shared_url: str) -> None:
    """I9, I21: the flow has gone on without it, and nobody waits for it any more."""
    async with engine_on(shared_url, registry, lost_limit=1) as engine:
        handle = await engine.start(careful)
        await killed_by_it(engine)
        async with engine.worker():
            assert await handle.result(timeout=10) == "without it"
            assert await engine.dead() == []
        await assert_sound(engine)
