"""Workers: enrolled, heard of, lapsed, and provably dead."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from holdfast.core.rows import GATE_DUE
from holdfast.store.contract import Store
from tests.store.conformance.rows import a_run, a_work, a_worker, asked, put
from tests.support.stores import EPOCH_US, SECOND, Site, VirtualClock

ROOT = Path(__file__).resolve().parents[3]
DEATH_IS_NOTICED_WITHIN_SECONDS = 20.0
ENROLL_AND_STAY = """
import asyncio, sys
from tests.store.conformance.rows import a_worker
from tests.support.stores import Site

async def main():
    async with Site(sys.argv[1], sys.argv[2]).opened() as store:
        print((await store.enroll(a_worker("doomed"), 3600.0)).provable, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_i7_an_enrolled_worker_is_listed_with_its_lease(site: Site) -> None:
    """What it knows, since when, and until when its leases hold; a heartbeat prolongs them."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        row = await store.enroll(a_worker(queues=("a", "b"), concurrency=3), 30.0)
        assert (row.started, row.seen, row.lease_until) == (EPOCH_US, EPOCH_US, EPOCH_US + 30 * SECOND)
        assert await store.workers() == [row]
        clock.advance(10)
        assert await store.heartbeat("w1", 30.0)
        (later,) = await store.workers()
        assert (later.started, later.seen) == (EPOCH_US, EPOCH_US + 10 * SECOND)
        assert later.lease_until == EPOCH_US + 40 * SECOND
        assert (later.queues, later.concurrency) == (("a", "b"), 3)


async def test_i7_a_worker_that_was_taken_over_is_told_by_its_heartbeat(site: Site) -> None:
    """Its row is gone: False, and no row comes back to life."""
    async with site.opened(VirtualClock()) as store:
        await store.enroll(a_worker(), 30.0)
        await store.retire("w1")
        assert not await store.heartbeat("w1", 30.0)
        assert await store.workers() == []
        await store.retire("w1")


async def test_i7_a_lease_that_ran_out_lapses_and_a_renewed_one_does_not(site: Site) -> None:
    """Without a proof of death the time decides."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        await store.enroll(a_worker("w1"), 30.0)
        await store.enroll(a_worker("w2"), 30.0)
        clock.advance(20)
        await store.heartbeat("w2", 30.0)
        assert await store.lapsed_workers("w2") == []
        clock.advance(10.5)
        assert await store.lapsed_workers("w2") == ["w1"]
        assert await store.lapsed_workers("w1") == []


async def test_i7_leases_of_a_worker_without_a_row_lapse(site: Site) -> None:
    """Whoever took over died in between: its leases are found by themselves."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run(active=1), a_work())
        await store.claim(asked("ghost"))
        assert await store.lapsed_workers("w1") == ["ghost"]
        assert await store.lapsed_workers("ghost") == []


async def test_i7_a_worker_of_another_store_is_not_dead_while_that_is_open(shared_site: Site) -> None:
    """Its lock is held; closing the store frees it, and that is proof, long before the lease ends."""
    clock = VirtualClock()
    async with shared_site.opened(clock) as mine:
        theirs = shared_site.store(clock)
        await theirs.open()
        assert (await theirs.enroll(a_worker("other"), 3600.0)).provable
        assert await mine.lapsed_workers("me") == []
        await theirs.close()
        assert await _lapsed(mine) == ["other"]


async def test_i7_a_killed_process_loses_its_leases_at_once(shared_site: Site) -> None:
    """SIGKILL: nothing was said, and the lease had an hour to go."""
    async with shared_site.opened() as store:
        process = subprocess.Popen(  # noqa: ASYNC220 - started once, and talked to on a thread
            [sys.executable, "-c", ENROLL_AND_STAY, shared_site.kind, shared_site.url],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={"PYTHONPATH": f"{Path(sys.modules['holdfast'].__path__[0]).parent}:{ROOT}", "PATH": ""},
        )
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"True\n"
            await put(store, a_run(active=1), a_work())
            await store.claim(asked("doomed"))
            assert await store.lapsed_workers("me") == []
        finally:
            process.kill()
            process.communicate()
        assert await _lapsed(store) == ["doomed"]
        assert [work.node for work in await store.leased_to("doomed")] == ["n"]


async def _lapsed(store: Store) -> list[str]:
    """Ask until someone is gone: a server needs a moment to notice a closed connection."""
    async with asyncio.timeout(DEATH_IS_NOTICED_WITHIN_SECONDS):
        while True:
            if lapsed := await store.lapsed_workers("me"):
                return lapsed
            await asyncio.sleep(0)  # so that the time limit works on a store that never waits


async def test_i8_unknown_work_is_what_no_live_worker_would_claim(site: Site) -> None:
    """By queue, workflow and action. Dead workers do not count, and neither does work that is delayed or paused."""
    clock = VirtualClock()
    rows = (
        a_run(active=6),
        a_work(node="known", due=EPOCH_US - 9),
        a_work(node="queue", queue="nobody", due=EPOCH_US - 8),
        a_work(node="action", name="nobody", due=EPOCH_US - 7),
        a_work(node="fresh", name="nobody", due=EPOCH_US),
        a_work(node="delayed", name="nobody", gate=GATE_DUE, due=EPOCH_US - 9),
        a_work(node="paused", name="nobody", gate=2, due=EPOCH_US - 9),
    )
    async with site.opened(clock) as store:
        await put(store, *rows)
        await store.enroll(a_worker(), 30.0)
        assert {work.node for work in await store.unknown(EPOCH_US, 10)} == {"queue", "action"}
        assert len(await store.unknown(EPOCH_US, 1)) == 1
        clock.advance(31)
        assert {work.node for work in await store.unknown(EPOCH_US, 10)} == {"known", "queue", "action"}
