"""What operators do to instances, and names that change: pause, cancel, drain, prune, aliases, on every store."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, Create, Pay, World, always_fail, order_class, reply
from tests.worker.support import assert_sound

HOUR = 3600.0


async def _handle(engine: hf.Engine, world: World, id: str = "p") -> hf.Handle[Any]:
    return engine.get((await engine.snapshot(world.Puppet, id)).run_id)


async def test_i1_an_instance_is_a_run_that_is_running_until_it_ends(stage: Stage, world: World) -> None:
    """It is found, shown and explained like any other run."""
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p"))
        handle = await _handle(engine, world)
        assert await handle.status() == "running"
        (found,) = await engine.find(workflow="puppet")
        assert (found.id, found.key) == (handle.id, "p")
        assert "puppet" in str(await handle.explain())
        await engine.execute(world.Puppet, Act("p", end=True))
        assert await handle.status() == "completed"
        assert await engine.open_runs("puppet") == 0
        assert (await handle.explain()).status == "completed"


async def test_i1_a_completed_instance_stays_completed_whatever_is_asked(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", end=True))
        handle = await _handle(engine, world)
        assert not await handle.cancel()
        assert not await handle.pause()
        assert not await handle.resume()
        with pytest.raises(hf.UsageError, match="nothing to retry"):
            await handle.retry()
        assert await handle.status() == "completed"


async def test_g7_a_cancelled_instance_stays_cancelled_and_takes_inputs_silently(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry, observe_inputs="type") as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await clock.advance(seconds=0)
        handle = await _handle(engine, world)
        assert await handle.cancel()
        assert not await handle.cancel()
        await engine.execute(world.Puppet, Act("p", ("late",), errands=("b",)))
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted",)
        assert world.journal == ["a 1"]
        assert await handle.status() == "cancelled"
        assert [each.outcome for each in await engine.observations(world.Puppet, "p")] == ["applied", "ignored"]
        await assert_sound(engine)


async def test_i29_a_refused_reattempt_offers_no_fork_of_an_instance(stage: Stage, world: World) -> None:
    """It would be refused."""
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "rang", "k"),)))
        handle = await _handle(engine, world)
        await handle.cancel()
        with pytest.raises(hf.ReattemptRefused, match="the run is cancelled") as refused:
            await handle.reattempt("timer/k")
        assert refused.value.hint.startswith("give puppet an input that asks for it again")
        with pytest.raises(hf.RunCancelled, match="use another instance"):
            await handle.result(timeout=DEADLINE_SECONDS)


async def test_i11_a_pause_leaves_the_synchronous_door_open(stage: Stage, world: World) -> None:
    """Nothing of a paused instance is claimed; an input that somebody gives is decided, for they wait for it."""
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p"))
        handle = await _handle(engine, world)
        assert await handle.pause(reason="for the auditor")
        await engine.execute(world.Puppet, Act("p", ("paused",)))
        assert await world.words(engine) == ("acted", "paused")
        assert await handle.status() == "paused"
        assert "for the auditor" in str(await handle.explain())
        assert await handle.resume()
        assert await handle.status() == "running"


async def test_i11_dead_letters_of_a_paused_instance_are_not_retried_by_a_resume(stage: Stage, world: World) -> None:
    """The pause did not come from the failure; `retry` is what asks for the letters."""
    world.handler = always_fail
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(minutes=1)
        handle = await _handle(engine, world)
        await handle.pause()
        await handle.resume()
        await clock.advance(minutes=1)
        assert len(world.journal) == 3
        world.handler = reply
        assert await handle.retry() == ["effect/1.0"]
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "a done")


async def test_a_draining_decider_takes_no_new_instances_and_finishes_the_old(stage: Stage, world: World) -> None:
    world.handler = reply
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("old"))
        assert await engine.drain("puppet") == 1
        for door in (engine.execute, engine.enqueue_input):
            with pytest.raises(hf.UsageError, match=r"puppet.*drain"):
                await door(world.Puppet, Act("new"))
        assert await engine.stream(world.Puppet, "new") == []
        await engine.execute(world.Puppet, Act("old", ("last",), errands=("a",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        await engine.execute(world.Puppet, Act("old", ("end",), end=True))
        assert await world.words(engine, "old") == ("acted", "last", "a done", "end")
        assert await engine.drain("puppet") == 0
        await engine.drain("puppet", on=False)
        await engine.execute(world.Puppet, Act("new"))
        assert await world.words(engine, "new") == ("acted",)
        await assert_sound(engine)


@pytest.mark.parametrize("scope", [{}, {"queue": "default"}, {"workflow": "puppet"}], ids=["all", "queue", "workflow"])
async def test_i11_maintenance_claims_nothing_and_accepts_everything(
    stage: Stage, world: World, scope: dict[str, str]
) -> None:
    world.handler = reply
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.maintenance(True, **scope)
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(1, "rang", "k"),)))
        await clock.advance(hours=1)
        assert world.journal == []
        assert await world.words(engine) == ("acted",)
        await engine.maintenance(False, **scope)
        await clock.advance(seconds=1)
        assert sorted(await world.words(engine)) == ["a done", "acted", "rang"]


async def test_prune_removes_an_ended_instance_with_all_that_was_its_own(stage: Stage, world: World) -> None:
    """An input under its id begins a new instance: nothing of the old one shows, not even its command ids."""
    async with stage.virtual(world.registry, observe_inputs="payload") as (engine, clock):
        await engine.execute(world.Puppet, Act("p", end=True), command_id="c")
        await engine.execute(world.Puppet, Act("q"), command_id="c")
        await clock.advance(days=2)
        assert await engine.prune(older_than_seconds=86_400) == 1
        assert await engine.stream(world.Puppet, "p") == []
        assert await engine.observations(world.Puppet, "p") == []
        assert await world.words(engine) == ()
        assert await world.words(engine, "q") == ("acted",)
        await engine.execute(world.Puppet, Act("p", ("anew",)), command_id="c")
        assert await world.words(engine) == ("anew",)
        assert [fact.sequence for fact in await engine.stream(world.Puppet, "p")] == [1]
        await assert_sound(engine)


async def test_i15_a_renamed_decider_keeps_its_instances(stage: Stage) -> None:
    """Their state, timers, effects and command ids; new ones are created under the new name."""
    registry = hf.Registry()
    old = order_class(registry, "order")
    async with stage.virtual(registry, work=False) as (engine, _):
        await engine.execute(old, Create("17", 5), command_id="c")
        await engine.execute(old, Create("18", 5))
        await engine.enqueue_input(old, Create("19", 5))
    registry = hf.Registry()
    new = order_class(registry, "purchase", aliases=["order"])
    async with stage.virtual(registry) as (engine, clock):
        assert (await engine.state(new, "17")).cents == 5
        await engine.execute(new, Create("17", 7), command_id="c")
        await engine.execute(new, Pay("17", "visa"))
        await engine.execute_dynamic("purchase", {"type": "Create", "order_id": "20"})
        await engine.execute_dynamic("order", {"type": "Create", "order_id": "18"})  # by its old name too
        await clock.advance(minutes=40)
        assert (await engine.state(new, "17")).status == "done"
        assert (await engine.state(new, "17")).refused == 0
        assert [(await engine.state(new, id)).status for id in ("18", "19", "20")] == ["expired"] * 3
        assert (await engine.state(new, "18")).refused == 1
        assert {each.workflow_id for each in await engine.instances(new)} == {"17", "18", "19", "20"}
        assert await engine.dead() == []
        await assert_sound(engine)


def test_i15_two_deciders_under_one_name_are_an_error_that_names_both() -> None:
    registry = hf.Registry()
    order_class(registry)
    with pytest.raises(hf.UsageError, match="order"):

        class Other(
            hf.Decider[int, Create, Pay, Pay],
            name="order",
            registry=registry,
        ):
            def workflow_id(self, input: Create) -> str:
                return input.order_id

            def initial(self) -> int:
                return 0

            def evolve(self, state: int, event: Pay) -> int:
                return state

            def decide(self, now: Any, state: int, input: Create) -> Any: ...

            async def handle(self, effect: Pay, ctx: hf.EffectContext) -> None: ...


async def test_instances_are_listed_in_pages(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        for number in range(7):
            await engine.execute(world.Puppet, Act(f"p{number}", end=number % 2 == 0))
        seen: list[str] = []
        after: str | None = None
        while page := await engine.instances(world.Puppet, limit=3, after=after):
            seen += [each.workflow_id for each in page]
            after = page[-1].run_id
        assert sorted(seen) == [f"p{number}" for number in range(7)]
        assert len(await engine.instances(world.Puppet, status="completed")) == 4


async def test_i4_effects_and_timers_have_five_attempts_unless_told_otherwise(stage: Stage) -> None:
    """The defaults: five attempts, a second, then two, up to five minutes."""
    registry = hf.Registry()
    order = order_class(registry)
    calls: list[int] = []

    async def fail(self: Any, effect: Any, ctx: hf.EffectContext) -> None:
        calls.append(ctx.attempt)
        raise ConnectionError("never")

    order.handle = fail
    async with stage.virtual(registry) as (engine, clock):
        await engine.execute(order, Create("17"))
        await engine.execute(order, Pay("17", "visa"))
        await clock.advance(hours=1)
        assert calls == [1, 2, 3, 4, 5]
        (effect,) = (await engine.snapshot(order, "17")).effects
        assert (effect.status, effect.attempt) == ("dead", 5)


async def test_a_queue_of_its_own_serves_a_deciders_effects_timers_and_inbox(stage: Stage) -> None:
    world = World(queue="letters")
    world.handler = reply
    async with stage.virtual(world.registry) as (engine, clock):  # its worker serves the default queue
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(1, "rang", "k"),)))
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)))
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted",)
        async with engine.worker(queues=["letters"]):
            await clock.advance(minutes=1)
        assert sorted(await world.words(engine)) == ["a done", "acted", "queued", "rang"]
