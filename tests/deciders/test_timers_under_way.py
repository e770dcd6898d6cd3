"""A timer that is set anew while somebody applies its earlier setting."""

from __future__ import annotations

from holdfast.core.operations import STALE, CompleteWork
from holdfast.store.contract import ClaimRequest
from tests.deciders.conftest import Stage
from tests.deciders.orders import Act, Alarm, World
from tests.worker.support import assert_sound


async def test_i33_k3_a_firing_that_is_under_way_when_its_timer_is_set_anew_is_refused(
    stage: Stage, world: World
) -> None:
    """I33, K3: the newest setting wins; what the earlier one still reports must not end it."""
    async with stage.virtual(world.registry, work=False) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(3600.0, "first", "k"),)))
        await clock.advance(hours=1)
        await engine.store.promote(("default",))
        names = engine.definitions
        known = {"workflows": names.known_workflows(), "actions": names.known_actions()}
        (handed,) = await engine.store.claim(ClaimRequest(worker="slow", queue="default", limit=9, **known))
        await engine.execute(world.Puppet, Act("p", ("again",), alarms=(Alarm(3600.0, "second", "k"),)))
        fired = handed.work
        late = CompleteWork(run=fired.run, node=fired.node, attempt=fired.attempt, token=fired.token)
        assert (await engine.coordinator.submit(late)).verdict == STALE
        async with engine.worker():
            await clock.advance(minutes=59)
            assert await world.words(engine) == ("acted", "again")
            await clock.advance(minutes=1)
            assert await world.words(engine) == ("acted", "again", "second")
        await assert_sound(engine)
