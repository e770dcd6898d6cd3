"""`prune` takes a run with all it has; `doctor` accepts what is sound and names what is not."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.rows import ENDED, RUN_STATUSES, RUNS
from holdfast.store.contract import Store
from holdfast.store.memory import MemoryStore
from tests.store.conformance.rows import a_run, a_wait, a_work, an_entry, an_event, put
from tests.support.stores import EPOCH_US, Site, VirtualClock, every_row, execute

SERVER_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")


def rows_of(run: str) -> tuple[Any, ...]:
    return (
        a_work(run, "a", status="completed"),
        a_work(run, "b", status="failed"),
        a_work(run, "b", 2, status="completed"),
        an_entry(run, 1),
        an_entry(run, 2),
        a_wait(run),
        an_event(f"{run}-event", target=run),
    )


async def test_i1_pruning_takes_every_row_of_an_ended_run_and_no_other(site: Site) -> None:
    """No orphan in any table; runs that go on, and those that ended later, keep everything."""
    old, young = a_run("r1", status="completed", finished=EPOCH_US), a_run("r2", status="failed", finished=EPOCH_US + 2)
    kept = (young, a_run("r3"), *rows_of("r2"), *rows_of("r3"), an_event("broadcast"))
    async with site.opened(VirtualClock()) as store:
        await put(store, *kept)
        before = await every_row(store)
        await put(store, old, *rows_of("r1"))
        assert await store.prune(EPOCH_US + 2, 100) == 1
        assert await every_row(store) == before
        assert await store.prune(EPOCH_US + 2, 100) == 0


@pytest.mark.parametrize("status", RUN_STATUSES)
async def test_i1_only_what_has_ended_is_pruned(site: Site, status: str) -> None:
    """A run that is paused for years is still a run."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run(status=status, finished=1))
        assert await store.prune(EPOCH_US, 10) == (1 if status in ENDED else 0)


@pytest.mark.parametrize(("status", "pruned"), [("ready", 0), ("leased", 0), ("blocked", 1), ("completed", 1)])
async def test_g3_a_child_is_not_pruned_before_its_parent_has_looked_at_its_end(
    site: Site, status: str, pruned: int
) -> None:
    """It would be started once more. An item that is blocked waits for another child, which has not ended."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run("parent"), a_work("parent", "child", kind="child", status=status, worker="w"))
        child = a_run("child", parent="parent", status="completed", finished=1, awaited=True)
        await put(store, child, *rows_of("child"))
        assert await store.prune(EPOCH_US, 10) == pruned


@pytest.mark.parametrize(
    ("parent", "awaited", "pruned"), [("running", False, 0), ("running", True, 1), ("failed", False, 1)]
)
async def test_g3_a_child_that_nobody_awaited_is_kept_while_its_parent_is_open(
    site: Site, parent: str, awaited: bool, pruned: int
) -> None:
    """Its function may still ask; one that waited for it has been told."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run("parent", status=parent, finished=EPOCH_US if parent == "failed" else None))
        await put(store, a_run("child", parent="parent", status="completed", finished=1, awaited=awaited))
        assert await store.prune(EPOCH_US, 10) == pruned


async def test_i1_pruning_goes_in_batches(site: Site) -> None:
    """A limit keeps the transaction short; whoever calls goes on until nothing is left."""
    async with site.opened(VirtualClock()) as store:
        for number in range(7):
            run = f"r{number}"
            await put(store, a_run(run, status="cancelled", finished=number, key=f"k{number}"), *rows_of(run))
        assert [await store.prune(EPOCH_US, 3) for _ in range(4)] == [3, 3, 1, 0]
        assert not any((await every_row(store)).values())
        await put(store, a_run("again", key="k1"))


async def _objections(store: Store) -> list[str]:
    """What doctor calls an error, settings of the test's own server apart."""
    findings = [finding for finding in await store.doctor() if finding.severity == "error"]
    return [f"{finding.subject}: {finding.message}" for finding in findings if finding.subject not in SERVER_SETTINGS]


async def test_g10_doctor_accepts_a_sound_store(site: Site) -> None:
    """With ended, running and paused runs, blocked and leased work."""
    async with site.opened(VirtualClock()) as store:
        assert await _objections(store) == []
        await put(store, a_run("r1", active=2), a_work("r1", "a"), a_work("r1", "b", status="leased", worker="w"))
        await put(store, a_work("r1", "c", status="blocked", required=2, completed=1))
        await put(store, a_run("r2", status="completed"), *rows_of("r2"))
        assert await _objections(store) == []
        assert any(finding.severity == "ok" for finding in await store.doctor())


@pytest.mark.parametrize("counted", [0, 2])
async def test_g10_doctor_names_a_run_whose_counter_is_wrong(site: Site, counted: int) -> None:
    """The run, what it says and what there is."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run("wrong", active=counted), a_work("wrong"), a_run("right", active=1), a_work("right"))
        (objection,) = await _objections(store)
    assert "wrong" in objection
    assert f"{counted} active" in objection


async def test_g10_doctor_names_a_node_that_was_counted_too_often(site: Site) -> None:
    """More predecessors in than there are."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run("r1"), a_work("r1", "odd", status="blocked", required=2, completed=3))
        (objection,) = await _objections(store)
    assert "odd" in objection


@pytest.mark.parametrize("row", [a_work(), an_entry(), a_wait(), an_event(target="r1")], ids=lambda row: repr(row)[:4])
async def test_g10_doctor_names_rows_that_belong_to_no_run(shared_site: Site, row: Any) -> None:
    """A run that was deleted by hand leaves orphans in every table that has rows of it."""
    async with shared_site.opened(VirtualClock()) as store:
        await put(store, a_run(), row)
        await execute(store, "DELETE FROM runs")
        (objection,) = await _objections(store)
    assert "1 rows" in objection
    assert "no run" in objection


async def test_g10_doctor_names_a_file_that_is_damaged(tmp_path: Any) -> None:
    """Bytes overwritten inside a table are found by the integrity check, or the file is refused."""
    site = Site("sqlite", f"sqlite:///{tmp_path / 'store.db'}")
    async with site.opened(VirtualClock()) as store:
        await put(store, *(a_run(f"r{number:04d}", input=b"x" * 500) for number in range(200)))
    content = bytearray(site.path.read_bytes())
    page = 4096
    late = len(content) * 3 // 4 // page * page  # behind the schema, among the runs
    content[late : late + page] = b"\xff" * page
    site.path.write_bytes(content)
    store = site.store(VirtualClock())
    await store.open()
    try:
        try:
            objections = await _objections(store)
        except Exception as refused:
            objections = [str(refused)]
    finally:
        await store.close()
    assert objections
    assert any("integrity" in text or "malformed" in text for text in objections)


async def test_g10_doctor_names_an_index_that_lacks_a_row(tmp_path: Any) -> None:
    """Every page reads well, and yet a run cannot be found by its key: only the integrity check sees that."""
    site = Site("sqlite", f"sqlite:///{tmp_path / 'store.db'}")
    async with site.opened(VirtualClock()):
        pass
    index = "FROM sqlite_master WHERE name = 'runs_by_key'"
    (definition,) = _as_another_program(site, f"SELECT type, name, tbl_name, rootpage, sql {index}")
    _as_another_program(site, f"DELETE {index}")
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run(key="k"))
    _as_another_program(site, "INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", definition)
    async with site.opened(VirtualClock()) as store:
        objections = await _objections(store)
    assert objections
    assert all("integrity check" in text and "runs_by_key" in text for text in objections)


def _as_another_program(site: Site, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(site.path, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    rows = db.execute(statement, values).fetchall()
    db.close()
    return rows


async def test_g10_memory_is_audited_like_the_others() -> None:
    """The simulation trusts this: a wrong counter in memory is an error there too."""
    store = MemoryStore(VirtualClock())
    await put(store, a_run(active=1), a_work())
    row = store.tables[RUNS][("r1",)]
    store.tables[RUNS][("r1",)] = replace(row, active=0)
    assert await _objections(store)
