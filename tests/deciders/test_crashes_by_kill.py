"""SIGKILL to a process that lives through the life of a till, at places chosen by chance; the next one finishes it.

Every place is tried inside one process in `test_crashes_in_process.py`. These are real deaths, of real workers.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from tests.deciders import oracle, tills
from tests.deciders.conftest import Stage
from tests.deciders.till_processes import HANDLED, Mother, book_of, read_journal
from tests.deciders.tills import Till, TillState
from tests.worker.support import PATIENT, assert_sound

SEED = int(os.environ.get("KILL_TEST_SEED", str(random.SystemRandom().randrange(10**9))))
KILLS = int(os.environ.get("KILL_TEST_KILLS", "4"))
MOST_HITS = {
    "flush.before": 12,
    "flush.after_commit": 12,
    "handover.received": 4,
    "claim.after": 4,
    "action.before": 5,
    "action.after": 5,
    "timer.before": 3,
    "inbox.before": 1,
}
"""Places of both stores, and about how often a life comes there."""
GOES_ON_WITHIN_SECONDS = 10.0  # two lives on a busy machine; whoever waits for a lease waits three times as long


@pytest.fixture(scope="module")
def mother(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mother]:
    """The process that forks the others: Python starts once."""
    made = Mother(tmp_path_factory.mktemp("tills"))
    yield made
    asyncio.run(made.end_all())
    made.close()


async def test_g1_g2_g3_i7_a_till_whose_processes_are_killed_is_a_serial_order_of_its_inputs(
    shared_stage: Stage, tmp_path: Path, mother: Mother
) -> None:
    """G1, G2, G3, I7, I12: judged as the dead left it, and when the next process has finished it without a lease."""
    print(f"KILL_TEST_SEED={SEED}")
    chance, journal, url = random.Random(f"{SEED} {shared_stage.kind}"), tmp_path / "journal", shared_stage.site.url
    killed, tried, left = Counter[str](), 0, ""
    async with hf.Engine(url, registry=tills.registry, **PATIENT) as engine, oracle.Reader(url) as reader:
        while killed.total() < KILLS:
            tried += 1
            assert tried < 10 * KILLS, f"hardly ever killed: {killed}"
            place = chance.choice(list(MOST_HITS))
            till = f"{tried}:{place}:{chance.randint(1, MOST_HITS[place])}"
            began = time.monotonic()
            pid = mother.bear("play", url, journal, till=till, left=left, failpoint=till.partition(":")[2])
            code = await mother.ended(pid)
            assert code in (0, -signal.SIGKILL), f"{till}: {code}\n{mother.log_of(pid)}"
            assert time.monotonic() - began < GOES_ON_WITHIN_SECONDS < PATIENT["lease_seconds"], "waited for a lease"
            killed[place] += code != 0
            if left:
                await _is_finished(engine, reader, journal, left)
            books = await reader.till(till)
            if books is not None:
                book_of(journal, till).judge(oracle.check(books))
            left = till
        pid = mother.bear("play", url, journal, till="last", left=left)
        assert await mother.ended(pid) == 0, mother.log_of(pid)
        for till in (left, "last"):
            await _is_finished(engine, reader, journal, till)
        await assert_sound(engine)
        await _executions_are_explained(reader, journal, killed.total())
    print(f"killed at {dict(killed)}")


async def _is_finished(engine: hf.Engine, reader: oracle.Reader, journal: Path, till: str) -> None:
    books = await reader.till(till)
    assert books is not None
    tally = oracle.check_finished(books)
    book_of(journal, till).judge_finished(tally)
    assert await engine.state(Till, till) == TillState(**tally.state())


async def _executions_are_explained(reader: oracle.Reader, journal: Path, kills: int) -> None:
    """An effect runs again only if a kill took its lease; with one till at work that is one effect a kill at most."""
    executions = Counter((deed.till, deed.id) for deed in read_journal(journal) if deed.what == HANDLED)
    asked, lost = Counter[tuple[str, str]](), 0
    for till, books in (await reader.all_tills()).items():
        for payload in oracle.fold(books.stream).effects.values():
            asked[till, payload["id"]] += 1
        lost += sum(row["kind"] == "effect" and row["status"] == "lost" for row in books.work)
    assert set(executions) == set(asked)
    again = executions - asked
    assert not asked - executions, "recorded and never executed"
    assert again.total() <= lost <= kills, f"{again.total()} executions again, {lost} leases lost, {kills} kills"
