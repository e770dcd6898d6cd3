"""Seed 001 as its reader would try it: one way in, decisions, effects and timers, on every store."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from tests.deciders.conftest import Stage
from tests.deciders.seed_order import (
    KEY,
    Cancel,
    Cancelled,
    CancelRejected,
    Create,
    Created,
    Emailed,
    EmailSent,
    Input,
    InputIgnored,
    Pay,
    PaymentReceived,
    SendEmail,
    Shop,
    State,
    Stock,
    TimedOut,
    Timeout,
    confirm,
)


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_g1_when_execute_has_returned_the_events_exist(stage: Stage, shop: Shop) -> None:
    """The seed's example of what a queue in front of it would break: execute, then load the events."""
    async with stage.engine(shop.registry, work=False) as engine:
        assert await engine.execute(shop.Order, Create("123")) is None
        assert await shop.events(engine) == [Created()]
    async with stage.engine(shop.registry, work=False) as engine:
        assert (await engine.state(shop.Order, "123")).status == "created"


async def test_g1_events_effects_timers_and_the_end_of_one_decision_are_one_commit(stage: Stage, shop: Shop) -> None:
    """Seven steps of the overview, seen in one snapshot; the instance is completed by a decision too."""
    async with stage.engine(shop.registry, work=False, observe_inputs="type") as engine:
        await engine.execute(shop.Order, Create("123"))
        seen = await engine.snapshot(shop.Order, "123")
        assert (seen.sequence, seen.status, seen.view.status, seen.terminal) == (1, "running", "created", False)
        assert [(each.type, each.status) for each in seen.effects] == [("SendEmail", "ready")]
        assert [(each.key, each.type) for each in seen.timers] == [(KEY, "Timeout")]
        assert [(each.type, each.outcome) for each in seen.observations] == [("Create", "applied")]
        await engine.execute(shop.Order, Cancel("123"))
        seen = await engine.snapshot(shop.Order, "123")
        assert (seen.status, seen.terminal) == ("completed", True)
        assert [each.type for each in seen.effects] == ["SendEmail"]


async def test_g1_a_decision_that_fails_leaves_nothing_and_the_caller_gets_the_error(stage: Stage, shop: Shop) -> None:
    """None or an infrastructure error: here the author's code is at fault, which is told, and nothing was written."""

    def broken(input: Input) -> None:
        raise ZeroDivisionError("no such luck")

    shop.on_input = broken
    async with stage.engine(shop.registry) as engine:
        with pytest.raises(hf.DecideFailed, match="could not decide on Create: ZeroDivisionError: no such luck"):
            await engine.execute(shop.Order, Create("123"))
        assert await shop.events(engine) == []
        assert await engine.instances(shop.Order) == []


async def test_typed_and_dynamic_execution_end_in_the_same_decision(stage: Stage, shop: Shop) -> None:
    """execute::<Order>(input) and execute_dynamic("order", payload), over one registry."""
    async with stage.engine(shop.registry) as engine:
        await engine.execute(shop.Order, Create("typed"))
        await engine.execute_dynamic("order", {"type": "Create", "id": "dynamic"})
        assert await engine.state(shop.Order, "typed") == await engine.state(shop.Order, "dynamic")
        assert [type(each) for each in await shop.events(engine, "dynamic")] == [Created]
        with pytest.raises(hf.UnknownWorkflow, match="no workflow is registered as 'ordre'"):
            await engine.execute_dynamic("ordre", {"type": "Create", "id": "1"})


async def test_an_instance_is_identified_by_its_type_and_the_id_that_its_input_names(stage: Stage, shop: Shop) -> None:
    """The correlation key: the same id in two types is two instances, and the first input of each creates it."""
    async with stage.engine(shop.registry) as engine:
        await engine.execute(shop.Order, Create("7"))
        await engine.execute(shop.Inventory, Stock("7", 3))
        await engine.execute(shop.Inventory, Stock("7", 4))
        await engine.execute(shop.Inventory, Stock("8", 1))
        assert (await engine.state(shop.Order, "7")).status == "created"
        assert await engine.state(shop.Inventory, "7") == 7
        assert await engine.state(shop.Inventory, "8") == 1
        listed = await engine.instances(shop.Inventory)
        assert sorted((each.workflow, each.workflow_id, each.events) for each in listed) == [
            ("inventory", "7", 2),
            ("inventory", "8", 1),
        ]


async def test_a_rejection_is_an_event_and_not_an_error(stage: Stage, shop: Shop) -> None:
    """Business outcomes are in the stream, in the state, and in nothing that execute returns."""
    async with stage.engine(shop.registry) as engine:
        for given in (Create("123"), Pay("123", 5), Cancel("123"), Create("123")):
            assert await engine.execute(shop.Order, given) is None
        assert [each for each in await shop.events(engine) if not isinstance(each, hf.TimerCancelled)] == [
            Created(),
            PaymentReceived(5),
            CancelRejected("the order is paid"),
            InputIgnored("Create"),
        ]


async def test_i34_a_completed_instance_silently_accepts_further_inputs(stage: Stage, shop: Shop) -> None:
    """No special answer for the caller to handle, no event, no decision."""
    async with stage.engine(shop.registry, observe_inputs="type") as engine:
        await engine.execute(shop.Order, Create("123"))
        await engine.execute(shop.Order, Cancel("123"))
        before = await shop.events(engine)
        assert before[-1] == Cancelled()
        assert await engine.execute(shop.Order, Pay("123", 5)) is None
        assert await shop.events(engine) == before
        observed = await engine.observations(shop.Order, "123")
        assert [(each.type, each.outcome) for each in observed if each.source == "command"] == [
            ("Create", "applied"),
            ("Cancel", "applied"),
            ("Pay", "ignored"),
        ]


async def test_an_effect_that_returns_nothing_is_done_and_one_that_returns_an_input_is_executed(
    stage: Stage, shop: Shop
) -> None:
    """Ok(None) and Ok(Some(input))."""
    async with stage.engine(shop.registry) as engine:
        await engine.execute(shop.Order, Create("quiet"))
        await engine.settle(timeout=20)
        assert await shop.events(engine, "quiet") == [Created()]
        shop.handler = confirm
        await engine.execute(shop.Order, Create("loud"))
        await engine.settle(timeout=20)
        assert await shop.events(engine, "loud") == [Created(), Emailed("created")]
        for id in ("quiet", "loud"):
            assert (await engine.snapshot(shop.Order, id)).effects == ()
        assert shop.handled == [("quiet", "created", 1), ("loud", "created", 1)]


async def test_g3_an_effect_that_fails_is_retried_and_given_up_as_a_dead_letter(stage: Stage, shop: Shop) -> None:
    """Err: retry with backoff until the attempts are used up; the instance goes on, and a person may try again."""

    async def fail(effect: SendEmail, ctx: hf.EffectContext) -> Input | None:
        raise ConnectionError("no route")

    shop.handler = fail
    async with stage.virtual(shop.registry) as (engine, clock):
        await engine.execute(shop.Order, Create("123"))
        await clock.advance(seconds=5)
        assert [attempt for _, _, attempt in shop.handled] == [1, 2, 3]
        (dead,) = await engine.dead()
        assert dead.node == "effect/1.0"
        (given_up,) = (await engine.snapshot(shop.Order, "123")).effects
        assert (given_up.status, given_up.attempt, given_up.error) == ("dead", 3, "ConnectionError: no route")
        await engine.execute(shop.Order, Pay("123", 5))
        assert (await engine.state(shop.Order, "123")).status == "paid"
        shop.handler = confirm
        assert await engine.replay_dead(dead.run, dead.node)
        await clock.advance(seconds=5)
        assert (await engine.state(shop.Order, "123")).emails == ("created",)
        assert await engine.dead() == []


async def test_g3_an_input_that_cannot_be_routed_retries_its_effect_and_is_never_half_applied(
    stage: Stage, shop: Shop
) -> None:
    """The atomicity gap of the seed: the effect is settled in the transaction that executes what it returned."""

    def broken_at_first(input: Input) -> None:
        if isinstance(input, EmailSent) and len(shop.handled) == 1:
            raise OSError("not yet")

    shop.handler, shop.on_input = confirm, broken_at_first
    async with stage.virtual(shop.registry) as (engine, clock):
        await engine.execute(shop.Order, Create("123"))
        await clock.advance(seconds=5)
        assert [attempt for _, _, attempt in shop.handled] == [1, 2]
        assert await shop.events(engine) == [Created(), Emailed("created")]


async def test_i13_the_idempotency_key_is_the_same_in_every_attempt_of_an_effect_and_in_no_other(
    stage: Stage, shop: Shop
) -> None:
    """EffectContext: which instance, which attempt, and the key to hand on."""
    seen: list[hf.EffectContext] = []

    async def fail_once(effect: SendEmail, ctx: hf.EffectContext) -> Input | None:
        seen.append(ctx)
        if not ctx.is_retry:
            raise ConnectionError("again, please")
        return None

    shop.handler = fail_once
    async with stage.virtual(shop.registry) as (engine, clock):
        await engine.execute(shop.Order, Create("1"))
        await engine.execute(shop.Order, Create("2"))
        await clock.advance(seconds=5)
    keys = {id: {each.idempotency_key for each in seen if each.workflow_id == id} for id in ("1", "2")}
    assert [len(each) for each in keys.values()] == [1, 1]
    assert keys["1"] != keys["2"]
    assert sorted((each.workflow_id, each.attempt, each.is_retry) for each in seen) == [
        ("1", 1, False),
        ("1", 2, True),
        ("2", 1, False),
        ("2", 2, True),
    ]


async def test_g6_a_timer_is_an_input_that_meets_the_state_it_finds(stage: Stage, shop: Shop) -> None:
    """with_timer_after(3600, Timeout): it fires as an input, once, and not early."""
    async with stage.virtual(shop.registry) as (engine, clock):
        await engine.execute(shop.Order, Create("123"))
        await clock.advance(minutes=59, seconds=59)
        assert await shop.events(engine) == [Created()]
        await clock.advance(seconds=2)
        assert await shop.events(engine) == [Created(), TimedOut()]
        await clock.advance(hours=3)
        assert await shop.events(engine) == [Created(), TimedOut()]


async def test_i33_cancelling_a_timer_by_its_key_is_recorded_and_it_never_fires(stage: Stage, shop: Shop) -> None:
    """Decision::event(PaymentReceived).cancel_timer("payment-timeout"), with TimerCancelled for the audit."""
    async with stage.virtual(shop.registry) as (engine, clock):
        await engine.execute(shop.Order, Create("123"))
        await engine.execute(shop.Order, Pay("123", 5))
        assert await shop.events(engine) == [Created(), PaymentReceived(5), hf.TimerCancelled(KEY)]
        assert (await engine.snapshot(shop.Order, "123")).timers == ()
        await clock.advance(hours=3)
        assert (await engine.state(shop.Order, "123")).status == "paid"


async def test_g3_a_timer_whose_decision_fails_is_retried_and_then_a_dead_letter(stage: Stage, shop: Shop) -> None:
    """Failure: retry with backoff, then dead letter; replayed once the code is mended."""
    decided_at = []

    def broken(input: Input) -> None:
        if isinstance(input, Timeout):
            decided_at.append(engine.system.clock.now_us())
            raise ValueError("no decision")

    shop.on_input = broken
    async with stage.virtual(shop.registry) as (engine, clock):
        await engine.execute(shop.Order, Create("123"))
        await clock.advance(hours=2)
        assert len(set(decided_at)) == 3  # attempts; within one, a decision may be asked for more than once
        assert await shop.events(engine) == [Created()]
        (dead,) = await engine.dead()
        assert dead.node == f"timer/{KEY}"
        (given_up,) = (await engine.snapshot(shop.Order, "123")).timers
        assert (given_up.status, given_up.failures) == ("dead", 3)
        assert "no decision" in given_up.error
        shop.on_input = lambda _: None
        assert await engine.replay_dead(dead.run, dead.node)
        await clock.advance(seconds=5)
        assert await shop.events(engine) == [Created(), TimedOut()]


async def test_g4_inputs_of_one_instance_are_serialised_and_different_instances_go_on(stage: Stage, shop: Shop) -> None:
    """Fifty at once: sequences without gaps; an instance whose effect hangs holds up no other."""
    shop.gate = asyncio.Event()
    async with stage.engine(shop.registry) as engine:
        await engine.execute(shop.Order, Create("hangs"))
        await asyncio.gather(*[engine.execute(shop.Inventory, Stock("7", each)) for each in range(50)])
        assert await engine.state(shop.Inventory, "7") == sum(range(50))
        stream = await engine.stream(shop.Inventory, "7")
        assert [each.sequence for each in stream] == list(range(1, 51))
        assert sorted(each.event.pieces for each in stream) == list(range(50))
        shop.gate.set()
        await engine.settle(timeout=20)
    assert shop.handled == [("hangs", "created", 1)]


async def test_i16_a_duplicate_registration_is_refused_and_an_effect_type_needs_its_handler(shop: Shop) -> None:
    """One builder, one registry: what was wrong is told where it is written."""
    with pytest.raises(hf.UsageError, match="order"):

        class Other(hf.Decider[State, Create, Created, SendEmail], name="order", registry=shop.registry):
            def workflow_id(self, input: Create) -> str:
                return input.id

            def initial(self) -> State:
                return State()

            def evolve(self, state: State, event: Created) -> State:
                return state

            def decide(self, now: object, state: State, input: Create) -> hf.Decision[Created, SendEmail, Create]:
                return hf.Decision.event(Created())

            async def handle(self, effect: SendEmail, ctx: hf.EffectContext) -> Create | None:
                return None

    with pytest.raises(hf.UsageError, match=r"has effects \('?SendEmail'?\) and no handle"):

        class Mute(hf.Decider[State, Create, Created, SendEmail], name="mute", registry=shop.registry):
            def workflow_id(self, input: Create) -> str:
                return input.id

            def initial(self) -> State:
                return State()

            def evolve(self, state: State, event: Created) -> State:
                return state

            def decide(self, now: object, state: State, input: Create) -> hf.Decision[Created, SendEmail, Create]:
                return hf.Decision.event(Created())


async def test_g9_a_worker_that_is_stopped_finishes_the_effect_it_runs(stage: Stage, shop: Shop) -> None:
    """Graceful shutdown: what has begun is settled, and nothing is left behind."""
    begun = asyncio.Event()

    async def slow(effect: SendEmail, ctx: hf.EffectContext) -> Input | None:
        begun.set()
        await asyncio.sleep(0)
        return EmailSent(ctx.workflow_id, effect.to)

    shop.handler = slow
    async with stage.engine(shop.registry, work=False) as engine:
        async with engine.worker():
            await engine.execute(shop.Order, Create("123"))
            await asyncio.wait_for(begun.wait(), 20)
        assert await shop.events(engine) == [Created(), Emailed("created")]
