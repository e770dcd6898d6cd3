"""An input that is given twice: command ids, ids that inputs carry themselves, windows, on every store (I12)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Never

import msgspec
import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Create, Pay, Reply, World, order_class, reply
from tests.worker.support import assert_sound


async def test_i12_a_command_id_applies_once(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, observe_inputs="type") as engine:
        for _ in range(3):
            await engine.execute(world.Puppet, Act("p", errands=("a",)), command_id="req-9")
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("acted",)
        assert world.journal == ["a 1"]
        assert [(each.outcome, each.command_id) for each in await engine.observations(world.Puppet, "p")] == [
            ("applied", "req-9"), ("duplicate", "req-9"), ("duplicate", "req-9"),
        ]  # fmt: skip
        await assert_sound(engine)


async def test_i12_of_many_callers_with_one_command_id_one_is_applied(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await asyncio.gather(
            *(engine.execute(world.Puppet, Act("p", (str(n % 4),)), command_id=f"c{n % 4}") for n in range(32))
        )
        assert sorted(await world.words(engine)) == ["0", "1", "2", "3"]


async def test_i12_a_command_id_belongs_to_its_instance(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        for id in ("p", "q"):
            await engine.execute(world.Puppet, Act(id), command_id="c")
        assert (await world.words(engine, "p"), await world.words(engine, "q")) == (("acted",), ("acted",))


async def test_i12_a_command_id_holds_for_other_processes_and_other_doors(shared_stage: Stage, world: World) -> None:
    """Executed here, then there, then by an untyped caller, then through the inbox."""
    async with shared_stage.engine(world.registry) as here, shared_stage.engine(world.registry) as there:
        await here.execute(world.Puppet, Act("p", ("once",)), command_id="c")
        await there.execute(world.Puppet, Act("p", ("once",)), command_id="c")
        await there.execute_dynamic("puppet", {"type": "Act", "id": "p", "words": ["once"]}, command_id="c")
        await here.enqueue_input(world.Puppet, Act("p", ("once",)), command_id="c")
        await here.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(there) == ("once",)


async def test_i12_a_command_id_that_was_enqueued_is_used_up_at_once(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)), command_id="c")
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)), command_id="c")
        await engine.execute(world.Puppet, Act("p", ("queued",)), command_id="c")
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("queued",)


async def test_a_command_id_is_forgotten_after_its_retention(stage: Stage) -> None:
    """By its time, whether or not a worker has cleaned up meanwhile."""
    world = World(command_retention=timedelta(days=2))
    for id, work in (("alone", False), ("cleaned up", True)):
        async with stage.virtual(world.registry, work=work) as (engine, clock):
            await engine.execute(world.Puppet, Act(id), command_id="c")
            await clock.advance(days=1)
            await engine.execute(world.Puppet, Act(id), command_id="c")
            assert await world.words(engine, id) == ("acted",)
            await clock.advance(days=2)
            await engine.execute(world.Puppet, Act(id), command_id="c")
            assert await world.words(engine, id) == ("acted", "acted")


async def test_an_input_that_carries_its_own_id_applies_once(stage: Stage) -> None:
    """`@hf.idempotent(key=…)`; another id, or another instance, is another command."""
    registry = hf.Registry()
    order = order_class(registry)
    async with stage.engine(registry, work=False, observe_inputs="type") as engine:
        for id in ("17", "18"):
            await engine.execute(order, Create(id))
            await engine.execute(order, Pay(id, "visa-1"))
            await engine.execute(order, Pay(id, "visa-1"))
        await engine.execute(order, Pay("17", "visa-2"))
        assert (await engine.state(order, "17")).refused == 1
        assert (await engine.state(order, "18")).refused == 0
        outcomes = [(each.type, each.outcome) for each in await engine.observations(order, "17")]
        assert outcomes == [("Create", "applied"), ("Pay", "applied"), ("Pay", "duplicate"), ("Pay", "applied")]


async def test_a_command_id_that_is_given_counts_instead_of_the_inputs_own(stage: Stage) -> None:
    registry = hf.Registry()
    order = order_class(registry)
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(order, Create("17"))
        await engine.execute(order, Pay("17", "visa"), command_id="one")
        await engine.execute(order, Pay("17", "visa"), command_id="two")
        assert (await engine.state(order, "17")).refused == 1


async def test_what_an_effect_returns_is_applied_once_per_effect_also_if_its_id_was_seen(
    stage: Stage, world: World
) -> None:
    """An effect's answer belongs to that effect: two effects that answer alike have both answered."""
    world.handler = reply
    async with stage.engine(world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", errands=("same", "same")))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("acted", "same done", "same done")


async def test_i16_a_command_that_could_not_be_decided_may_be_given_again(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        with pytest.raises(hf.DecideFailed):
            await engine.execute(world.Puppet, Reply("p", "x", raises="not yet"), command_id="c")
        world.mended = True
        await engine.execute(world.Puppet, Reply("p", "x", raises="not yet"), command_id="c")
        assert await world.words(engine) == ("x",)


class Tick(msgspec.Struct, frozen=True):
    id: str
    word: str


class Ticked(msgspec.Struct, frozen=True):
    word: str


def windowed(dedup: hf.Dedup) -> Any:
    registry = hf.Registry()

    class Ticker(hf.Decider[str, Tick, Ticked, Never], name="ticker", registry=registry, dedup=dedup):
        def workflow_id(self, input: Tick) -> str:
            return input.id

        def initial(self) -> str:
            return ""

        def evolve(self, state: str, event: Ticked) -> str:
            return state + event.word

        def decide(self, now: datetime, state: str, input: Tick) -> hf.Decision[Ticked, Any, Any]:
            return hf.Decision.event(Ticked(input.word))

    return registry, Ticker


async def _given(engine: hf.Engine, ticker: Any, words: str) -> str:
    for word in words:
        await engine.execute(ticker, Tick("t", word))
    state: str = await engine.state(ticker, "t")
    return state


async def test_a_window_ignores_equal_inputs_among_the_last(stage: Stage) -> None:
    registry, ticker = windowed(hf.Dedup(last=2))
    async with stage.engine(registry, work=False) as engine:
        assert await _given(engine, ticker, "aabab") == "ab"
        assert await _given(engine, ticker, "ca") == "abca", "two others came after it"


async def test_a_window_ignores_equal_inputs_for_a_time(stage: Stage) -> None:
    registry, ticker = windowed(hf.Dedup(ttl=timedelta(minutes=10)))
    async with stage.virtual(registry, work=False) as (engine, clock):
        assert await _given(engine, ticker, "abcdefabcdef") == "abcdef"
        await clock.advance(minutes=9)
        assert await _given(engine, ticker, "a") == "abcdef"
        await clock.advance(minutes=2)
        assert await _given(engine, ticker, "aab") == "abcdefab"


async def test_a_window_with_both_needs_both(stage: Stage) -> None:
    registry, ticker = windowed(hf.Dedup(last=1, ttl=60.0))
    async with stage.virtual(registry, work=False) as (engine, clock):
        assert await _given(engine, ticker, "aa") == "a"
        assert await _given(engine, ticker, "ba") == "aba"
        await clock.advance(minutes=2)
        assert await _given(engine, ticker, "a") == "abaa"


async def test_a_window_counts_in_the_inbox_as_it_does_outside(stage: Stage) -> None:
    registry, ticker = windowed(hf.Dedup(last=1))
    async with stage.engine(registry, work=False) as engine:
        for word in "aabba":
            await engine.enqueue_input(ticker, Tick("t", word))
        async with engine.worker():
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert await engine.state(ticker, "t") == "aba"


async def test_without_a_window_equal_inputs_are_as_many_as_they_are(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        for _ in range(3):
            await engine.execute(world.Puppet, Act("p"))
        assert await world.words(engine) == ("acted",) * 3
