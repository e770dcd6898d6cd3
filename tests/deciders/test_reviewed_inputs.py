"""What a review found about inputs: windows that forgot too early, repetitions unseen, errors that jammed an inbox."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any, Never

import msgspec
import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Create, World, order_class


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

    def encode(self, value: object) -> bytes:
        return os.urandom(8) + msgspec.json.encode(value)

    def decode(self, data: bytes, wire: Any) -> Any:
        return msgspec.json.decode(data[8:], type=wire)


@pytest.mark.parametrize("codec", ["json", "msgpack", Nonce()], ids=["json", "msgpack", "nonce"])
async def test_i12_equal_inputs_are_one_in_the_window_whatever_their_bytes(codec: Any) -> None:
    registry, ticker = windowed(hf.Dedup(last=5))
    async with Stage.memory().engine(registry, work=False, codec=codec) as engine:
        await engine.execute(ticker, Tick("t", "a", {"x": 1, "y": 2}))
        await engine.execute(ticker, Tick("t", "a", {"y": 2, "x": 1}))
        await engine.execute(ticker, Tick("t", "b", {"x": 1, "y": 2}))
        assert await engine.state(ticker, "t") == "ab"


async def test_a_repetition_at_the_inbox_is_observed_as_one_at_the_front_door_is(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, observe_inputs="type") as engine:
        await engine.enqueue_input(world.Puppet, Act("p"), command_id="c")
        await engine.settle(timeout=DEADLINE_SECONDS)
        await engine.enqueue_input(world.Puppet, Act("p"), command_id="c")
        await engine.execute(world.Puppet, Act("p"), command_id="c")
        seen = await engine.observations(world.Puppet, "p")
        assert [(each.source, each.outcome) for each in seen] == [
            ("inbox", "applied"),
            ("inbox", "duplicate"),
            ("command", "duplicate"),
        ]
        assert [each.command_id for each in seen[1:]] == ["c", "c"]


class Mute(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error", [ValueError("\ud800 in a name"), ValueError("\0"), Mute()], ids=["surrogate", "nul", "mute"]
)
async def test_i8_an_input_is_refused_whatever_its_error_says_and_its_inbox_goes_on(
    stage: Stage, world: World, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = world.decide

    def decide_or_raise(input: Any) -> Any:
        if input.words == ("bad",):
            raise error
        return decide(input)

    monkeypatch.setattr(world, "decide", decide_or_raise)
    async with stage.engine(world.registry) as engine:
        await engine.enqueue_input(world.Puppet, Act("p", ("bad",)))
        await engine.enqueue_input(world.Puppet, Act("p", ("good",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await world.words(engine) == ("good",)
        assert len(await engine.dead()) == 1


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


async def test_states_of_decisions_that_came_to_nothing_do_not_pile_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_terminal(self: Any, state: Any) -> bool:
        raise RuntimeError("nobody knows")

    monkeypatch.setattr(world.Puppet, "is_terminal", is_terminal)
    async with Stage.memory().engine(world.registry, work=False) as engine:
        folding = engine.definitions.folding
        monkeypatch.setattr(folding, "_limit", 10)
        for number in range(30):
            with pytest.raises(hf.DecideFailed, match="nobody knows"):
                await engine.execute(world.Puppet, Act(f"p{number}"))
        assert len(folding._pending) <= 10
