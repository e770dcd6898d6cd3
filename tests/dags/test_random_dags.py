"""Random DAGs on every store: each node settles once and in order, and each run ends as its `on_failure` says.

Every seed is twenty DAGs of up to 300 nodes that are carried out together (see random_world.py). One seed again:
`DAG_SEED=17 python -m pytest tests/dags/test_random_dags.py`; more than the ten of an ordinary run: `DAG_SEEDS=500`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.ids import ancestry_hash
from holdfast.core.queries import AllWork
from holdfast.core.rows import WORK, Work
from holdfast.dag_reading import check_ancestry
from holdfast.store.contract import Store
from holdfast.store.memory import MemoryStore
from tests.dags.random_world import Graphs, World, make_coordinator
from tests.support.stores import KINDS, Site, VirtualClock, empty, execute, site_for

DAGS_A_SEED = 20
SEEDS_IN_CI = 10
HARMLESS = ("fsync", "full_page_writes")  # the tests' own server does without


def seeds() -> list[int]:
    if one := os.environ.get("DAG_SEED"):
        return [int(one)]
    return list(range(1, 1 + int(os.environ.get("DAG_SEEDS", SEEDS_IN_CI))))


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@pytest.mark.timeout(120 + 5 * len(seeds()))
async def test_g4_every_node_of_a_random_dag_settles_once_and_in_order(site: Site) -> None:
    """G4, I17, I28, I30: whatever fails, is lost, repeated, late, paused, skipped or tried again in between."""
    seen: Counter[str] = Counter()
    for seed in seeds():
        clock, graphs = VirtualClock(), Graphs()
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(site.opened(clock)) for _ in range(2)]
            await _sync(stores, "OFF")
            engines = [(make_coordinator(store, graphs, clock), store) for store in stores]
            world = World(seed, DAGS_A_SEED, engines, clock)
            graphs.of_code.update(world.code())
            try:
                await world.live()
                await _sync(stores, "FULL")
                await _nothing_is_wrong_with(stores[0])
                await _tampering_is_noticed(world, stores[0])
            except Exception as error:
                test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
                error.add_note(f"seed {seed}; repeat with\n  DAG_SEED={seed} python -m pytest {test!r}")
                raise
            for coordinator, _ in engines:
                await coordinator.close()
            seen += world.seen
            await empty(stores[0])
    if len(seeds()) >= SEEDS_IN_CI:  # else a plan that never bites would look like a promise that is kept
        rare = ("CompleteWork stale", "CompleteWork repeated", "FailWork repeated", "LapseWork recorded")
        assert all(seen[kind] >= 20 for kind in rare), seen


async def _sync(stores: list[Store], how: str) -> None:
    """Nobody cuts the power while a world is alive, and syncing would be most of its time."""
    for store in stores:
        if store.kind == "sqlite":
            await execute(store, f"PRAGMA synchronous = {how}")


async def _nothing_is_wrong_with(store: Store) -> None:
    errors = [finding for finding in await store.doctor() if finding.severity == "error"]
    assert not [finding for finding in errors if finding.subject not in HARMLESS], errors


async def _tampering_is_noticed(world: World, store: Store) -> None:
    """I28: one row of one run is changed behind our back, in each way there is."""
    runs = [(plan, await store.rows(AllWork(plan.run))) for plan in world.plans.values()]
    marked = [(plan, row) for plan, rows in runs for row in rows if row.ancestry is not None]
    plan, row = world.chance.choice(marked)
    other = "0" * 64
    for tampered in (
        replace(row, ancestry=other),
        replace(row, parents=other),
        replace(row, parents=other, ancestry=ancestry_hash(row.node, row.attempt, other)),
    ):
        await _overwrite(store, tampered)
        report = check_ancestry(plan.graph, await store.rows(AllWork(plan.run)))
        assert not report.ok, f"nobody noticed that {row} became {tampered}"
        assert f"attempt {row.attempt} of node {row.node}" in str(report.first_break)
    await _overwrite(store, row)
    assert check_ancestry(plan.graph, await store.rows(AllWork(plan.run))).ok


async def _overwrite(store: Store, row: Work) -> None:
    if isinstance(store, MemoryStore):
        store._save(WORK, row)
        return
    await execute(
        store,
        f"UPDATE work SET ancestry = '{row.ancestry}', parents = '{row.parents}' "
        f"WHERE run = '{row.run}' AND node = '{row.node}' AND attempt = {row.attempt}",
    )
