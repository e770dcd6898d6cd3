"""The life of a timer: what it looks like and what it may become in each of its states, on every store."""

from __future__ import annotations

from datetime import timedelta

import holdfast as hf
from holdfast.instance_documents import PendingTimer
from tests.deciders.conftest import Stage
from tests.deciders.orders import Act, Alarm, Ring, World
from tests.worker.support import assert_sound

HOUR = 3600.0


async def _timers(engine: hf.Engine, world: World, id: str = "p") -> tuple[PendingTimer, ...]:
    return (await engine.snapshot(world.Puppet, id)).timers


async def test_a_timer_that_is_set_is_shown_with_its_key_input_and_due_time(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        later, soon = Alarm(2 * HOUR, "later", "k"), Alarm(HOUR, "soon")
        await engine.execute(world.Puppet, Act("p", alarms=(later, soon)))
        assert [(each.key, each.type, each.status, each.due) for each in await _timers(engine, world)] == [
            (None, "Ring", "ready", clock.now() + timedelta(hours=1)),
            ("k", "Ring", "ready", clock.now() + timedelta(hours=2)),
        ]
        await assert_sound(engine)


async def test_g6_a_timer_is_never_early_and_applies_its_input_once(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "rang", "k"),)))
        await clock.advance(seconds=HOUR - 0.001)
        assert await world.words(engine) == ("acted",)
        await clock.advance(seconds=0.001)
        assert await world.words(engine) == ("acted", "rang")
        await clock.advance(days=30)
        assert await world.words(engine) == ("acted", "rang")
        facts = await engine.stream(world.Puppet, "p")
        assert facts[1].at - facts[0].at == timedelta(hours=1)
        assert facts[1].cause == "timer/k"
        assert await _timers(engine, world) == ()
        await assert_sound(engine)


async def test_timers_that_became_due_while_nobody_worked_fire_in_order_when_somebody_does(
    stage: Stage, world: World
) -> None:
    async with stage.virtual(world.registry, work=False) as (engine, clock):
        alarms = tuple(Alarm(HOUR * number, f"at {number}", f"k{number}") for number in (3, 1, 2))
        await engine.execute(world.Puppet, Act("p", alarms=alarms))
        await clock.advance(days=1)
        assert await world.words(engine) == ("acted",)
        async with engine.worker(concurrency=1):
            await clock.advance(seconds=1)
        assert await world.words(engine) == ("acted", "at 1", "at 2", "at 3")


async def test_i33_a_timer_set_again_under_its_key_has_the_new_input_and_time(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "first", "k"),)))
        await engine.execute(world.Puppet, Act("p", ("again",), alarms=(Alarm(3 * HOUR, "second", "k"),)))
        assert [(each.key, each.due - clock.now()) for each in await _timers(engine, world)] == [
            ("k", timedelta(hours=3))
        ]
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted", "again")
        await clock.advance(hours=1)
        assert await world.words(engine) == ("acted", "again", "second")
        assert not any(fact.system for fact in await engine.stream(world.Puppet, "p")), "replaced, not cancelled"


async def test_of_two_timers_under_one_key_in_one_decision_the_later_one_counts(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        alarms = (Alarm(HOUR, "first", "k"), Alarm(2 * HOUR, "second", "k"))
        await engine.execute(world.Puppet, Act("p", alarms=alarms))
        await clock.advance(days=1)
        assert await world.words(engine) == ("acted", "second")
        await assert_sound(engine)


async def test_timers_without_a_key_replace_nobody(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "a"), Alarm(HOUR, "b"))))
        await engine.execute(world.Puppet, Act("p", ("again",), alarms=(Alarm(HOUR, "a"),)))
        assert len(await _timers(engine, world)) == 3
        await clock.advance(days=1)
        assert sorted((await world.words(engine))[2:]) == ["a", "a", "b"]


async def test_a_timer_key_belongs_to_its_instance(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        for id in ("p", "q"):
            await engine.execute(world.Puppet, Act(id, alarms=(Alarm(HOUR, f"rang {id}", "k"),)))
        await engine.execute(world.Puppet, Act("q", ("off",), cancel=("k",)))
        await clock.advance(days=1)
        assert await world.words(engine, "p") == ("acted", "rang p")
        assert await world.words(engine, "q") == ("acted", "off")


async def test_i33_a_cancelled_timer_does_not_fire_and_leaves_a_system_record(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "rang", "k"),)))
        await engine.execute(world.Puppet, Act("p", ("off",), cancel=("k",)))
        assert await _timers(engine, world) == ()
        await clock.advance(days=1)
        assert await world.words(engine) == ("acted", "off")
        last = (await engine.stream(world.Puppet, "p"))[-1]
        record: object = last.event
        assert (last.sequence, last.system, last.type, record) == (3, True, "TimerCancelled", hf.TimerCancelled("k"))
        await assert_sound(engine)


async def test_i33_cancelling_a_timer_that_is_not_set_leaves_no_trace(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", ("one",), cancel=("never set",)))
        await engine.execute(world.Puppet, Act("p", ("two",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await clock.advance(hours=2)
        await engine.execute(world.Puppet, Act("p", ("three",), cancel=("k",)))  # it has fired
        assert [fact.type for fact in await engine.stream(world.Puppet, "p")] == ["Spoke"] * 4


async def test_i33_cancelling_and_setting_one_key_in_one_decision_leaves_a_live_timer(
    stage: Stage, world: World
) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "old", "k"),)))
        await engine.execute(world.Puppet, Act("p", ("anew",), alarms=(Alarm(HOUR * 2, "new", "k"),), cancel=("k",)))
        assert [fact.type for fact in await engine.stream(world.Puppet, "p")] == ["Spoke", "Spoke", "TimerCancelled"]
        assert [each.key for each in await _timers(engine, world)] == ["k"]
        await clock.advance(days=1)
        assert await world.words(engine) == ("acted", "anew", "new")
        await assert_sound(engine)


async def test_i33_a_timer_that_sets_itself_again_as_it_fires_stays_set(stage: Stage, world: World) -> None:
    """A year of billing, in no time."""
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR * 24 * 30, "bill", "k", again=11),)))
        await clock.advance(days=30 * 5)
        assert await world.words(engine) == ("acted", *["bill"] * 5)
        assert [each.key for each in await _timers(engine, world)] == ["k"]
        await clock.advance(days=400)
        assert await world.words(engine) == ("acted", *["bill"] * 12)
        assert await _timers(engine, world) == ()
        await assert_sound(engine)


async def test_a_timer_whose_input_cannot_be_decided_is_tried_again_and_then_a_dead_letter(
    stage: Stage, world: World
) -> None:
    """I16: nothing was written; I9: the instance goes on without it."""
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "broken", "k", raises=True),)))
        await clock.advance(hours=2)
        (timer,) = await _timers(engine, world)
        assert (timer.key, timer.status, timer.failures) == ("k", "dead", 3)
        assert timer.error is not None
        assert "broken" in timer.error
        (letter,) = await engine.dead()
        assert (letter.kind, letter.node) == ("timer", "timer/k")  # type: ignore[union-attr]
        (instance,) = await engine.instances(world.Puppet)
        assert (instance.status, instance.dead) == ("running", 1)
        await engine.execute(world.Puppet, Act("p", ("on",)))
        assert await world.words(engine) == ("acted", "on")
        await assert_sound(engine)


async def test_i9_a_dead_timer_is_replayed(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "mended", "k", raises=True),)))
        await clock.advance(hours=2)
        run = (await engine.snapshot(world.Puppet, "p")).run_id
        world.mended = True
        assert await engine.replay_dead(run, "timer/k")
        await clock.advance(seconds=1)
        assert await world.words(engine) == ("acted", "mended")
        assert (await engine.dead(), await _timers(engine, world)) == ([], ())
        await assert_sound(engine)


async def test_i9_a_discarded_dead_timer_is_gone_and_its_instance_goes_on(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "broken", "k", raises=True),)))
        await clock.advance(hours=2)
        run = (await engine.snapshot(world.Puppet, "p")).run_id
        assert await engine.discard_dead(run, "timer/k")
        assert (await engine.dead(), await _timers(engine, world)) == ([], ())
        await engine.execute(world.Puppet, Act("p", ("anew",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted", "anew", "rang")
        await assert_sound(engine)


async def test_i33_setting_a_dead_timer_again_begins_afresh(stage: Stage, world: World) -> None:
    """Due time, attempts and error are those of the new one; the dead letter is no more."""
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "broken", "k", raises=True),)))
        await clock.advance(hours=2)
        assert len(await engine.dead()) == 1
        await engine.execute(world.Puppet, Act("p", ("anew",), alarms=(Alarm(HOUR, "still broken", "k", raises=True),)))
        assert await engine.dead() == []
        (timer,) = await _timers(engine, world)
        assert (timer.status, timer.failures, timer.error) == ("ready", 0, None)
        assert timer.due == clock.now() + timedelta(hours=1)
        await clock.advance(hours=2)
        (timer,) = await _timers(engine, world)
        assert (timer.status, timer.failures) == ("dead", 3), "it had all its attempts again"
        assert timer.error is not None
        assert "still broken" in timer.error
        await assert_sound(engine)


async def test_i33_setting_a_timer_that_waits_for_its_retry_begins_afresh(stage: Stage) -> None:
    world = World(retry=hf.Retry(attempts=2, base=HOUR, cap=HOUR))
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(1, "broken", "k", raises=True),)))
        await clock.advance(seconds=2)
        (timer,) = await _timers(engine, world)
        assert (timer.status, timer.failures) == ("ready", 1)
        assert timer.due - clock.now() > timedelta(minutes=59)
        await engine.execute(world.Puppet, Act("p", ("anew",), alarms=(Alarm(60, "fine", "k"),)))
        (timer,) = await _timers(engine, world)
        assert (timer.failures, timer.error, timer.due) == (0, None, clock.now() + timedelta(minutes=1))
        await clock.advance(minutes=2)
        assert await world.words(engine) == ("acted", "anew", "fine")
        await clock.advance(hours=5)
        assert await world.words(engine) == ("acted", "anew", "fine")


async def test_i33_a_dead_timer_can_be_cancelled(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "broken", "k", raises=True),)))
        await clock.advance(hours=2)
        await engine.execute(world.Puppet, Act("p", ("off",), cancel=("k",)))
        assert (await engine.dead(), await _timers(engine, world)) == ([], ())
        (instance,) = await engine.instances(world.Puppet)
        assert instance.dead == 0
        await assert_sound(engine)


async def test_a_timer_in_the_past_is_due_at_once(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(-HOUR, "was due", "k"), Alarm(0, "is due"))))
        await clock.advance(seconds=0)
        assert sorted(await world.words(engine)) == ["acted", "is due", "was due"]
        await assert_sound(engine)


async def test_i10_a_cancel_of_the_instance_takes_its_timers_away(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "rang", "k"), Alarm(HOUR, "too"))))
        assert await engine.get((await engine.snapshot(world.Puppet, "p")).run_id).cancel()
        assert await _timers(engine, world) == ()
        await clock.advance(days=1)
        assert await world.words(engine) == ("acted",)
        await assert_sound(engine)


async def test_i11_a_pause_keeps_due_times_and_a_resume_fires_what_is_overdue(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        alarms = (Alarm(HOUR, "overdue", "a"), Alarm(3 * HOUR, "in time", "b"))
        await engine.execute(world.Puppet, Act("p", alarms=alarms))
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        await handle.pause()
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted",)
        assert [each.due - clock.now() for each in await _timers(engine, world)] == [
            timedelta(hours=-1), timedelta(hours=1),
        ]  # fmt: skip
        await handle.resume()
        await clock.advance(seconds=0)
        assert await world.words(engine) == ("acted", "overdue")
        await clock.advance(hours=1)
        assert await world.words(engine) == ("acted", "overdue", "in time")


async def test_i11_a_timer_set_while_the_instance_is_paused_fires_after_the_resume(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p"))
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        await handle.pause()
        await engine.execute(world.Puppet, Act("p", ("set",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted", "set")
        await handle.resume()
        await clock.advance(seconds=0)
        assert await world.words(engine) == ("acted", "set", "rang")


async def test_i34_a_timer_that_fires_after_the_end_is_ignored_and_settled(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry, observe_inputs="type") as (engine, clock):
        await engine.execute(world.Puppet, Act("p", end=True, alarms=(Alarm(HOUR, "rang", "k"),)))
        assert [each.key for each in await _timers(engine, world)] == ["k"]
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted",)
        assert await _timers(engine, world) == ()
        assert [(each.type, each.source, each.outcome) for each in await engine.observations(world.Puppet, "p")] == [
            ("Act", "command", "applied"), ("Ring", "timer", "ignored"),
        ]  # fmt: skip
        await assert_sound(engine)


async def test_i35_a_timer_decides_with_the_time_at_which_it_fires(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        before = clock.now()
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "rang", "k"),)))
        await clock.advance(hours=5)
        assert set(world.clocks) == {before, before + timedelta(hours=1)}


async def test_a_timer_given_by_hand_is_an_input_like_any_other_and_leaves_the_timer_set(
    stage: Stage, world: World
) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        alarm = Alarm(HOUR, "rang", "k")
        await engine.execute(world.Puppet, Act("p", alarms=(alarm,)))
        await engine.execute(world.Puppet, Ring("p", alarm))
        assert await world.words(engine) == ("acted", "rang")
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted", "rang", "rang")
