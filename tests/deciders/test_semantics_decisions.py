"""A decision and what it writes: order, end, purity, instants (I33, I34, I35, I16), on every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Never

import msgspec
import pytest

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import (
    Act,
    Alarm,
    Create,
    Created,
    Delivered,
    Pay,
    Puppetry,
    Refusal,
    Spoke,
    World,
    always_fail,
    order_class,
    reply,
)
from tests.worker.support import assert_sound

HOUR = 3600.0


async def test_i33_a_decision_writes_its_events_before_the_record_of_a_cancelled_timer(
    stage: Stage, world: World
) -> None:
    async with stage.virtual(world.registry) as (engine, _):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "a", "a"), Alarm(HOUR, "b", "b"))))
        await engine.execute(world.Puppet, Act("p", ("one", "two"), errands=("x",), cancel=("b", "a")))
        facts = await engine.stream(world.Puppet, "p")
        assert [(fact.sequence, fact.type, fact.system) for fact in facts] == [
            (1, "Spoke", False),
            (2, "Spoke", False),
            (3, "Spoke", False),
            (4, "TimerCancelled", True),
            (5, "TimerCancelled", True),
        ]
        cancelled: list[Any] = [fact.event for fact in facts[3:]]
        assert cancelled == [hf.TimerCancelled("b"), hf.TimerCancelled("a")]
        assert len({fact.cause for fact in facts[1:]}) == 1, "one decision, one cause"


async def test_i33_system_records_are_never_folded(stage: Stage, world: World) -> None:
    """Neither live nor from the stored stream, in an engine that remembers nothing."""
    async with stage.virtual(world.registry) as (engine, _):
        await engine.execute(world.Puppet, Act("p", ("one",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await engine.execute(world.Puppet, Act("p", ("two",), cancel=("k",)))
    world.evolved.clear()
    async with stage.virtual(world.registry) as (engine, _):
        await engine.execute(world.Puppet, Act("p", ("three",)))
        assert await world.words(engine) == ("one", "two", "three")
        assert (await engine.snapshot(world.Puppet, "p")).sequence == 4
    assert set(world.evolved) == {"one", "two", "three"}


async def test_i34_the_end_is_asked_of_the_state_after_the_new_events(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p", ("first and last",), end=True))
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert (snapshot.status, snapshot.terminal, snapshot.view.terminal) == ("completed", True, True)
        (instance,) = await engine.instances(world.Puppet, status="completed")
        assert instance.workflow_id == "p"
        assert await engine.instances(world.Puppet, status="running") == []


async def test_i34_effects_of_the_last_decision_still_run_and_what_they_return_is_ignored(
    stage: Stage, world: World
) -> None:
    world.handler = reply
    async with stage.virtual(world.registry, observe_inputs="type") as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("before",), alarms=(Alarm(HOUR, "rang", "k"),)))
        await engine.execute(world.Puppet, Act("p", ("last",), errands=("a", "b"), end=True))
        await clock.advance(hours=2)
        assert world.journal == ["before 1", "a 1", "b 1"]
        words = await world.words(engine)
        assert set(words) <= {"acted", "before done", "last"}  # the first may have answered before the end
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert (snapshot.effects, snapshot.timers, snapshot.status) == ((), (), "completed")
        ignored = [each.type for each in snapshot.observations if each.outcome == "ignored"]
        assert sorted(ignored)[-2:] == ["Reply", "Ring"]
        assert ignored.count("Reply") >= 2
        await assert_sound(engine)


async def test_i34_an_effect_of_an_ended_instance_is_retried_and_may_become_a_dead_letter(
    stage: Stage, world: World
) -> None:
    world.handler = always_fail
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", errands=("a",), end=True))
        await clock.advance(minutes=1)
        assert world.journal == ["a 1", "a 2", "a 3"]
        assert len(await engine.dead()) == 1
        await assert_sound(engine)


async def test_i34_later_inputs_are_accepted_and_change_nothing(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, observe_inputs="type") as engine:
        await engine.execute(world.Puppet, Act("p", end=True))
        before = await engine.stream(world.Puppet, "p")
        await engine.execute(world.Puppet, Act("p", ("late",), errands=("a",), alarms=(Alarm(0, "x"),)))
        await engine.enqueue_input(world.Puppet, Act("p", ("later",)))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await engine.stream(world.Puppet, "p") == before
        assert world.journal == []
        assert [(each.source, each.outcome) for each in await engine.observations(world.Puppet, "p")] == [
            ("command", "applied"), ("command", "ignored"), ("inbox", "ignored"),
        ]  # fmt: skip
        await assert_sound(engine)


async def test_i34_an_input_that_could_not_be_decided_is_ignored_too(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p", end=True))
        await engine.execute(world.Puppet, Act("p", raises="nobody asks"))
        await engine.execute(world.Puppet, Act("p", words=()))
        assert await world.words(engine) == ("acted",)


async def test_i35_a_decision_gets_the_stores_time_aware_and_in_utc(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p"))
        await clock.advance(days=3)
        await engine.execute(world.Puppet, Act("p"))
        first, second = await engine.stream(world.Puppet, "p")
        assert second.at - first.at == timedelta(days=3)
        assert {each.tzinfo for each in world.clocks} == {UTC}
        assert {first.at, second.at} == set(world.clocks)


async def test_i35_reading_again_calls_evolve_alone(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        for word in ("one", "two"):
            await engine.execute(world.Puppet, Act("p", (word,), errands=("a",)))
    world.decided.clear()
    world.evolved.clear()
    async with stage.engine(world.registry, work=False) as engine:
        assert await world.words(engine) == ("one", "two")
        await engine.stream(world.Puppet, "p")
        await engine.snapshot(world.Puppet, "p")
        await engine.state(world.Puppet, "p", at=1)
    assert world.decided == []
    assert set(world.evolved) == {"one", "two"}
    assert world.journal == []


async def test_i35_a_decision_without_an_event_is_an_error_that_names_decider_and_input(
    stage: Stage, world: World
) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        with pytest.raises(hf.DecideFailed, match=r"puppet.*Act.*without an event"):
            await engine.execute(world.Puppet, Act("p", words=(), errands=("a",)))
        assert await engine.stream(world.Puppet, "p") == []
        assert await engine.instances(world.Puppet) == [], "an instance begins with an input that was decided"
        await engine.execute(world.Puppet, Act("p"))
        assert await world.words(engine) == ("acted",)


async def test_i16_what_decide_raises_reaches_the_caller_and_nothing_is_written(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False, observe_inputs="payload") as engine:
        await engine.execute(world.Puppet, Act("p"))
        with pytest.raises(hf.DecideFailed, match=r"puppet 'p'.*Act.*Refusal: no") as caught:
            await engine.execute(world.Puppet, Act("p", raises="no"), command_id="c")
        assert isinstance(caught.value.__cause__, Refusal)
        snapshot = await engine.snapshot(world.Puppet, "p")
        assert (snapshot.sequence, snapshot.state.words, len(snapshot.observations)) == (1, ("acted",), 1)
        await engine.execute(world.Puppet, Act("p", ("now",)), command_id="c")  # its id was not used up
        assert await world.words(engine) == ("acted", "now")
        await assert_sound(engine)


async def test_i16_i34_what_is_terminal_raises_reaches_the_caller_and_nothing_is_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """Like decide and evolve; and the state that it was asked about is forgotten."""
    broken = ZeroDivisionError("no end")

    def is_terminal(self: Any, state: Any) -> bool:
        raise broken

    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p"))
        with monkeypatch.context() as patched:
            patched.setattr(world.Puppet, "is_terminal", is_terminal)
            with pytest.raises(
                hf.DecideFailed, match=r"is_terminal of puppet raised ZeroDivisionError: no end"
            ) as caught:
                await engine.execute(world.Puppet, Act("p", ("lost",)))
        assert caught.value.__cause__ is broken
        assert await world.words(engine) == ("acted",)
        await engine.execute(world.Puppet, Act("p", ("now",)))
        assert await world.words(engine) == ("acted", "now")
        await assert_sound(engine)


async def test_i16_code_that_takes_long_in_a_decision_is_named_in_the_log_without_what_it_was_given(
    stage: Stage, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """I16: whose it is, and for what; also where a timer brought the input."""
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(HOUR, "secret", "k"),)))
        monkeypatch.setattr("holdfast.coordinator.SLOW_DECISION_SECONDS", -1.0)  # all of them take too long
        caplog.clear()
        await engine.execute(world.Puppet, Act("p", ("secret",)))
        await clock.advance(hours=2)
        assert await world.words(engine) == ("acted", "secret", "secret")
    slow = [each.getMessage() for each in caplog.records if "must be quick" in each.getMessage()]
    assert sum("ExecuteInput" in line and "(puppet, input Act) took" in line for line in slow) == 1
    assert any("CompleteWork" in line and "(puppet, node " in line for line in slow), slow
    assert not any("secret" in line for line in slow)


async def test_k7_an_input_that_cannot_be_decided_leaves_its_batch_alone(stage: Stage, world: World) -> None:
    """Good and bad at once, of one instance."""
    async with stage.engine(world.registry, work=False) as engine:
        inputs = [Act("p", (str(n),), raises="no" if n % 3 == 0 else "") for n in range(30)]
        outcomes = await asyncio.gather(
            *(engine.execute(world.Puppet, each) for each in inputs), return_exceptions=True
        )
        assert [isinstance(each, hf.DecideFailed) for each in outcomes] == [n % 3 == 0 for n in range(30)]
        assert sorted(map(int, await world.words(engine))) == [n for n in range(30) if n % 3]
        assert [fact.sequence for fact in await engine.stream(world.Puppet, "p")] == list(range(1, 21))
        await assert_sound(engine)


async def test_an_instance_begins_with_its_first_input_and_has_its_initial_state_before(
    stage: Stage, world: World
) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        assert await engine.state(world.Puppet, "nobody") == Puppetry()
        assert await engine.stream(world.Puppet, "nobody") == []
        assert await engine.observations(world.Puppet, "nobody") == []
        with pytest.raises(hf.UnknownWorkflow, match="nobody"):
            await engine.snapshot(world.Puppet, "nobody")
        await engine.execute(world.Puppet, Act("somebody"))
        assert [each.workflow_id for each in await engine.instances(world.Puppet)] == ["somebody"]


async def test_the_state_can_be_asked_for_at_any_sequence_and_time(stage: Stage, world: World) -> None:
    async with stage.virtual(world.registry) as (engine, clock):
        times: list[datetime] = []
        for word in ("one", "two", "three"):
            await engine.execute(world.Puppet, Act("p", (word,)))
            times.append(clock.now())
            await clock.advance(hours=1)
        states = [await engine.state(world.Puppet, "p", at=at) for at in (0, 1, 2, 3)]
        assert [state.words for state in states] == [(), ("one",), ("one", "two"), ("one", "two", "three")]
        assert (await engine.state(world.Puppet, "p", at=times[1])).words == ("one", "two")
        assert (await engine.state(world.Puppet, "p", at=times[0] - timedelta(seconds=1))).words == ()
        assert (await engine.state(world.Puppet, "p", at=clock.now())).words == ("one", "two", "three")
        page = await engine.stream(world.Puppet, "p", after=1, limit=1)
        assert [(each.sequence, each.event) for each in page] == [(2, Spoke("two"))]
        for wrong in (-1, "2", 1.5, True):
            with pytest.raises(hf.UsageError, match="at="):
                await engine.state(world.Puppet, "p", at=wrong)  # type: ignore[arg-type]


async def test_typed_and_untyped_callers_come_through_the_same_door(stage: Stage) -> None:
    registry = hf.Registry()
    order = order_class(registry)
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(order, Create("typed", 5))
        await engine.execute("order", Create("by name", 5))
        await engine.execute_dynamic("order", {"type": "Create", "order_id": "untyped", "cents": 5})
        for id in ("typed", "by name", "untyped"):
            (fact,) = await engine.stream(order, id)
            assert (fact.event, fact.type, fact.workflow, fact.workflow_id) == (Created(5), "Created", "order", id)


async def test_effect_results_and_timers_come_through_the_same_door_as_commands(stage: Stage) -> None:
    """The order's whole life: created, paid in time, shipped by its effect, delivered by what that returned."""
    registry = hf.Registry()
    order = order_class(registry)
    async with stage.virtual(registry, observe_inputs="type") as (engine, clock):
        await engine.execute(order, Create("17", 4200))
        await engine.execute(order, Create("18", 100))
        await clock.advance(minutes=10)
        await engine.execute(order, Pay("17", "visa"))
        await clock.advance(minutes=30)
        assert (await engine.state(order, "17")).status == "done"
        assert (await engine.state(order, "18")).status == "expired"
        observed = {id: await engine.observations(order, id) for id in ("17", "18")}
        assert [(each.type, each.source) for each in observed["17"]] == [
            ("Create", "command"), ("Pay", "command"), ("Delivered", "effect"),
        ]  # fmt: skip
        assert [(each.type, each.source) for each in observed["18"]] == [
            ("Create", "command"), ("PaymentTimeout", "timer"),
        ]  # fmt: skip
        await engine.execute(order, Delivered("17"))
        assert (await engine.state(order, "17")).status == "done"


class Bump(msgspec.Struct, frozen=True):
    id: str


class Bumped(msgspec.Struct, frozen=True):
    pass


async def test_a_decider_without_effects_needs_no_handler(stage: Stage) -> None:
    registry = hf.Registry()

    class Counter(hf.Decider[int, Bump, Bumped, Never], registry=registry):
        def workflow_id(self, input: Bump) -> str:
            return input.id

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Bumped) -> int:
            return state + 1

        def decide(self, now: datetime, state: int, input: Bump) -> hf.Decision[Bumped, Any, Any]:
            return hf.Decision.event(Bumped())

    async with stage.engine(registry) as engine:
        for _ in range(3):
            await engine.execute(Counter, Bump("c"))
        assert await engine.state(Counter, "c") == 3
        (instance,) = await engine.instances("Counter")
        assert instance.workflow == "Counter"  # I15: named after the class


class Take(msgspec.Struct, frozen=True):
    id: str


class Taken(msgspec.Struct, frozen=True):
    pass


async def test_an_engine_that_does_not_know_an_instance_yet_never_answers_for_its_initial_state(
    shared_stage: Stage,
) -> None:
    """What an empty account would refuse, an account that another process filled does not."""
    registry = hf.Registry()

    class Account(hf.Decider[int, Bump | Take, Bumped | Taken, Never], registry=registry):
        def workflow_id(self, input: Bump | Take) -> str:
            return input.id

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Bumped | Taken) -> int:
            return state + (1 if isinstance(event, Bumped) else -1)

        def decide(self, now: datetime, state: int, input: Bump | Take) -> hf.Decision[Bumped | Taken, Any, Any]:
            if isinstance(input, Bump):
                return hf.Decision.event(Bumped())
            if state == 0:
                raise Refusal("there is nothing to take")
            return hf.Decision.event(Taken())

    async with (
        shared_stage.engine(registry, work=False) as here,
        shared_stage.engine(registry, work=False) as there,
    ):
        await here.execute(Account, Bump("a"))
        await there.execute(Account, Take("a"))
        with pytest.raises(hf.DecideFailed, match="nothing to take"):
            await here.execute(Account, Take("a"))
        await there.execute(Account, Bump("a"))
        await here.execute(Account, Take("a"))
        assert await there.state(Account, "a") == 0
