"""`claim` for who remembers what is ready: the same items and rows, and only what is not remembered is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.errors import StoreUnavailable
from holdfast.core.operations import Handed
from holdfast.core.row_cache import RowCache
from holdfast.core.rows import GATE_DUE, RUNS, WORK, Run, Work
from holdfast.store.contract import ReadyItem, Recall
from tests.store.conformance.rows import a_run, a_work, asked, put
from tests.support.stores import EPOCH_US, Site, VirtualClock, every_row

Known = dict[tuple[str, str], tuple[Work, Run]]


def rows_of_three() -> tuple[list[Run], list[Work]]:
    """Three items of two runs, of which one has begun."""
    runs = [a_run("r1", active=2, version=4), a_run("r2", active=1, status="pending", input=b"2", key="two")]
    items = [
        a_work("r1", "a", token=6, due=EPOCH_US - 3, payload=b"a"),
        a_work("r1", "b", due=EPOCH_US - 2, payload=b"b"),
        a_work("r2", "a", due=EPOCH_US - 1, payload=b"c"),
    ]
    return runs, items


def remembers(known: Known, heard: list[ReadyItem]) -> Recall:
    def recall(item: ReadyItem) -> tuple[Work, Run] | None:
        heard.append(item)
        return known.get((item.run, item.node))

    return recall


@pytest.mark.parametrize("remembered", [(), (0,), (1, 2), (0, 1, 2)], ids=str)
async def test_k4_a_claim_by_who_remembers_gives_and_stores_what_any_claim_does(
    site: Site, remembered: tuple[int, ...]
) -> None:
    runs, items = rows_of_three()
    run_of = {run.id: run for run in runs}
    # A gate may have been opened since, without a new version or token.
    known = {
        (items[at].run, items[at].node): (replace(items[at], gate=GATE_DUE), run_of[items[at].run]) for at in remembered
    }
    heard: list[ReadyItem] = []
    async with site.opened(VirtualClock()) as store:
        await put(store, *runs, *items)
        handed = await store.claim(asked("w7", recall=remembers(known, heard)))
        stored = await every_row(store)
    assert handed == [
        Handed(
            replace(item, status="leased", token=item.token + 1, worker="w7", started=EPOCH_US),
            run_of[item.run] if item.run == "r1" else replace(run_of[item.run], status="running", started=EPOCH_US),
        )
        for item in items
    ]
    assert stored["work"] == [each.work for each in handed]
    assert {row.id: (row.status, row.version, row.started) for row in stored["runs"]} == {
        "r1": (runs[0].status, 4, runs[0].started),
        "r2": ("running", runs[1].version, EPOCH_US),
    }
    if site.kind != "memory":  # whose rows are at hand
        assert sorted(heard) == [
            ReadyItem("r1", "a", 1, 6, 4, runs[0].status),
            ReadyItem("r1", "b", 1, items[1].token, 4, runs[0].status),
            ReadyItem("r2", "a", 1, items[2].token, runs[1].version, "pending"),
        ]


async def test_i8_it_takes_no_other_items_and_in_the_same_order(site: Site) -> None:
    items = [
        a_work("r1", "late", due=EPOCH_US - 1),
        a_work("r1", "urgent", priority=5),
        a_work("r1", "early", due=EPOCH_US - 5),
        a_work("r1", "elsewhere", queue="slow"),
        a_work("r1", "unheard-of", name="unheard-of"),
    ]
    run = a_run("r1", active=5)
    heard: list[ReadyItem] = []
    known: Known = {(item.run, item.node): (item, run) for item in items if item.node != "late"}
    async with site.opened(VirtualClock()) as store:
        await put(store, run, *items)
        request = asked(recall=remembers(known, heard), limit=2)
        first, second = await store.claim(request), await store.claim(request)
    assert [item.work.node for item in (*first, *second)] == ["urgent", "early", "late"]


async def test_k3_what_somebody_took_away_before_it_was_read_is_not_handed(postgres_url: str) -> None:
    """PostgreSQL reads what is not remembered after the claim's commit: another token is another owner."""
    async with Site("postgresql", postgres_url).opened(VirtualClock()) as store:
        await put(store, a_run("r1", active=1), a_work("r1", "a", token=6))
        statement: Callable[..., Any] = store._statement  # type: ignore[attr-defined]
        for token, found in ((6, 1), (5, 0), (7, 0)):
            assert len(await statement("fetch", "claimed", ["r1"], ["a"], [1], [token])) == found, token


async def test_g9_what_is_remembered_begins_also_if_the_rest_cannot_be_read(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are leased: what was not handed is found by its worker's own sweep."""
    run, first, second = a_run("r1", active=2), a_work("r1", "a"), a_work("r1", "b")
    async with Site("postgresql", postgres_url).opened(VirtualClock()) as store:
        await put(store, run, first, second)
        statement: Callable[..., Any] = store._statement  # type: ignore[attr-defined]

        async def broken(method: str, name: str, *args: Any) -> Any:
            if name == "claimed":
                raise StoreUnavailable("the connection broke")
            return await statement(method, name, *args)

        monkeypatch.setattr(store, "_statement", broken)
        handed = await store.claim(asked(recall=remembers({("r1", "a"): (first, run)}, [])))
        leased = await store.leased_to(handed[0].work.worker or "")
    assert [item.work.node for item in handed] == ["a"]
    assert {work.node for work in leased} == {"a", "b"}


@pytest.mark.parametrize(
    ("item", "work", "found"),
    [
        (ReadyItem("r1", "a", 1, 6, 4, "running"), {}, True),
        (ReadyItem("r1", "a", 1, 7, 4, "running"), {}, False),
        (ReadyItem("r1", "a", 1, 6, 5, "running"), {}, False),
        (ReadyItem("r1", "a", 1, 6, 4, "pending"), {}, False),
        (ReadyItem("r1", "b", 1, 6, 4, "running"), {}, False),
        (ReadyItem("r2", "a", 1, 6, 4, "running"), {}, False),
        (ReadyItem("r1", "a", 1, 6, 4, "running"), {"status": "leased"}, False),
        (ReadyItem("r1", "a", 1, 6, 4, "running"), {"gate": 1}, True),
    ],
)
def test_k4_only_rows_of_the_same_version_token_and_status_are_recalled(
    item: ReadyItem, work: dict[str, Any], found: bool
) -> None:
    cache = RowCache()
    row, run = replace(a_work("r1", "a", token=6), **work), a_run("r1", active=1, version=4, status="running")
    cache.learn(RUNS, run)
    cache.learn(WORK, row)
    assert cache.recall(item) == ((row, run) if found else None)
