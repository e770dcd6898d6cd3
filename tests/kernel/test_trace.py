"""The trace: operations as JSON lines, which give the same rows in a memory store."""

from __future__ import annotations

import pytest

from holdfast.core.operations import RECORDED
from holdfast.runtime.trace import Tracer, read_trace
from tests.functions import kernel_moves as moves
from tests.kernel.kernels import claim_request, complete, make_coordinator, opened_kernel, start
from tests.kernel.scripts import QUEUES, follow, write_script
from tests.support.stores import SECOND, Site, VirtualClock, every_row


async def _replay(lines: list[str], until: int) -> dict[str, list[object]]:
    clock = VirtualClock()
    async with opened_kernel(Site("memory"), clock) as (coordinator, store):
        for line in read_trace(lines):
            clock.advance((line.now - clock.now_us()) / SECOND)
            (answer,) = await coordinator.submit_batch([line.operation])
            if line.error is not None:
                assert f"{type(answer).__name__}: {answer}" == line.error
        clock.advance((until - clock.now_us()) / SECOND)
        await store.promote(QUEUES)
        return await every_row(store)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
async def test_i53_a_trace_fed_to_a_memory_store_gives_the_same_rows(site: Site, seed: int) -> None:
    """Batches and claims of a random script, from whichever store they were traced on."""
    script = await write_script(seed, 25)
    clock = VirtualClock()
    lines: list[str] = []
    tracer = Tracer(lines.append)
    async with site.opened(clock) as store:
        coordinator = make_coordinator(store, clock)
        coordinator.observers.append(tracer.on_commit)
        coordinator.claim_observers.append(tracer.on_claim)
        await follow(script, [(coordinator, store)], clock, fused=True, always_remember=True)
        await store.promote(QUEUES)
        expected = await every_row(store)
        await coordinator.close()
    assert await _replay(lines, until=clock.now_us()) == expected


async def test_k4_a_claim_from_a_trace_leaves_the_version_as_a_claim_of_the_store_does(site: Site) -> None:
    """Versions cover decisions; the lease is guarded by its token."""
    clock = VirtualClock()
    lines: list[str] = []
    tracer = Tracer(lines.append)
    async with opened_kernel(site, clock) as (coordinator, store):
        coordinator.observers.append(tracer.on_commit)
        coordinator.claim_observers.append(tracer.on_claim)
        await coordinator.submit(start("r1"))
        clock.advance(1)
        coordinator.remember(await store.claim(claim_request()))
        await coordinator.submit(complete("r1"))
        expected = await every_row(store)
    assert await _replay(lines, until=clock.now_us()) == expected


async def test_k3_a_claim_of_a_sleeper_whose_token_is_a_time_is_traced_like_any_other(site: Site) -> None:
    clock = VirtualClock()
    lines: list[str] = []
    tracer = Tracer(lines.append)
    async with opened_kernel(site, clock) as (coordinator, store):
        coordinator.observers.append(tracer.on_commit)
        coordinator.claim_observers.append(tracer.on_claim)
        await coordinator.submit(moves.start("r1"))
        await coordinator.submit(moves.turn("r1", park=True, due=clock.now_us() + SECOND))
        clock.advance(2)
        await store.promote(QUEUES)
        (handed,) = await store.claim(moves.claim_functions())
        coordinator.remember([handed])
        assert handed.work.token == clock.now_us()
        slept = moves.time_comes("r1", token=handed.work.token)
        assert (await coordinator.submit(slept)).verdict == RECORDED
        expected = await every_row(store)
    assert await _replay(lines, until=clock.now_us()) == expected
