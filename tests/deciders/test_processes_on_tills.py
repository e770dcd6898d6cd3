"""Many clients and many workers in several processes, on the same tills; and one of the workers killed among them."""

from __future__ import annotations

import asyncio
import json
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
from tests.deciders.till_processes import ACKNOWLEDGED, BEGUN, HANDLED, Deed, Mother, read_journal
from tests.deciders.tills import Deposit, Till, Withdraw
from tests.support.pace import longer
from tests.worker.support import PATIENT, assert_sound, until

SEED = int(os.environ.get("PROCESS_TEST_SEED", str(random.SystemRandom().randrange(10**9))))
PROCESSES = {"postgresql": 4, "sqlite": 2}
CLIENTS = 16
TILLS = 100
INPUTS = {"postgresql": 320, "sqlite": 240}
GOES_ON_WITHIN_SECONDS = 2.0


@pytest.fixture(scope="module")
def mother(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mother]:
    """The process that forks the others: Python starts once."""
    made = Mother(tmp_path_factory.mktemp("tills"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _nobody_outlives_the_test(mother: Mother) -> Iterator[None]:
    yield
    asyncio.run(mother.end_all())


async def quiet(engine: hf.Engine) -> bool:
    """Whether nothing more happens to any till by itself."""
    store = (await engine.stats()).store
    return not (store.inbox or store.work.get("blocked") or store.work.get("ready") or store.work.get("leased"))


def given_and_acknowledged(deeds: list[Deed]) -> tuple[set[str], set[str]]:
    begun = [deed.id for deed in deeds if deed.what == BEGUN]
    assert len(begun) == len(set(begun)), "a client used an id twice: the test is wrong"
    return set(begun), {deed.id for deed in deeds if deed.what == ACKNOWLEDGED}


def executions(deeds: list[Deed]) -> Counter[tuple[str, str]]:
    return Counter((deed.till, deed.id) for deed in deeds if deed.what == HANDLED)


async def judged(reader: oracle.Reader, deeds: list[Deed]) -> dict[str, oracle.Books]:
    """Every till is a serial order of its inputs, and all inputs together are those that clients gave, each once."""
    books = await reader.all_tills()
    tallies = {till: oracle.check_finished(found) for till, found in books.items()}
    accepted = [id for tally in tallies.values() for id in tally.client_ids()]
    begun, acknowledged = given_and_acknowledged(deeds)
    assert Counter(accepted) == Counter(acknowledged), "an input was lost, or applied twice"
    assert begun == acknowledged, "an input was not acknowledged"
    asked = {(till, payload["id"]) for till, tally in tallies.items() for payload in tally.effects.values()}
    assert set(executions(deeds)) == asked, "an effect was not executed, or nobody asked for it"
    return books


async def test_g3_i33_clients_and_workers_in_several_processes_lose_nothing_and_repeat_nothing(
    shared_stage: Stage, tmp_path: Path, mother: Mother
) -> None:
    """G2, G3, G5, I33: 16 clients on 100 tills; no gaps, every input once, every effect and timer once."""
    print(f"PROCESS_TEST_SEED={SEED}")
    url, journal, count = shared_stage.site.url, tmp_path / "journal", PROCESSES[shared_stage.kind]
    inputs = INPUTS[shared_stage.kind]
    async with hf.Engine(url, registry=tills.registry, **PATIENT) as engine, oracle.Reader(url) as reader:
        began = time.monotonic()
        pids = [
            mother.bear(
                "trade", url, journal, clients=CLIENTS // count, inputs=inputs // CLIENTS, tills=TILLS, seed=SEED + each
            )
            for each in range(count)
        ]

        def all_given() -> bool:
            for pid in pids:
                assert mother.exit_of(pid) is None, mother.log_of(pid)
            return sum(deed.what == ACKNOWLEDGED for deed in read_journal(journal)) == inputs

        await until(all_given, "every client has given all it has", 60)
        await until(lambda: quiet(engine), "all is done", 60)
        took = time.monotonic() - began
        await mother.stop(*pids)
        deeds = read_journal(journal)
        books = await judged(reader, deeds)
        assert len({deed.pid for deed in deeds if deed.what == HANDLED}) == count, "a worker had nothing to do"
        twice = [key for key, times in executions(deeds).items() if times > 1]
        assert not twice, f"while its lease held, an effect ran twice: {twice}"
        work = [row for each in books.values() for row in each.work]
        assert {(row["attempt"], row["losses"], row["failures"]) for row in work} == {(1, 0, 0)}
        shared = sum(len({giver_of(row) for row in each.observations}) > 1 for each in books.values())
        await assert_sound(engine)
    facts = sum(len(each.stream) for each in books.values())
    print(f"{inputs} inputs, {facts} events, {len(executions(deeds))} effects in {took:.1f} s; {shared} tills shared")
    assert shared > len(books) // 4, "hardly any till had inputs from two processes"


def giver_of(row: oracle.Row) -> str:
    """The process whose client gave an input, or the one that it followed from."""
    id: str = json.loads(row["payload"])["id"]
    return id.removeprefix(oracle.NO_COMMAND).partition("-")[0]


@pytest.mark.parametrize("place", ["action.after:8", "timer.before:8"])
async def test_g1_g9_i7_what_a_killed_worker_held_goes_on_with_the_others_at_once(
    shared_stage: Stage, tmp_path: Path, mother: Mother, place: str
) -> None:
    """G1, G9, I6, I7: the lease is 30 s and nobody waits for it; only what the dead one had begun runs again."""
    url, journal, count = shared_stage.site.url, tmp_path / "journal", PROCESSES[shared_stage.kind]
    async with hf.Engine(url, registry=tills.registry, observe_inputs="payload", **PATIENT) as engine:
        others = [mother.bear("serve", url, journal) for _ in range(count - 1)]
        victim = mother.bear("serve", url, journal, failpoint=place)
        await until(lambda: _all_enrolled(engine, count), "all workers are there")
        given: list[str] = []
        while mother.exit_of(victim) is None:
            assert len(given) < 400, f"the worker never came to {place}"
            await _give_two(engine, given)
        died = time.monotonic()
        assert mother.exit_of(victim) == -signal.SIGKILL
        for _ in range(5):
            await _give_two(engine, given)
        await until(lambda: quiet(engine), "all is done")
        took = time.monotonic() - died
        await mother.stop(*others)
        async with oracle.Reader(url) as reader:
            books = await reader.all_tills()
        accepted = [id for each in books.values() for id in oracle.check_finished(each).client_ids()]
        assert Counter(accepted) == Counter(given)
        lost = [row for each in books.values() for row in each.work if row["status"] == "lost"]
        again = _explained_by(victim, read_journal(journal), lost, books)
        print(f"{len(given)} inputs, {len(lost)} leases lost, {again} executions again, all done after {took:.2f} s")
        assert took < min(longer(GOES_ON_WITHIN_SECONDS), PATIENT["lease_seconds"] / 2)
        await assert_sound(engine)


async def _give_two(engine: hf.Engine, given: list[str]) -> None:
    """Two inputs for another till: two effects and two timers, one of which sets itself anew."""
    till = f"till-{len(given) // 2}"
    for input in (Deposit(till, f"{till}-in", 100), Withdraw(till, f"{till}-out", 60)):
        await engine.execute(Till, input, command_id=input.id)
        given.append(input.id)


async def _all_enrolled(engine: hf.Engine, count: int) -> bool:
    return len(await engine.workers()) == count


def _explained_by(victim: int, deeds: list[Deed], lost: list[oracle.Row], books: dict[str, oracle.Books]) -> int:
    """Executions that were repeated, each of them begun by the dead one, whose lease on it is recorded as lost."""
    till_of = {each.run["id"]: till for till, each in books.items()}
    held = {(till_of[row["run"]], json.loads(row["payload"])["id"]) for row in lost}
    by_effect: dict[tuple[str, str], list[int]] = {}
    for deed in deeds:
        if deed.what == HANDLED:
            by_effect.setdefault((deed.till, deed.id), []).append(deed.pid)
    again = {key: pids for key, pids in by_effect.items() if len(pids) > 1}
    for key, pids in again.items():
        assert (pids[0], len(pids)) == (victim, 2), f"{key} was executed by {pids}, and {victim} was killed"
        assert key in held, f"{key} was executed again, and no lease was lost"
    return len(again)
