"""Seed 001 on deployments: what is safe, what is not, and what helps. Each deploy is a second registry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Never

import pytest

import holdfast as hf
from tests.deciders.conftest import Stage
from tests.deciders.seed_order import Create, Shop, Stock


@dataclass(frozen=True)
class Note:
    id: str
    text: str


@dataclass(frozen=True)
class Noted:
    text: str


def notes(registry: hf.Registry, event: type = Noted, name: str = "note", **options: Any) -> Any:
    """A decider that records what it is told, with this class for its one event."""

    class Notes(hf.Decider[tuple[str, ...], Note, event, Never], name=name, registry=registry, **options):  # type: ignore[valid-type]
        def workflow_id(self, input: Note) -> str:
            return input.id

        def initial(self) -> tuple[str, ...]:
            return ()

        def evolve(self, state: tuple[str, ...], event: Any) -> tuple[str, ...]:
            return (*state, repr(event))

        def decide(self, now: datetime, state: tuple[str, ...], input: Note) -> Any:
            return hf.Decision.event(event(input.text))

    return Notes


async def _first_deploy(stage: Stage) -> None:
    registry = hf.Registry()
    made = notes(registry)
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(made, Note("n", "hello"))


async def test_a_new_workflow_type_and_an_optional_field_are_safe(shared_stage: Stage) -> None:
    """Additive changes: old events are read with the default."""
    await _first_deploy(shared_stage)

    @dataclass(frozen=True)
    class Noted:
        text: str
        author: str = "nobody"

    registry = hf.Registry()
    made = notes(registry, Noted)
    other = notes(registry, Noted, name="another")
    async with shared_stage.engine(registry, work=False) as engine:
        await engine.execute(made, Note("n", "again"))
        await engine.execute(other, Note("n", "new"))
        events = [each.event for each in await engine.stream(made, "n")]
        assert events == [Noted("hello"), Noted("again")]
        assert len(await engine.state(other, "n")) == 1


async def test_i37_an_event_type_that_was_removed_is_named_and_nothing_is_lost(shared_stage: Stage) -> None:
    """Unsafe: what is stored cannot be read. The error says what and where, and the old code still can."""
    await _first_deploy(shared_stage)

    @dataclass(frozen=True)
    class Written:
        text: str

    registry = hf.Registry()
    made = notes(registry, Written)
    async with shared_stage.engine(registry, work=False) as engine:
        with pytest.raises(hf.PayloadRefused, match=r"event Noted of note 'n', sequence 1") as caught:
            await engine.state(made, "n")
        assert "Written" in str(caught.value)
        with pytest.raises(hf.HoldfastError, match="Noted"):
            await engine.execute(made, Note("n", "again"))
    old = hf.Registry()
    made = notes(old)
    async with shared_stage.engine(old, work=False) as engine:
        assert await engine.state(made, "n") == ("Noted(text='hello')",)


async def test_i37_a_field_that_changed_its_type_is_named_and_an_upcast_mends_it(shared_stage: Stage) -> None:
    """Unsafe, and made safe by a version."""
    await _first_deploy(shared_stage)

    @dataclass(frozen=True)
    class Noted:
        words: list[str]

    registry = hf.Registry()
    made = notes(registry, Noted)
    async with shared_stage.engine(registry, work=False) as engine:
        with pytest.raises(hf.PayloadRefused, match=r"event Noted of note 'n', sequence 1.*words.*from_version=1"):
            await engine.state(made, "n")

        @hf.upcast(made, "Noted", from_version=1)
        def split(event: dict[str, Any]) -> dict[str, Any]:
            return {"words": event["text"].split()}

        assert [each.event for each in await engine.stream(made, "n")] == [Noted(["hello"])]


async def test_i15_a_renamed_type_keeps_its_instances_by_an_alias(shared_stage: Stage) -> None:
    """Changing the type's name is unsafe; with an alias it is not."""
    await _first_deploy(shared_stage)
    bare, with_alias = hf.Registry(), hf.Registry()
    lost, kept = notes(bare, name="memo"), notes(with_alias, name="memo", aliases=("note",))
    async with shared_stage.engine(bare, work=False) as engine:
        assert await engine.stream(lost, "n") == []
    async with shared_stage.engine(with_alias, work=False) as engine:
        await engine.execute(kept, Note("n", "again"))
        assert [each.sequence for each in await engine.stream(kept, "n")] == [1, 2]


async def test_i8_work_of_a_type_that_was_removed_waits_and_is_done_when_the_type_is_back(shared_stage: Stage) -> None:
    """Removing a type with pending work: nothing fails, nothing is lost, nobody does it."""
    shop = Shop()
    async with shared_stage.engine(shop.registry, work=False) as engine:
        await engine.execute(shop.Order, Create("123"))
    without = hf.Registry()
    notes(without)
    async with shared_stage.engine(without) as engine:
        with pytest.raises(hf.UsageError, match=r"1 item is due that no live worker can run: order\.SendEmail"):
            await engine.settle(timeout=20)
        explained = str(await engine.get((await engine.find(workflow="order"))[0].id).explain())
        assert "order.SendEmail" in explained
    async with shared_stage.engine(shop.registry) as engine:
        await engine.settle(timeout=20)
        assert shop.handled == [("123", "created", 1)]


async def test_i11_maintenance_holds_processing_and_accepts_inputs(stage: Stage) -> None:
    """The seed's maintenance mode: nothing is claimed, everything is accepted, all of it happens afterwards."""
    shop = Shop()
    async with stage.engine(shop.registry) as engine:
        await engine.maintenance(True, workflow="order")
        await engine.execute(shop.Order, Create("123"))
        await engine.execute(shop.Inventory, Stock("7", 3))
        await engine.settle(timeout=20)
        assert shop.handled == []
        assert await engine.state(shop.Inventory, "7") == 3
        await engine.maintenance(False, workflow="order")
        await engine.settle(timeout=20)
        assert shop.handled == [("123", "created", 1)]


async def test_a_type_that_is_drained_takes_no_new_instances_and_the_open_ones_go_on(stage: Stage) -> None:
    """Drain before removing: what is open ends, nothing new begins."""
    shop = Shop()
    async with stage.engine(shop.registry, work=False) as engine:
        await engine.execute(shop.Inventory, Stock("open", 1))
        await engine.drain("inventory")
        with pytest.raises(hf.UsageError, match="being drained"):
            await engine.execute(shop.Inventory, Stock("new", 1))
        await engine.execute(shop.Inventory, Stock("open", 1))
        assert await engine.state(shop.Inventory, "open") == 2
        await engine.drain("inventory", on=False)
        await engine.execute(shop.Inventory, Stock("new", 1))
