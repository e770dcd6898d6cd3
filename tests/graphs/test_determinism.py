"""I39, I41, I42: the same graph with the same input becomes the same, to the byte, whatever happens to its workers.

`GRAPH_RUNS=1000 python -m pytest tests/graphs/test_determinism.py` tries them all; CI a share. Workers are those of the
flows' chaos: reports come late, twice and out of order, lives end suddenly, answers to commits are lost.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.queries import OpenWork
from holdfast.store.contract import FindRuns
from tests.flows.by_hand import worker_by_hand
from tests.flows.chaos import Life, Report, assert_recorded_once
from tests.flows.chaos import World as WorkersOfFlows
from tests.graphs.elsewhere import LONGEST_SECONDS
from tests.graphs.worlds import ELSEWHERE, Step, World, beginning, made, shown_difference, trail
from tests.support.stores import KINDS, Site, empty, site_for
from tests.worker.support import PATIENT, ROOT, assert_sound, child_environment, engine_on, work_of

RUNS = int(os.environ.get("GRAPH_RUNS", "150"))
SHARE = {"memory": 1.0, "sqlite": 0.1, "postgresql": 0.1}
FILE = "tests/graphs/test_determinism.py"
HAPPENS = {"abandoned", "again", "held back", "late", "lost answers", "of the dead", "twice at once"}


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made_site:
        yield made_site


class Chaos(WorkersOfFlows):
    """Graphs also write while their nodes run: what they record, and the runs of their subgraphs."""

    async def _born(self) -> Life:
        return QuietLife(self, await worker_by_hand(self.site, self.registry, self.clock, self.randomness))


class QuietLife(Life):
    """A life that listens when nobody writes, so that whatever a report changes is the report's doing."""

    async def hear(self, report: Report, *, again: bool = False, refused: bool = False) -> None:
        for life in self._world.lives:
            await life._all_wait()
        await super().hear(report, again=again, refused=refused)


Trail = tuple[str, bytes | None, list[Step]]


async def undisturbed(seeds: Iterable[int]) -> dict[tuple[str, int], Trail]:
    """What each graph becomes in peace, in memory."""
    world = made()
    async with engine_on("memory://", world.registry) as engine, engine.worker(concurrency=50):
        runs = {
            (name, seed): await engine.start(graph, beginning(seed))
            for seed in seeds
            for name, graph in world.graphs.items()
        }
        for handle in runs.values():
            await engine.watch.wait(handle.id, lambda row: row.ended, 600)
        return {which: await trail(engine.store, handle.id) for which, handle in runs.items()}


@pytest.mark.timeout(3600)
async def test_i39_i41_i42_g1_g3_a_graph_becomes_the_same_whatever_happens_to_its_workers(site: Site) -> None:
    """I39, I41, I42, G1, G3: final state, each step's state and digest, and the order of merges, byte by byte."""
    one = os.environ.get("GRAPH_SEED")
    world = made()
    rounds = max(2, int(RUNS * SHARE[site.kind]) // len(world.graphs))
    met: Counter[str] = Counter()
    done = 0
    seeds = [int(one)] if one else list(range(rounds))
    wanted = await undisturbed(seeds)
    assert all(status == "completed" for status, _, _ in wanted.values())
    for seed in seeds:
        try:
            met += await _play(site, made(), seed, wanted)
        except Exception as trouble:
            again = f"GRAPH_SEED={seed} python -m pytest {FILE} -k {site.kind}"
            raise AssertionError(f"{trouble}\n\nrepeat it with\n{again}") from trouble
        done += len(world.graphs)
    print(f"{done} runs on {site.kind}: {dict(sorted(met.items()))}")
    if done >= 100:
        assert not HAPPENS - set(+met), f"never happened: {HAPPENS - set(+met)}"


async def _play(site: Site, world: World, seed: int, wanted: dict[tuple[str, int], Trail]) -> Counter[str]:
    """Every graph once, all on one store, mistreated."""
    chaos = Chaos(site, world.registry, f"graphs {seed}", crash_one_in=20)
    engine = await chaos.begin()
    try:
        await empty(engine.store)
        for life in chaos.lives:
            await life.hands.enroll()
        runs = {name: await engine.start(graph, beginning(seed)) for name, graph in world.graphs.items()}
        try:
            engine = await chaos.play([handle.id for handle in runs.values()])
        except AssertionError as trouble:
            raise AssertionError(f"{trouble}\n{await _open_items(chaos)}") from trouble
        for name, handle in runs.items():
            found = await trail(engine.store, handle.id)
            (row,) = await engine.store.runs([handle.id])
            assert found == wanted[name, seed], f"{name}: {row.reason} {shown_difference(found, wanted[name, seed])}"
            await assert_recorded_once(engine, handle.id)
        await assert_sound(engine)
    finally:
        await chaos.end()
    return chaos.met


async def _open_items(chaos: Chaos) -> str:
    """What a run that does not go on could go on with."""
    store = chaos.lives[0].engine.store
    lines = [f"now {store.now()}, alive {[life.hands.id for life in chaos.lives]}"]
    for run in await store.find(FindRuns(limit=100)):
        if not run.ended:
            lines.append(f"{run.workflow} {run.status} step {run.base} active {run.active} remaining {run.remaining}")
            lines += [
                f"  {work.node} {work.attempt} {work.status} gate {work.gate} due {work.due} {work.worker} {work.token}"
                for work in await store.rows(OpenWork(run.id))
            ]
    return "\n".join(lines)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_i39_i42_i7_a_graph_whose_nodes_run_in_two_processes_becomes_the_same(
    request: pytest.FixtureRequest, database: str
) -> None:
    """I39, I42, I7: every other node runs in another process, at its own pace, and that process is killed twice."""
    url: str = request.getfixturevalue(f"{database}_url")
    seed = os.environ.get("GRAPH_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"repeat it with GRAPH_SEED={seed} python -m pytest {FILE} -k {database}")
    chance = random.Random(seed)
    world = made(queue=ELSEWHERE, delay=lambda _: chance.random() * LONGEST_SECONDS)
    seeds = range(max(3, int(RUNS / 20) // len(world.graphs)))
    wanted = await undisturbed(seeds)
    async with hf.Engine(url, registry=world.registry, **PATIENT, lost_limit=1000) as engine:
        runs = {
            (name, each): await engine.start(graph, beginning(each))
            for each in seeds
            for name, graph in world.graphs.items()
        }
        async with engine.worker(concurrency=10), AsyncExitStack() as stack:
            other = await stack.enter_async_context(process_elsewhere(url, seed))
            for number, handle in enumerate(runs.values()):
                if number in (1, len(runs) // 2):
                    other.kill()
                    other = await stack.enter_async_context(process_elsewhere(url, f"{seed} {number}"))
                await engine.watch.wait(handle.id, lambda row: row.ended, 120)
            for (name, each), handle in runs.items():
                found = await trail(engine.store, handle.id)
                assert found == wanted[name, each], f"{name} {each}: {shown_difference(found, wanted[name, each])}"
                await assert_recorded_once(engine, handle.id)
                ran_in = {work.queue for work in await work_of(engine, handle.id)}
                assert ran_in == {"default", ELSEWHERE} or name == "routed", f"{name} ran in {ran_in} alone"
            await assert_sound(engine)


@asynccontextmanager
async def process_elsewhere(url: str, seed: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *("-m", "tests.graphs.elsewhere", url, seed), cwd=ROOT, env=child_environment()
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
