"""What seed 001 wishes for: an inbox, input idempotency, observations, codecs, event versions, a test kit."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import engine_in_memory, given
from tests.deciders.conftest import Stage
from tests.deciders.seed_order import (
    HOUR,
    KEY,
    Cancel,
    CancelRejected,
    Charge,
    Charged,
    Create,
    Created,
    Emailed,
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


async def test_g1_an_enqueued_input_is_kept_before_anybody_has_decided_on_it(stage: Stage, shop: Shop) -> None:
    """Durability: the input survives the process between the call and its execution; the depth can be watched."""
    async with stage.engine(shop.registry, work=False) as engine:
        await engine.enqueue_input(shop.Order, Create("123"))
        await engine.enqueue_input(shop.Order, {"type": "Pay", "id": "123", "cents": 5})
        assert await shop.events(engine) == []
        assert (await engine.snapshot(shop.Order, "123")).inbox == 2
        assert (await engine.stats()).store.inbox == 2
    if stage.kind == "memory":
        return
    async with stage.engine(shop.registry) as engine:
        await engine.settle(timeout=20)
        assert (await engine.state(shop.Order, "123")).status == "paid"
        assert (await engine.stats()).store.inbox == 0


async def test_g4_the_inbox_keeps_its_order_with_many_workers(stage: Stage, shop: Shop) -> None:
    """The seed's critical concern: input A was first, whoever claims what."""
    async with stage.engine(shop.registry, work=False) as engine:
        for number in range(40):
            await engine.enqueue_input(shop.Inventory, Stock(str(number % 2), number))
        async with engine.worker(), engine.worker(), engine.worker():
            await engine.settle(timeout=20)
        for instance in (0, 1):
            taken = [each.event.pieces for each in await engine.stream(shop.Inventory, str(instance))]
            assert taken == list(range(instance, 40, 2))


async def test_i16_an_input_that_cannot_be_decided_leaves_the_inbox_as_a_dead_letter(stage: Stage, shop: Shop) -> None:
    """It does not stand in the way of those behind it."""

    def refuse_payments(input: object) -> None:
        if isinstance(input, Pay):
            raise ValueError("no money, please")

    shop.on_input = refuse_payments
    async with stage.engine(shop.registry) as engine:
        for each in (Create("123"), Pay("123", 5), Charge("123", "c-1")):
            await engine.enqueue_input(shop.Order, each)
        await engine.settle(timeout=20)
        assert await shop.events(engine) == [Created(), Charged("c-1")]
        (dead,) = await engine.dead()
        assert "no money, please" in (dead.reason or "")  # type: ignore[union-attr]


async def test_i12_a_client_that_repeats_its_call_is_heard_once(stage: Stage, shop: Shop) -> None:
    """A command id is kept for its instance: after a lost answer the client sends the same again."""
    async with stage.engine(shop.registry, work=False) as engine:
        for _ in range(3):
            await engine.execute(shop.Inventory, Stock("7", 5), command_id="call-1")
            await engine.enqueue_input(shop.Inventory, Stock("7", 5), command_id="call-1")
            await engine.execute_dynamic("inventory", {"type": "Stock", "id": "7", "pieces": 5}, command_id="call-1")
        await engine.execute(shop.Inventory, Stock("8", 5), command_id="call-1")
        assert await engine.state(shop.Inventory, "7") == 5
        assert await engine.state(shop.Inventory, "8") == 5


async def test_i12_an_input_that_carries_its_own_key_applies_once(stage: Stage, shop: Shop) -> None:
    """#[idempotent(key = "charge_id")]."""
    async with stage.engine(shop.registry, work=False) as engine:
        for charge_id in ("c-1", "c-2", "c-1"):
            await engine.execute(shop.Order, Charge("123", charge_id))
        assert (await engine.state(shop.Order, "123")).charges == ("c-1", "c-2")


async def test_i12_a_command_id_is_kept_for_as_long_as_the_type_says(stage: Stage) -> None:
    """A retention: after it the same id is a new command."""
    shop = Shop(command_retention=timedelta(hours=1))
    async with stage.virtual(shop.registry, work=False) as (engine, clock):
        for _ in range(2):
            await engine.execute(shop.Order, Cancel("123"), command_id="call-1")
        await clock.advance(minutes=59)
        await engine.execute(shop.Order, Cancel("123"), command_id="call-1")
        assert len(await shop.events(engine)) == 1
        await clock.advance(minutes=2)
        for _ in range(2):
            await engine.execute(shop.Order, Cancel("123"), command_id="call-1")
        assert len(await shop.events(engine)) == 2


async def test_i12_equal_inputs_within_the_window_are_one(stage: Stage) -> None:
    """The automatic window: the last N inputs, for a while; without it equal inputs are several."""
    shop = Shop(dedup=hf.Dedup(last=2, ttl=timedelta(minutes=1)))
    async with stage.virtual(shop.registry, work=False) as (engine, clock):
        # Cancel of an order that is new is rejected with an event, each time that it is decided on.
        rejected = CancelRejected("the order is new")
        await engine.execute(shop.Order, Cancel("123"))
        await engine.execute(shop.Order, Cancel("123"))
        assert await shop.events(engine) == [rejected]
        await clock.advance(minutes=2)
        await engine.execute(shop.Order, Cancel("123"))
        assert await shop.events(engine) == [rejected] * 2  # the first is too old
        await engine.execute(shop.Order, Charge("123", "c-1"), command_id=None)
        await engine.execute(shop.Order, Pay("123", 1))
        await engine.execute(shop.Order, Pay("123", 2))
        await engine.execute(shop.Order, Cancel("123"))
        assert (await shop.events(engine)).count(rejected) == 3  # no longer among the last two
    plain = Shop()
    async with stage.engine(plain.registry, work=False) as engine:
        for _ in range(2):
            await engine.execute(plain.Order, Cancel("other"))
        assert await plain.events(engine, "other") == [rejected] * 2


async def test_observed_transitions_show_what_instances_did_and_how_often(stage: Stage, shop: Shop) -> None:
    """(from_status, input_type, to_status), aggregated; with the payload if that is wanted."""
    shop.handler = confirm
    async with stage.engine(shop.registry, observe_inputs="payload") as engine:
        for id in ("1", "2"):
            await engine.execute(shop.Order, Create(id))
        await engine.execute(shop.Order, Pay("2", 5), command_id="pay-2")
        await engine.settle(timeout=20)
        seen = {(each.before, each.input, each.after): each.count for each in await engine.transitions(shop.Order)}
        paid = Counter({("created", "Pay", "paid"): 1})
        emailed = [key for key in seen if key[1] == "EmailSent"]
        assert sum(seen[key] for key in emailed) == 2
        assert Counter({key: count for key, count in seen.items() if key not in emailed}) == paid + Counter(
            {("new", "Create", "created"): 2}
        )
        (pay,) = [each for each in await engine.observations(shop.Order, "2") if each.type == "Pay"]
        assert (pay.source, pay.command_id, pay.payload) == (
            "command",
            "pay-2",
            {"type": "Pay", "id": "2", "cents": 5},
        )
        drawn = await engine.observed_state_machine(shop.Order)
        assert "Pay (1)" in drawn.mermaid()
        assert 'label="Create (2)"' in drawn.dot()


async def test_observations_are_off_unless_they_are_asked_for(stage: Stage, shop: Shop) -> None:
    """Optional: nothing is stored by default, and only types with "type"."""
    async with stage.engine(shop.registry, work=False) as engine:
        await engine.execute(shop.Order, Create("quiet"))
        assert await engine.observations(shop.Order, "quiet") == []
    async with stage.engine(shop.registry, work=False, observe_inputs="type") as engine:
        await engine.execute(shop.Order, Create("noted"))
        (seen,) = await engine.observations(shop.Order, "noted")
        assert (seen.type, seen.before, seen.after, seen.payload) == ("Create", "new", "created", None)


async def test_i14_events_are_written_with_any_codec_and_read_whoever_wrote_them(stage: Stage, shop: Shop) -> None:
    """JSON by default, MessagePack, or one's own; each row names its codec, so they mix in one stream."""

    class Deflated:
        tag = "deflated"

        def encode(self, plain: object) -> bytes:
            return zlib.compress(hf.JSON.encode(plain))

        def decode(self, data: bytes, annotation: object) -> object:
            return hf.JSON.decode(zlib.decompress(data), annotation)

    codecs: list[Any] = ["json", "msgpack", Deflated()]
    if stage.kind == "memory":  # one engine after the other needs a database
        codecs = codecs[-1:]
    for number, codec in enumerate(codecs):
        async with stage.engine(shop.registry, codec=codec) as engine:
            await engine.execute(shop.Inventory, Stock("7", 10**number))
            assert await engine.state(shop.Inventory, "7") == sum(10**each for each in range(number + 1))
            await engine.execute(shop.Order, Create(f"order-{number}"))
            await engine.settle(timeout=20)
    assert len(shop.handled) == len(codecs)


async def test_i37_an_old_event_is_upcast_version_by_version(shared_stage: Stage) -> None:
    """Formal versions with upcast functions: also changes that are not additive."""
    await _paid_order(shared_stage, Shop())
    shop = Shop()

    @hf.upcast(shop.Order, "PaymentReceived", from_version=1)
    def in_euros(event: dict[str, Any]) -> dict[str, Any]:
        return {"type": "PaymentReceived", "euros": event["cents"] / 100}

    @hf.upcast(shop.Order, "PaymentReceived", from_version=2)
    def in_cents_again(event: dict[str, Any]) -> dict[str, Any]:
        return {"type": "PaymentReceived", "cents": round(event["euros"] * 1_000) // 10}

    async with shared_stage.engine(shop.registry, work=False) as engine:
        assert PaymentReceived(500) in await shop.events(engine)
        await engine.execute(shop.Order, Create("124"))
        await engine.execute(shop.Order, Pay("124", 7))
        versions = {
            each.workflow_id: each.version for id in ("123", "124") for each in await _payments(engine, shop, id)
        }
        assert versions == {"123": 1, "124": 3}


async def _paid_order(stage: Stage, shop: Shop) -> None:
    async with stage.engine(shop.registry, work=False) as engine:
        await engine.execute(shop.Order, Create("123"))
        await engine.execute(shop.Order, Pay("123", 500))


async def _payments(engine: hf.Engine, shop: Shop, id: str) -> list[hf.Recorded[Any]]:
    return [each for each in await engine.stream(shop.Order, id) if each.type == "PaymentReceived"]


async def test_time_is_turned_and_nothing_is_stored_in_a_test_of_a_workflow() -> None:
    """A store in memory for unit tests; here with a clock, so that the hour costs nothing."""
    shop = Shop()
    async with engine_in_memory(registry=shop.registry) as (engine, clock):
        await engine.execute(shop.Order, Create("123"))
        await clock.advance(hours=2)
        assert await shop.events(engine) == [Created(), TimedOut()]


def test_decisions_are_checked_without_a_store() -> None:
    """Helpers that run decisions and compare events, effects and timers."""
    shop = Shop()
    now = datetime(2030, 5, 5, tzinfo=UTC)
    given(shop.Order, at=now).when(Create("123")).then_events(Created()).then_effects(SendEmail("created")).then_timers(
        (HOUR, Timeout("123"), KEY)
    )
    given(shop.Order, [Created()]).when(Pay("123", 5)).then_events(PaymentReceived(5)).then_timer_cancelled(
        KEY
    ).then_no_effects().then_state(State("paid"))
    given(shop.Order, [Created(), Emailed("ada")]).when(Timeout("123")).then_terminal().when(
        Pay("123", 5)
    ).then_ignored()


async def test_g3_many_instances_are_drained_at_once_and_not_one_per_poll(stage: Stage, shop: Shop) -> None:
    """The seed claims one effect at a poll. Here a hundred are done while a poll is an hour away."""
    async with stage.engine(shop.registry, work=False, poll_seconds=3600.0) as engine:
        await asyncio.gather(*[engine.execute(shop.Order, Create(str(id))) for id in range(100)])
        async with engine.worker(concurrency=10):
            await engine.settle(timeout=20)
        assert sorted(int(id) for id, _, _ in shop.handled) == list(range(100))
