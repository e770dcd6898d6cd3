"""Which kinds of work are open, for those who are about to deploy code that may not know them (I8)."""

from __future__ import annotations

from holdfast.store.contract import OpenWorkType
from tests.store.conformance.rows import a_work, an_instance, put
from tests.support.stores import Site, VirtualClock


async def test_i8_open_work_of_a_workflow_is_counted_by_kind_and_name(site: Site) -> None:
    """Blocked, ready and leased items count; what is done or dead does not, nor another workflow's."""
    async with site.opened(VirtualClock()) as store:
        assert await store.open_work_types("Order") == []
        await put(store, *(an_instance(run) for run in ("r1", "r2", "r3")), an_instance("r4", workflow="Invoice"))
        effect = {"workflow": "Order", "kind": "effect", "name": "Order.SendEmail"}
        await put(
            store,
            a_work("r2", "effect/1.0", **effect),
            a_work("r1", "effect/1.0", **effect, status="blocked"),
            a_work("r3", "effect/1.0", **effect, status="leased", worker="w1"),
            a_work("r3", "effect/2.0", **effect, status="completed"),
            a_work("r3", "effect/3.0", **{**effect, "name": "Order.Charge"}, status="dead"),
            a_work("r2", "timer/payment", workflow="Order", kind="timer", name="Order:PaymentTimeout"),
            a_work("r4", "effect/1.0", **{**effect, "workflow": "Invoice"}),
        )
        assert await store.open_work_types("Order") == [
            OpenWorkType("effect", "Order.SendEmail", 3, "r1"),
            OpenWorkType("timer", "Order:PaymentTimeout", 1, "r2"),
        ]
