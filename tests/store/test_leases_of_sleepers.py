"""G1, K3: which leases PostgreSQL has on its disk when a claim returns, and what it means if it forgets the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.core.rows import Run, Work
from holdfast.runtime.postgres_server import PostgresServer
from holdfast.store.contract import ReadyItem
from holdfast.store.postgres import PostgresStore
from tests.store.conformance.rows import a_run, a_work, asked, put
from tests.support.stores import Site

TURN = {"node": "turn", "kind": "turn"}
WORK = {
    "step": (a_run("step"), a_work("step")),
    "woken": (a_run("woken", status="running"), a_work("woken", **TURN)),
    "first turn": (a_run("first turn", status="pending"), a_work("first turn", **TURN)),
    "sleeper": (a_run("sleeper", status="suspended"), a_work("sleeper", **TURN)),
    "timer": (a_run("timer"), a_work("timer", kind="timer")),
    "sleep": (a_run("sleep"), a_work("sleep", kind="sleep")),
}
BROUGHT_BY_TIME = {"sleeper", "timer", "sleep"}


@pytest.fixture(scope="module")
def lazy_server() -> Iterator[PostgresServer]:
    """Nothing but commits that wait for it writes its log, so that a crash loses all that nobody waited for."""
    with PostgresServer(fsync=False, settings={"wal_writer_delay": "10s", "autovacuum": "off"}) as server:
        yield server


async def _is_on_disk(store: PostgresStore) -> bool:
    async with store.connections.use() as connection:
        stored: bool = await connection.fetchval("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
    return stored


def _recalled(item: ReadyItem) -> tuple[Work, Run]:
    run, work = WORK[item.run]
    return work, run


@pytest.mark.parametrize("remembers", [False, True])
async def test_g1_a_claim_waits_for_the_disk_unless_a_time_has_brought_all_that_it_takes(
    lazy_server: PostgresServer, remembers: bool
) -> None:
    """A sleeper does nothing before its next commit, which waits for the disk on behalf of the lease too."""
    recall = _recalled if remembers else None
    url = lazy_server.create_database(f"which{remembers:d}")
    async with Site("postgresql", url).opened() as store:
        assert isinstance(store, PostgresStore)
        for name, (run, work) in WORK.items():
            await put(store, run, work)
            (handed,) = await store.claim(asked(recall=recall))
            assert handed.work.run == name
            assert await _is_on_disk(store) is (name not in BROUGHT_BY_TIME), name
        both = [a_work(name, "again", kind=WORK[name][1].kind) for name in ("timer", "step")]
        await put(store, *both)
        assert len(await store.claim(asked())) == 2
        assert await _is_on_disk(store), "one of them begins something"


async def test_k3_a_lease_that_the_server_forgets_leaves_its_token_to_nobody(lazy_server: PostgresServer) -> None:
    """Whoever held it cannot speak in the name of the next one, who claims from the row as it was before."""
    url = lazy_server.create_database("forgets")
    async with Site("postgresql", url).opened() as store:
        assert isinstance(store, PostgresStore)
        await put(store, *WORK["sleeper"])
        (forgotten,) = await store.claim(asked("w1"))
        assert not await _is_on_disk(store)
    await asyncio.to_thread(lazy_server.restart, "immediate")
    async with Site("postgresql", url).opened() as store:
        (again,) = await store.claim(asked("w2"))
        assert again.work.worker == "w2"
        assert again.work.token > forgotten.work.token


async def test_k3_a_claim_waits_for_the_disk_where_the_time_is_no_token_of_its_own(lazy_server: PostgresServer) -> None:
    """The server's clock went back: one more than the token before is what the next one to claim would take too."""
    url = lazy_server.create_database("clock")
    async with Site("postgresql", url).opened() as store:
        assert isinstance(store, PostgresStore)
        run, work = WORK["sleeper"]
        ahead = store.now() + 3_600_000_000
        await put(store, run, replace(work, token=ahead))
        (handed,) = await store.claim(asked())
        assert handed.work.token == ahead + 1
        assert await _is_on_disk(store)
