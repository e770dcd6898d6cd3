"""K3: whoever holds a lease that the server has forgotten says nothing any more (decision 0031)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.function_operations import TURN, Entry, QueuedCall, TakeTurn
from holdfast.core.operations import RECORDED, REPEATED, STALE, Offer, ReleaseWork, StartRun
from holdfast.core.queries import AllWork
from holdfast.core.rows import LEASED, READY, Work
from holdfast.store.contract import ClaimRequest, Store
from tests.kernel.kernels import make_coordinator, opened_kernel
from tests.support.stores import Site, VirtualClock, change

SLEEPER = StartRun(run="r", workflow="f", model="function", offer=Offer(worker="w", room=1, queues=("default",)))
CALL = QueuedCall(address="#1", action="a", name="a", digest="d", queue="q", payload=b"", codec="json")
AT_TURN: dict[str, Any] = {"run": "r", "node": TURN, "attempt": 1, "token": 1, "known": 0}
SAID: dict[str, dict[str, Any]] = {
    "its time has come": {"entries": (Entry(address="/1", kind="timer", name=""),)},
    "it begins something": {"calls": (CALL,)},
    "nothing yet": {},
}


async def turn_of(store: Store) -> Work:
    return next(work for work in await store.rows(AllWork("r")) if work.node == TURN)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("claimed_again", [True, False])
async def test_k3_who_held_the_turn_of_a_sleeper_when_the_server_forgot_it_is_refused(
    site: Site, said: str, claimed_again: bool
) -> None:
    """Claims leave the version of a run as it is, so that only the token of its turn can tell."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        first, second = make_coordinator(store, clock), make_coordinator(store, clock)
        await first.submit(SLEEPER)
        await first.submit(TakeTurn(**AT_TURN, park=True, due=clock.now_us()))
        await store.promote(["default"])
        waiting = await turn_of(store)
        request = ClaimRequest(worker="w", queue="default", limit=1, workflows=("f",), actions=("f",))
        handed = await store.claim(request)
        first.remember(handed)
        clock.advance(1)
        forgotten = await turn_of(store)
        async with store.transaction() as tx:
            await tx.write(change(update=((forgotten, waiting),)))
        again = await store.claim(request) if claimed_again else []
        late = AT_TURN | SAID[said]
        assert (await first.submit(TakeTurn(**late | {"token": handed[0].work.token}))).verdict == STALE
        assert (await turn_of(store)).status == (LEASED if claimed_again else READY)
        if claimed_again:
            second.remember(again)
            assert (await second.submit(TakeTurn(**late | {"token": again[0].work.token}))).verdict == RECORDED
        await first.close()
        await second.close()


@pytest.mark.parametrize("parks", [True, False])
async def test_k8_only_who_parked_a_turn_is_told_that_it_did(site: Site, parks: bool) -> None:
    """What else it had to say when the turn was given back was not recorded, and it must not rest on it."""
    async with opened_kernel(site) as (coordinator, _):
        await coordinator.submit(SLEEPER)
        if parks:
            await coordinator.submit(TakeTurn(**AT_TURN, park=True))
        else:
            await coordinator.submit(ReleaseWork(run="r", node=TURN, attempt=1, token=1))
        entry = Entry(address="1#1", kind="result", name="a", value=b"1")
        said = await coordinator.submit(TakeTurn(**AT_TURN, entries=() if parks else (entry,), park=parks))
        assert (said.verdict, said.parked, said.last) == (REPEATED if parks else STALE, parks, 0)
