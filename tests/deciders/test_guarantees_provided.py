"""What deciders promise, row by row: serial instances, parallel work, at least once, recovery, an orderly end."""

from __future__ import annotations

import asyncio

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import (
    Act,
    Alarm,
    Create,
    Delivered,
    Errand,
    Pay,
    PuppetInput,
    Reply,
    Spoke,
    World,
    always_fail,
    order_class,
    reply,
)
from tests.worker.support import assert_sound, until


async def test_inputs_of_one_instance_are_serial_however_many_arrive_at_once(stage: Stage, world: World) -> None:
    """Same-instance serialization: 64 callers, sequences without gaps, every input in the state once."""
    async with stage.engine(world.registry) as engine:
        await asyncio.gather(
            *(engine.execute(world.Puppet, Act("p", (f"{number}", f"{number}'"))) for number in range(64))
        )
        facts = await engine.stream(world.Puppet, "p")
        assert [fact.sequence for fact in facts] == list(range(1, 129))
        positions = [fact.position for fact in facts]
        assert positions == sorted(set(positions))
        words = await world.words(engine)
        assert sorted(words) == sorted(f"{number}{mark}" for number in range(64) for mark in ("", "'"))
        pairs = list(zip(words[::2], words[1::2], strict=True))
        assert all(second == f"{first}'" for first, second in pairs), "no input came between another's events"
        assert [fact.event for fact in facts] == [Spoke(word) for word in words]
        await assert_sound(engine)


async def test_equal_inputs_at_once_are_all_applied_if_nothing_says_they_are_one(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await asyncio.gather(*(engine.execute(world.Puppet, Act("p", ("same",))) for _ in range(64)))
        assert await world.words(engine) == ("same",) * 64
        assert (await engine.snapshot(world.Puppet, "p")).sequence == 64


async def test_two_engines_on_one_store_take_turns_on_one_instance(shared_stage: Stage) -> None:
    """Each folds what the other wrote: neither decides on a state that it remembers and that is old."""
    registry = hf.Registry()
    order = order_class(registry)
    async with (
        shared_stage.engine(registry, work=False) as here,
        shared_stage.engine(registry, work=False) as there,
    ):
        await here.execute(order, Create("17", 1))
        await there.execute(order, Create("17", 2))
        await here.execute(order, Create("17", 3))
        await there.execute(order, Pay("17", "visa"))
        await here.execute(order, Pay("17", "amex"))
        for engine in (here, there):
            assert [fact.type for fact in await engine.stream(order, "17")] == [
                "Created", "Refused", "Refused", "Paid", "TimerCancelled", "Refused",
            ]  # fmt: skip
            state = await engine.state(order, "17")
            assert (state.status, state.cents, state.refused) == ("paid", 1, 3)
            await assert_sound(engine)


async def test_two_engines_at_once_on_one_instance_lose_no_input(shared_stage: Stage, world: World) -> None:
    async with (
        shared_stage.engine(world.registry) as here,
        shared_stage.engine(world.registry) as there,
    ):
        engines = (here, there)
        await asyncio.gather(
            *(engines[number % 2].execute(world.Puppet, Act("p", (str(number),))) for number in range(40))
        )
        for engine in engines:
            assert sorted(map(int, await world.words(engine))) == list(range(40))
            assert [fact.sequence for fact in await engine.stream(world.Puppet, "p")] == list(range(1, 41))
        await assert_sound(here)


async def test_effects_of_different_instances_run_at_the_same_time(stage: Stage, world: World) -> None:
    """Different-instance parallelism: each handler waits until all of them have begun."""
    begun = asyncio.Barrier(8)

    async def meet(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await begun.wait()
        return Reply(ctx.workflow_id, "met")

    world.handler = meet
    async with stage.engine(world.registry) as engine:
        await asyncio.gather(*(engine.execute(world.Puppet, Act(f"p{n}", errands=("a",))) for n in range(8)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        for number in range(8):
            assert await world.words(engine, f"p{number}") == ("acted", "met")


async def test_effects_of_one_instance_run_one_after_the_other_also_with_many_workers(
    shared_stage: Stage, world: World
) -> None:
    running: list[str] = []
    most = 0

    async def alone(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        nonlocal most
        running.append(effect.what)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(effect.what)
        return Reply(ctx.workflow_id, effect.what)

    world.handler = alone
    async with shared_stage.engine(world.registry) as here, shared_stage.engine(world.registry) as there:
        await here.execute(world.Puppet, Act("p", errands=tuple(str(number) for number in range(20))))
        await here.settle(timeout=DEADLINE_SECONDS)
        assert (await world.words(there))[1:] == tuple(str(number) for number in range(20))
    assert most == 1
    assert len(world.journal) == 20


async def test_an_effect_is_delivered_at_least_once(stage: Stage, world: World) -> None:
    """It is tried until it works, within its attempts, and nobody has to ask for it again."""

    async def second_time(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        if not ctx.is_retry:
            raise ConnectionError("the first time never works")
        return Reply(ctx.workflow_id, "delivered")

    world.handler = second_time
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await until(lambda: _said(engine, world, "delivered"), "the effect is delivered")
        assert world.journal == ["a 1", "a 2"]


async def test_a_timer_is_delivered_in_real_time_too(stage: Stage, world: World) -> None:
    """Timer at-least-once, and G6: by the store's own clock it is not early."""
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(0.05, "rang", "k"),)))
        await until(lambda: _said(engine, world, "rang"), "the timer fires")
        first, second = await engine.stream(world.Puppet, "p")
        assert (second.at - first.at).total_seconds() >= 0.05


async def test_a_timer_outlives_the_process_that_set_it(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(3600, "rang", "k"),)))
    async with stage.virtual(world.registry) as (engine, clock):
        assert await world.words(engine) == ("acted",)
        await clock.advance(hours=1)
        assert await world.words(engine) == ("acted", "rang")


async def test_g3_no_effect_runs_twice_while_nobody_dies(shared_stage: Stage, world: World) -> None:
    """No duplicate concurrent processing: two engines with a worker each, one work table."""
    world.handler = reply
    async with shared_stage.engine(world.registry) as here, shared_stage.engine(world.registry) as there:
        engines = (here, there)
        await asyncio.gather(
            *(engines[n % 2].execute(world.Puppet, Act(f"p{n}", errands=(f"{n}",))) for n in range(40))
        )
        await here.settle(timeout=DEADLINE_SECONDS)
        for number in range(40):
            assert await world.words(here, f"p{number}") == ("acted", f"{number} done")
    assert sorted(world.journal) == sorted(f"{number} 1" for number in range(40))


async def test_i7_what_a_killed_worker_held_is_taken_over_at_once(shared_stage: Stage) -> None:
    """Worker crash recovery: the lease is 30 s, and nobody waits for it; the input that was acknowledged is there."""
    await shared_stage.asked_and_killed()
    world = World(retry=hf.Retry(attempts=1))  # I6: a lost lease uses no budget
    world.handler = reply
    async with shared_stage.engine(world.registry) as engine:
        await until(lambda: _said(engine, world, "a done"), "the effect runs here", seconds=10)
        assert world.journal == ["a 2"]
        assert await world.words(engine) == ("acted", "a done")
        await assert_sound(engine)


async def test_graceful_shutdown_finishes_the_effect_that_runs(stage: Stage, world: World) -> None:
    world.gates["a"] = asyncio.Event()
    world.handler = reply
    async with stage.engine(world.registry, work=False) as engine:
        async with engine.worker() as worker:
            await engine.execute(world.Puppet, Act("p", errands=("a", "b")))
            await until(lambda: world.journal, "the handler of a is called")
            stopping = asyncio.create_task(worker.stop())
            await asyncio.sleep(0)
            world.gates["a"].set()
            await stopping
        assert await world.words(engine) == ("acted", "a done"), "what ran was finished, and nothing new begun"
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("acted", "a done", "b done")
        assert world.journal == ["a 1", "b 1"]


async def test_a_shutdown_that_runs_out_of_patience_leaves_the_effect_to_others(stage: Stage, world: World) -> None:
    """Best effort: it is cut off, and runs again; that does not use its budget (I6)."""
    world.gates["a"] = asyncio.Event()
    world.handler = reply
    async with stage.engine(world.registry, work=False, shutdown_seconds=0.05) as engine:
        async with engine.worker():
            await engine.execute(world.Puppet, Act("p", errands=("a",)))
            await until(lambda: world.journal, "the handler of a is called")
        assert await world.words(engine) == ("acted",)
        world.gates["a"].set()
        async with engine.worker():
            await until(lambda: _said(engine, world, "a done"), "the effect runs again")
        assert len(world.journal) == 2


async def test_g1_an_acknowledged_input_survives_the_process(shared_stage: Stage, world: World) -> None:
    """Everything of the decision was committed when execute returned: events, effects and timers."""
    async with shared_stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(3600, "later", "k"),)))
    async with shared_stage.engine(world.registry, work=False) as engine:
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert snapshot.state.words == ("acted",)
        assert [each.id for each in snapshot.effects] == ["effect/1.0"]
        assert [each.key for each in snapshot.timers] == ["k"]


async def test_execute_returns_none_and_raises_for_infrastructure_only(stage: Stage) -> None:
    """A business refusal is an event; a completed instance takes its input silently."""
    registry = hf.Registry()
    order = order_class(registry)
    async with stage.engine(registry) as engine:
        answers: list[object] = [await engine.execute(order, Delivered("17"))]  # type: ignore[func-returns-value]
        assert [fact.event.why for fact in await engine.stream(order, "17")] == ["Delivered when new"]
        await engine.execute(order, Create("17"))
        await engine.execute(order, Pay("17", "visa"))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert (await engine.state(order, "17")).status == "done"
        answers.append(await engine.execute(order, Create("17")))  # type: ignore[func-returns-value]
        await engine.execute_dynamic("order", {"type": "Create", "order_id": "17"})
        assert answers == [None, None]
        assert len(await engine.stream(order, "17")) == 5


async def test_one_engine_serves_many_deciders_at_once(stage: Stage, world: World) -> None:
    """Multi-workflow: one registry routes inputs, effects and timers by the decider's name."""
    order = order_class(world.registry)
    world.handler = always_fail
    async with stage.engine(world.registry) as engine:
        await engine.execute(order, Create("x"))
        await engine.execute(world.Puppet, Act("x", errands=("a",)))
        await engine.execute(order, Pay("x", "visa"))
        await until(lambda: _dead(engine), "the puppet's effect gives up")
        assert (await engine.state(order, "x")).status == "done"
        assert await world.words(engine, "x") == ("acted",)
        assert {each.workflow for each in await engine.instances(order)} == {"order"}


async def _said(engine: hf.Engine, world: World, word: str) -> bool:
    return word in await world.words(engine)


async def _dead(engine: hf.Engine) -> bool:
    return bool(await engine.dead())
