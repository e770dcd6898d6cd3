"""What a worker holds and does not run, while it gives that back."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from holdfast.coordinator import Coordinator
from holdfast.core.errors import StoreUnavailable
from holdfast.core.operations import Handed
from holdfast.runtime.own_leases import OwnLeases
from tests.store.conformance.rows import a_run, a_work


async def test_g3_what_is_given_back_is_not_taken_for_an_orphan_meanwhile() -> None:
    """It is ours and does not run, and was seen so twice: who runs it now would run it beside those who get it."""
    own, work, run = OwnLeases(), a_work(status="leased", token=1, worker="w"), a_run()
    released = asyncio.Event()

    class Slow:
        async def submit_batch(self, operations: list[Any]) -> list[Any]:
            await released.wait()
            return [None for _ in operations]

    own.compare([work], {})
    giving = asyncio.create_task(own.give_back(cast(Coordinator, Slow()), [Handed(work, run)]))
    await asyncio.sleep(0)
    assert own.compare([work], {}).orphans == [work]
    assert not own.adopt(work)
    released.set()
    await giving
    assert not own.adopt(work)  # found by a look that was made before
    assert own.compare([work], {}).orphans == []


async def test_what_could_not_be_given_back_is_found_again() -> None:
    own, work, run = OwnLeases(), a_work(status="leased", token=1, worker="w"), a_run()

    class Broken:
        async def submit_batch(self, operations: list[Any]) -> list[Any]:
            return [StoreUnavailable("gone") for _ in operations]

    await own.give_back(cast(Coordinator, Broken()), [Handed(work, run)])
    own.compare([work], {})
    assert own.compare([work], {}).orphans == [work]
    assert own.adopt(work)
