"""What `holdfast explain` says of instances of deciders, each in a situation made for real.

Run with `pytest -s` to read the texts: does each say what to do?
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

import holdfast as hf
from holdfast.core.ids import instance_id
from holdfast.explain import Explanation
from holdfast.store.contract import WorkerRow
from holdfast.testing.virtual_clock import VirtualClock
from tests.deciders.conftest import Stage
from tests.deciders.orders import Act, Alarm, World, always_fail

RUN = instance_id("puppet", "p")
TITLE = f"puppet/p (run {RUN})"
NOW = "2030-03-17 17:46:40 UTC"
IN_AN_HOUR = "2030-03-17 18:46:40 UTC"
START_A_WORKER = "holdfast worker tests.deciders.orders"
SHOW = f"holdfast show {RUN} --traceback"


@pytest.fixture
def world() -> World:
    return World(retry=hf.Retry(attempts=2, base=600.0, cap=600.0))


@asynccontextmanager
async def standing(world: World) -> AsyncIterator[tuple[hf.Engine, VirtualClock]]:
    """An engine without a worker, and time that stands still."""
    async with Stage.memory().virtual(world.registry, work=False) as (engine, clock):
        yield engine, clock


async def told(engine: hf.Engine, *words: str, fixes: Sequence[str] = ()) -> Explanation:
    """The explanation, which holds these words and exactly these commands."""
    explanation = await engine.get(RUN).explain()
    text = str(explanation)
    print(f"\n{text}")
    for word in words:
        assert word in text
    assert [fix.command for fix in explanation.fixes] == list(fixes)
    return explanation


async def test_g9_an_instance_with_nothing_pending_waits_for_its_next_input(world: World) -> None:
    """That is not a fault, and no command helps."""
    async with standing(world) as (engine, _):
        await engine.execute(world.Puppet, Act("p"))
        explanation = await told(engine)
        assert explanation.summary == f"{TITLE} waits for its next input; nothing else of it is pending"
        assert explanation.reasons == ()


async def test_i33_a_timer_is_told_with_what_it_gives_and_when(world: World) -> None:
    async with standing(world) as (engine, _), engine.worker():
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(3600, "ring", "payment"), Alarm(7200, "later"))))
        explanation = await told(engine, f"timer payment gives it Ring at {IN_AN_HOUR} (in 1 hour)")
        assert explanation.summary == (
            f"{TITLE} waits for its next input, or for timer payment at {IN_AN_HOUR} and 1 more. "
            "Nothing needs to be done"
        )
        assert explanation.reasons[1].startswith("timer Ring (timer/#")


async def test_i8_a_timer_that_nobody_would_fire_needs_a_worker(world: World) -> None:
    async with standing(world) as (engine, _):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(3600, "ring", "payment"),)))
        await told(
            engine,
            "timer payment needs a worker when the time comes, and no worker is running",
            fixes=[START_A_WORKER],
        )


async def test_i33_an_effect_is_told_with_those_that_wait_behind_it(world: World) -> None:
    """They are carried out one at a time, and that is why the others do not move."""
    async with standing(world) as (engine, _):
        await engine.execute(world.Puppet, Act("p", errands=("a", "b", "c")))
        explanation = await told(
            engine,
            f"effect Errand (effect/1.0) is ready since {NOW}, and no worker is running",
            "effect Errand (effect/1.1), effect Errand (effect/1.2) wait behind effect Errand (effect/1.0): "
            "the effects of an instance are carried out one at a time",
            fixes=[START_A_WORKER],
        )
        assert explanation.summary == f"{TITLE} waits for effect Errand (effect/1.0) to be carried out"


async def test_i3_an_effect_that_backs_off_is_told_with_the_time_and_the_error(world: World) -> None:
    world.handler = always_fail
    async with standing(world) as (engine, _), engine.worker():
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await engine.settle(timeout=5)
        explanation = await told(
            engine,
            "effect Errand (effect/1.0) is backing off until 2030-03-17 17:56:40 UTC (in 10 minutes) before attempt 2, "
            "after ConnectionError: a did not work",
            fixes=[SHOW],
        )
        assert explanation.summary.endswith("to be carried out at 2030-03-17 17:56:40 UTC. Nothing needs to be done")


async def test_i9_a_dead_effect_and_a_dead_timer_are_told_with_the_ways_out(world: World) -> None:
    """The instance goes on, and somebody has to decide."""
    world.handler = always_fail
    async with standing(world) as (engine, clock), engine.worker():
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(1, "no bell", "bell", raises=True),)))
        for _ in range(4):
            await clock.advance(seconds=601)
        explanation = await told(
            engine,
            "effect Errand (effect/1.0) is a dead letter since ",
            ", after 2 attempts: ConnectionError: a did not work",
            "timer bell is a dead letter since ",
            "no bell",
            fixes=[
                f"holdfast dead replay {RUN} effect/1.0",
                f"holdfast dead discard {RUN} effect/1.0",
                f"holdfast dead replay {RUN} timer/bell",
                f"holdfast dead discard {RUN} timer/bell",
                SHOW,
            ],
        )
        assert explanation.summary == (
            f"{TITLE} waits for its next input; nothing else of it is pending. 2 dead letters wait for a decision"
        )


async def test_i9_an_input_that_could_not_be_applied_is_told_with_its_reason(world: World) -> None:
    async with standing(world) as (engine, _):
        await engine.enqueue_input(world.Puppet, Act("p", raises="no such order"))
        async with engine.worker():
            await engine.settle(timeout=5)
        (letter,) = await engine.dead()
        await told(
            engine,
            "1 dead letter waits for a decision",
            "1 input of its inbox is a dead letter: DecideFailed: puppet 'p' could not decide on Act: Refusal: no such",
            fixes=[f"holdfast dead replay {letter.id}", f"holdfast dead discard {letter.id}"],  # type: ignore[union-attr]
        )


async def test_i8_an_effect_that_no_live_worker_knows_says_which_type_is_missing(world: World) -> None:
    """A worker with other code of the decider is named: it is the one to be replaced."""
    async with standing(world) as (engine, _):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        older = WorkerRow(
            id="w1", host="here", pid=7, queues=("default",), workflows=("puppet",), actions=("puppet", "puppet:Act")
        )
        await engine.store.enroll(older, 30.0)
        await told(
            engine,
            "but no live worker of queue 'default' knows puppet.Errand",
            "worker w1 (host here, pid 7) has other code of puppet",
            fixes=[START_A_WORKER],
        )
        (run,) = await engine.find(workflow="puppet")
        (fix,) = (await engine.get(run.id).explain()).fixes
        assert fix.purpose.startswith("to bring Errand back into the code of puppet, under that very name")


async def test_the_inbox_is_told_with_its_depth_and_age(world: World) -> None:
    async with standing(world) as (engine, clock):
        for word in ("one", "two", "three"):
            await engine.enqueue_input(world.Puppet, Act("p", words=(word,)))
        await clock.advance(minutes=5)
        explanation = await told(
            engine,
            f"its inbox is ready since {NOW}, and no worker is running",
            "3 inputs wait in its inbox, the oldest for ",
            fixes=[START_A_WORKER],
        )
        assert explanation.summary == f"{TITLE} waits for 3 inputs of its inbox to be applied"


async def test_i11_maintenance_holds_back_effects_and_inbox(world: World) -> None:
    async with standing(world) as (engine, _), engine.worker():
        await engine.maintenance(True, workflow="puppet", by="ada")
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await told(
            engine,
            f"but workflow puppet is in maintenance since {NOW} (by ada)",
            fixes=["holdfast maintenance off --workflow puppet"],
        )


async def test_i11_a_paused_instance_takes_inputs_and_starts_nothing(world: World) -> None:
    async with standing(world) as (engine, _), engine.worker():
        await engine.execute(world.Puppet, Act("p"))
        await engine.get(RUN).pause(by="ada", reason="lunch")
        await engine.execute(world.Puppet, Act("p", words=("noted",), errands=("a", "b")))
        explanation = await told(engine, fixes=[f"holdfast resume {RUN}"])
        assert explanation.summary == (
            f"{TITLE} is paused by ada: lunch (since {NOW}). Nothing of it starts until it is resumed, but inputs are "
            "applied"
        )
        assert explanation.reasons == ()  # that effects wait behind each other is not what keeps them
        assert await world.words(engine) == ("acted", "noted")


async def test_an_effect_that_runs_is_told_with_who_runs_it(world: World) -> None:
    world.gates["a"] = asyncio.Event()
    async with standing(world) as (engine, _), engine.worker():
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        explanation = await told(engine, f"effect Errand (effect/1.0), attempt 1, is running since {NOW}")
        assert explanation.summary == f"{TITLE} carries out effect Errand (effect/1.0). Nothing needs to be done"
        world.gates["a"].set()


async def test_i34_an_instance_that_has_ended_says_what_is_still_to_be_done(world: World) -> None:
    async with standing(world) as (engine, _):
        await engine.execute(
            world.Puppet, Act("p", errands=("goodbye",), alarms=(Alarm(3600, "ring", "payment"),), end=True)
        )
        explanation = await told(
            engine,
            f"timer payment gives it Ring at {IN_AN_HOUR} (in 1 hour), which it ignores, as it has ended",
            fixes=[START_A_WORKER],
        )
        assert explanation.summary == (
            f"{TITLE} reached its end at {NOW}, less than a second after its first input, and ignores further ones. "
            "What it had asked for still happens: effect Errand (effect/1.0), timer payment are left"
        )
        async with engine.worker():
            await engine.settle(timeout=5)
        await engine.get(RUN).cancel()  # which changes nothing any more
        explanation = await told(engine, "timer payment is left")
        assert "effect" not in explanation.summary
