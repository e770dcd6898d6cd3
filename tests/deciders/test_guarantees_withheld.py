"""What deciders do not promise, and the ways around it: each row is as the docs say, no better and no worse."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, Errand, PuppetInput, Reply, World
from tests.worker.support import until


async def test_effects_may_run_out_of_order_when_one_of_them_is_tried_again(stage: Stage) -> None:
    world = World(retry=hf.Retry(attempts=2, base=10.0, cap=10.0))

    async def first_fails(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        if (effect.what, ctx.attempt) == ("first", 1):
            raise ConnectionError("later")
        return None

    world.handler = first_fails
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("first", "second")))
        await clock.advance(minutes=1)
    assert world.journal == ["first 1", "second 1", "first 2"]


async def test_an_order_that_matters_is_kept_by_asking_for_the_next_effect_when_the_last_has_answered(
    stage: Stage,
) -> None:
    """The way around: the state gates the next effect."""
    world = World(retry=hf.Retry(attempts=2, base=10.0, cap=10.0))

    async def first_fails(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        if (effect.what, ctx.attempt) == ("first", 1):
            raise ConnectionError("later")
        return Act(ctx.workflow_id, ("first done",), errands=("second",)) if effect.what == "first" else None

    world.handler = first_fails
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("first",)))
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "first done")
    assert world.journal == ["first 1", "first 2", "second 1"]


async def test_an_effect_may_reach_the_world_twice_and_the_world_knows_it_by_its_key(
    stage: Stage, world: World
) -> None:
    """Cut off between the call and its settlement, it is called again; with the key the charge is one."""
    charges: dict[str, str] = {}

    async def charge(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        charges.setdefault(ctx.idempotency_key, effect.what)
        if len(world.journal) == 1:
            await asyncio.Event().wait()  # its answer never arrives
        return Reply(ctx.workflow_id, "charged")

    world.handler = charge
    async with stage.engine(world.registry, work=False, shutdown_seconds=0.05) as engine:
        async with engine.worker():
            await engine.execute(world.Puppet, Act("p", errands=("a",)))
            await until(lambda: charges, "the charge is made")
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("acted", "charged")
    assert len(world.journal) == 2
    assert list(charges.values()) == ["a"]


async def test_i13_every_effect_has_its_own_idempotency_key(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", errands=("same", "same")))
        await engine.execute(world.Puppet, Act("p", errands=("same",)))
        await engine.execute(world.Puppet, Act("q", errands=("same",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
    assert len({each.idempotency_key for each in world.contexts}) == 4


async def test_a_timer_may_be_late_and_is_then_applied_with_the_time_it_is(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry, work=False) as (engine, clock):
        began = clock.now()
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(60, "rang", "k"),)))
        await clock.advance(hours=1)  # nobody works meanwhile
        async with engine.worker():
            await clock.advance(seconds=0)
        assert (await engine.stream(world.Puppet, "p"))[1].at == began + timedelta(hours=1)


async def test_there_is_no_transaction_across_instances(stage: Stage, world: World) -> None:
    """What an effect did to another instance stays, when the effect then fails; a command id makes its retry safe."""
    async with stage.engine(world.registry) as engine:

        async def tell_another(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
            await engine.execute(world.Puppet, Act("q", ("told",)), command_id=ctx.idempotency_key)
            if ctx.attempt < 3:
                raise ConnectionError("after it had told")
            return Reply(ctx.workflow_id, "has told")

        world.handler = tell_another
        await engine.execute(world.Puppet, Act("p", errands=("tell",)))
        await until(lambda: _said(engine, world), "the third attempt succeeds")
        assert await world.words(engine, "q") == ("told",)
        assert world.journal == ["tell 1", "tell 2", "tell 3"]


async def _said(engine: hf.Engine, world: World) -> bool:
    return "has told" in await world.words(engine)
