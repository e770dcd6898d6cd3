"""Observations: that an input came, what became of it, and the machine that instances were seen to be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, Create, Errand, Pay, PuppetInput, Reply, World, order_class, reply


async def test_nothing_is_observed_unless_it_is_asked_for(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p"))
        assert await engine.observations(world.Puppet, "p") == []
        assert await engine.transitions(world.Puppet) == []
        assert (await engine.snapshot(world.Puppet, "p")).observations == ()


@pytest.mark.parametrize("observe", ["type", "payload"])
async def test_every_door_is_observed_with_its_source_and_statuses(stage: Stage, world: World, observe: str) -> None:
    world.handler = reply
    async with stage.virtual(world.registry, observe_inputs=observe) as (engine, clock):
        began = clock.now()
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(60, "rang", "k"),)), command_id="c")
        await clock.advance(minutes=2)
        await engine.enqueue_input(world.Puppet, Act("p", ("last",), end=True))
        await clock.advance(seconds=0)
        seen = await engine.observations(world.Puppet, "p")
        assert [(each.type, each.source, each.outcome, each.before, each.after) for each in seen] == [
            ("Act", "command", "applied", "open", "open"),
            ("Reply", "effect", "applied", "open", "open"),
            ("Ring", "timer", "applied", "open", "open"),
            ("Act", "inbox", "applied", "open", "ended"),
        ]
        assert [each.number for each in seen] == sorted({each.number for each in seen})
        assert [each.command_id for each in seen] == ["c", None, None, None]
        assert [each.at - began for each in seen][::2] == [timedelta(0), timedelta(minutes=1)]
        payloads = [each.payload for each in seen]
        if observe == "type":
            assert payloads == [None] * 4
        else:
            assert payloads[1] == {"type": "Reply", "id": "p", "word": "a done", "raises": ""}
        assert (await engine.snapshot(world.Puppet, "p")).observations == tuple(seen)


async def test_i33_an_observation_commits_with_its_decision_or_not_at_all(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False, observe_inputs="payload") as engine:
        with pytest.raises(hf.DecideFailed):
            await engine.execute(world.Puppet, Act("p", raises="no"))
        assert await engine.observations(world.Puppet, "p") == []
        await engine.execute(world.Puppet, Act("p"))
        assert len(await engine.observations(world.Puppet, "p")) == 1


async def test_operators_history_and_observations_do_not_disturb_each_other(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, observe_inputs="type") as engine:
        await engine.execute(world.Puppet, Act("p"))
        handle = engine.get((await engine.snapshot(world.Puppet, "p")).run_id)
        await handle.pause()
        await engine.execute(world.Puppet, Act("p"))
        await handle.resume()
        await engine.execute(world.Puppet, Act("p"))
        await handle.cancel()
        await engine.execute(world.Puppet, Act("p"))
        assert [each.outcome for each in await engine.observations(world.Puppet, "p")] == ["applied"] * 3 + ["ignored"]
        assert [each.kind for each in await handle.history()] == ["paused", "resumed", "cancel requested"]


async def test_observed_transitions_are_counted_over_all_instances(stage: Stage) -> None:
    registry = hf.Registry()
    order = order_class(registry)
    async with stage.virtual(registry, observe_inputs="type") as (engine, clock):
        for id in ("1", "2", "3"):
            await engine.execute(order, Create(id))
        await engine.execute(order, Pay("1", "visa"))
        await engine.execute(order, Create("1"))
        await clock.advance(hours=1)
        seen = {(each.before, each.input, each.after): each.count for each in await engine.transitions(order)}
        assert seen[("new", "Create", "open")] == 3
        assert seen[("open", "Pay", "paid")] == 1
        assert seen[("open", "PaymentTimeout", "expired")] == 2
        assert seen[("paid", "Delivered", "done")] == 1
        machine = await engine.observed_state_machine(order)
        drawn = machine.mermaid()
        assert "Create" in drawn
        assert "expired" in drawn
        assert "Delivered" in drawn
        assert "digraph" in machine.dot()


async def test_what_is_observed_follows_the_setting_of_the_process(shared_stage: Stage, world: World) -> None:
    async with shared_stage.engine(world.registry, work=False) as off:
        await off.execute(world.Puppet, Act("p", ("unseen",)))
    async with shared_stage.engine(world.registry, work=False, observe_inputs="type") as on:
        await on.execute(world.Puppet, Act("p", ("seen",)))
        assert [each.payload for each in await on.observations(world.Puppet, "p")] == [None]
        assert await world.words(on) == ("unseen", "seen")


@pytest.mark.parametrize("wrong", ["all", "", "TYPE", None, True, 1])
def test_an_unknown_setting_is_refused_with_the_known_ones(wrong: Any) -> None:
    with pytest.raises(hf.UsageError, match=r"observe_inputs.*off, type, payload"):
        hf.Engine("memory://", observe_inputs=wrong)


async def test_an_effect_that_is_tried_again_is_observed_once_when_its_answer_is_applied(
    stage: Stage, world: World
) -> None:
    async def third_time(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return Reply(ctx.workflow_id, "done")

    world.handler = third_time
    async with stage.virtual(world.registry, observe_inputs="type") as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await clock.advance(minutes=1)
        seen = await engine.observations(world.Puppet, "p")
        assert [(each.type, each.source) for each in seen] == [("Act", "command"), ("Reply", "effect")]


async def test_observations_survive_what_is_observed_no_more(stage: Stage, world: World) -> None:
    """Another engine that knows no such codec or class still lists what was kept."""
    async with stage.engine(world.registry, work=False, observe_inputs="payload", codec="msgpack") as engine:
        await engine.execute(world.Puppet, Act("p"))
    async with stage.engine(world.registry, work=False) as engine:
        (seen,) = await engine.observations(world.Puppet, "p")
        assert seen.payload["type"] == "Act"
        await engine.settle(timeout=DEADLINE_SECONDS)
