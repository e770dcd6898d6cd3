"""Rows that cannot be read and work that nobody knows: a dead letter or a clear error, the instance intact, the worker
alive."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.rows import EVENTS, STREAM, WORK
from holdfast.store.memory import MemoryStore
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, World, order_class, reply
from tests.support.stores import execute
from tests.worker.support import assert_sound, until

HOUR = 3600.0
COLUMNS: dict[Any, str] = {WORK: "payload", STREAM: "data", EVENTS: "payload"}


async def _spoil(stage: Stage, table: Any, garbage: bytes, where: str = "true", **matches: Any) -> None:
    """Put garbage into every row of a table that matches, behind the store's back."""
    async with stage.site.opened() as store:
        if isinstance(store, MemoryStore):
            for row in list(store.tables[table].values()):
                if all(getattr(row, name) == value for name, value in matches.items()):
                    store._save(table, msgspec.structs.replace(row, **{COLUMNS[table]: garbage}))
            return
        literal = f"x'{garbage.hex()}'" if stage.kind == "sqlite" else f"'\\x{garbage.hex()}'::bytea"
        condition = " AND ".join([where, *(f"{name} = '{value}'" for name, value in matches.items())])
        await execute(store, f"UPDATE {table.name} SET {COLUMNS[table]} = {literal} WHERE {condition}")


GARBAGE = [b"\xff\x00 no payload", b'{"type": "Unheard", "what": "x"}']
IDS = ["garbage", "unknown tag"]


@pytest.mark.parametrize("garbage", GARBAGE, ids=IDS)
async def test_i8_a_corrupted_effect_is_a_dead_letter_at_once_and_the_next_one_runs(
    stage: Stage, world: World, garbage: bytes
) -> None:
    world.handler = reply
    async with stage.virtual(world.registry, work=False) as (engine, _):
        await engine.execute(world.Puppet, Act("p", errands=("a", "b")))
    await _spoil(stage, WORK, garbage, node="effect/1.0")
    async with stage.virtual(world.registry) as (engine, clock):
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "b done")
        assert world.journal == ["b 1"]
        (letter,) = await engine.dead()
        assert (letter.node, letter.attempt) == ("effect/1.0", 1), "no attempt was wasted on it"  # type: ignore[union-attr]
        (effect,) = (await engine.snapshot(world.Puppet, "p")).effects
        assert effect.status == "dead"
        assert effect.error is not None
        assert "effect" in effect.error
        await engine.execute(world.Puppet, Act("p", ("on",), errands=("c",)))
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "b done", "on", "c done")
        await assert_sound(engine)


@pytest.mark.parametrize("garbage", GARBAGE, ids=IDS)
async def test_i8_a_corrupted_timer_is_a_dead_letter_at_once_and_other_timers_fire(
    stage: Stage, world: World, garbage: bytes
) -> None:
    async with stage.virtual(world.registry, work=False) as (engine, _):
        await engine.execute(
            world.Puppet, Act("p", alarms=(Alarm(HOUR, "bad", "bad"), Alarm(2 * HOUR, "good", "good")))
        )
    await _spoil(stage, WORK, garbage, node="timer/bad")
    async with stage.virtual(world.registry) as (engine, clock):
        await clock.advance(hours=3)
        assert await world.words(engine) == ("acted", "good")
        (timer,) = (await engine.snapshot(world.Puppet, "p")).timers
        assert (timer.key, timer.status, timer.failures) == ("bad", "dead", 0), "no attempt was wasted on it"
        assert timer.error is not None
        assert [letter.node for letter in await engine.dead()] == ["timer/bad"]  # type: ignore[union-attr]
        await assert_sound(engine)


async def test_i8_a_timer_input_that_lost_a_field_is_a_dead_letter_at_once(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry, work=False) as (engine, _):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "bad", "k"),)))
    await _spoil(stage, WORK, b'{"type":"Ring","id":"p"}', node="timer/k")
    async with stage.virtual(world.registry) as (engine, clock):
        await clock.advance(hours=3)
        (timer,) = (await engine.snapshot(world.Puppet, "p")).timers
        assert (timer.status, timer.failures) == ("dead", 0)
        assert "alarm" in str(timer.error)
        await engine.execute(world.Puppet, Act("p", ("on",)))
        assert await world.words(engine) == ("acted", "on")


@pytest.mark.parametrize("garbage", GARBAGE, ids=IDS)
async def test_a_corrupted_input_in_an_inbox_is_a_dead_letter_and_those_behind_it_are_applied(
    stage: Stage, world: World, garbage: bytes
) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.enqueue_input(world.Puppet, Act("p", ("spoilt",)))
    await _spoil(stage, EVENTS, garbage)
    async with stage.engine(world.registry) as engine:
        for word in ("one", "two"):
            await engine.enqueue_input(world.Puppet, Act("p", (word,)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("one", "two")
        (letter,) = await engine.dead()
        assert letter.reason  # type: ignore[union-attr]
        await assert_sound(engine)


@pytest.mark.parametrize("garbage", GARBAGE, ids=IDS)
async def test_i37_a_corrupted_event_is_named_and_its_instance_is_intact_when_it_is_restored(
    stage: Stage, world: World, garbage: bytes
) -> None:
    """Inputs are refused, timers fail their attempts, and the worker lives on for others."""
    async with stage.virtual(world.registry, work=False) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", ("one",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await engine.execute(world.Puppet, Act("p", ("two",)))
    await _spoil(stage, STREAM, garbage, sequence=1)
    async with stage.virtual(world.registry) as (engine, clock):
        with pytest.raises(hf.HoldfastError, match=r"Spoke of puppet 'p', sequence 1"):
            await engine.execute(world.Puppet, Act("p", ("three",)))
        with pytest.raises(hf.HoldfastError, match=r"Spoke of puppet 'p', sequence 1"):
            await engine.state(world.Puppet, "p")
        await clock.advance(hours=2)
        (letter,) = await engine.dead()
        assert letter.node == "timer/k"  # type: ignore[union-attr]
        run = letter.run  # type: ignore[union-attr]
        await engine.execute(world.Puppet, Act("q", ("unharmed",), errands=("a",)))
        await clock.advance(minutes=1)
        assert world.journal == ["a 1"]
    await _spoil(stage, STREAM, b'{"type":"Spoke","word":"one"}', "workflow = 'puppet'", sequence=1, run=run)
    async with stage.virtual(world.registry) as (engine, clock):
        assert await engine.replay_dead(run, "timer/k")
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("one", "two", "rang")
        await assert_sound(engine)


async def test_i8_effects_of_a_decider_that_no_worker_knows_stay_and_then_are_dead_letters(stage: Stage) -> None:
    """Nobody here registers the puppet. What it asked for waits for somebody who does, for an hour."""
    world = World()
    async with stage.virtual(world.registry, work=False) as (engine, _):
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(60, "rang", "k"),)))
        run = (await engine.snapshot(world.Puppet, "p")).run_id
    others = hf.Registry()
    order_class(others)
    async with stage.virtual(others) as (engine, clock):
        await clock.advance(minutes=30)
        assert await engine.dead() == []
        told = str(await engine.get(run).explain())
        assert "puppet" in told
        await clock.advance(hours=2)
        await clock.advance(hours=2)
        letters = {letter.node: letter for letter in await engine.dead()}  # type: ignore[union-attr]
        assert set(letters) == {"effect/1.0", "timer/k"}
        await assert_sound(engine)
    world.handler = reply
    async with stage.virtual(world.registry, start_us=2_000_000_000_000_000) as (engine, clock):
        handle = engine.get(run)
        assert sorted(await handle.retry()) == ["effect/1.0", "timer/k"]
        await clock.advance(minutes=1)
        assert sorted(await world.words(engine)) == ["a done", "acted", "rang"]
        await assert_sound(engine)


async def test_i6_an_effect_that_kills_its_process_ends_as_a_dead_letter(shared_stage: Stage) -> None:
    await shared_stage.asked_and_killed()
    world = World()
    async with shared_stage.engine(world.registry, lost_limit=1) as engine:

        async def dead() -> list[Any]:
            return list(await engine.dead())

        (letter,) = await until(dead, "the effect is a dead letter")
        assert letter.node == "effect/1.0"
        (effect,) = (await engine.snapshot(world.Puppet, "p")).effects
        assert effect.error is not None
        assert "died 1 times" in effect.error
        world.handler = reply
        await engine.execute(world.Puppet, Act("p", ("on",), errands=("b",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("acted", "on", "b done")
        assert await engine.replay_dead(letter.run, "effect/1.0")
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("acted", "on", "b done", "a done")
        await assert_sound(engine)
