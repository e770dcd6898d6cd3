"""The statement for what concerns one run and one of its items: found in a race, or not at all.

It locks the run, then settles the item, and writes the rest if both were as they had been seen. Each of these tests
holds one of the two rows in another transaction until the statement waits for it.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.core.rows import History, Run, Work
from holdfast.core.view import Changes
from holdfast.store.contract import Store
from holdfast.store.postgres_flush import guarded_flush
from tests.kernel.postgres_watch import outsider, until_someone_waits_for_a_lock
from tests.support.stores import Site, change, every_row

RUN = Run(id="r1", workflow="w", model="dag", status="running", version=5, active=1)
ITEM = Work(run="r1", node="a", attempt=1, workflow="w", name="a", status="leased", token=3, worker="me")

MOVES_ON = "UPDATE runs SET version = 6 WHERE id = 'r1'"
STAYS = "UPDATE runs SET started = 9 WHERE id = 'r1'"  # as a claim does, which leaves the version as it is
IS_TAKEN = "UPDATE work SET token = 4, worker = 'other' WHERE run = 'r1'"
KEEPS_ITS_TOKEN = "UPDATE work SET losses = 0 WHERE run = 'r1'"


def step() -> Changes:
    """The item is completed, the next one begins, and the run's history has an entry more."""
    following = replace(ITEM, node="b", name="b", token=1)
    return change(
        insert=(following, History(run="r1", sequence=1, kind="noted", at=0)),
        update=((RUN, replace(RUN, version=6)), (ITEM, replace(ITEM, status="completed", finished=7))),
    )


async def flushed_behind(site: Site, store: Store, first: str, then: str = "SELECT 1") -> frozenset[str]:
    """What the step's flush says that waited for a transaction, which did one thing before that and one meanwhile."""
    async with store.transaction() as tx:
        await tx.write(change(insert=(RUN, ITEM)))
    async with outsider(site.url) as other:
        async with other.transaction():
            await other.execute("SET LOCAL lock_timeout = '10s'")
            await other.execute(first)
            flush = asyncio.create_task(store.flush(step()))
            await until_someone_waits_for_a_lock(site.url)
            await other.execute(then)
        return await flush


@pytest.mark.parametrize(
    ("meanwhile", "is_written"), [(MOVES_ON, False), (STAYS, True), (IS_TAKEN, False), (KEEPS_ITS_TOKEN, True)]
)
async def test_k4_a_lone_step_that_waited_is_written_whole_or_not_at_all(
    postgres_site: Site, meanwhile: str, is_written: bool
) -> None:
    """K4: what another transaction committed while the statement waited for its row decides."""
    assert guarded_flush(step())[0].startswith("WITH l AS"), "or this test shows nothing"
    async with postgres_site.opened() as store:
        assert await flushed_behind(postgres_site, store, meanwhile) == (frozenset() if is_written else {"r1"})
        stored = await every_row(store)
    assert [row.status for row in stored["work"]] == (["completed", "leased"] if is_written else ["leased"])
    assert [row.version for row in stored["runs"]] == [6 if is_written or meanwhile == MOVES_ON else 5]
    assert len(stored["history"]) == is_written


async def test_k2_a_lone_step_locks_its_run_before_its_item(postgres_site: Site) -> None:
    """K2: whoever holds the run may still take the item: the statement waits for the run and holds nothing."""
    locked = "SELECT 1 FROM runs WHERE id = 'r1' FOR NO KEY UPDATE"
    async with postgres_site.opened() as store:
        assert await flushed_behind(postgres_site, store, locked, IS_TAKEN) == {"r1"}
