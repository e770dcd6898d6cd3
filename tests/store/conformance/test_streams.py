"""Streams read across instances: every event once, in an order that is each stream's own (I36)."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.core.rows import Fact
from holdfast.store.contract import Store, StreamLag, StreamType, Transition
from tests.store.conformance.rows import a_fact, an_instance, an_observation, put
from tests.support.stores import EPOCH_US, Site, VirtualClock, change


async def everything(store: Store, workflow: str = "Order", after: int = 0) -> list[Fact]:
    """What is within the bound, once that has come to rest: a server's housekeeping may hold it back for a moment."""
    stored = await store.read_stream(workflow, after, 2**62, 1000)
    async with asyncio.timeout(20):
        while (bound := await store.stream_bound()) < max((fact.position for fact in stored), default=0):
            pass
    return await store.read_stream(workflow, after, bound, 1000)


def named(facts: list[Fact]) -> list[tuple[str, int]]:
    return [(fact.run, fact.sequence) for fact in facts]


async def test_i36_events_are_read_in_the_order_in_which_they_were_committed(site: Site) -> None:
    """Over all instances of a workflow; those of others and the engine's own records are left out."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_fact("b", 1), a_fact("b", 2))
        await put(store, a_fact("a", 1), a_fact("other", 1, workflow="Invoice"))
        await put(store, a_fact("b", 3, type="TimerCancelled", system=True), a_fact("b", 4))
        facts = await everything(store)
        assert named(facts) == [("b", 1), ("b", 2), ("a", 1), ("b", 4)]
        assert named(await everything(store, "Invoice")) == [("other", 1)]
        assert await everything(store, "Nothing") == []
        positions = [fact.position for fact in facts]
        assert positions == sorted(set(positions))
        assert replace(facts[0], position=0) == a_fact("b", 1)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 12, 16, 17])
async def test_i36_a_commit_with_many_events_keeps_their_order(site: Site, count: int) -> None:
    """However many, and however the store groups rows to write them faster."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *(a_fact("r1", number) for number in range(1, count + 1)))
        assert named(await everything(store)) == [("r1", number) for number in range(1, count + 1)]


async def test_i36_a_reader_goes_on_where_it_was(site: Site) -> None:
    """Page by page it reads the same as at once, and no further than it asks for."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *(a_fact(f"r{number}", 1) for number in range(10)))
        facts = await everything(store)
        read: list[Fact] = []
        while page := await store.read_stream("Order", read[-1].position if read else 0, 2**62, 3):
            assert len(page) <= 3
            read += page
        assert read == facts
        assert await store.read_stream("Order", facts[2].position, facts[5].position, 100) == facts[3:6]
        assert await everything(store, after=facts[-1].position) == []


async def test_i36_the_bound_reaches_what_is_committed(site: Site) -> None:
    """When nobody is in the middle of writing, the last event is within it, and it never moves back."""
    async with site.opened(VirtualClock()) as store:
        before = await store.stream_bound()
        assert await store.read_stream("Order", 0, before, 10) == []
        bounds = []
        for number in range(1, 6):
            await put(store, a_fact("r1", number))
            assert len(await everything(store)) == number
            bounds.append(await store.stream_bound())
        assert bounds == sorted(bounds)
        assert await store.horizon_age() == 0.0


async def test_i36_a_position_is_never_given_twice(site: Site) -> None:
    """Not after a rollback, and not when the newest events were pruned: a reader would pass over the new one."""
    async with site.opened(VirtualClock()) as store:
        await put(store, an_instance(base=1, status="completed", finished=1), a_fact())
        (pruned,) = await everything(store)
        assert await store.prune(EPOCH_US, 10) == 1
        assert await everything(store) == []
        try:
            async with store.transaction() as tx:
                await tx.write(change(insert=(a_fact("undone"),)))
                raise LookupError("the decision's caller gave up")
        except LookupError:
            pass
        await put(store, a_fact("r2"))
        (fact,) = await everything(store)
        assert fact.run == "r2"
        assert fact.position > pruned.position


async def test_i36_the_lag_tells_how_much_is_to_be_read(site: Site) -> None:
    """How many events, and how old the first of them is."""
    async with site.opened(VirtualClock()) as store:
        assert await store.stream_lag("Order", 0) == StreamLag(0, None)
        await put(store, *(a_fact("r1", number, at=number * 100) for number in range(1, 5)))
        await put(store, a_fact("r1", 5, system=True), a_fact("other", 1, workflow="Invoice"))
        facts = await everything(store)
        assert await store.stream_lag("Order", 0) == (4, 100)
        assert await store.stream_lag("Order", facts[1].position) == (2, 300)
        assert await store.stream_lag("Order", facts[-1].position) == (0, None)


async def test_i37_the_types_in_a_stream_are_listed_with_a_sample(site: Site) -> None:
    """So that `check` can decode one of each with today's code."""
    async with site.opened(VirtualClock()) as store:
        assert await store.stream_types("Order") == []
        await put(store, a_fact("r1", 1), a_fact("r1", 2, version=2), a_fact("r1", 3, type="Paid"))
        await put(store, a_fact("r2", 1), a_fact("r2", 2, type="TimerCancelled", system=True))
        await put(store, a_fact("r3", 1, workflow="Invoice", type="Sent"))
        assert await store.stream_types("Order") == [
            StreamType("Created", 1, 2, "r2", 1),
            StreamType("Created", 2, 1, "r1", 2),
            StreamType("Paid", 1, 1, "r1", 3),
        ]


async def test_i34_observed_transitions_are_counted(site: Site) -> None:
    """Inputs that were applied; an instance's first one comes from nowhere."""
    async with site.opened(VirtualClock()) as store:
        assert await store.transitions("Order") == []
        seen = [
            an_observation("r1", 1, after="new"),
            an_observation("r2", 1, after="new"),
            an_observation("r1", 2, type="Pay", before="new", after="paid"),
            an_observation("r1", 3, type="Pay", before="paid", after="paid"),
            an_observation("r1", 4, type="Pay", before="paid", after="paid", outcome="ignored"),
            an_observation("r1", 5, type="Pay", outcome="duplicate"),
            an_observation("r3", 1, workflow="Invoice", after="new"),
        ]
        await put(store, *seen)
        assert await store.transitions("Order") == [
            Transition(None, "Create", "new", 2),
            Transition("new", "Pay", "paid", 1),
            Transition("paid", "Pay", "paid", 1),
        ]
