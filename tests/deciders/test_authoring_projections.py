"""`@hf.projection`: definitions, their names and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast as hf
from tests.deciders.authoring_world import REGISTRY, Cancelled, Order, OrderEvent, Poking

RECORDED: hf.Recorded[OrderEvent] = hf.Recorded(
    workflow="order", workflow_id="17", sequence=1, position=5, type="Cancelled", event=Cancelled(),
    at=datetime(2030, 1, 1, tzinfo=UTC),
)  # fmt: skip


class Rows:
    """A transaction that remembers, for a projection called by hand."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.raw = None

    async def execute(self, sql: str, *args: object) -> int:
        self.said.append((sql, *args))
        return 1

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        return []

    async def fetchrow(self, sql: str, *args: object) -> Any:
        return None

    async def fetchval(self, sql: str, *args: object) -> Any:
        return None


async def test_a_projection_is_registered_with_its_decider_and_can_be_called() -> None:
    """Its run is stored under its own name, so a worker of the decider's registry finds it."""
    registry = hf.Registry()

    @hf.projection(Order, name="open-orders", queue="views", retry=hf.Retry(attempts=2), registry=registry)
    async def open_orders(event: hf.Recorded[OrderEvent], tx: hf.Tx) -> None:
        await tx.execute("insert", event.workflow_id, event.position)

    @open_orders.reset
    async def empty(tx: hf.Tx) -> None:
        await tx.execute("delete")

    rows = Rows()
    await open_orders(RECORDED, rows)
    assert open_orders.reset_hook is empty
    await empty(rows)
    assert rows.said == [("insert", "17", 5), ("delete",)]
    assert (open_orders.name, open_orders.workflow) == ("open-orders", "projection:open-orders")
    assert registry.workflows["projection:open-orders"] is open_orders
    assert (open_orders.sources, open_orders.queue, open_orders.retry.attempts) == (("order",), "views", 2)
    assert not open_orders.batch


async def test_several_deciders_and_batches() -> None:
    @hf.projection((Order, Poking), batch=True, batch_size=7, registry=hf.Registry())
    async def everything(events: list[hf.Recorded[Any]], tx: hf.Tx) -> None:
        await tx.execute("insert", len(events))

    rows = Rows()
    await everything([RECORDED, RECORDED], rows)
    assert rows.said == [("insert", 2)]
    assert (everything.sources, everything.batch, everything.batch_size) == (("order", "Poking"), True, 7)


def test_by_default_it_is_registered_where_its_decider_is() -> None:
    @hf.projection(Order)
    async def by_default(event: hf.Recorded[OrderEvent], tx: hf.Tx) -> None: ...

    assert REGISTRY.workflows["projection:by_default"] is by_default


def test_i15_two_projections_of_one_name_are_an_error_that_names_both() -> None:
    """I15: a second definition under a taken name shows both places."""
    registry = hf.Registry()

    @hf.projection(Order, name="twice", registry=registry)
    async def one(event: hf.Recorded[OrderEvent], tx: hf.Tx) -> None: ...

    with pytest.raises(hf.UsageError, match=r"(?s)twice.*one.*two"):

        @hf.projection(Order, name="twice", registry=registry)
        async def two(event: hf.Recorded[OrderEvent], tx: hf.Tx) -> None: ...


async def takes_one(event: Any) -> None: ...
async def takes_two(event: Any, tx: hf.Tx) -> None: ...
def plain(event: Any, tx: hf.Tx) -> None: ...


@pytest.mark.parametrize(
    ("deciders", "options", "fn", "said"),
    [
        (dict, {}, takes_two, "no decider"),
        ("order", {}, takes_two, "no decider"),
        ((), {}, takes_two, "no decider"),
        (Order, {}, takes_one, r"\(event, tx\)"),
        (Order, {}, plain, "no async def"),
        (Order, {"name": ""}, takes_two, "is empty"),
        (Order, {"name": "a\nb"}, takes_two, "unprintable"),
        (Order, {"batch": 5}, takes_two, "batch=5"),
        (Order, {"batch_size": 0}, takes_two, "batch_size=0"),
        (Order, {"retry": 3}, takes_two, "retry=3"),
    ],
)
def test_what_could_not_run_is_refused_when_it_is_defined(deciders: Any, options: Any, fn: Any, said: str) -> None:
    with pytest.raises(hf.UsageError, match=said):
        hf.projection(deciders, registry=hf.Registry(), **options)(fn)


def test_a_reset_that_cannot_be_awaited_is_refused() -> None:
    made: Any = hf.projection(Order, registry=hf.Registry())(takes_two)
    with pytest.raises(hf.UsageError, match="cannot be awaited"):
        made.reset(lambda tx: None)
    with pytest.raises(hf.UsageError, match=r"\(tx\)"):
        made.reset(takes_two)
