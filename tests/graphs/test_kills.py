"""SIGKILL to workers of a graph, around their commits, their records and within their steps, chosen by chance.

Every place is tried inside one process in `test_crashes.py`. These are real deaths of real processes.
KILL_TEST_KILLS says how many; a failure prints KILL_TEST_SEED, which repeats it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast.core.queries import RecordedOf
from holdfast.core.rows import COMPLETED
from tests.flows.chaos import assert_recorded_once
from tests.graphs.mortal_graphs import SETTINGS, journey
from tests.graphs.worlds import shown_difference, trail
from tests.worker.support import ROOT, assert_sound, child_environment, engine_on, work_of

SEED = os.environ.get("KILL_TEST_SEED", str(random.SystemRandom().randrange(10**9)))
KILLS = int(os.environ.get("KILL_TEST_KILLS", "6"))
RUNS = 3
DAYS = {"day": 0, "diary": []}
MOST_HITS = {
    "flush.before": 6,
    "flush.after_commit": 6,
    "claim.after": 2,
    "action.before": 4,
    "action.after": 4,
    "record.before": 4,
    "record.after": 4,
}
"""Places, and about how often a life comes there before it would be done."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_g1_g3_i42_i7_a_graph_whose_workers_are_killed_goes_on_where_it_was(
    request: pytest.FixtureRequest, database: str, tmp_path: Path
) -> None:
    """G1, G3, I7, I42: the same checkpoints as in peace; an item runs as often as it was lost, and once more; a call
    goes out again only if its worker died before the answer was stored; a person is asked once."""
    url: str = request.getfixturevalue(f"{database}_url")
    chance, traces = random.Random(f"{SEED} {database}"), tmp_path / "traces"
    orders = [f"{place}:{chance.randint(1, MOST_HITS[place])}" for place in chance.choices(list(MOST_HITS), k=KILLS)]
    print(f"KILL_TEST_SEED={SEED} KILL_TEST_KILLS={KILLS}: {orders}")
    wanted = await _in_peace(tmp_path / "peace")
    registry, graph = journey(traces)
    async with engine_on(url, registry, **SETTINGS) as engine:
        handles = [await engine.start(graph, DAYS) for _ in range(RUNS)]
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.graphs.mortal_graphs", url, str(traces), *orders),
            cwd=ROOT,
            env=child_environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await program.communicate()
        codes = [int(line.split()[1]) for line in told.decode().splitlines()]
        assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0], told.decode()
        assert len(codes) > min(KILLS, 4), told.decode()
        lines = [tuple(line.split()) for line in traces.read_text().splitlines()]
        asked = Counter(line[1:] for line in lines if line[0] == "asked")
        assert sum(times - 1 for times in asked.values()) <= len(codes) - 1, "a kill repeats what was under way"
        for handle in handles:
            found = await trail(engine.store, handle.id)
            assert found == wanted, shown_difference(found, wanted)
            await assert_recorded_once(engine, handle.id)
            records = await engine.store.rows(RecordedOf(handle.id))
            assert Counter(row.name for row in records) == {"weather": 3, "way": 3, "post": 3, "interrupt": 1}
            ran = Counter((line[2], line[3]) for line in lines if line[:2] == ("ran", handle.id))
            for work in await work_of(engine, handle.id):
                begun = ran[work.node, str(work.attempt)]
                # Whoever waits for an answer begins anew with it; a claim may be lost before the node has begun.
                assert begun <= 1 + (work.node == "walk@2"), f"{work.node} attempt {work.attempt} began {begun} times"
                assert begun or work.status != COMPLETED
            report = await engine.replay(handle.id)
            assert report.ok
        await assert_sound(engine)


async def _in_peace(folder: Path) -> object:
    registry, graph = journey(folder)
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, DAYS)
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", 20)
        await handle.resume_with("yes")
        await handle.result(timeout=20)
        return await trail(engine.store, handle.id)
