"""The inbox: inputs that are kept now and applied soon, in order, on every store."""

from __future__ import annotations

import asyncio

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, World, reply
from tests.worker.support import assert_sound

HOUR = 3600.0


async def test_g1_an_enqueued_input_is_durable_and_not_applied_yet(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.enqueue_input(world.Puppet, Act("p", ("one",)))
        await engine.enqueue_input("puppet", {"type": "Act", "id": "p", "words": ["two"]})
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert (snapshot.inbox, snapshot.sequence, snapshot.state.words) == (2, 0, ())
        await assert_sound(engine)
    async with stage.engine(world.registry) as engine:
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("one", "two")
        assert (await engine.snapshot(world.Puppet, "p")).inbox == 0
        await assert_sound(engine)


async def test_inputs_of_an_inbox_are_applied_in_the_order_of_their_arrival(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        for number in range(250):
            await engine.enqueue_input(world.Puppet, Act("p", (str(number),)))
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == tuple(map(str, range(250)))
        await assert_sound(engine)


async def test_the_order_holds_with_many_workers(shared_stage: Stage, world: World) -> None:
    """Three workers in two engines compete; two writers enqueue, each waiting for its own inputs to be kept."""
    async with (
        shared_stage.engine(world.registry) as here,
        shared_stage.engine(world.registry) as there,
        here.worker(),
    ):

        async def write(engine: hf.Engine, who: str) -> None:
            for number in range(30):
                await engine.enqueue_input(world.Puppet, Act("p", (f"{who}{number}",)))

        await asyncio.gather(write(here, "h"), write(there, "t"))
        await here.settle(timeout=DEADLINE_SECONDS)
        words = await world.words(here)
        assert len(words) == 60
        for who in "ht":
            assert [word for word in words if word[0] == who] == [f"{who}{number}" for number in range(30)]
        await assert_sound(here)


async def test_instances_do_not_wait_for_each_others_inbox(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await asyncio.gather(*(engine.enqueue_input(world.Puppet, Act(f"p{n % 5}", (str(n // 5),))) for n in range(50)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        for number in range(5):
            assert sorted(await world.words(engine, f"p{number}"), key=int) == [str(n) for n in range(10)]


async def test_the_synchronous_door_does_not_wait_for_the_inbox(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)))
        await engine.execute(world.Puppet, Act("p", ("at once",)))
        assert await world.words(engine) == ("at once",)
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("at once", "queued")


async def test_effects_and_timers_follow_from_enqueued_inputs_too(stage: Stage, world: World) -> None:
    world.handler = reply
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.enqueue_input(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted", "a done", "rang")


async def test_i16_an_input_that_cannot_be_decided_is_a_dead_letter_and_the_others_are_applied(
    stage: Stage, world: World
) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        for number in range(8):
            await engine.enqueue_input(world.Puppet, Act("p", (str(number),), raises="no" if number in (0, 5) else ""))
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
            assert await world.words(engine) == ("1", "2", "3", "4", "6", "7")
            letters = await engine.dead()
            assert len(letters) == 2
            assert all("no" in str(letter.reason) for letter in letters)  # type: ignore[union-attr]
            snapshot = await engine.snapshot(world.Puppet, "p")
            assert (snapshot.inbox, snapshot.status) == (0, "running")
            await assert_sound(engine)


async def test_i9_a_dead_input_is_replayed_into_its_inbox(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await engine.enqueue_input(world.Puppet, Act("p", ("bad",), raises="no"))
        await engine.enqueue_input(world.Puppet, Act("p", ("good",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        (letter,) = await engine.dead()
        world.mended = True
        assert await engine.replay_dead(letter.id)  # type: ignore[union-attr]
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("good", "bad")
        assert await engine.dead() == []
        assert (await engine.snapshot(world.Puppet, "p")).inbox == 0
        await assert_sound(engine)


async def test_i9_a_dead_input_is_discarded(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await engine.enqueue_input(world.Puppet, Act("p", ("bad",), raises="no"))
        await engine.settle(timeout=DEADLINE_SECONDS)
        (letter,) = await engine.dead()
        assert await engine.discard_dead(letter.id)  # type: ignore[union-attr]
        assert await engine.dead() == []
        await engine.enqueue_input(world.Puppet, Act("p", ("good",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("good",)
        await assert_sound(engine)


async def test_stats_tell_how_much_waits_and_for_how_long(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry, work=False) as (engine, clock):
        assert ((await engine.stats()).store.inbox, (await engine.stats()).store.inbox_oldest_seconds) == (0, 0.0)
        await engine.enqueue_input(world.Puppet, Act("p"))
        await clock.advance(seconds=90)
        await engine.enqueue_input(world.Puppet, Act("q"))
        stats = (await engine.stats()).store
        assert stats.inbox == 2
        assert 90 <= stats.inbox_oldest_seconds < 91
        async with engine.worker():
            await clock.advance(seconds=1)
        assert (await engine.stats()).store.inbox == 0


async def test_i11_a_paused_instance_leaves_its_inbox_and_a_resumed_one_empties_it(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", ("first",)))
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        await handle.pause()
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert (await engine.snapshot(world.Puppet, "p")).inbox == 1
        assert await world.words(engine) == ("first",)
        await handle.resume()
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("first", "queued")


async def test_i10_a_cancelled_instance_drops_its_inbox_and_ignores_what_comes(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p", ("first",)))
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)))
        await engine.get((await engine.snapshot(world.Puppet, "p")).run_id).cancel()
        await engine.enqueue_input(world.Puppet, Act("p", ("too late",)))
        await engine.execute(world.Puppet, Act("p", ("much too late",)))
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("first",)
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert (snapshot.inbox, snapshot.status) == (0, "cancelled")
        assert (await engine.stats()).store.inbox == 0
        assert await engine.dead() == []
        await assert_sound(engine)


async def test_i34_an_instance_that_ends_in_the_middle_of_its_inbox_ignores_the_rest(
    stage: Stage, world: World
) -> None:
    async with stage.engine(world.registry, work=False, observe_inputs="type") as engine:
        for number in range(5):
            await engine.enqueue_input(world.Puppet, Act("p", (str(number),), end=number == 2))
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("0", "1", "2")
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert (snapshot.inbox, snapshot.status) == (0, "completed")
        outcomes = [each.outcome for each in snapshot.observations]
        assert outcomes == ["applied"] * 3 + ["ignored"] * 2
        assert {each.source for each in snapshot.observations} == {"inbox"}
        await assert_sound(engine)


async def test_maintenance_keeps_inboxes_waiting_and_accepts_everything(stage: Stage, world: World) -> None:
    """I11: nothing is claimed; inputs, queued or not, are taken."""
    world.handler = reply
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.maintenance(True, workflow="puppet")
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)))
        await engine.execute(world.Puppet, Act("p", ("now",), errands=("a",), alarms=(Alarm(60, "rang", "k"),)))
        await clock.advance(hours=1)
        assert await world.words(engine) == ("now",)
        assert world.journal == []
        await engine.maintenance(False, workflow="puppet")
        await clock.advance(seconds=1)
        assert sorted(await world.words(engine)) == ["a done", "now", "queued", "rang"]
        await assert_sound(engine)
