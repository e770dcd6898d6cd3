"""Listings for people: by every filter, newest first, page by page, counted and compared with how they were."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.queries import DelayedWork, DueWork, HistoryPage
from holdfast.store.contract import ListRuns, RunMark
from tests.store.conformance.rows import a_run, a_work, an_entry, put
from tests.support.stores import EPOCH_US, Site, VirtualClock

# An instance of a decider has an id that is made of its key, so ids are not in the order of time.
RUNS = (
    a_run("d", workflow="order", model="flow", key="a/1", tags='{"size":"1"}', created=EPOCH_US + 1),
    a_run("a", workflow="order", model="dag", key="a/2", status="failed", created=EPOCH_US + 2, finished=EPOCH_US + 9),
    a_run("c", workflow="mail", model="dag", tags='{"size":"1","to":"\'x\'"}', created=EPOCH_US + 3),
    a_run("b", workflow="mail_all", model="decider", status="completed", created=EPOCH_US + 3, finished=EPOCH_US + 5),
)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, "cbad"),
        ({"workflow": "mail"}, "c"),
        ({"model": "dag"}, "ca"),
        ({"status": ("failed", "completed")}, "ba"),
        ({"tags": (("size", "1"),)}, "cd"),
        ({"tags": (("size", "1"), ("to", "'x'"))}, "c"),
        ({"tags": (("size", "2"),)}, ""),
        ({"search": "a"}, "ad"),
        ({"search": "mail"}, "cb"),
        ({"search": "mail_"}, "b"),
        ({"search": "%"}, ""),
        ({"since": EPOCH_US + 2, "until": EPOCH_US + 3}, "a"),
        ({"limit": 2}, "cb"),
        ({"after": (EPOCH_US + 3, "c")}, "bad"),
        ({"after": (EPOCH_US + 3, "b"), "limit": 1}, "a"),
        ({"search": "or", "status": ("failed",), "model": "dag", "since": EPOCH_US}, "a"),
    ],
    ids=str,
)
async def test_i2_runs_are_listed_by_every_filter_in_the_order_of_their_making(
    site: Site, fields: dict[str, Any], found: str
) -> None:
    """Filters combine; an id or a key that no clock made does not come first for it."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *RUNS)
        assert "".join(run.id for run in await store.list_runs(ListRuns(**fields))) == found
        counted = await store.count_runs(ListRuns(**{**fields, "after": None}), 100)
        if "limit" not in fields and "after" not in fields:
            assert sum(counted.values()) == len(found)


async def test_i2_counting_stops_where_it_was_told_to(site: Site) -> None:
    """A page that shows numbers must not go through a million rows for them."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *(a_run(f"r{number}") for number in range(5)), *RUNS)
        assert await store.count_runs(ListRuns(), 100) == {"running": 7, "failed": 1, "completed": 1}
        assert sum((await store.count_runs(ListRuns(), 1)).values()) == 2


async def test_i2_marks_tell_what_changed_and_what_began(site: Site) -> None:
    """A claim writes no run: whoever looks at one is told of it all the same."""
    async with site.opened(VirtualClock()) as store:
        await put(store, *RUNS, a_work("d", status="leased", token=3))
        marks = await store.marks(10, ended_since=EPOCH_US + 6, most_ended=10, of=["d", "none"])
        assert sorted(marks) == [
            RunMark("a", "order", "dag", "failed", 1, -1),
            RunMark("c", "mail", "dag", "running", 1, -1),
            RunMark("d", "order", "flow", "running", 1, -1),
            RunMark("d", "order", "flow", "running", 1, 3),
        ]
        latest = await store.marks(1, ended_since=0, most_ended=1)
        assert [mark.id for mark in latest if mark.status == "failed"] == ["a"]
        assert len(latest) == 2


async def test_i2_work_that_waits_for_its_time_is_listed_by_when_it_is_due(site: Site) -> None:
    """The next timer first, and pages that go on after a place."""
    later = [a_work(run, node, status="ready", gate=1, due=due) for run, node, due in (("r1", "b", 7), ("r2", "a", 5))]
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run("r1"), a_run("r2"), *later, a_work("r1", "a", status="ready", gate=1, due=7))
        await put(store, a_work("r1", "ready", status="ready", due=1))
        first = await store.rows(DelayedWork((0, "", ""), 2))
        assert [(work.run, work.node) for work in first] == [("r2", "a"), ("r1", "a")]
        assert [work.node for work in await store.rows(DelayedWork((7, "r1", "a"), 2))] == ["b"]


async def test_what_is_due_is_what_runs_or_has_an_open_gate_or_whose_time_has_come(site: Site) -> None:
    """Whoever waits until nothing is due must not overlook work because its own clock is a little behind."""
    async with site.opened(VirtualClock()) as store:
        await put(
            store,
            a_run("r1"),
            a_work("r1", "open", status="ready", gate=0, due=9),
            a_work("r1", "come", status="ready", gate=1, due=5),
            a_work("r1", "later", status="ready", gate=1, due=6),
            a_work("r1", "paused", status="ready", gate=2, due=1),
            a_work("r1", "running", status="leased", due=9),
            a_work("r1", "done", status="completed", due=1),
        )
        assert {work.node for work in await store.rows(DueWork(5, 10))} == {"open", "come", "running"}


async def test_i2_a_page_of_history_goes_on_where_the_last_one_ended(site: Site) -> None:
    """A long record is read in pieces."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run("r1"), *(an_entry("r1", number) for number in range(1, 6)))
        assert [entry.sequence for entry in await store.rows(HistoryPage("r1", 2, 2))] == [3, 4]
