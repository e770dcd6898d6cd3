"""What callers and authors get wrong: a clear error before anything is written, or a dead letter that says it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import msgspec
import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, PATIENCE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, Create, Errand, Pay, PuppetInput, Reply, Spoke, World, order_class, reply
from tests.worker.support import assert_sound, until

LONG = "k" * 10_000


class Stranger(msgspec.Struct, frozen=True):
    id: str


@pytest.mark.parametrize(
    "given", [Stranger("p"), Create("p"), Spoke("p"), "text", None, 7, {"type": "Act", "id": "p"}, Act, b"bytes"]
)
async def test_an_input_that_is_none_of_the_deciders_is_refused_with_the_known_ones(given: Any, world: World) -> None:
    async with Stage.memory().engine(world.registry, work=False) as engine:
        with pytest.raises(hf.UsageError, match=r"puppet.*known: Act, Ring, Reply"):
            await engine.execute(world.Puppet, given)
        assert await engine.instances(world.Puppet) == []


async def test_a_decider_that_is_not_registered_is_named_with_the_nearest(world: World) -> None:
    elsewhere = order_class(hf.Registry())
    async with Stage.memory().engine(world.registry, work=False) as engine:
        with pytest.raises(hf.UnknownWorkflow, match="pupet"):
            await engine.execute_dynamic("pupet", {"type": "Act", "id": "p"})
        with pytest.raises(hf.UsageError, match="not registered"):
            await engine.execute(elsewhere, Create("17"))
        for wrong in (int, "", None, 7, Act):
            with pytest.raises(hf.HoldfastError):
                await engine.execute(wrong, Act("p"))  # type: ignore[arg-type]


async def test_something_registered_that_is_no_decider_is_refused(world: World) -> None:
    @hf.workflow(registry=world.registry)
    async def function() -> None: ...

    async with Stage.memory().engine(world.registry, work=False) as engine:
        with pytest.raises(hf.UsageError, match="no decider"):
            await engine.execute("function", Act("p"))
        with pytest.raises(hf.UsageError, match="decider"):
            await engine.start(world.Puppet, Act("p"))  # type: ignore[arg-type]
        with pytest.raises(hf.UsageError, match="decider"):
            await engine.start("puppet", Act("p"))


async def test_a_workflow_id_that_cannot_be_stored_is_refused_before_anything_is_written(
    stage: Stage, world: World
) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        for key in ("", LONG, "a\nb", "a\0b", "\ud800", "é" * 9_999):
            with pytest.raises(hf.UsageError) as caught:
                await engine.execute(world.Puppet, Act(key))
            assert len(str(caught.value)) < 1_000, "the message does not repeat all of it"
            with pytest.raises(hf.UsageError):
                await engine.enqueue_input(world.Puppet, Act(key))
            with pytest.raises(hf.UsageError):
                await engine.execute_dynamic("puppet", {"type": "Act", "id": key})
            for ask in (engine.state, engine.stream, engine.snapshot, engine.observations):
                with pytest.raises(hf.UsageError):
                    await ask(world.Puppet, key)
        assert await engine.instances(world.Puppet) == []


async def test_a_workflow_id_of_the_longest_kind_works_on_every_store(stage: Stage, world: World) -> None:
    """One for each way to count: characters, bytes in UTF-8, and characters that mean something to a database."""
    world.handler = reply
    async with stage.engine(world.registry) as engine:
        for id in ("k" * 255, "é" * 127, "🙂", "x'; DROP TABLE runs; --", "a/b.c#d%e_f", " blank "):
            await engine.execute(world.Puppet, Act(id, errands=("a",), alarms=(Alarm(3600, "x", "k"),)))
            await engine.settle(timeout=DEADLINE_SECONDS)
            assert await world.words(engine, id) == ("acted", "a done")
            assert (await engine.snapshot(world.Puppet, id)).workflow_id == id
        assert len(await engine.instances(world.Puppet)) == 6


async def test_a_timer_key_that_cannot_be_stored_is_an_error_of_the_decision(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p"))
        for key in (LONG, "", "a\0b"):
            with pytest.raises(hf.HoldfastError, match="key") as caught:
                await engine.execute(world.Puppet, Act("p", alarms=(Alarm(60, "x", key),)))
            assert len(str(caught.value)) < 1_000
            with pytest.raises(hf.HoldfastError, match="key"):
                await engine.execute(world.Puppet, Act("p", cancel=(key,)))
        assert await world.words(engine) == ("acted",)


async def test_a_timer_key_may_look_like_anything_and_is_not_mistaken(stage: Stage, world: World) -> None:
    """A key that looks like the engine's own name for a timer without one is still a key."""
    async with stage.virtual(world.registry) as (engine, clock):
        keys = ("k" * 255, "#1.0", "timer/x", "inbox", "effect/1.0", "é" * 255)
        alarms = (Alarm(60, "nameless"), *(Alarm(60, f"{n}", key) for n, key in enumerate(keys)))
        await engine.execute(world.Puppet, Act("p", alarms=alarms))
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert len(snapshot.timers) == 7
        assert {timer.key for timer in snapshot.timers} == {None, *keys}
        await clock.advance(minutes=2)
        assert sorted(await world.words(engine)) == ["0", "1", "2", "3", "4", "5", "acted", "nameless"]


async def test_a_command_id_that_cannot_be_stored_is_refused(stage: Stage, world: World) -> None:
    wrong: list[Any] = ["", LONG, "a\0b", 7, "\ud800"]
    async with stage.engine(world.registry, work=False) as engine:
        for command_id in wrong:
            with pytest.raises(hf.UsageError, match="command_id") as caught:
                await engine.execute(world.Puppet, Act("p"), command_id=command_id)
            assert len(str(caught.value)) < 1_000
            with pytest.raises(hf.UsageError, match="command_id"):
                await engine.enqueue_input(world.Puppet, Act("p"), command_id=command_id)
        assert await engine.instances(world.Puppet) == []


FOREIGN: dict[str, tuple[Any, str]] = {
    "another instance": (Reply("another", "x"), "another"),
    "another decider's": (Create("p"), "Create"),
    "an event": (Spoke("x"), "Spoke"),
    "text": ("text", "a str"),
    "a mapping": ({"type": "Reply", "id": "p", "word": "x"}, "no input"),
    "a number": (7, "a int"),
}


async def test_a_handler_that_returns_a_foreign_input_has_failed_and_says_so(stage: Stage, world: World) -> None:
    async def foreign(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        return FOREIGN[effect.what][0]  # type: ignore[no-any-return]

    world.handler = foreign
    async with stage.virtual(world.registry) as (engine, clock):
        for what in FOREIGN:
            await engine.execute(world.Puppet, Act(what, errands=(what,)))
        await clock.advance(minutes=1)
        world.handler = reply
        for what, (_, said) in FOREIGN.items():
            (effect,) = (await engine.snapshot(world.Puppet, what)).effects
            assert effect.status == "dead"
            assert said in str(effect.error)
            assert await world.words(engine, what) == ("acted",)
            await engine.execute(world.Puppet, Act(what, ("on",), errands=("b",)))
        await clock.advance(minutes=1)
        for what in FOREIGN:
            assert await world.words(engine, what) == ("acted", "on", "b done")
        assert await engine.stream(world.Puppet, "another") == []
        await assert_sound(engine)


async def test_a_handler_that_raises_what_is_no_exception_ends_its_effect_and_not_the_worker(
    stage: Stage, world: World
) -> None:
    async def leave(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        if effect.what == "exit":
            raise SystemExit(3)
        if effect.what == "cancel":
            raise asyncio.CancelledError
        return Reply(ctx.workflow_id, "fine")

    world.handler = leave
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("exit", "cancel", "fine")))
        await clock.advance(minutes=1)
        assert await world.words(engine) == ("acted", "fine")
        assert len(await engine.dead()) == 2
        await assert_sound(engine)


async def test_a_handler_that_hangs_holds_up_its_instance_and_nobody_else(stage: Stage, world: World) -> None:
    world.gates["hang"] = asyncio.Event()
    world.handler = reply
    async with stage.engine(world.registry, work=False, shutdown_seconds=PATIENCE_SECONDS) as engine:
        async with engine.worker():
            await engine.execute(world.Puppet, Act("p", errands=("hang", "next")))
            await until(lambda: world.journal, "it hangs")
            await engine.execute(world.Puppet, Act("q", errands=("a",)))
            await until(lambda: _said(engine, world, "q"), "another instance goes on")
            await engine.execute(world.Puppet, Act("p", ("inputs too",)))
            assert await world.words(engine) == ("acted", "inputs too")
        assert world.journal == ["hang 1", "a 1"]


async def _said(engine: hf.Engine, world: World, id: str) -> bool:
    return "a done" in await world.words(engine, id)


async def test_a_plain_handler_runs_in_a_thread_and_may_return_an_input(stage: Stage) -> None:
    registry = hf.Registry()

    class Plain(hf.Decider[int, Stranger, Spoke, Errand], registry=registry):
        def workflow_id(self, input: Stranger) -> str:
            return input.id

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Spoke) -> int:
            return state + 1

        def decide(self, now: datetime, state: int, input: Stranger) -> hf.Decision[Spoke, Errand, Stranger]:
            decision: hf.Decision[Spoke, Errand, Stranger] = hf.Decision.event(Spoke("x"))
            return decision if state else decision.with_effect(Errand("a"))

        def handle(self, effect: Errand, ctx: hf.EffectContext) -> Stranger:
            return Stranger(ctx.workflow_id)

    async with stage.engine(registry) as engine:
        await engine.execute(Plain, Stranger("p"))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await engine.state(Plain, "p") == 2


def test_an_effect_type_without_a_handler_is_an_error_of_the_class() -> None:
    with pytest.raises(hf.UsageError, match=r"effects \(Errand\) and no handle"):

        class NoHandler(hf.Decider[int, Stranger, Spoke, Errand], registry=hf.Registry()):
            def workflow_id(self, input: Stranger) -> str:
                return input.id

            def initial(self) -> int:
                return 0

            def evolve(self, state: int, event: Spoke) -> int:
                return state

            def decide(self, now: datetime, state: int, input: Stranger) -> hf.Decision[Spoke, Errand, Stranger]:
                return hf.Decision.event(Spoke("x"))


class Puzzle(msgspec.Struct, frozen=True):
    id: str
    kind: str


PUZZLES = {
    "nothing": "None",
    "event": "Stranger",
    "effect": "Stranger",
    "timer": "Stranger",
    "timer for another": "another",
    "no decision": "Decision",
    "evolve": "KeyError",
    "endless timer": "century",
    "unstorable": "word",
    "huge": "bytes, over the limit",
}


async def test_a_decision_that_cannot_be_carried_out_is_an_error_and_the_instance_is_intact(stage: Stage) -> None:
    registry = hf.Registry()

    class Puzzled(hf.Decider[int, Puzzle, Spoke, Errand], registry=registry):
        def workflow_id(self, input: Puzzle) -> str:
            return input.id

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Spoke) -> int:
            if event.word == "boom":
                raise KeyError("boom")
            return state + 1

        def decide(self, now: datetime, state: int, input: Puzzle) -> Any:
            fine: Any = hf.Decision.event(Spoke("fine"))
            match input.kind:
                case "nothing":
                    return None
                case "event":
                    return fine.with_event(Stranger("x"))
                case "effect":
                    return fine.with_effect(Stranger("x"))
                case "timer":
                    return fine.with_timer_after(1, Stranger("x"))
                case "timer for another":
                    return fine.with_timer_after(1, Puzzle("another", "fine"))
                case "no decision":
                    return [Spoke("x")]
                case "evolve":
                    return hf.Decision.event(Spoke("boom"))
                case "endless timer":
                    return fine.with_timer_after(1e30, input)
                case "unstorable":
                    return hf.Decision.event(Spoke(7))  # type: ignore[arg-type]
                case "huge":
                    return hf.Decision.event(Spoke("x" * 3_000_000))
            return fine

        async def handle(self, effect: Errand, ctx: hf.EffectContext) -> None:
            return None

    async with stage.engine(registry, work=False) as engine:
        await engine.execute(Puzzled, Puzzle("p", "fine"))
        for kind, said in PUZZLES.items():
            for id in ("p", "new"):
                with pytest.raises(hf.HoldfastError, match=said):
                    await engine.execute(Puzzled, Puzzle(id, kind))
        await engine.execute(Puzzled, Puzzle("p", "fine"))
        assert await engine.state(Puzzled, "p") == 2
        snapshot = await engine.snapshot(Puzzled, "p")
        assert (snapshot.sequence, snapshot.effects, snapshot.timers) == (2, (), ())
        assert [each.workflow_id for each in await engine.instances(Puzzled)] == ["p"]
        await assert_sound(engine)


async def test_a_message_with_a_nul_does_not_turn_a_failure_into_another(stage: Stage, world: World) -> None:
    """PostgreSQL's text holds no NUL."""

    async def nul(effect: Errand, ctx: hf.EffectContext) -> PuppetInput | None:
        raise ValueError("a\0b \ud800")

    world.handler = nul
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",)))
        await engine.enqueue_input(world.Puppet, Act("p", raises="c\0d"))
        await clock.advance(minutes=1)
        assert len(await engine.dead()) == 2
        await assert_sound(engine)


async def test_a_view_that_raises_harms_nobody_but_who_looks(stage: Stage) -> None:
    registry = hf.Registry()
    order = order_class(registry)

    class Blind(order):  # type: ignore[valid-type, misc]
        def view(self, state: Any) -> hf.StateInfo:
            raise RuntimeError("I cannot see")

    async with stage.engine(registry, observe_inputs="type") as engine:
        await engine.execute(Blind, Create("17"))
        await engine.execute(Blind, Pay("17", "visa"))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert (await engine.state(Blind, "17")).status == "done"
        assert "RuntimeError" in str((await engine.observations(Blind, "17"))[0].after)
