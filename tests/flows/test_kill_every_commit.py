"""SIGKILL before and after the commits of ten flows, and of random programs: the same results after each restart.

CRASH_TEST_SHARE=1 kills at every single commit; less is a share of them. Crashes within commits, flow by flow, are in
`test_crashes.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

import pytest

from tests.flows.chaos import assert_recorded_once
from tests.flows.killed_lives import PROGRAMS, SETTINGS
from tests.flows.parity import ending_of_plain
from tests.flows.random_flows import ARGUMENTS, compiled, is_refused
from tests.flows.ten_flows import registered, ten_cases
from tests.flows.test_stores import ending_of_run
from tests.worker.support import ROOT, assert_sound, child_environment, engine_on

SEED = os.environ.get("KILL_TEST_SEED", str(random.SystemRandom().randrange(10**9)))
SHARE = os.environ.get("CRASH_TEST_SHARE")
AT_LEAST = 5
FIRST_PROGRAM = 3_000_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def killed_until_the_end(url: str, what: str, share: str) -> int:
    """One life after another until all is done; how many were killed."""
    share = SHARE or share
    print(f"KILL_TEST_SEED={SEED} CRASH_TEST_SHARE={share}")
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.flows.killed_lives", url, SEED, share, what),
        cwd=ROOT,
        env=child_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await program.communicate()
    codes = [int(line.split()[1]) for line in told.decode().splitlines()]
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0], told.decode()
    print(f"{len(codes) - 1} kills")
    return len(codes) - 1


async def test_g1_g2_i23_ten_flows_killed_at_their_commits_end_as_plain_asyncio_does(url: str) -> None:
    """G1, G2, I7, I23: all ten are under way when their worker dies, and the next one goes on without a lease."""
    cases = ten_cases()
    wanted = [await ending_of_plain(*case) for case in cases]
    registry, flows = registered()
    async with engine_on(url, registry, **SETTINGS) as engine:
        handles = [await engine.start(flows[case.function.__name__], *case.args) for case in cases]
        assert await killed_until_the_end(url, "ten", share="0.5") >= AT_LEAST
        found = [await ending_of_run(engine, handle) for handle in handles]
        for handle in handles:
            await assert_recorded_once(engine, handle.id)
        await assert_sound(engine)
    assert found == wanted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_i24_g1_random_programs_whose_workers_are_killed_end_as_plain_asyncio_does(url: str) -> None:
    """I24, G1: the same, for programs that nobody has chosen."""
    registry, programs, _ = compiled(FIRST_PROGRAM, PROGRAMS)
    async with engine_on(url, registry, **SETTINGS) as engine:
        started = [(each, await engine.start(each.made, *args)) for each in programs for args in ARGUMENTS]
        assert await killed_until_the_end(url, str(FIRST_PROGRAM), share="0.2") >= AT_LEAST
        wanted = [ending for each in programs for ending in await each.endings()]
        for (program, handle), ending in zip(started, wanted, strict=True):
            found = await ending_of_run(engine, handle)
            assert found == ending or is_refused(found), f"plain {ending}, flow {found}\n{program.text}"
            await assert_recorded_once(engine, handle.id)
        await assert_sound(engine)
