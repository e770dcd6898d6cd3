"""Workers killed at random, the database crashed under them: nothing is lost and nothing is recorded twice.

KILL_TEST_RUNS makes it longer than the 300 runs of an ordinary test run, KILL_TEST_SEED repeats one.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.runtime.postgres_server import PostgresServer
from tests.endtoend.kills import SETTINGS, Crowd
from tests.endtoend.programs import app
from tests.worker.support import Processes, until

RUNS = int(os.environ.get("KILL_TEST_RUNS", "300"))
SEED = int(os.environ.get("KILL_TEST_SEED", str(random.SystemRandom().randrange(10**9))))
RUNS_A_SECOND = 15.0
SECONDS_BETWEEN_KILLS = (0.7, 1.7)
LONGEST_SECONDS = 90 + RUNS


async def feed(crowd: Crowd, started: dict[str, int]) -> None:
    """Start runs at an even rate, so that there is always something to kill and never a long queue."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number in range(RUNS):
        if number % 5 == 0:
            handle: hf.Handle[Any] = await crowd.engine.start(app.square, number, str(crowd.path), key=f"run {number}")
        else:
            chain = app.CHAINS[number % len(app.CHAINS)]
            handle = await crowd.engine.start(chain(number=number, journal=str(crowd.path)), key=f"run {number}")
        started[handle.id] = number
        await asyncio.sleep(max(0.0, begin + number / RUNS_A_SECOND - loop.time()))


async def shoot(crowd: Crowd) -> None:
    """Kill and replace workers until we are cancelled."""
    while True:
        await asyncio.sleep(crowd.chance.uniform(*SECONDS_BETWEEN_KILLS))
        await crowd.kill_one()


async def crash(crowd: Crowd, server: PostgresServer) -> None:
    """Crash the server and start it again. The workers stand still while their leases are counted."""
    for worker in crowd.workers:
        worker.send_signal(signal.SIGSTOP)
    crowd.leased_at_a_crash += await crowd.leased()
    down = time.monotonic()
    await asyncio.to_thread(server.stop, "immediate")
    for worker in crowd.workers:
        worker.send_signal(signal.SIGCONT)
    await asyncio.to_thread(server.start)
    crowd.restarts.append((down, time.monotonic()))


def has_started(started: dict[str, int], count: int) -> bool:
    return len(started) >= count


async def all_done(crowd: Crowd) -> bool:
    try:
        runs = (await crowd.engine.stats()).store.runs
    except hf.StoreUnavailable:
        return False
    return runs.get("completed", 0) == RUNS


@pytest.mark.timeout(2 * LONGEST_SECONDS)
async def test_g1_g2_g3_g9_killed_workers_and_a_crashed_postgresql_lose_and_repeat_nothing(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, processes: Processes
) -> None:
    """G1, G2, G3, G9, G10 with four worker processes and a server that crashes twice."""
    print(f"KILL_TEST_SEED={SEED}")
    started: dict[str, int] = {}
    async with hf.Engine(postgres_url, registry=app.registry, **SETTINGS) as engine:
        crowd = Crowd(engine, postgres_url, processes, tmp_path / "journal", random.Random(SEED))
        await crowd.gather(4)
        feeding = asyncio.create_task(feed(crowd, started))
        for third in (1, 2):
            shooting = asyncio.create_task(shoot(crowd))
            await until(partial(has_started, started, RUNS * third // 3), "runs are started", LONGEST_SECONDS)
            shooting.cancel()
            await asyncio.wait([shooting])
            await crash(crowd, postgres)
        shooting = asyncio.create_task(shoot(crowd))
        await feeding
        shooting.cancel()
        await asyncio.wait([shooting])
        await until(lambda: all_done(crowd), "all runs are completed", LONGEST_SECONDS)
        await crowd.check(started)


@pytest.mark.timeout(2 * LONGEST_SECONDS)
async def test_g1_g2_g3_g9_killed_workers_on_one_sqlite_file_lose_and_repeat_nothing(
    sqlite_url: str, tmp_path: Path, processes: Processes
) -> None:
    """G1, G2, G3, G9, G10 with two worker processes on a file."""
    print(f"KILL_TEST_SEED={SEED}")
    started: dict[str, int] = {}
    async with hf.Engine(sqlite_url, registry=app.registry, **SETTINGS) as engine:
        crowd = Crowd(engine, sqlite_url, processes, tmp_path / "journal", random.Random(SEED))
        await crowd.gather(2)
        shooting = asyncio.create_task(shoot(crowd))
        await feed(crowd, started)
        shooting.cancel()
        await asyncio.wait([shooting])
        await until(lambda: all_done(crowd), "all runs are completed", LONGEST_SECONDS)
        await crowd.check(started)
