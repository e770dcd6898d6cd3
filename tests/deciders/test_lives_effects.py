"""The life of an effect: what it looks like and what it may become in each of its states, on every store."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.instance_documents import InstanceSnapshot, PendingEffect
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Errand, PuppetInput, Reply, Spoke, World, always_fail, reply
from tests.worker.support import assert_sound, until


async def _effects(engine: hf.Engine, world: World, id: str = "p") -> tuple[PendingEffect, ...]:
    snapshot: InstanceSnapshot = await engine.snapshot(world.Puppet, id)
    return snapshot.effects


async def _statuses(engine: hf.Engine, world: World) -> list[tuple[str, str]]:
    return [(each.id, each.status) for each in await _effects(engine, world)]


async def test_i2_the_first_effect_of_an_instance_is_ready_and_the_others_are_blocked(
    stage: Stage, world: World
) -> None:
    """Nobody works: what was asked for is stored, in the order in which it was asked for."""
    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p", ("x", "y"), errands=("a", "b")))
        assert await _statuses(engine, world) == [("effect/1.0", "ready"), ("effect/1.1", "blocked")]
        await engine.execute(world.Puppet, Act("p", errands=("c",)))
        assert await _statuses(engine, world) == [
            ("effect/1.0", "ready"), ("effect/1.1", "blocked"), ("effect/3.0", "blocked"),
        ]  # fmt: skip
        assert {each.type for each in await _effects(engine, world)} == {"Errand"}
        assert {each.attempt for each in await _effects(engine, world)} == {1}
        await assert_sound(engine)


async def test_i2_while_its_handler_runs_an_effect_is_leased_and_the_next_one_waits(stage: Stage, world: World) -> None:
    world.gates["a"] = asyncio.Event()
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", errands=("a", "b")))
        await until(lambda: world.journal, "the handler of a is called")
        assert await _statuses(engine, world) == [("effect/1.0", "leased"), ("effect/1.1", "blocked")]
        await engine.execute(world.Puppet, Act("p", ("meanwhile",), errands=("c",)))  # inputs go on
        assert await world.words(engine) == ("acted", "meanwhile")
        assert world.journal == ["a 1"]
        world.gates["a"].set()
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert world.journal == ["a 1", "b 1", "c 1"]
        assert await _effects(engine, world) == ()
        await assert_sound(engine)


async def test_an_effect_that_returns_nothing_is_done_and_leaves_no_event(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert world.journal == ["a 1"]
        assert [each.type for each in await engine.stream(world.Puppet, "p")] == ["Spoke"]
        assert await _effects(engine, world) == ()


async def test_an_input_that_an_effect_returns_is_executed_as_the_effect_is_settled(stage: Stage, world: World) -> None:
    """At no moment is the effect done and its input not applied, or the reverse."""
    world.handler = reply
    seen: list[tuple[int, int]] = []
    async with stage.engine(world.registry) as engine:

        async def look() -> None:
            snapshot = await engine.snapshot(world.Puppet, "p")
            seen.append((snapshot.sequence, len(snapshot.effects)))

        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await until(lambda: look_then(look, seen, (2, 0)), "the reply of a")
        assert set(seen) <= {(1, 1), (2, 0)}
        facts = await engine.stream(world.Puppet, "p")
        assert [(each.event, each.cause) for each in facts][1:] == [(Spoke("a done"), "effect/1.0")]


async def look_then(look: object, seen: list[tuple[int, int]], end: tuple[int, int]) -> bool:
    await look()  # type: ignore[operator]
    return seen[-1] == end


async def test_i3_an_effect_that_raises_is_tried_again_under_the_same_key(stage: Stage, world: World) -> None:
    """I13: every attempt hands the same idempotency key to the world."""

    async def fail_twice(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return Reply(ctx.workflow_id, f"after {ctx.attempt}")

    world.handler = fail_twice
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(seconds=1)
        assert await world.words(engine) == ("acted", "after 3")
    assert [(each.attempt, each.is_retry) for each in world.contexts] == [(1, False), (2, True), (3, True)]
    assert len({each.idempotency_key for each in world.contexts}) == 1
    assert {each.workflow_id for each in world.contexts} == {"p"}


async def test_an_effect_that_waits_for_its_retry_is_ready_with_a_due_time_and_an_error(
    stage: Stage,
) -> None:
    world = World(retry=hf.Retry(attempts=5, base=60.0, cap=300.0))
    world.handler = always_fail
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(seconds=0)
        (effect,) = await _effects(engine, world)
        assert (effect.status, effect.attempt) == ("ready", 2)
        assert 60 <= (effect.due - clock.now()).total_seconds() < 120  # base, and jitter below base
        assert effect.error == "ConnectionError: a did not work"
        await clock.advance(seconds=59)
        assert world.journal == ["a 1"]
        await clock.advance(seconds=61)
        assert world.journal == ["a 1", "a 2"]


async def test_i9_an_effect_that_used_up_its_attempts_is_a_dead_letter_and_its_instance_goes_on(
    stage: Stage, world: World
) -> None:
    world.handler = always_fail
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(minutes=1)
        assert world.journal == ["a 1", "a 2", "a 3"]
        (effect,) = await _effects(engine, world)
        assert (effect.status, effect.attempt, effect.error) == ("dead", 3, "ConnectionError: a did not work")
        (letter,) = await engine.dead()
        assert (letter.kind, letter.node, letter.attempt) == ("effect", "effect/1.0", 3)  # type: ignore[union-attr]
        (instance,) = await engine.instances(world.Puppet)
        assert (instance.status, instance.dead, instance.effects) == ("running", 1, 0)
        world.handler = reply
        await engine.execute(world.Puppet, Act("p", ("more",), errands=("b",)))
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "more", "b done")
        await assert_sound(engine)


async def test_i9_a_dead_effect_is_replayed_with_a_fresh_budget_and_the_same_key(stage: Stage, world: World) -> None:
    world.handler = always_fail
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(minutes=1)
        run = (await engine.snapshot(world.Puppet, "p")).run_id
        assert await engine.replay_dead(run, "effect/1.0")
        await clock.advance(minutes=1)
        assert world.journal == [f"a {attempt}" for attempt in range(1, 7)]  # three more, and dead again
        world.handler = reply
        assert await engine.replay_dead(run, "effect/1.0")
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "a done")
        assert await engine.dead() == []
        assert await _effects(engine, world) == ()
        assert not await engine.replay_dead(run, "effect/1.0"), "it is done"
        assert len({each.idempotency_key for each in world.contexts}) == 1
        await assert_sound(engine)


async def test_i9_retry_of_the_run_replays_all_dead_letters_of_an_instance(stage: Stage, world: World) -> None:
    world.handler = always_fail
    async with stage.virtual(world.registry, work=False) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a", "b")))
        async with engine.worker():
            await clock.advance(minutes=1)
        assert [each.status for each in await _effects(engine, world)] == ["dead", "dead"]
        world.handler = reply
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        assert sorted(await handle.retry()) == ["effect/1.0", "effect/1.1"]
        assert sorted(each.status for each in await _effects(engine, world)) == ["blocked", "ready"], "one at a time"
        assert [(each.effects, each.dead) for each in await engine.instances(world.Puppet)] == [(2, 0)]
        async with engine.worker():
            await clock.advance(minutes=1)
        assert sorted(await world.words(engine)) == ["a done", "acted", "b done"]
        await assert_sound(engine)


async def test_i9_a_discarded_dead_effect_is_gone_and_its_instance_goes_on(stage: Stage, world: World) -> None:
    world.handler = always_fail
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(minutes=1)
        run = (await engine.snapshot(world.Puppet, "p")).run_id
        assert await engine.discard_dead(run, "effect/1.0")
        assert not await engine.discard_dead(run, "effect/1.0")
        assert (await engine.dead(), await _effects(engine, world)) == ([], ())
        assert await engine.get(run).status() == "running"
        await engine.execute(world.Puppet, Act("p", ("on",)))
        assert await world.words(engine) == ("acted", "on")
        await assert_sound(engine)


async def test_i3_non_retryable_stops_an_effect_at_once(stage: Stage, world: World) -> None:
    async def never_again(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        raise hf.NonRetryable("the card was stolen")

    world.handler = never_again
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(minutes=1)
        assert world.journal == ["a 1"]
        (effect,) = await _effects(engine, world)
        assert (effect.status, effect.error) == ("dead", "NonRetryable: the card was stolen")


async def test_i3_only_errors_of_the_types_that_retry_on_names_are_tried_again(stage: Stage) -> None:
    world = World(retry=hf.Retry(attempts=3, base=0.01, cap=0.02, retry_on=(ConnectionError,)))

    async def by_name(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        raise ConnectionError("busy") if effect.what == "transient" else ValueError("wrong for ever")

    world.handler = by_name
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("transient",)))
        await engine.execute(world.Puppet, Act("q", errands=("permanent",)))
        await clock.advance(minutes=1)
        assert sorted(world.journal) == ["permanent 1", "transient 1", "transient 2", "transient 3"]
        assert [letter.status for letter in await engine.dead()] == ["dead", "dead"]


async def test_i5_an_effect_that_exceeds_its_time_has_failed_and_is_tried_again(stage: Stage) -> None:
    world = World(effect_timeout=5.0)
    world.gates["a"] = asyncio.Event()
    world.handler = reply
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await until(lambda: world.journal, "the handler is called")
        await clock.advance(seconds=4)
        assert world.journal == ["a 1"]
        await clock.advance(seconds=1)
        (effect,) = await _effects(engine, world)
        assert effect.error is not None
        assert "5" in effect.error
        del world.gates["a"]
        await clock.advance(seconds=1)
        assert world.journal[:2] == ["a 1", "a 2"]
        assert await world.words(engine) == ("acted", "a done")


async def test_i16_an_effect_whose_input_cannot_be_decided_has_failed_and_wrote_nothing(
    stage: Stage, world: World
) -> None:
    """Its handler is called again for each attempt, and the instance is as it was."""

    async def bad_reply(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        return Reply(ctx.workflow_id, "never said", raises="this cannot be")

    world.handler = bad_reply
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(minutes=1)
        assert world.journal == ["a 1", "a 2", "a 3"]
        assert await world.words(engine) == ("acted",)
        (effect,) = await _effects(engine, world)
        assert effect.status == "dead"
        assert effect.error is not None
        assert "this cannot be" in effect.error
        world.mended = True  # the code is repaired, and the letter replayed
        assert await engine.replay_dead((await engine.snapshot(world.Puppet, "p")).run_id, "effect/1.0")
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "never said")
        await assert_sound(engine)


async def test_an_effect_that_fails_lets_the_one_behind_it_pass(stage: Stage) -> None:
    """Effects of an instance run one at a time, and one that waits for its retry holds up nobody."""
    world = World(retry=hf.Retry(attempts=3, base=10.0, cap=20.0))

    async def fail_first(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        if effect.what == "a" and ctx.attempt == 1:
            raise ConnectionError("later")
        return Reply(ctx.workflow_id, f"{effect.what} done")

    world.handler = fail_first
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a", "b", "c")))
        await clock.advance(seconds=1)
        assert await world.words(engine) == ("acted", "b done", "c done")
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "b done", "c done", "a done")
        await assert_sound(engine)


async def test_i10_a_cancel_takes_waiting_effects_away_and_refuses_what_a_running_one_returns(
    stage: Stage, world: World
) -> None:
    world.gates["a"] = asyncio.Event()

    async def stubborn(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        return Reply(ctx.workflow_id, "too late")

    world.handler = stubborn
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", errands=("a", "b")))
        await until(lambda: world.journal, "the handler of a is called")
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        assert await handle.cancel()
        assert await handle.status() == "cancelled"
        world.gates["a"].set()
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert world.journal == ["a 1"]
        assert await world.words(engine) == ("acted",)
        assert await _effects(engine, world) == ()
        await assert_sound(engine)


async def test_i11_a_paused_instance_starts_no_effect_and_a_resumed_one_does(stage: Stage, world: World) -> None:
    world.handler = reply
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p"))
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        assert await handle.pause()
        await engine.execute(world.Puppet, Act("p", ("while paused",), errands=("a",)))  # accepted
        await clock.advance(hours=1)
        assert (world.journal, await handle.status()) == ([], "paused")
        assert await world.words(engine) == ("acted", "while paused")
        assert await handle.resume()
        await clock.advance(seconds=0)
        assert await world.words(engine) == ("acted", "while paused", "a done")
        assert await handle.status() == "running"


async def test_i34_effects_of_an_instance_that_ended_while_it_was_paused_are_not_stuck(
    stage: Stage, world: World
) -> None:
    """G9: a paused instance accepts its last input; once nothing holds it, what that asked for happens."""
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p"))
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        await handle.pause()
        await engine.execute(world.Puppet, Act("p", errands=("a",), end=True))
        await handle.resume()
        await clock.advance(seconds=1)
        assert world.journal == ["a 1"]
        assert await handle.status() == "completed"


async def test_i6_an_effect_that_was_cut_off_with_its_worker_runs_again_without_using_its_budget(stage: Stage) -> None:
    world = World(retry=hf.Retry(attempts=1))
    world.gates["a"] = asyncio.Event()
    world.handler = reply
    async with stage.virtual(world.registry, lease_seconds=30.0) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await until(lambda: world.journal, "the handler is called")
    # That engine is gone with its worker, in the middle of the handler.
    world.gates["a"].set()
    async with stage.virtual(world.registry, start_us=START_LATER) as (engine, clock):
        await clock.advance(minutes=2)
        assert await world.words(engine) == ("acted", "a done")
        assert len(world.journal) == 2
        await assert_sound(engine)


START_LATER = 1_900_000_000_000_000 + 120_000_000


@pytest.mark.parametrize("end", [False, True], ids=["in a live instance", "in one that has ended"])
async def test_i34_a_dead_effect_can_be_replayed(stage: Stage, world: World, end: bool) -> None:
    world.handler = always_fail
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",), end=end))
        await clock.advance(minutes=1)
        assert [each.status for each in await _effects(engine, world)] == ["dead"]
        world.handler = reply
        assert await engine.replay_dead((await engine.snapshot(world.Puppet, "p")).run_id, "effect/1.0")
        await clock.advance(minutes=1)
        assert await engine.dead() == []
        assert await world.words(engine) == (("acted",) if end else ("acted", "a done"))
        await assert_sound(engine)
