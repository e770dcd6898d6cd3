"""The types that people write: dataclasses, structs, pydantic models and mixtures, states that change in place, and the
codecs that store them (I14), on every store."""

from __future__ import annotations

import enum
import zlib
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Never
from uuid import UUID

import msgspec
import pydantic
import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, World, reply

# -- one decider in three spellings


@dataclass(frozen=True)
class DataPut:
    box: str
    thing: str


@dataclass(frozen=True)
class DataTake:
    box: str


@dataclass(frozen=True)
class DataIn:
    thing: str


@dataclass(frozen=True)
class DataOut:
    thing: str


class ModelPut(pydantic.BaseModel, frozen=True):
    box: str
    thing: str


class ModelTake(pydantic.BaseModel, frozen=True):
    box: str


class ModelIn(pydantic.BaseModel, frozen=True):
    thing: str


class ModelOut(pydantic.BaseModel, frozen=True):
    thing: str


class StructPut(msgspec.Struct, frozen=True):
    box: str
    thing: str


class StructTake(msgspec.Struct, frozen=True):
    box: str


class StructIn(msgspec.Struct, frozen=True):
    thing: str


class StructOut(msgspec.Struct, frozen=True):
    thing: str


class TaggedPut(msgspec.Struct, frozen=True, tag=True):
    box: str
    thing: str


class TaggedTake(msgspec.Struct, frozen=True, tag="take-out"):
    box: str


SPELLINGS = {
    "dataclasses": (DataPut, DataTake, DataIn, DataOut),
    "pydantic": (ModelPut, ModelTake, ModelIn, ModelOut),
    "structs": (StructPut, StructTake, StructIn, StructOut),
    "tagged structs": (TaggedPut, TaggedTake, StructIn, StructOut),
    "a mixture": (DataPut, ModelTake, StructIn, DataOut),
}


def box_decider(registry: hf.Registry, kinds: tuple[Any, Any, Any, Any]) -> Any:
    put, take, put_in, taken_out = kinds

    class Box(hf.Decider[list[str], put | take, put_in | taken_out, put_in], name="box", registry=registry):  # type: ignore[valid-type]
        """Its state is a list that evolve changes in place; its effect puts in one thing more."""

        def workflow_id(self, input: Any) -> str:
            return str(input.box)

        def initial(self) -> list[str]:
            return []

        def evolve(self, state: list[str], event: Any) -> list[str]:
            if isinstance(event, put_in):
                state.append(event.thing)
            else:
                state.remove(event.thing)
            return state

        def decide(self, now: datetime, state: list[str], input: Any) -> hf.Decision[Any, Any, Any]:
            if isinstance(input, put):
                decision: hf.Decision[Any, Any, Any] = hf.Decision.event(put_in(thing=input.thing))
                return decision if input.thing == "gift" else decision.with_effect(put_in(thing="gift"))
            return hf.Decision.event(taken_out(thing=state.pop()))  # and it spoils the state it was given

        async def handle(self, effect: Any, ctx: hf.EffectContext) -> Any:
            return put(box=ctx.workflow_id, thing=effect.thing)

    return Box


@pytest.mark.parametrize(
    ("spelling", "codec"), [*((spelling, "json") for spelling in SPELLINGS), ("a mixture", "msgpack")]
)
async def test_unions_of_every_spelling_work_from_end_to_end(stage: Stage, spelling: str, codec: str) -> None:
    registry = hf.Registry()
    kinds = SPELLINGS[spelling]
    box = box_decider(registry, kinds)
    async with stage.engine(registry, codec=codec) as engine:
        await engine.execute(box, kinds[0](box="b", thing="hat"))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await engine.state(box, "b") == ["hat", "gift"]
        await engine.execute(box, kinds[1](box="b"))
        assert await engine.state(box, "b") == ["hat"]
        facts = await engine.stream(box, "b")
        assert [fact.event for fact in facts] == [kinds[2](thing="hat"), kinds[2](thing="gift"), kinds[3](thing="gift")]
        assert [fact.type for fact in facts] == [type(fact.event).__name__ for fact in facts]
    async with stage.engine(registry, codec=codec) as engine:  # from the store alone
        assert await engine.state(box, "b") == ["hat"]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_untyped_callers_name_the_class(spelling: str) -> None:
    registry = hf.Registry()
    put, _take, *_ = SPELLINGS[spelling]
    box = box_decider(registry, SPELLINGS[spelling])
    async with Stage.memory().engine(registry, work=False) as engine:
        await engine.execute_dynamic("box", {"type": put.__name__, "box": "b", "thing": "gift"})
        assert await engine.state(box, "b") == ["gift"]
        with pytest.raises(hf.UsageError, match="thing"):
            await engine.execute_dynamic("box", {"type": put.__name__, "box": "b"})


# -- states that change in place


async def test_a_state_that_is_changed_in_place_corrupts_nothing(stage: Stage) -> None:
    """Neither a decision that raises after spoiling it, nor a reader who keeps it, nor a batch of both."""
    registry = hf.Registry()
    box = box_decider(registry, SPELLINGS["structs"])
    async with stage.engine(registry, work=False) as engine:
        with pytest.raises(hf.DecideFailed, match="IndexError"):
            await engine.execute(box, StructTake("b"))
        await engine.execute(box, StructPut("b", "gift"))
        kept = await engine.state(box, "b")
        kept.append("scribble")
        kept_too = (await engine.snapshot(box, "b")).state
        kept_too.clear()
        assert await engine.state(box, "b") == ["gift"]
        await engine.execute(box, StructTake("b"))
        with pytest.raises(hf.DecideFailed):
            await engine.execute(box, StructTake("b"))
        await engine.execute(box, StructPut("b", "gift"))
        assert await engine.state(box, "b") == ["gift"]
        assert await engine.state(box, "b", at=1) == ["gift"]
        assert await engine.state(box, "b", at=2) == []


@dataclass
class Ledger:
    entries: dict[str, list[int]] = field(default_factory=dict)


class Enter(msgspec.Struct, frozen=True):
    id: str
    name: str
    amount: int


class Entered(msgspec.Struct, frozen=True):
    name: str
    amount: int


SHARED_INITIAL = Ledger()


async def test_an_initial_state_that_is_shared_and_mutable_does_not_leak_between_instances(stage: Stage) -> None:
    """The author returns one object for all: what evolve does to it must stay with its instance."""
    registry = hf.Registry()

    class Book(hf.Decider[Ledger, Enter, Entered, Never], registry=registry, snapshot_every=3):
        def workflow_id(self, input: Enter) -> str:
            return input.id

        def initial(self) -> Ledger:
            return SHARED_INITIAL

        def evolve(self, state: Ledger, event: Entered) -> Ledger:
            state.entries.setdefault(event.name, []).append(event.amount)
            return state

        def decide(self, now: datetime, state: Ledger, input: Enter) -> hf.Decision[Entered, Any, Any]:
            return hf.Decision.event(Entered(input.name, input.amount))

    async with stage.engine(registry, work=False) as engine:
        for amount in range(5):
            for id in ("x", "y"):
                await engine.execute(Book, Enter(id, id, amount))
        assert await engine.state(Book, "x") == Ledger({"x": [0, 1, 2, 3, 4]})
        assert await engine.state(Book, "y") == Ledger({"y": [0, 1, 2, 3, 4]})
        assert await engine.state(Book, "z") == Ledger()
        assert Ledger() == SHARED_INITIAL


# -- what comes back is what was stored


class Colour(enum.Enum):
    RED = "red"


class Rich(msgspec.Struct, frozen=True):
    id: str
    amount: Decimal
    when: datetime
    day: date
    span: timedelta
    uuid: UUID
    colour: Colour
    data: bytes
    pairs: dict[int, tuple[str, ...]]
    mode: Literal["a", "b"]
    inner: DataIn | None = None
    labels: frozenset[str] = frozenset()


RICH = Rich(
    id="r",
    amount=Decimal("1.10"),
    when=datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    day=date(2030, 1, 2),
    span=timedelta(days=1, microseconds=1),
    uuid=UUID(int=7),
    colour=Colour.RED,
    data=b"\x00\xff",
    pairs={7: ("x", "y")},
    mode="a",
    inner=DataIn("é\u2028"),
    labels=frozenset({"p", "q"}),
)


class Kept(msgspec.Struct, frozen=True):
    value: Rich


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_i14_rich_values_come_back_as_they_were(stage: Stage, codec: str) -> None:
    registry = hf.Registry()
    seen: list[object] = []

    class Keeper(hf.Decider[Rich | None, Rich, Kept, Kept], registry=registry, snapshot_every=1):
        def workflow_id(self, input: Rich) -> str:
            return input.id

        def initial(self) -> Rich | None:
            return None

        def evolve(self, state: Rich | None, event: Kept) -> Rich | None:
            return event.value

        def decide(self, now: datetime, state: Rich | None, input: Rich) -> hf.Decision[Kept, Kept, Rich]:
            seen.append(input)
            kept: hf.Decision[Kept, Kept, Rich] = hf.Decision.event(Kept(input))
            if state is not None:
                return kept
            return kept.with_effect(Kept(input)).with_timer_after(3600, input, key="k")

        async def handle(self, effect: Kept, ctx: hf.EffectContext) -> Rich | None:
            return effect.value

    async with stage.virtual(registry, codec=codec) as (engine, clock):
        await engine.execute(Keeper, RICH)
        await clock.advance(hours=2)
    async with stage.virtual(registry, codec=codec) as (engine, clock):
        assert await engine.state(Keeper, "r") == RICH
        assert [fact.event for fact in await engine.stream(Keeper, "r")] == [Kept(RICH)] * 3
    assert seen == [RICH] * len(seen)


@pytest.mark.parametrize("word", ["lone \ud800", "x" * 3_000_000], ids=["surrogate", "too long"])
async def test_i14_what_cannot_be_stored_is_refused_before_anything_is_written(
    stage: Stage, world: World, word: str
) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        with pytest.raises((hf.PayloadRefused, hf.PayloadTooLarge)):
            await engine.execute(world.Puppet, Act("p", (word,)))
        assert await engine.instances(world.Puppet) == []


async def test_i14_characters_that_databases_stumble_over_come_back(stage: Stage, world: World) -> None:
    words = ("nul \0", "quote '", 'double "', "back \\", "line \u2028", "\N{PILE OF POO}", "")
    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p", words))
    async with stage.engine(world.registry, work=False) as engine:
        assert await world.words(engine) == words


# -- codecs


class Zipped:
    """A codec of one's own: JSON, compressed."""

    tag = "zip"

    def encode(self, plain: object, /) -> bytes:
        return zlib.compress(hf.JSON.encode(plain))

    def decode(self, data: bytes, annotation: object, /) -> object:
        return hf.JSON.decode(zlib.decompress(data), annotation)


async def test_i14_a_codec_of_ones_own_stores_everything(stage: Stage, world: World) -> None:
    world.handler = reply
    settings: dict[str, Any] = {"codec": Zipped(), "observe_inputs": "payload"}
    async with stage.virtual(world.registry, **settings) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",), alarms=(Alarm(60, "rang", "k"),)))
        await engine.enqueue_input(world.Puppet, Act("p", ("queued",)))
        await engine.execute_dynamic("puppet", {"type": "Act", "id": "p", "words": ["untyped"]})
        await clock.advance(hours=1)
    async with stage.virtual(world.registry, **settings) as (engine, clock):
        assert sorted(await world.words(engine)) == ["a done", "acted", "queued", "rang", "untyped"]
        assert {each.payload["type"] for each in await engine.observations(world.Puppet, "p")} == {
            "Act",
            "Reply",
            "Ring",
        }


async def test_i14_a_codec_can_be_changed_in_the_middle_of_an_instance(stage: Stage) -> None:
    """Every row says how it is written: events, effects, timers, inbox and snapshots of both live side by side."""
    world = World(snapshot_every=2)
    world.handler = reply
    several = hf.Codecs(Zipped())
    for number, codec in enumerate(("json", "msgpack", several)):
        async with stage.virtual(world.registry, work=False, codec=codec) as (engine, clock):
            alarm = Alarm(60, f"rang {number}", f"k{number}")
            await engine.execute(world.Puppet, Act("p", (str(number),), errands=(f"e{number}",), alarms=(alarm,)))
            await engine.enqueue_input(world.Puppet, Act("p", (f"q{number}",)))
    async with stage.virtual(world.registry, codec=several) as (engine, clock):
        await clock.advance(hours=1)
        said = set(await world.words(engine))
        assert said == {
            f"{what}{n}{end}" for n in range(3) for what, end in (("", ""), ("e", " done"), ("q", ""), ("rang ", ""))
        }
        assert await engine.dead() == []


async def test_a_row_in_a_codec_that_nobody_here_has_is_refused_by_name(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry, work=False, codec=Zipped()) as (engine, _):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
    async with stage.virtual(world.registry) as (engine, clock):
        with pytest.raises(hf.HoldfastError, match="zip"):
            await engine.state(world.Puppet, "p")
        await clock.advance(minutes=1)
        (effect,) = [each for each in await engine.dead()]
        assert effect.node == "effect/1.0"  # type: ignore[union-attr]
