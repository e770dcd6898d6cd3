"""SIGKILL around the commits of flows: whoever comes next goes on from the last one, to the same end."""

from __future__ import annotations

import asyncio
import signal
import sys
from itertools import cycle, islice

import pytest

from tests.flows.mortal_flows import CASES, SETTINGS, registered
from tests.flows.parity import ending_of_plain
from tests.flows.test_stores import ending_of_run
from tests.worker.support import ROOT, assert_sound, child_environment, engine_on

# One that commits nothing is followed by some that do, so that the flows end.
PLACES = ("flush.after_commit:1", "flow.before:1", "flush.before_commit:2", "flush.after_commit:2", "flush.before:3")
KILLS = 8


@pytest.mark.timeout(90)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_g1_g2_i23_flows_whose_workers_are_killed_at_their_commits_end_as_plain_asyncio_does(
    request: pytest.FixtureRequest, database: str
) -> None:
    """A loop, a spread with failures, and children: one process after another is killed, in several places."""
    url: str = request.getfixturevalue(f"{database}_url")
    wanted = [await ending_of_plain(case.function, case.args) for case in CASES]
    registry, flows = registered()
    async with engine_on(url, registry, **SETTINGS) as engine:
        handles = [await engine.start(flows[case.function.__name__], *case.args) for case in CASES]
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.flows.mortal_flows",
            url,
            *islice(cycle(PLACES), KILLS),
            cwd=ROOT,
            env=child_environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await program.communicate()
        codes = [int(line.split()[1]) for line in told.decode().splitlines()]
        assert codes == [-signal.SIGKILL] * KILLS + [0], told.decode()
        found = [await ending_of_run(engine, handle) for handle in handles]
        await assert_sound(engine)
    assert found == wanted
