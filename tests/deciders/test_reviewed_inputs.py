"""What a review found about inputs: windows that forget too early, repetitions nobody saw, messages that jam an inbox."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any, Never

import msgspec
import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, World, order_class, Create


class Tick(msgspec.Struct, frozen=True):
    id: str
    word: str
    more: dict[str, int] = {}


class Ticked(msgspec.Struct, frozen=True):
    word: str


def windowed(dedup: hf.Dedup, **options: Any) -> Any:
    registry = hf.Registry()

    class Ticker(hf.Decider[str, Tick, Ticked, Never], name="ticker", registry=registry, dedup=dedup, **options):
        def workflow_id(self, input: Tick) -> str:
            return input.id

        def initial(self) -> str:
            return ""

        def evolve(self, state: str, event: Ticked) -> str:
            return state + event.word

        def decide(self, now: datetime, state: str, input: Tick) -> hf.Decision[Ticked, Any, Any]:
            return hf.Decision.event(Ticked(input.word))

    return registry, Ticker


@pytest.mark.parametrize("dedup", [hf.Dedup(ttl=timedelta(days=30)), hf.Dedup(last=3)], ids=["ttl", "last"])
async def test_i12_a_window_is_remembered_for_as_long_as_it_is_open(stage: Stage, dedup: hf.Dedup) -> None:
    """Housekeeping forgets command ids after a week, and what a window needs when the window has passed."""
    registry, ticker = windowed(dedup)
    async with stage.virtual(registry) as (engine, clock):
        await engine.execute(ticker, Tick("t", "a"))
        await clock.advance(days=8)
        await engine.local_workers[0]._caretaker.look_after_others("nobody", everything=True)
        await engine.execute(ticker, Tick("t", "a"))
        assert await engine.state(ticker, "t") == "a"


class Nonce:
    """A codec whose bytes differ every time, as those of encryption do."""

    tag = "nonce"

    def encode(self, value: Any) -> bytes:
        return os.urandom(8) + msgspec.json.encode(value)

    def decode(self, data: bytes, type: Any) -> Any:
        return msgspec.json.decode(data[8:], type=type)


async def test_i12_equal_inputs_are_one_in_the_window_whatever_their_bytes(stage: Stage) -> None:
    registry, ticker = windowed(hf.Dedup(last=5))
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(ticker, Tick("t", "a", {"x": 1, "y": 2}))
        await engine.execute(ticker, Tick("t", "a", {"y": 2, "x": 1}))
        assert await engine.state(ticker, "t") == "a"


async def test_a_repetition_at_the_inbox_is_observed_as_one_at_the_front_door_is(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, observe_inputs="type") as engine:
        await engine.enqueue_input(world.Puppet, Act("p"), command_id="c")
        await engine.settle(timeout=DEADLINE_SECONDS)
        await engine.enqueue_input(world.Puppet, Act("p"), command_id="c")
        await engine.settle(timeout=DEADLINE_SECONDS)
        seen = await engine.observations(world.Puppet, "p")
        assert [(each.source, each.outcome, each.command_id) for each in seen] == [
            ("inbox", "applied", "c"),
            ("inbox", "duplicate", "c"),
        ]


@pytest.mark.parametrize("message", ["\ud800 in a name", "\0", "plain"])
async def test_i8_an_input_whose_refusal_cannot_be_written_as_it_is_does_not_jam_its_inbox(
    stage: Stage, world: World, message: str
) -> None:
    async with stage.engine(world.registry) as engine:
        world.mended = False
        original = world.decide

        def decide(input: Any) -> Any:
            if input.words == ("bad",):
                raise ValueError(message)
            return original(input)

        world.decide = decide  # type: ignore[method-assign]
        await engine.enqueue_input(world.Puppet, Act("p", ("bad",)))
        await engine.enqueue_input(world.Puppet, Act("p", ("good",)))
        await engine.settle(timeout=5)
        assert await world.words(engine) == ("good",)


async def test_i15_pages_of_a_renamed_decider_hold_every_instance(stage: Stage) -> None:
    registry = hf.Registry()
    old = order_class(registry, "order")
    async with stage.engine(registry, work=False) as engine:
        for number in range(4):
            await engine.execute(old, Create(f"old{number}"))
    registry = hf.Registry()
    new = order_class(registry, "purchase", aliases=["order"])
    async with stage.engine(registry, work=False) as engine:
        for number in range(4):
            await engine.execute(new, Create(f"new{number}"))
        seen: list[str] = []
        after: str | None = None
        while page := await engine.instances(new, limit=3, after=after):
            seen += [each.workflow_id for each in page]
            after = page[-1].run_id
        assert sorted(seen) == sorted([f"old{n}" for n in range(4)] + [f"new{n}" for n in range(4)])


async def test_states_of_decisions_that_came_to_nothing_are_not_kept(world: World) -> None:
    async with Stage.memory().engine(world.registry, work=False) as engine:
        folding = engine.definitions.folding
        folding._limit = 10
        def never(state: Any) -> bool:
            raise RuntimeError("no")
        world.Puppet.is_terminal = never  # type: ignore[method-assign]
        for number in range(50):
            with pytest.raises(Exception):
                await engine.execute(world.Puppet, Act(f"p{number}"))
        assert len(folding._pending) <= 10
