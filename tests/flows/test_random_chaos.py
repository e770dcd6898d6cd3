"""I24 under stress: random programs on real stores, with workers that vanish and reports that come late and twice.

`make flows PROGRAMS=20000` tries more of them.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from tests.flows.chaos import World, assert_recorded_once
from tests.flows.random_flows import ARGUMENTS, Program, compiled, is_refused
from tests.flows.test_stores import ending_of_run
from tests.support.stores import KINDS, Site, empty, site_for
from tests.worker.support import assert_sound

PROGRAMS = int(os.environ.get("FLOW_PROGRAMS", "500"))
SHARE = {"memory": 0.8, "sqlite": 0.1, "postgresql": 0.1}
FIRST = {"memory": 0, "sqlite": 1_000_000, "postgresql": 2_000_000}
FILE = "tests/flows/test_random_chaos.py"
TOGETHER = 5
"""Programs that share a store: batches hold reports of different flows."""
HAPPENS = {"abandoned", "again", "held back", "late", "lost answers", "of the dead", "twice at once"}


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_i24_g1_g3_random_programs_end_as_plain_asyncio_does_whatever_happens_to_their_workers(
    site: Site,
) -> None:
    """I24, G1, G3, K8: workers are abandoned, reports held back, repeated and sent after the death of their worker."""
    wanted = PROGRAMS if "FLOW_FIRST" in os.environ else max(TOGETHER, int(PROGRAMS * SHARE[site.kind]))
    first = int(os.environ.get("FLOW_FIRST", FIRST[site.kind]))
    met: Counter[str] = Counter()
    done = 0
    while done < wanted:
        before = first
        registry, programs, first = compiled(first, TOGETHER)
        try:
            met += await play(site, registry, programs, seed=before)
        except Exception as trouble:
            texts = "\n".join(f"# program {each.seed}\n{each.text}" for each in programs)
            again = f"FLOW_FIRST={before} FLOW_PROGRAMS={TOGETHER} python -m pytest {FILE} -k {site.kind}"
            raise AssertionError(f"{trouble}\n\nrepeat it with\n{again}\n\n{texts}") from trouble
        finally:
            for each in programs:
                each.forget()
        done += len(programs)
    print(f"{done} programs on {site.kind}: {dict(sorted(met.items()))}")
    if done >= 50:
        assert not HAPPENS - set(+met), f"never happened: {HAPPENS - set(+met)}"


async def play(site: Site, registry: hf.Registry, programs: list[Program], seed: int) -> Counter[str]:
    """All these programs on one store, each with all arguments. What happened to their workers."""
    world = World(site, registry, f"chaos {seed}")
    engine = await world.begin()
    try:
        await empty(engine.store)
        for life in world.lives:
            await life.hands.enroll()
        runs = [
            (program, await engine.start(program.made, *copy.deepcopy(args)))
            for program in programs
            for args in ARGUMENTS
        ]
        engine = await world.play([handle.id for _, handle in runs])
        wanted = [ending for program in programs for ending in await program.endings()]
        for (program, handle), ending in zip(runs, wanted, strict=True):
            found = await ending_of_run(engine, engine.get(handle.id))
            assert found == ending or is_refused(found), f"program {program.seed}: plain {ending}, flow {found}"
            await assert_recorded_once(engine, handle.id)
        await assert_sound(engine)
    finally:
        await world.end()
    return world.met
