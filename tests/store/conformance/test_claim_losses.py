"""A claim that leaves work alone which was lost often."""

from __future__ import annotations

from tests.store.conformance.rows import a_run, a_work, a_worker, asked, put
from tests.support.stores import Site, VirtualClock


async def test_i6_a_claim_takes_only_what_was_lost_less_often_than_it_says(site: Site) -> None:
    """I6: the others stay ready, in their order, for a claim that takes them."""
    async with site.opened(VirtualClock()) as store:
        await store.enroll(a_worker(), 30.0)
        for losses in (0, 3, 1, 5):
            await put(store, a_run(f"r{losses}", active=1), a_work(f"r{losses}", losses=losses))
        few = await store.claim(asked(losses_below=3))
        assert sorted(item.work.losses for item in few) == [0, 1]
        assert await store.claim(asked(losses_below=3)) == []
        assert sorted(item.work.losses for item in await store.claim(asked())) == [3, 5]
