"""Crashes inside one process, at every commit of a graph and within its steps: the next life goes on where it was.

Runs are driven by hand, so that each reaches the same places in the same order. At the chosen place nothing more
happens: the store is closed as it is, and a new engine on it takes over. CRASH_TEST_SHARE=1 tries every place
everywhere. Real deaths of real processes are in `test_kills.py`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.queries import AllWork, CheckpointsOf, RecordedOf
from holdfast.core.rows import COMPLETED
from holdfast.core.state_items import Item, step_of
from holdfast.store.contract import FindRuns, Store
from tests.flows.by_hand import WorkerByHand, crashes, cuts_power
from tests.flows.chaos import assert_recorded_once
from tests.flows.test_crashes import Stage
from tests.graphs.worlds import LATEST, beginning, made, shown_difference, trail
from tests.support.stores import SHARED_KINDS, Site, site_for
from tests.worker.support import assert_sound

SEED = int(os.environ.get("CRASH_TEST_SEED", str(random.SystemRandom().randrange(10**9))))
COMMITS = ("flush.before", "flush.between", "flush.before_commit", "flush.after_commit")
WITHIN = ("claim.after", "action.before", "action.after", "record.before", "record.after", "flow.before")
SHARE = {"sqlite": 0.03, "postgresql": 0.012}


@pytest.fixture(params=SHARED_KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made_site:
        yield made_site
    failpoints.disarm()


async def places_of(stage: Stage, graph: hf.StateGraph[Any], state: Any) -> tuple[Counter[str], Any]:
    """How often a run that nobody disturbs reaches each place, and what becomes of it."""
    hits: Counter[str] = Counter()
    hands = await stage.life()
    handle = await hands.engine.start(graph, state)
    failpoints.arm(lambda name: hits.update([name]))
    await stage.plays(hands)
    failpoints.disarm()
    found = await trail(hands.engine.store, handle.id)
    await hands.engine.store.close()
    return hits, found


def chosen(places: Counter[str], share: float, chance: random.Random) -> Iterator[tuple[str, int]]:
    share = float(os.environ.get("CRASH_TEST_SHARE", share))
    for place in (*COMMITS, *WITHIN):
        for hit in range(1, places[place] + 1):
            if chance.random() < share:
                yield place, hit


async def finished_before(store: Store, run: str) -> set[str]:
    """The order keys of the items whose outcome is stored, of this run and of its subgraphs' runs."""
    finished: set[str] = set()
    for each in await store.find(FindRuns(limit=1000)):
        if each.id != run and each.parent != run:
            continue
        keys = {}
        for row in await store.rows(CheckpointsOf(each.id, LATEST, 1000)):
            for item in msgspec.json.decode(row.frontier, type=tuple[Item, ...]):
                keys[item.address(row.step + 1)] = item.order_key
        work = await store.rows(AllWork(each.id))
        finished |= {f"{each.id} {keys[row.node]}" for row in work if row.status == COMPLETED and row.node in keys}
    return finished


@pytest.mark.timeout(1800)
async def test_i42_i44_g1_g3_a_graph_that_crashed_anywhere_goes_on_at_its_step_and_becomes_the_same(site: Site) -> None:
    """I42, I44, G1, G3: what was finished is not run again, the next items are those of the step that was under way,
    and every checkpoint is the one that an undisturbed run writes."""
    print(f"CRASH_TEST_SEED={SEED}")
    ran: list[str] = []

    def begins(item: str) -> float:
        ran.append(item.rpartition(" ")[0])
        return 0.0

    world = made(delay=begins)
    stage, chance, crashed = Stage(site, world.registry), random.Random(SEED), Counter[str]()
    for name, graph in world.graphs.items():
        places, wanted = await places_of(stage, graph, beginning(3))
        for place, hit in chosen(places, SHARE[site.kind], chance):
            where = f"{name} crashed at {place}:{hit} (CRASH_TEST_SEED={SEED})"
            hands = await stage.life()
            handle = await hands.engine.start(graph, beginning(3))
            crashed[place] += await crashes(hands, stage.plays(hands), place, hit)
            await hands.engine.store.close()
            ran.clear()
            hands = await stage.life()
            store = hands.engine.store
            (before,) = await store.runs([handle.id])
            finished = await finished_before(store, handle.id)
            await stage.plays(hands)
            found = await trail(store, handle.id)
            assert found == wanted, f"{where}: {shown_difference(found, wanted)}"
            assert not finished & set(ran), f"{where}: ran again {finished & set(ran)}"
            later = [row for row in await store.rows(AllWork(handle.id)) if row.created > before.updated]
            assert all(step_of(row.node) > before.base for row in later), where
            await assert_recorded_once(hands.engine, handle.id)
            await store.close()
    hands = await stage.life()
    cuts_power(hands.engine, never=False)
    await assert_sound(hands.engine)
    await hands.engine.store.close()
    print(f"{crashed.total()} crashes on {site.kind}: {dict(sorted(crashed.items()))}")
    assert crashed.total() >= 3


class Chat(TypedDict):
    turn: int
    said: Annotated[list[str], hf.reducers.append]


class AgentStage(Stage):
    """A stage with a person on it, who answers whatever is asked."""

    def __init__(self, site: Site) -> None:
        self.asked: Counter[str] = Counter()  # calls that really went out
        registry = hf.Registry()
        self.graph = self._agent(registry)
        super().__init__(site, registry)

    def _agent(self, registry: hf.Registry) -> hf.StateGraph[Chat]:
        graph = hf.StateGraph(Chat, name="agent", registry=registry, default_timeout=3600.0)

        async def ask(ctx: hf.NodeContext, name: str, request: Any) -> Any:
            def call() -> str:
                self.asked[f"{ctx.run_id} {ctx.node}@{ctx.step} {name}"] += 1
                return f"{name} of {ctx.node}@{ctx.step}"

            return await ctx.record(name, request, call)

        @graph.node(recordable=True)
        async def think(state: Chat, ctx: hf.NodeContext) -> Any:
            first = await ask(ctx, "model", {"turn": state["turn"]})
            if state["turn"] == 1:
                first += f" {await ctx.interrupt({'plan': first})}"
            second = await ask(ctx, "tool", {"after": first})
            return {"turn": state["turn"] + 1, "said": [first, second]}

        @graph.node(recordable=True)
        async def watch(state: Chat, ctx: hf.NodeContext) -> Any:
            return {"said": [await ask(ctx, "model", {"turn": state["turn"]})]}

        graph.start_at("think", "watch")
        graph.edge("think", "think", when=lambda state: state["turn"] < 3)
        graph.edge("think", "watch", when=lambda state: state["turn"] < 3)
        graph.finish("think", "watch")
        return graph

    async def plays(self, hands: WorkerByHand) -> None:
        while True:
            await super().plays(hands)
            asking = [run for run in await hands.engine.store.find(FindRuns(status=("suspended",), limit=100))]
            if not asking:
                return
            for run in asking:
                (question,) = await hands.engine.get(run.id).interrupts()
                assert question.payload == {"plan": "model of think@2"}
                await hands.engine.get(run.id).resume_with("good")


@pytest.mark.timeout(1800)
async def test_i42_i45_g1_recorded_calls_and_answers_of_people_survive_a_crash_at_every_place(site: Site) -> None:
    """I42, I45, G1: no call whose answer was stored goes out again, and none twice but the one that was under way;
    a run that waits for a person waits on, and the person is not asked again."""
    stage, crashed = AgentStage(site), Counter[str]()
    places, wanted = await places_of(stage, stage.graph, {"turn": 0, "said": []})
    assert wanted[0] == "completed"
    assert set(stage.asked.values()) == {1}
    share = {"sqlite": 1.0, "postgresql": 0.12}[site.kind]
    for place, hit in chosen(places, share, random.Random(SEED)):
        where = f"crashed at {place}:{hit} (CRASH_TEST_SEED={SEED} CRASH_TEST_SHARE={share})"
        stage.asked.clear()
        hands = await stage.life()
        handle = await hands.engine.start(stage.graph, {"turn": 0, "said": []})
        crashed[place] += await crashes(hands, stage.plays(hands), place, hit)
        await hands.engine.store.close()
        hands = await stage.life()
        store = hands.engine.store
        known = {f"{row.run} {row.node} {row.name}" for row in await store.rows(RecordedOf(handle.id))}
        before = Counter(stage.asked)
        await stage.plays(hands)
        found = await trail(store, handle.id)
        assert found == wanted, f"{where}: {shown_difference(found, wanted)}"
        again = stage.asked - before
        assert not known & set(again), f"{where}: went out again {known & set(again)}"
        twice = [call for call, times in stage.asked.items() if times > 1]
        under_way = place in ("record.before", *COMMITS)  # asked, and what came back was not stored
        assert len(twice) <= under_way, f"{where}: {twice}"
        assert len(stage.asked) == 9
        records = await store.rows(RecordedOf(handle.id))
        assert len(records) == 10, f"{where}: {records}"
        report = await hands.engine.replay(handle.id)
        assert (report.ok, report.calls) == (True, 10), where
        await store.close()
    print(f"{crashed.total()} crashes on {site.kind}: {dict(sorted(crashed.items()))}")
    missed = {"record.before", "record.after", "action.before", "flush.after_commit"} - set(+crashed)
    assert not missed or site.kind == "postgresql", f"no crash at {missed}"
