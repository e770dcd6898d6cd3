"""I39, I41, I42: the same graph with the same input becomes the same, to the byte, whatever happens to its workers.

`GRAPH_RUNS=1000 python -m pytest tests/graphs/test_determinism.py` tries them all; CI a share. Workers are those of the
flows' chaos: reports come late, twice and out of order, lives end suddenly, answers to commits are lost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.chaos import World as Chaos
from tests.flows.chaos import assert_recorded_once
from tests.graphs.worlds import World, beginning, made, shown_difference, trail
from tests.support.stores import KINDS, Site, empty, site_for
from tests.worker.support import assert_sound, engine_on

RUNS = int(os.environ.get("GRAPH_RUNS", "240"))
SHARE = {"memory": 1.0, "sqlite": 0.05, "postgresql": 0.05}
FILE = "tests/graphs/test_determinism.py"
HAPPENS = {"abandoned", "again", "held back", "late", "lost answers", "of the dead", "twice at once"}


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made_site:
        yield made_site


async def undisturbed(seeds: list[int]) -> dict[tuple[str, int], tuple[str, bytes | None, list[object]]]:
    """What each graph becomes in peace, in memory."""
    world, found = made(), {}
    async with engine_on("memory://", world.registry) as engine, engine.worker(concurrency=8):
        for name, graph in world.graphs.items():
            for seed in seeds:
                handle = await engine.start(graph, beginning(seed))
                await engine.watch.wait(handle.id, lambda row: row.ended, 60)
                found[name, seed] = await trail(engine.store, handle.id)
    return found


@pytest.mark.timeout(3600)
async def test_i39_i41_i42_g1_g3_a_graph_becomes_the_same_whatever_happens_to_its_workers(site: Site) -> None:
    """I39, I41, I42, G1, G3: final state, each step's state and digest, and the order of merges, byte by byte."""
    one = os.environ.get("GRAPH_SEED")
    world = made()
    rounds = max(2, int(RUNS * SHARE[site.kind]) // len(world.graphs))
    met: Counter[str] = Counter()
    done = 0
    for seed in [int(one)] if one else range(rounds):
        wanted = await undisturbed([seed])
        try:
            met += await _play(site, made(), seed, wanted)
        except Exception as trouble:
            again = f"GRAPH_SEED={seed} python -m pytest {FILE} -k {site.kind}"
            raise AssertionError(f"{trouble}\n\nrepeat it with\n{again}") from trouble
        done += len(world.graphs)
    print(f"{done} runs on {site.kind}: {dict(sorted(met.items()))}")
    if done >= 100:
        assert not HAPPENS - set(+met), f"never happened: {HAPPENS - set(+met)}"


async def _play(site: Site, world: World, seed: int, wanted: dict[tuple[str, int], object]) -> Counter[str]:
    """Every graph once, all on one store, mistreated."""
    chaos = Chaos(site, world.registry, f"graphs {seed}", crash_one_in=20)
    engine = await chaos.begin()
    try:
        await empty(engine.store)
        for life in chaos.lives:
            await life.hands.enroll()
        runs = {name: await engine.start(graph, beginning(seed)) for name, graph in world.graphs.items()}
        engine = await chaos.play([handle.id for handle in runs.values()])
        for name, handle in runs.items():
            found = await trail(engine.store, handle.id)
            assert found == wanted[name, seed], f"{name}: {shown_difference(found, wanted[name, seed])}"
            await assert_recorded_once(engine, handle.id)
        await assert_sound(engine)
    finally:
        await chaos.end()
    return chaos.met
