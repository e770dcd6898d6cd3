"""The other ways in: functions, programs without a loop, transactions of the caller's own, tests on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.testing import engine_in_memory, given
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import (
    PAYMENT_TIME,
    Act,
    Alarm,
    Create,
    Created,
    Paid,
    Pay,
    PaymentTimeout,
    Ship,
    World,
    order_class,
    reply,
)


async def test_a_function_executes_an_input_once_however_often_it_is_replayed(stage: Stage, world: World) -> None:
    """`hf.execute` is a recorded call: the function goes on in another process, and the input is not given again."""

    @hf.workflow(registry=world.registry)
    async def shopper(id: str) -> str:
        await hf.execute(world.Puppet, Act(id, ("one",)))
        await hf.sleep(days=1)
        await hf.execute("puppet", Act(id, ("two",)), command_id="c")
        await hf.execute("puppet", Act(id, ("two",)), command_id="c")
        return "done"

    async with stage.virtual(world.registry) as (engine, clock):
        handle = await engine.start(shopper, "p")
        await clock.advance(hours=1)
        assert await world.words(engine) == ("one",)
    async with stage.virtual(world.registry) as (engine, clock):  # replayed from its history
        await clock.advance(days=2)
        assert await engine.get(handle.id).status() == "completed"
        assert await world.words(engine) == ("one", "two")


async def test_what_decide_raises_in_hf_execute_can_be_caught_by_the_function(stage: Stage, world: World) -> None:
    @hf.workflow(registry=world.registry)
    async def careful() -> str:
        try:
            await hf.execute(world.Puppet, Act("p", raises="no"))
        except Exception as error:
            return type(error).__name__
        return "nothing was raised"

    async with stage.engine(world.registry) as engine:
        assert await engine.run(careful, timeout=DEADLINE_SECONDS) == "DecideFailed"
        assert await engine.stream(world.Puppet, "p") == []


async def test_a_function_waits_for_the_end_of_an_instance(stage: Stage, world: World) -> None:
    async with stage.engine(world.registry, work=False) as engine:
        await engine.execute(world.Puppet, Act("p"))
        run = (await engine.snapshot(world.Puppet, "p")).run_id

        @hf.workflow(registry=world.registry)
        async def watcher() -> str:
            ended = await hf.wait_for(hf.ended(run))
            return str(ended.status)

        async with engine.worker():
            handle = await engine.start(watcher)
            await engine.settle(timeout=DEADLINE_SECONDS)
            assert await handle.status() == "suspended"
            await engine.execute(world.Puppet, Act("p", end=True))
            assert await handle.result(timeout=DEADLINE_SECONDS) == "completed"


def test_programs_without_a_loop_use_the_same_calls(tmp_path: Any) -> None:
    world = World()
    world.handler = reply
    engine = hf.Engine(f"sqlite:///{tmp_path / 'app.db'}", registry=world.registry, observe_inputs="type")
    with engine.blocking() as blocking, blocking.worker():
        assert blocking.execute(world.Puppet, Act("p", errands=("a",)), command_id="c") is None  # type: ignore[func-returns-value]
        blocking.execute(world.Puppet, Act("p", errands=("a",)), command_id="c")
        blocking.execute_dynamic("puppet", {"type": "Act", "id": "p", "words": ["untyped"]})
        blocking.enqueue_input(world.Puppet, Act("p", ("queued",)))
        blocking.settle(timeout=DEADLINE_SECONDS)
        state = blocking.state(world.Puppet, "p")
        assert sorted(state.words) == ["a done", "acted", "queued", "untyped"]
        assert len(blocking.stream(world.Puppet, "p")) == blocking.snapshot(world.Puppet, "p").sequence == 4
        assert [each.workflow_id for each in blocking.instances(world.Puppet)] == ["p"]
        assert len(blocking.observations(world.Puppet, "p")) == 5
        with pytest.raises(hf.DecideFailed):
            blocking.execute(world.Puppet, Act("p", raises="no"))


@pytest.mark.parametrize("commit", [True, False])
async def test_an_input_can_join_a_transaction_of_the_callers_own(
    postgres_url: str, world: World, commit: bool
) -> None:
    """PostgreSQL: the caller's rows and the decision are one commit, or neither is there."""
    async with hf.Engine(postgres_url, registry=world.registry) as engine, engine.worker():
        connection = await asyncpg.connect(postgres_url)
        try:
            await connection.execute("CREATE TABLE mine (word text)")
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO mine VALUES ('here')")
            await engine.execute(world.Puppet, Act("p", errands=("a",)), tx=connection)
            if commit:
                await transaction.commit()
            else:
                await transaction.rollback()
            assert await connection.fetchval("SELECT count(*) FROM mine") == commit
            await engine.settle(timeout=DEADLINE_SECONDS)
            assert await world.words(engine) == (("acted",) if commit else ())
            assert world.journal == (["a 1"] if commit else [])
            await engine.execute(world.Puppet, Act("p", ("after",)))  # what was remembered of it is not wrong
            assert await world.words(engine) == (("acted", "after") if commit else ("after",))
        finally:
            await connection.close()


async def test_an_order_that_is_not_paid_expires_after_half_an_hour_in_no_time() -> None:
    registry = hf.Registry()
    order = order_class(registry)
    async with engine_in_memory(registry=registry) as (engine, clock):
        await engine.execute(order, Create("17"))
        await clock.advance(minutes=29)
        assert (await engine.state(order, "17")).status == "open"
        await clock.advance(minutes=1)
        assert (await engine.state(order, "17")).status == "expired"
        assert (await engine.stream(order, "17"))[-1].at - (await engine.stream(order, "17"))[0].at == PAYMENT_TIME


async def test_a_century_of_yearly_timers_passes_quickly(world: World) -> None:
    async with engine_in_memory(registry=world.registry) as (engine, clock):
        await engine.execute(world.Puppet, Act("p", alarms=(Alarm(365 * 86_400, "year", "k", again=99),)))
        await clock.advance(timedelta(days=365 * 100))
        assert await world.words(engine) == ("acted", *["year"] * 100)


def test_given_decides_as_the_engine_does() -> None:
    """The test kit and the engine agree, event by event."""
    order = order_class(hf.Registry())
    given(order).when(Create("17", 5)).then_events(Created(5)).then_timers(
        (PAYMENT_TIME, PaymentTimeout("17"), "payment")
    ).then_no_effects()
    (
        given(order, [Created(5)])
        .when(Pay("17", "visa"))
        .then_events(Paid("visa"))
        .then_effects(Ship(5))
        .then_timer_cancelled("payment")
    )
    given(order, [Created(5)]).when(PaymentTimeout("17")).then_terminal()


async def test_two_deciders_of_one_process_can_talk_through_an_effect(stage: Stage, world: World) -> None:
    """An effect that executes an input of another decider, under its own idempotency key."""
    order = order_class(world.registry)
    async with stage.engine(world.registry) as engine:

        async def place(effect: Any, ctx: hf.EffectContext) -> None:
            await engine.execute(order, Create(effect.what), command_id=ctx.idempotency_key)

        world.handler = place
        await engine.execute(world.Puppet, Act("p", errands=("17", "18")))
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert {each.workflow_id for each in await engine.instances(order)} == {"17", "18"}


async def test_i2_runs_are_listed_newest_first_beside_instances_whose_ids_are_digests(
    stage: Stage, world: World
) -> None:
    """By when they were made, page by page; the id of a run, which was the cursor once, still leads on."""

    @hf.action(registry=world.registry)
    async def greet(name: str) -> str:
        return name

    made: list[str] = []
    async with stage.virtual(world.registry, work=False) as (engine, clock):
        for number in range(4):
            made.append((await engine.start(greet, "Ada")).id)
            await clock.advance(seconds=1)
            await engine.execute(world.Puppet, Act(f"p{number}"))
            (instance,) = [run.id for run in await engine.find(limit=100) if run.key == f"p{number}"]
            made.append(instance)
            await clock.advance(seconds=1)
        newest = made[::-1]
        assert [run.id for run in await engine.find()] == newest
        page, seen = await engine.find(limit=3), list[str]()
        while page:
            seen += [run.id for run in page]
            page = await engine.find(limit=3, after=page.cursor) if page.cursor else []
        assert seen == newest
        assert [run.id for run in await engine.find(after=newest[2])] == newest[3:]
        with pytest.raises(hf.UsageError, match="there is no cursor 'nonsense'"):
            await engine.find(after="nonsense")
