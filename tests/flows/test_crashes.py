"""Crashes inside one process, before, within and after every commit of ten flows: the next one ends them the same.

A flow is driven by hand, so that it reaches the same places in the same order each time. At the chosen place nothing
more happens: the store is closed as it is, and a new engine on it takes over and goes on. Real deaths of real
processes are in `test_kill_every_commit.py`.
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.flows import Flow
from holdfast.core import failpoints
from holdfast.core.operations import Handed, Offer
from holdfast.testing.engines import SeededRandomness
from tests.flows.by_hand import QUEUE, WorkerByHand, crashes, cuts_power, worker_by_hand
from tests.flows.chaos import assert_recorded_once
from tests.flows.corpus import Case
from tests.flows.parity import ending_of_plain
from tests.flows.ten_flows import registered, ten_cases
from tests.flows.test_stores import ending_of_run
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, site_for
from tests.worker.support import assert_sound

SEED = int(os.environ.get("CRASH_TEST_SEED", str(random.SystemRandom().randrange(10**9))))
BOUNDARIES = ("flush.before", "flush.between", "flush.before_commit", "flush.after_commit", "claim.after")
SHARE = {"sqlite": 0.25, "postgresql": 0.1}
"""How many of all crashes are tried, by store; on SQLite all those right before and right after a commit besides.
CRASH_TEST_SHARE=1 tries everything everywhere."""
ALL = {"sqlite": {"flush.before_commit", "flush.after_commit"}, "postgresql": set[str]()}


@pytest.fixture(params=SHARED_KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made
    failpoints.disarm()


class Stage:
    """A store on which one life follows another."""

    def __init__(self, site: Site, registry: hf.Registry) -> None:
        self.site = site
        self.clock = VirtualClock()
        self._registry = registry
        self._randomness = SeededRandomness("crashes", site.kind)

    async def life(self) -> WorkerByHand:
        """A worker that has taken over from the one before."""
        born = await worker_by_hand(self.site, self._registry, self.clock, self._randomness)
        await born.take_over()
        return born

    async def plays(self, hands: WorkerByHand) -> None:
        """Do everything that is to be done, one thing after another."""

        def offer() -> Offer:
            return Offer(worker=hands.id, room=1, queues=(QUEUE,))

        async def run(handed: Handed) -> None:
            for following in (await hands.run(handed, offer)).handed:
                await run(following)

        while found := await hands.claim(limit=3) or await hands.time_passes():
            for handed in found if isinstance(found, list) else ():
                await run(handed)


def chosen(places: Counter[str], kind: str, chance: random.Random) -> Iterator[tuple[str, int]]:
    share = float(os.environ.get("CRASH_TEST_SHARE", SHARE[kind]))
    for place in BOUNDARIES:
        for hit in range(1, places[place] + 1):
            if hit == 1 or place in ALL[kind] or chance.random() < share:
                yield place, hit


@pytest.mark.timeout(600)
async def test_g1_g2_g3_i23_ten_flows_crashed_around_every_commit_end_as_plain_asyncio_does(site: Site) -> None:
    """G1, G2, G3, I23: before, between and after the writes of each commit, and after each claim."""
    print(f"CRASH_TEST_SEED={SEED}")
    registry, flows = registered()
    stage, chance, crashed = Stage(site, registry), random.Random(SEED), Counter[str]()
    for case in ten_cases():
        wanted, made = await ending_of_plain(*case), flows[case.function.__name__]
        places = await undisturbed(stage, made, case, wanted)
        for place, hit in chosen(places, site.kind, chance):
            hands = await stage.life()
            handle = await hands.engine.start(made, *copy.deepcopy(case.args))
            crashed[place] += await crashes(hands, stage.plays(hands), place, hit)
            await hands.engine.store.close()
            hands = await stage.life()
            await stage.plays(hands)
            (row,) = await hands.engine.store.runs([handle.id])
            assert row.ended, f"{case.name} crashed at {place}:{hit} and never went on"
            found = await ending_of_run(hands.engine, hands.engine.get(handle.id))
            assert found == wanted, f"{case.name} crashed at {place}:{hit}: plain {wanted}, flow {found}"
            await assert_recorded_once(hands.engine, handle.id)
            await hands.engine.store.close()
    hands = await stage.life()
    cuts_power(hands.engine, never=False)
    await assert_sound(hands.engine)
    await hands.engine.store.close()
    print(f"{crashed.total()} crashes on {site.kind}: {dict(sorted(crashed.items()))}")
    missed = {"flush.before", "flush.after_commit", "claim.after"} - set(+crashed)
    assert not missed, f"no crash at {missed}"


async def undisturbed(stage: Stage, made: Flow[..., Any], case: Case, wanted: tuple[Any, ...]) -> Counter[str]:
    """How often a run that nobody disturbs reaches each place."""
    hits: Counter[str] = Counter()
    hands = await stage.life()
    handle = await hands.engine.start(made, *copy.deepcopy(case.args))
    failpoints.arm(lambda name: hits.update([name]))
    await stage.plays(hands)
    failpoints.disarm()
    assert await ending_of_run(hands.engine, hands.engine.get(handle.id)) == wanted, case.name
    await hands.engine.store.close()
    return hits
