"""The places of a worker's life beside its work: a process killed there, and a store that fails there once.

What runs the work itself (claims, actions, flushes, hand-overs) is killed at every hit in `test_skeleton.py`.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.rows import COMPLETED, LEASED, LOST, READY
from holdfast.runtime import killswitch
from holdfast.store.contract import ClaimRequest, WorkerRow
from tests.endtoend.programs import app, journal
from tests.worker.support import PATIENT, ROOT, Processes, assert_sound, engine_on, statuses, until, work_of

STEPS = ["one", "two", "three", "four", "five"]
ONE_STATEMENT = {"claim.before_commit": "sqlite", "announce.before": "postgres", "announce.after": "postgres"}
"""Points that one store alone has: PostgreSQL claims in one statement, SQLite has nothing to announce."""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def skip_unless_it_has(url: str, failpoint: str) -> None:
    if not url.startswith(ONE_STATEMENT.get(failpoint, url[:4])):
        pytest.skip(f"{failpoint} is a point of {ONE_STATEMENT[failpoint]} alone")


async def killed_at(processes: Processes, url: str, order: str, **settings: Any) -> None:
    """A worker process that lives until it reaches this point."""
    victim = processes.serve(url, settings=settings, environ={killswitch.VARIABLE: order})
    await until(lambda: victim.poll() is not None, f"the worker dies at {order}")
    assert victim.returncode == -signal.SIGKILL


async def finish(engine: hf.Engine, runs: list[str]) -> None:
    """G9: a worker that knows the work is alive, so all of it ends well, each node once. G10: the store is sound."""
    async with engine.worker():
        for run in runs:
            await engine.get(run).result(timeout=15)
    for run in runs:
        completed = [work.node for work in await work_of(engine, run) if work.status == COMPLETED]
        assert len(completed) == len(set(completed))
        assert await engine.get(run).status() == COMPLETED
    await assert_sound(engine)


def test_every_failpoint_is_reached_by_the_code_and_named_by_a_test() -> None:
    """A place where nobody ever tried a crash is a place where nobody knows what a crash does."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "holdfast").rglob("*.py"))
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.name != "test_killswitch.py"
    )
    for name in sorted(failpoints.NAMES):
        assert f'("{name}")' in code, f"{name} is registered and never reached"
        assert f'"{name}' in tests, f"no test names {name}"


# --- killed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order",
    [
        "claim.before_commit:1",
        "heartbeat.before:1",
        "heartbeat.before:2",
        "heartbeat.after:1",
        "heartbeat.after:2",
        "announce.before:1",
        "announce.after:1",
    ],
)
async def test_g1_g2_g9_work_goes_on_after_a_worker_was_killed_beside_it(
    shared_url: str, tmp_path: Path, processes: Processes, order: str
) -> None:
    """G1, G2, G9: before and after a heartbeat and a hint to others, and with a claim that never was committed."""
    skip_unless_it_has(shared_url, order.partition(":")[0])
    async with engine_on(shared_url, app.registry, **PATIENT) as engine:
        paths = [tmp_path / f"journal-{number}" for number in range(3)]
        runs = [(await engine.start(app.Walk(journal=str(path)))).id for path in paths]
        await killed_at(processes, shared_url, order, lease_seconds=1.5, hand_over=False)
        if order == "claim.before_commit:1":
            assert [await statuses(engine, run) for run in runs] == [[READY]] * 3, "nothing was claimed"
        done = {run: {work.node for work in await work_of(engine, run) if work.status == COMPLETED} for run in runs}
        await finish(engine, runs)
        for run, path in zip(runs, paths, strict=True):
            executions = Counter(deed.node for deed in journal.begun(path))
            assert list(executions) == STEPS
            again = executions - Counter(STEPS)
            assert again.total() <= 1, f"one death, so one step of a chain at most ran twice: {executions}"
            assert not done[run] & set(again), "what was recorded ran again"


@pytest.mark.parametrize("failpoint", ["takeover.before", "takeover.after"])
async def test_i6_i7_a_take_over_whose_taker_is_killed_is_finished_by_the_next(
    shared_url: str, tmp_path: Path, processes: Processes, failpoint: str
) -> None:
    """I6, I7: whoever looks next takes over from both, and the lease counts as lost once."""
    path = str(tmp_path / "journal")
    async with engine_on(shared_url, app.registry, **PATIENT) as engine:
        first, row = await processes.serving(engine, shared_url)
        handle = await engine.start(app.hold, path)
        await until(lambda: journal.begun(path), "the process has begun")
        first.kill()
        first.wait()
        await killed_at(processes, shared_url, f"{failpoint}:1")
        expected = [LEASED] if failpoint == "takeover.before" else [LOST, READY]
        assert await statuses(engine, handle.id) == expected
        Path(f"{path}.go").touch()
        await finish(engine, [handle.id])
        assert await statuses(engine, handle.id) == [LOST, COMPLETED]
        assert [work.losses for work in await work_of(engine, handle.id)] == [1, 1]
        assert row.id not in {worker.id for worker in await engine.workers()}
    assert len(journal.begun(path)) == 2


async def test_g1_g9_a_worker_killed_while_it_gives_its_work_back_loses_nothing(
    shared_url: str, tmp_path: Path, processes: Processes
) -> None:
    """Asked to stop, out of patience, and killed before it said so: the lease lapses, and the work goes on at once."""
    path = str(tmp_path / "journal")
    async with engine_on(shared_url, app.registry, **PATIENT) as engine:
        victim = processes.serve(
            shared_url, settings={"shutdown_seconds": 0.05}, environ={killswitch.VARIABLE: "release.before:1"}
        )
        handle = await engine.start(app.hold, path)
        await until(lambda: journal.begun(path), "the process has begun")
        victim.send_signal(signal.SIGTERM)
        await until(lambda: victim.poll() is not None, "the worker dies while it stops")
        assert victim.returncode == -signal.SIGKILL
        assert await statuses(engine, handle.id) == [LEASED]
        Path(f"{path}.go").touch()
        await finish(engine, [handle.id])
        assert await statuses(engine, handle.id) == [LOST, COMPLETED]


@pytest.mark.parametrize("hit", [1, 3, 5])
async def test_g10_a_worker_killed_between_the_tables_of_a_prune_leaves_whole_runs(
    shared_url: str, tmp_path: Path, processes: Processes, hit: int
) -> None:
    """G10: all of a run is there or none of it; the next prune deletes what this one did not."""
    async with engine_on(shared_url, app.registry, **PATIENT) as engine:
        runs = [(await engine.start(app.square, number, str(tmp_path / "journal"))).id for number in range(3)]
        await finish(engine, runs)
        await killed_at(processes, shared_url, f"prune.between:{hit}", retention=0.001)
        for run in runs:
            assert await engine.get(run).status() == COMPLETED
            assert await statuses(engine, run) == [COMPLETED]
        await assert_sound(engine)
        assert await engine.prune(older_than_seconds=0) == 3
        assert list(await engine.find()) == []
        await assert_sound(engine)


@pytest.mark.parametrize("hit", [1, 2])
async def test_g2_g3_a_process_killed_between_two_statements_of_a_flush_leaves_nothing_of_it(
    shared_url: str, tmp_path: Path, processes: Processes, hit: int
) -> None:
    """G2, G3: in the one transaction that has several statements on both stores, which is the user's own."""
    if shared_url.startswith("postgres") and hit > 1:
        pytest.skip("PostgreSQL writes a whole batch in one statement; there is one place before it")
    path = str(tmp_path / "journal")
    async with engine_on(shared_url, app.registry, **PATIENT) as engine:
        async with engine.store.transaction(user=True) as tx:
            await tx.user.execute("CREATE TABLE ledger (number INTEGER NOT NULL)")
        handle = await engine.start(app.insert_row, 7, path)
        await killed_at(processes, shared_url, f"flush.between:{hit}")
        assert await ledger(engine) == []
        await finish(engine, [handle.id])
        assert await ledger(engine) == [7]
        assert await statuses(engine, handle.id) == [LOST, COMPLETED]


async def ledger(engine: hf.Engine) -> list[int]:
    async with engine.store.transaction(user=True) as tx:
        return [row[0] for row in await tx.user.fetch("SELECT number FROM ledger")]


# --- failing once --------------------------------------------------------------------------------------------------


def failing_once_at(failpoint: str) -> Counter[str]:
    """The store is gone for a moment at the first hit; how often each point was hit since."""
    hits: Counter[str] = Counter()

    def hook(name: str) -> None:
        hits[name] += 1
        if name == failpoint and hits[name] == 1:
            raise hf.StoreUnavailable(f"gone at {name}, for this test")

    failpoints.arm(hook)
    return hits


async def a_ghost_holds(engine: hf.Engine) -> None:
    """A worker that took one item and whose lease has run out."""
    store = engine.store
    names = {"workflows": engine.definitions.known_workflows(), "actions": engine.definitions.known_actions()}
    await store.enroll(WorkerRow(id="ghost", host="nowhere", pid=1, queues=("default",), **names), 0.0)
    assert len(await store.claim(ClaimRequest(worker="ghost", queue="default", limit=1, **names))) == 1


@pytest.mark.parametrize(
    "failpoint",
    [
        "claim.before_commit",
        "heartbeat.before",
        "heartbeat.after",
        "takeover.before",
        "takeover.after",
        "announce.before",
        "announce.after",
        "flush.between",
    ],
)
async def test_g9_a_store_that_is_gone_for_a_moment_stops_nothing(
    shared_url: str, tmp_path: Path, failpoint: str
) -> None:
    """G9, K11: each loop of a worker tries again, and a hint that was lost is made up for by a poll."""
    skip_unless_it_has(shared_url, failpoint)
    starter = engine_on(shared_url, app.registry)
    engine = engine_on(shared_url, app.registry, lease_seconds=0.6, hand_over=False)
    async with starter, engine:
        runs = [(await starter.start(app.Walk(journal=str(tmp_path / f"journal-{n}")))).id for n in range(2)]
        unwanted = await starter.start(app.square, 3, str(tmp_path / "unwanted"), paused=True)
        await a_ghost_holds(starter)
        hits = failing_once_at(failpoint)
        async with engine.worker():
            for run in runs:
                await starter.get(run).result(timeout=15)
            assert await starter.get(unwanted.id).cancel()
            # After a take-over there is nothing left to take over, and it is not reached again.
            again = 1 if failpoint == "takeover.after" else 2
            await until(lambda: hits[failpoint] >= again, f"{failpoint} is reached again")
        failpoints.disarm()
        for run in runs:
            completed = [work.node for work in await work_of(starter, run) if work.status == COMPLETED]
            assert sorted(completed) == sorted(STEPS)
        assert await unwanted.status() == "cancelled"
        lost = [work for run in runs for work in await work_of(starter, run) if work.status == LOST]
        assert [work.worker for work in lost] == ["ghost"]
        await assert_sound(starter)


async def test_i8_trouble_with_the_work_of_others_keeps_no_worker_from_starting(
    shared_url: str, tmp_path: Path
) -> None:
    """I8: an error that nobody foresaw while it looked after others; it works, and looks after them again."""
    engine = engine_on(shared_url, app.registry)
    async with engine:
        handle = await engine.start(app.square, 3, str(tmp_path / "journal"))
        await a_ghost_holds(engine)
        hits: Counter[str] = Counter()

        def hook(name: str) -> None:
            hits[name] += 1
            if name == "takeover.before" and hits[name] == 1:
                raise RuntimeError("unforeseen, for this test")

        failpoints.arm(hook)
        async with engine.worker():
            assert await handle.result(timeout=15) == 9
        assert hits["takeover.before"] == 2
        assert await statuses(engine, handle.id) == [LOST, COMPLETED]


async def test_g10_a_prune_that_failed_half_way_has_deleted_nothing(shared_url: str, tmp_path: Path) -> None:
    """G10: its caller is told, and can do it again."""
    async with engine_on(shared_url, app.registry) as engine:
        runs = [(await engine.start(app.square, number, str(tmp_path / "journal"))).id for number in range(3)]
        await finish(engine, runs)
        failing_once_at("prune.between")
        with pytest.raises(hf.StoreUnavailable, match=r"gone at prune\.between"):
            await engine.prune(older_than_seconds=0)
        assert [await statuses(engine, run) for run in runs] == [[COMPLETED]] * 3
        assert await engine.prune(older_than_seconds=0) == 3
        await assert_sound(engine)


async def test_g9_work_that_could_not_be_given_back_is_taken_over(shared_url: str, tmp_path: Path) -> None:
    """The worker stops all the same; its row stays, and its lease ends as any other."""
    path = str(tmp_path / "journal")
    async with engine_on(shared_url, app.registry) as watching:
        stopping = engine_on(shared_url, app.registry, lease_seconds=1.0, shutdown_seconds=0.01)
        async with stopping:
            async with stopping.worker():
                handle = await stopping.start(app.hold, path)
                await until(lambda: journal.begun(path), "it has begun")
                hits = failing_once_at("release.before")
            assert hits["release.before"] == 1
            failpoints.disarm()
            assert await statuses(watching, handle.id) == [LEASED]
        Path(f"{path}.go").touch()
        await finish(watching, [handle.id])
        assert await statuses(watching, handle.id) == [LOST, COMPLETED]


async def test_g7_a_cancel_that_comes_while_the_run_ends_changes_nothing(shared_url: str, tmp_path: Path) -> None:
    """G7: it was asked for while the run was running, and got there when it had ended: an end is an end."""
    path = str(tmp_path / "journal")
    engine = engine_on(shared_url, app.registry)
    async with engine, engine.worker():
        handle = await engine.start(app.hold, path)
        await until(lambda: journal.begun(path), "it has begun")

        async def let_it_end() -> None:
            Path(f"{path}.go").touch()
            await handle.result(timeout=10)

        failpoints.arm(lambda name: let_it_end() if name == "cancel.requested" else None)
        assert await handle.cancel() is False
        failpoints.disarm()
        assert await handle.result(timeout=10) == 1
        assert await statuses(engine, handle.id) == [COMPLETED]
