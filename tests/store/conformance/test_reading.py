"""What people ask a store: runs, history, dead letters, counts."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.store.contract import FindRuns, QueueDepth
from tests.store.conformance.rows import a_run, a_work, a_worker, an_entry, put
from tests.support.stores import EPOCH_US, SECOND, Site, VirtualClock

RUNS = (
    a_run("r1", tags='{"colour":"red","size":"1"}', created=EPOCH_US + 1),
    a_run("r2", workflow="other", status="failed", tags='{"colour":"red"}', created=EPOCH_US + 2),
    a_run("r3", status="completed", tags='{"colour":"blue"}', created=EPOCH_US + 3),
    a_run("r4", status="failed", created=EPOCH_US + 4),
)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, "4321"),
        ({"workflow": "other"}, "2"),
        ({"workflow": "none"}, ""),
        ({"status": ("failed",)}, "42"),
        ({"status": ("failed", "completed")}, "432"),
        ({"tags": (("colour", "red"),)}, "21"),
        ({"tags": (("colour", "red"), ("size", "1"))}, "1"),
        ({"tags": (("colour", "green"),)}, ""),
        ({"tags": (("re", "colour"),)}, ""),
        ({"since": EPOCH_US + 3}, "43"),
        ({"limit": 2}, "43"),
        ({"after": "r3"}, "21"),
        ({"after": "r3", "limit": 1}, "2"),
        ({"status": ("failed",), "tags": (("colour", "red"),), "workflow": "other", "since": EPOCH_US}, "2"),
    ],
    ids=str,
)
async def test_i2_runs_are_found_by_every_filter_newest_first(site: Site, fields: dict[str, Any], found: str) -> None:
    """Filters combine, and the last id of a page leads to the next one."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *RUNS)
        assert [run.id for run in await store.find(FindRuns(**fields))] == [f"r{number}" for number in found]


async def test_i2_pages_follow_each_other_without_gap_or_overlap(site: Site) -> None:
    """Going on after the last one seen visits every run once."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *(a_run(f"r{number:02d}") for number in range(23)))
        seen: list[str] = []
        while page := await store.find(FindRuns(limit=5, after=seen[-1] if seen else None)):
            seen += [run.id for run in page]
    assert seen == [f"r{number:02d}" for number in reversed(range(23))]


async def test_i2_runs_are_read_by_id_and_unknown_ids_are_left_out(site: Site) -> None:
    """What is asked for and exists, no more."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *RUNS)
        assert {run.id for run in await store.runs(["r3", "none", "r1"])} == {"r1", "r3"}
        assert await store.runs([]) == []


async def test_i54_history_comes_in_the_order_it_was_written(site: Site) -> None:
    """By sequence, one run's alone."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run(), *(an_entry(sequence=number) for number in (10, 2, 1)), an_entry("r2", 3))
        assert [entry.sequence for entry in await store.history("r1")] == [1, 2, 10]
        assert await store.history("none") == []


async def test_i9_dead_letters_are_listed_up_to_a_limit(site: Site) -> None:
    """Dead items of all runs, and nothing else."""
    dead = [a_work(f"r{number}", status="dead", finished=EPOCH_US + number) for number in range(3)]
    async with site.opened(VirtualClock()) as store:
        await put(store, *dead, a_work("r9", status="failed"), a_work("r8"))
        assert sorted(await store.dead(10), key=lambda work: work.run) == dead
        assert len(await store.dead(2)) == 2


async def test_i2_counts_agree_with_the_rows(site: Site) -> None:
    """Runs and work by status, queues by what they hold and for how long, workers."""
    clock = VirtualClock()
    rows = (
        a_work(node="a", due=EPOCH_US - 2 * SECOND),
        a_work(node="b"),
        a_work(node="c", gate=1, due=EPOCH_US + SECOND),
        a_work(node="d", gate=2),
        a_work(node="e", queue="slow", status="leased", worker="w1"),
        a_work(node="f", queue="blocked-only", status="blocked"),
        a_work(node="g", queue="done-only", status="completed"),
    )
    async with site.opened(clock) as store:
        await put(store, *RUNS, *rows)
        await store.enroll(a_worker("w1"), 30.0)
        await store.enroll(a_worker("w2"), 30.0)
        stats = await store.stats()
    assert stats.runs == {"running": 1, "failed": 2, "completed": 1}
    assert stats.work == {"ready": 4, "leased": 1, "blocked": 1, "completed": 1}
    assert stats.workers == 2
    assert stats.queues == (
        QueueDepth(queue="default", ready=2, delayed=2, leased=0, oldest_seconds=2.0),
        QueueDepth(queue="slow", ready=0, delayed=0, leased=1, oldest_seconds=0.0),
    )


async def test_i2_an_empty_store_counts_nothing(site: Site) -> None:
    """No run, no queue, no worker, and no error."""
    async with site.opened(VirtualClock()) as store:
        stats = await store.stats()
        assert (stats.runs, stats.work, stats.queues, stats.workers) == ({}, {}, (), 0)
        assert await store.find(FindRuns()) == []
        assert await store.dead(5) == []
