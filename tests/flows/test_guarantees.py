"""The seed's five guarantees, a test for each: of enqueuing, of the inbox, of commits, of crashes, of reports."""

from __future__ import annotations

import asyncio
import copy
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast as hf
from holdfast.authoring.flows import flow
from holdfast.coordinator import Commit
from holdfast.core import failpoints
from holdfast.core.flow_addresses import parse_address
from holdfast.core.operations import REPEATED, STALE, CompleteWork, Handed
from holdfast.core.rows import LEASED, LOST, READY, TABLES, VALUES, WORK
from holdfast.store.memory import MemoryStore
from holdfast.testing.engines import SeededRandomness
from tests.flows.actions import add, double
from tests.flows.by_hand import LEASE_SECONDS, WorkerByHand, crashes, registry_with_actions, worker_by_hand
from tests.flows.chaos import World
from tests.flows.corpus import all_cases
from tests.support.stores import KINDS, Site, VirtualClock, every_row, site_for

TOGETHER = 40


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made
    failpoints.disarm()


async def double_all(width: int) -> int:
    total = await add(0, 1)
    for _ in range(2):
        found = await asyncio.gather(*[double(number) for number in range(width)])
        total += sum(found)
    return await add(total, 1)


def registered() -> tuple[hf.Registry, hf.Flow[[int], int]]:
    registry = registry_with_actions()
    return registry, flow(registry=registry)(double_all)


class Mistreated:
    """A third of the corpus in worlds of mistreated workers; sees every commit, after it was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.registry = registry_with_actions()
        self.cases = all_cases()[::3]
        self.flows = {case.function: flow(registry=self.registry)(case.function) for case in self.cases}

    async def watched(self, watch: Any) -> None:
        """Play it all. What the watcher finds wrong is raised here: a commit does not mind what its observers raise."""
        wrong: list[str] = []
        for first in range(0, len(self.cases), TOGETHER):
            with site_for("memory", None, self._folder) as site:
                world = Watched(site, self.registry, f"guarantees {first}")
                world.watch = lambda commit, store: wrong.extend(watch(commit, store))
                engine = await world.begin()
                handles = [
                    await engine.start(self.flows[case.function], *copy.deepcopy(case.args))
                    for case in self.cases[first : first + TOGETHER]
                ]
                await world.play([handle.id for handle in handles])
                assert not wrong, wrong[:3]


class Watched(World):
    """A world in which somebody looks at each commit."""

    watch: Any

    async def _born(self) -> Any:
        life = await super()._born()
        store = life.engine.store
        life.engine.coordinator.observers.insert(0, lambda commit: self.watch(commit, store))
        return life


def enqueued(commit: Commit) -> Iterator[Any]:
    """The nodes that nobody could run before this commit, and somebody can after it; not of later attempts."""
    for row in commit.changes.inserts.get(WORK, ()):
        if row.attempt == 1 and row.status in (READY, LEASED):
            yield row
    for old, new in commit.changes.updates.get(WORK, ()):
        if new.attempt == 1 and old.status not in (READY, LEASED) and new.status in (READY, LEASED):
            yield new


async def test_i17_no_node_is_enqueued_twice_whatever_is_repeated(tmp_path: Path) -> None:
    """I17: and never before all of its predecessors have ended, nor after more than those."""
    times: Counter[tuple[str, str]] = Counter()

    def watch(commit: Commit, store: MemoryStore) -> Iterator[str]:
        for work in enqueued(commit):
            times[work.run, work.node] += 1
            if times[work.run, work.node] > 1:
                yield f"{work.node} of {work.workflow} is enqueued again"
            if work.completed != work.required:
                yield f"{work.node} of {work.workflow} has {work.completed} of {work.required}"

    await Mistreated(tmp_path).watched(watch)
    assert len(times) > 300


async def test_i19_no_node_is_enqueued_before_the_values_are_there_that_follow_it(tmp_path: Path) -> None:
    """I19: whoever runs it finds, in the commit that made it ready, all that the code after it may read."""
    mistreated = Mistreated(tmp_path)
    graphs = {made.name: made.graph for made in mistreated.flows.values()}
    looked = 0

    def watch(commit: Commit, store: MemoryStore) -> Iterator[str]:
        nonlocal looked
        for work in enqueued(commit):
            graph, address = graphs.get(work.workflow), parse_address(work.node)
            for variable, depth in () if graph is None else graph.inbox_of(address.node).items():
                target = str(type(address)(address.node, address.passes[:depth]))
                there = [key for key in store.tables[VALUES] if key[:3] == (work.run, target, variable)]
                looked += 1
                if not there and variable not in graph.maybe_unbound:
                    yield f"{work.node} of {work.workflow} lacks {variable}"

    await mistreated.watched(watch)
    assert looked > 150


async def test_g2_k1_of_a_commit_that_does_not_end_nothing_is_stored(tmp_path: Path) -> None:
    """K1, G2: values, counts, items and the run itself; between any two of its statements."""
    registry, made = registered()
    with site_for("sqlite", None, tmp_path) as site:
        crashed, clock, randomness = 0, VirtualClock(), SeededRandomness("nothing is stored")
        seen: list[dict[str, Any]] = []

        def look() -> None:
            seen.append(stored(site))

        for place in ("flush.between", "flush.before_commit"):
            for hit in range(1, 30):
                hands = await worker_by_hand(site, registry, clock, randomness)
                await hands.engine.start(made, 2)
                seen.clear()
                reached = await crashes(hands, play_all(hands), place, hit, look)
                await hands.engine.store.close()
                if not reached:
                    break
                assert seen == [stored(site)], f"something of the commit at {place}:{hit} is there"
                crashed += 1
        assert crashed > 20


def stored(site: Site) -> dict[str, Any]:
    """Every row, as another connection sees it."""
    with sqlite3.connect(site.path) as connection:
        return {table.name: sorted(connection.execute(f"SELECT * FROM {table.name}").fetchall()) for table in TABLES}


async def life(site: Site, registry: hf.Registry, clock: VirtualClock | None = None) -> WorkerByHand:
    born = await worker_by_hand(site, registry, clock or VirtualClock(), SeededRandomness("guarantees"))
    await born.take_over()
    return born


async def play_all(hands: WorkerByHand) -> None:
    while found := await hands.claim(limit=1):
        for handed in found:
            await hands.run(handed, lambda: None)


async def test_i6_i7_a_node_whose_worker_dies_stays_queued_and_is_run_by_another(site: Site) -> None:
    """G1, I6, I7: its attempt is lost, the next one is ready, and the flow ends as if nothing had happened."""
    registry, made = registered()
    clock = VirtualClock()
    dead = await life(site, registry, clock)
    handle = await dead.engine.start(made, 3)
    (handed,) = await dead.claim(limit=1)
    if site.kind != "memory":
        await dead.engine.store.close()
    clock.advance(LEASE_SECONDS + 1)
    other = await worker_by_hand(site, registry, clock, SeededRandomness("the other"))
    await other.take_over()
    rows = [row for row in (await every_row(other.engine.store))["work"] if row.node == handed.work.node]
    assert [(row.attempt, row.status) for row in rows] == [(1, LOST), (2, READY)]
    await play_all(other)
    assert await other.engine.get(handle.id).result(timeout=5) == 14
    await other.engine.store.close()


async def test_i23_a_report_that_comes_again_or_with_another_token_changes_nothing(site: Site) -> None:
    """I23, K8: at every node of a flow, right after it was recorded and when the flow is over."""
    registry, made = registered()
    hands = await life(site, registry)
    handle = await hands.engine.start(made, 3)
    said: list[CompleteWork] = []
    submit = hands.engine.coordinator.submit

    async def refused(report: CompleteWork, *verdicts: str) -> None:
        before = await every_row(hands.engine.store)
        answer = await submit(report)
        assert answer.verdict in verdicts, (report, answer)
        assert not answer.handed
        assert before == await every_row(hands.engine.store), report

    async def settled(handed: Handed) -> None:
        work = handed.work
        report = CompleteWork(
            run=work.run,
            node=work.node,
            attempt=work.attempt,
            token=work.token,
            result=None if "[" not in work.node else b"1",
        )
        await refused(replace(report, token=work.token + 1), STALE)
        await refused(replace(report, token=work.token - 1), STALE)
        await hands.run(handed, lambda: None)
        await refused(report, REPEATED, STALE)  # stale where the rows of its pass are gone
        said.append(report)

    while found := await hands.claim(limit=1):
        await settled(found[0])
    assert await handle.result(timeout=5) == 14
    assert len(said) == 10
    for report in said:
        await refused(report, REPEATED, STALE)
    if site.kind != "memory":
        await hands.engine.store.close()
