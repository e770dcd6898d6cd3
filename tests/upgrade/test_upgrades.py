"""A database of every earlier version, left in the middle of things by a worker that was killed, goes on today."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.store.statements import migrations
from tests.upgrade import programs
from tests.upgrade.old_databases import DATABASES, VERSIONS, restore
from tests.worker.support import PATIENT, assert_sound

SECONDS = 30.0


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url"))


@pytest.fixture(autouse=True)
def only_what_is_called_today() -> Iterator[None]:
    programs.calls.clear()
    yield
    programs.calls.clear()


def test_g1_every_version_of_the_schema_has_left_its_databases() -> None:
    """Whoever adds a migration keeps a database of the version before it: see tests/upgrade/make.py."""
    known = [f"{migration.number:04d}" for migration in migrations("sqlite")]
    assert list(VERSIONS) == known
    written = {re.sub(r"\..*", "", path.name) for path in Path(DATABASES).iterdir()}
    assert written >= set(VERSIONS) - {"0002"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_g1_g9_what_an_earlier_version_left_undone_is_done_today(version: str, kind: str, url: str) -> None:
    """G1, G9: what was acknowledged then is there, what was done is not done again, and everything ends."""
    await restore(kind, url, version)
    async with hf.Engine(url, registry=programs.registry, **PATIENT) as engine:
        await assert_sound(engine)
        async with engine.worker(queues=("default", "later")):
            await finish_dags(engine)
            if version >= "0003":
                await finish_functions(engine)
            if version >= "0004":
                await finish_deciders(engine)
            if version >= "0005":
                await finish_flows(engine)
            if version >= "0006":
                await finish_graphs(engine)
        await assert_sound(engine)
        left = await engine.find(status=["pending", "running", "suspended", "paused", "cancelling"], limit=100)
        assert [run.workflow for run in left if run.model not in ("decider", "projection")] == []
    repeated = {name: count for name, count in Counter(programs.calls).items() if count > 1}
    assert repeated == ({} if version < "0004" else {"print till": 2, "count till": 2})  # of two takings, once each


async def finish_dags(engine: Any) -> None:
    done = await engine.start(programs.greet, "done", key="done")
    assert await done.result(timeout=SECONDS) == "hello done"
    cancelled = await engine.start(programs.linger, "cancelled", key="cancelled")
    assert await cancelled.status() == "cancelled"
    failed = await engine.start(programs.break_down, "failed", key="failed")
    assert await failed.status() == "failed"
    assert await failed.retry()
    paused = await engine.start(programs.greet, "paused", key="paused")
    assert await paused.status() == "paused"
    assert await paused.resume()
    waiting = await engine.start(programs.greet, "waiting", key="waiting", queue="later")
    leased = await engine.start(programs.linger, "leased", key="leased")
    retried = await engine.start(programs.stumble, "retried", key="retried")
    errand = await engine.start(programs.Errand(name="errand"), key="errand")
    dags = (done, cancelled, failed, paused, waiting, leased, retried, errand)
    assert all([await run.verify_ancestry() for run in dags])
    assert await failed.result(timeout=SECONDS) == "failed is mended"
    assert await paused.result(timeout=SECONDS) == "hello paused"
    assert await waiting.result(timeout=SECONDS) == "hello waiting"
    assert await leased.result(timeout=SECONDS) == "leased at last"
    assert await retried.result(timeout=SECONDS) == "retried stands"
    await errand.result(timeout=SECONDS)
    assert all([await run.verify_ancestry() for run in dags])
    called = set(programs.calls)
    assert {"wrap errand", "send errand"} <= called
    assert not {"greet done", "fetch errand", "pack errand", "linger cancelled"} & called


async def finish_functions(engine: Any) -> None:
    waits = await engine.start(programs.wait_for_approval, "waits", key="waits")
    nests = await engine.start(programs.parent, "nests", key="nests")
    asks = await engine.start(programs.ask_twice, "asks", key="asks")
    sleeps = await engine.start(programs.work_and_sleep, "sleeps", key="sleeps")
    built = await engine.start(programs.built("built"), key="built")
    await engine.send(programs.approved, 7, to=waits.id)
    (child,) = [run for run in await engine.find(workflow="wait_for_approval", limit=10) if run.id != waits.id]
    await engine.send(programs.approved, 8, to=child.id)
    assert await waits.result(timeout=SECONDS) == "hello waits, 7"
    assert await nests.result(timeout=SECONDS) == "child says: hello nests, 8"
    assert await asks.result(timeout=SECONDS) == [1, 2]
    assert (await sleeps.result(timeout=SECONDS)).startswith("hello sleeps; sleeps at last; ")
    await built.result(timeout=SECONDS)
    called = set(programs.calls)
    assert {"linger built-2", "greet built-3"} <= called
    assert not {"greet built-1", "greet waits", "greet nests", "greet sleeps"} & called


async def finish_deciders(engine: Any) -> None:
    await engine.execute(programs.Tills, programs.Take("till", 20), command_id="twenty")  # I12: a repetition
    await engine.settle(timeout=SECONDS)
    assert await engine.state(programs.Tills, "till") == programs.Till(cents=120, counted=2, closed=True)
    assert await engine.state(programs.Tills, "queued") == programs.Till(cents=7, counted=1)
    await engine.settle(timeout=SECONDS)
    async with engine.store.transaction(user=True) as tx:
        rows = await tx.user.fetch("SELECT till, cents FROM takings ORDER BY till, cents")
    assert [tuple(row) for row in rows] == [("queued", 7), ("till", 20), ("till", 100)]


async def finish_flows(engine: Any) -> None:
    rounds = await engine.start(programs.rounds, "rounds", [1, 2], key="rounds")
    naps = await engine.start(programs.nap, "naps", key="naps")
    assert await rounds.result(timeout=SECONDS) == "hello rounds 1 2: 28"
    assert await naps.result(timeout=SECONDS) == "hello naps at last"
    called = set(programs.calls)
    assert "add_up 2 10" in called
    assert not {"add_up 1 1", "add_up 1 10", "add_up 2 1", "greet rounds", "greet naps"} & called


async def finish_graphs(engine: Any) -> None:
    research = await engine.start(programs.research, {"topic": "wells", "notes": []}, key="research")
    quiz = await engine.start(programs.quiz, {"topic": "rain", "notes": ["a"]}, key="quiz")
    await quiz.resume_with("no")
    assert (await quiz.result(timeout=SECONDS))["notes"] == ["a", "told no"]
    await engine.settle(timeout=SECONDS)
    await research.resume_with("yes")
    notes = (await research.result(timeout=SECONDS))["notes"]
    assert sorted(notes) == ["dug gold", "looked", "plan for wells", "told yes"]
    assert not {"plan", "look", "search"} & set(programs.calls)
