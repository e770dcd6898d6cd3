"""A worker that learns names after it enrolled."""

from __future__ import annotations

from msgspec.structs import replace

from tests.store.conformance.rows import a_run, a_work, a_worker, put
from tests.support.stores import Site, VirtualClock


async def test_i8_what_a_worker_learned_counts_for_others_and_nothing_else_of_its_row_changes(site: Site) -> None:
    """I8: work of the new name is no longer unknown."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        row = await store.enroll(a_worker(workflows=("a",), actions=("a",)), 30.0)
        await put(store, a_run("r", workflow="late"), a_work("r", workflow="late", name="late"))
        clock.advance(1)
        assert [work.run for work in await store.unknown(clock.now_us(), 10)] == ["r"]
        await store.learn_names(replace(row, workflows=("a", "late"), actions=("a", "late"), host="another", seen=7))
        assert await store.workers() == [replace(row, workflows=("a", "late"), actions=("a", "late"))]
        assert await store.unknown(clock.now_us(), 10) == []


async def test_i7_a_worker_that_was_taken_over_does_not_come_back_by_learning(site: Site) -> None:
    """I7: an id that others have declared dead stays dead."""
    async with site.opened(VirtualClock()) as store:
        row = await store.enroll(a_worker(), 30.0)
        await store.retire(row.id)
        await store.learn_names(row)
        assert await store.workers() == []
