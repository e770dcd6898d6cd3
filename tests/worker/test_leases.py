"""Lost leases, dead workers, and workers that only seem dead."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.codec import decode_error
from holdfast.core.operations import (
    RECORDED,
    REPEATED,
    STALE,
    CompleteWork,
    FailWork,
    LapseWork,
    Operation,
    RecordProgress,
    ReleaseWork,
    Settled,
)
from holdfast.core.rows import COMPLETED, DEAD, LOST, READY, Work
from holdfast.runtime.worker import Worker
from holdfast.store.contract import ClaimRequest, WorkerRow
from tests.endtoend.programs import app, journal
from tests.support.pace import longer
from tests.worker.support import (
    HURRY,
    Processes,
    assert_sound,
    counted,
    engine_on,
    statuses,
    stopped,
    until,
    work_of,
)

GOES_ON_WITHIN_SECONDS = 2.0


class Puppet:
    """A worker that does what the test says, and nothing by itself."""

    def __init__(self, engine: hf.Engine, name: str = "puppet") -> None:
        self.engine = engine
        self.name = name

    async def enroll(self, lease_seconds: float = 30.0) -> None:
        known = self.engine.definitions
        row = WorkerRow(
            id=self.name,
            host="here",
            pid=0,
            queues=("default",),
            workflows=known.known_workflows(),
            actions=known.known_actions(),
        )
        await self.engine.store.enroll(row, lease_seconds)

    async def claim(self) -> Work:
        known = self.engine.definitions
        (handed,) = await self.engine.store.claim(
            ClaimRequest(
                worker=self.name,
                queue="default",
                limit=1,
                workflows=known.known_workflows(),
                actions=known.known_actions(),
            )
        )
        return handed.work

    async def complete(self, work: Work, result: bytes) -> Settled:
        return await self._submit(CompleteWork(**_lease(work), result=result))

    async def fail(self, work: Work) -> Settled:
        return await self._submit(FailWork(**_lease(work), error=b"{}"))

    async def lapse(self, work: Work, lost_limit: int = 10) -> Settled:
        return await self._submit(LapseWork(**_lease(work), lost_limit=lost_limit))

    async def release(self, work: Work) -> Settled:
        return await self._submit(ReleaseWork(**_lease(work)))

    async def progress(self, work: Work) -> Settled:
        return await self._submit(RecordProgress(**_lease(work)))

    async def _submit(self, operation: Operation) -> Settled:
        settled: Settled = await self.engine.coordinator.submit(operation)
        return settled


def _lease(work: Work) -> dict[str, Any]:
    return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}


# --- losing leases -------------------------------------------------------------------------------------------------


async def test_i6_ten_losses_in_a_row_make_a_dead_letter_and_cost_no_retry(url: str, journal_path: str) -> None:
    """I6: each loss is an attempt of its own and uses none of the budget; the tenth ends it, and says how often."""
    async with engine_on(url, app.registry) as engine:
        puppet = Puppet(engine)
        await puppet.enroll()
        handle = await engine.start(app.square, 3, journal_path)
        for number in range(1, 11):
            work = await puppet.claim()
            assert (work.attempt, work.failures, work.losses) == (number, 0, number - 1)
            assert (await puppet.lapse(work)).verdict == RECORDED
        attempts = await work_of(engine, handle.id)
        assert [work.status for work in attempts] == [LOST] * 9 + [DEAD]
        assert attempts[-1].error is not None
        assert "died 10 times" in decode_error(attempts[-1].error).message
        with pytest.raises(hf.RunFailed, match="died 10 times"):
            await handle.result(timeout=1)
        # Whoever looks at what killed the workers can have it run once more, with nothing held against it.
        assert await handle.retry() == ["square"]
        again = await puppet.claim()
        assert (again.attempt, again.failures, again.losses) == (11, 0, 0)
        assert (await puppet.complete(again, b"9")).verdict == RECORDED
        assert await handle.result(timeout=1) == 9
        await assert_sound(engine)


async def test_i6_recorded_progress_forgives_the_losses_before_it(url: str, journal_path: str) -> None:
    """I6: only losses with nothing new recorded in between count towards the limit."""
    async with engine_on(url, app.registry) as engine:
        puppet = Puppet(engine)
        await puppet.enroll()
        handle = await engine.start(app.square, 3, journal_path)
        for _ in range(9):
            await puppet.lapse(await puppet.claim())
        work = await puppet.claim()
        assert work.losses == 9
        assert (await puppet.progress(work)).verdict == RECORDED
        await puppet.lapse(work)
        assert (await work_of(engine, handle.id))[-1].losses == 1
        assert (await statuses(engine, handle.id))[-1] == READY


async def test_i6_a_claim_that_was_given_back_counts_for_nothing(url: str, journal_path: str) -> None:
    """I6: a release is no attempt, no failure and no loss, however often it happens; only the token grows."""
    async with engine_on(url, app.registry) as engine:
        puppet = Puppet(engine)
        await puppet.enroll()
        handle = await engine.start(app.square, 3, journal_path)
        for number in range(1, 13):
            work = await puppet.claim()
            assert (work.attempt, work.failures, work.losses, work.token) == (1, 0, 0, number)
            await puppet.release(work)
        assert await statuses(engine, handle.id) == [READY]


async def test_i6_code_that_kills_its_worker_ends_as_a_dead_letter(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I6: with real processes that die in the action, here twice with a limit of two."""
    settings = {**HURRY, "lease_seconds": 30.0, "lost_limit": 2}
    async with engine_on(shared_url, app.registry) as engine:
        handle = await engine.start(app.square, 3, journal_path)
        for _ in range(2):
            victim = processes.serve(
                shared_url, settings=settings, environ={"HOLDFAST_FAILPOINT": "action.before:1:kill"}
            )
            await until(_ended(victim), "the worker dies in the action")
            assert victim.returncode == -signal.SIGKILL
        watching = engine_on(shared_url, app.registry, lost_limit=2)
        async with watching, watching.worker():
            with pytest.raises(hf.RunFailed, match="died 2 times"):
                await handle.result(timeout=10)
            assert await statuses(engine, handle.id) == [LOST, DEAD]
            assert [work.run for work in await engine.dead()] == [handle.id]
            assert await watching.run(app.square, 4, journal_path, timeout=5) == 16  # and the others go on
    assert len(journal.begun(journal_path)) == 1, "it was killed before the action, so only the last run executed"


# --- dead or not ---------------------------------------------------------------------------------------------------


async def test_i7_a_worker_that_was_killed_loses_its_leases_at_once(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I7: the lease is 30 s, and the work goes on within 2 s of the SIGKILL, because its lock is free."""
    engine = engine_on(shared_url, app.registry, lease_seconds=30.0)
    async with engine:
        victim, row = await processes.serving(engine, shared_url)
        assert row.provable
        handle = await engine.start(app.hold, journal_path)
        await until(lambda: journal.begun(journal_path), "the process has begun")
        async with engine.worker():
            killed = time.monotonic()
            victim.kill()
            again = await until(lambda: journal.begun(journal_path)[1:], "the step goes on here")
            Path(f"{journal_path}.go").touch()
            assert await handle.result(timeout=5) == 2
        took = again[0].at - killed
        print(f"went on {took:.2f} s after the SIGKILL")
        assert took < longer(GOES_ON_WITHIN_SECONDS)
        assert await statuses(engine, handle.id) == [LOST, COMPLETED]
        assert row.id not in [worker.id for worker in await engine.workers()]
        await assert_sound(engine)


async def test_i7_a_process_that_stands_still_keeps_its_work_until_the_lease_ends(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I7: a stopped process proves nothing, so its lease decides; what it does afterwards is refused as stale."""
    lease_seconds = 1.5
    engine = engine_on(shared_url, app.registry, lease_seconds=lease_seconds)
    async with engine:
        settings = {**HURRY, "lease_seconds": lease_seconds}
        process, row = await processes.serving(engine, shared_url, settings=settings)
        handle = await engine.start(app.hold_in_thread, journal_path)
        await until(lambda: journal.begun(journal_path), "the process has begun")
        async with engine.worker():
            with stopped(process):
                since = time.monotonic()
                again = await until(lambda: journal.begun(journal_path)[1:], "the step goes on here")
                Path(f"{journal_path}.go").touch()
                assert await handle.result(timeout=5) == 2
            # A heartbeat every third of the lease: at least two thirds of it were left.
            assert again[0].at - since >= lease_seconds * 2 / 3 - 0.1
            await until(lambda: _done_by(journal_path, process.pid), "the stopped process finishes its thread")
            await until(lambda: _is_back(engine, process.pid, row.id), "it is back under another id")
            assert await engine.run(app.square, 5, journal_path, timeout=5) == 25
        assert process.poll() is None, "being declared dead by mistake does not end a worker"
        attempts = await work_of(engine, handle.id)
        assert [(work.status, work.result) for work in attempts] == [(LOST, None), (COMPLETED, b"2")]
        await assert_sound(engine)


def _ended(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: process.poll() is not None


def _done_by(path: str, pid: int) -> bool:
    return any(deed.pid == pid and deed.what == journal.DONE for deed in journal.read(path))


async def _serves(engine: hf.Engine, worker: Worker) -> bool:
    return [row.id for row in await engine.workers()] == [worker.id]


async def _is_back(engine: hf.Engine, pid: int, old: str) -> bool:
    rows = await engine.workers()
    return any(row.pid == pid and row.id != old for row in rows) and all(row.id != old for row in rows)


async def test_g2_whatever_comes_late_or_twice_leaves_the_recorded_result_alone(url: str, journal_path: str) -> None:
    """G2, K3: a repeated completion is answered as before, one with an old token is stale, and nothing changes."""
    async with engine_on(url, app.registry) as engine:
        old, new = Puppet(engine, "old"), Puppet(engine, "new")
        await old.enroll()
        await new.enroll()
        handle = await engine.start(app.square, 3, journal_path)
        first = await old.claim()
        await old.lapse(first)
        assert (await old.complete(first, b"1")).verdict == STALE
        # The same attempt, given back and claimed by another: nothing but the token tells the two leases apart.
        given_back = await old.claim()
        await old.release(given_back)
        second = await new.claim()
        assert (given_back.attempt, given_back.token) == (second.attempt, second.token - 1)
        assert (await old.complete(given_back, b"5")).verdict == STALE
        assert (await old.lapse(given_back)).verdict == STALE
        assert (await new.complete(second, b"9")).verdict == RECORDED
        stored = await work_of(engine, handle.id)
        assert (await new.complete(second, b"7")).verdict == REPEATED
        assert (await old.complete(first, b"1")).verdict == STALE
        assert (await old.fail(first)).verdict == STALE
        assert (await new.fail(second)).verdict == STALE
        assert (await new.release(second)).verdict == STALE
        assert (await new.lapse(second)).verdict == STALE
        assert await work_of(engine, handle.id) == stored
        assert await handle.result(timeout=1) == 9
        # The same again when nothing is remembered: it is the rows that say so.
        engine.coordinator.cache.clear()
        assert (await new.complete(second, b"7")).verdict == REPEATED
        assert (await old.complete(first, b"1")).verdict == STALE
        assert await work_of(engine, handle.id) == stored


async def test_i7_a_worker_declared_dead_by_mistake_stops_what_it_runs_and_works_on(url: str) -> None:
    """I7: its row is gone, so everything it holds is stale; it says so to its code and enrolls under a new id."""
    registry = hf.Registry()
    told: list[str] = []

    @hf.action(registry=registry)
    async def hold() -> int:
        try:
            if hf.current().attempt == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("stop")
            raise
        return hf.current().attempt

    engine = engine_on(url, registry, lease_seconds=0.6)
    async with engine, engine.worker() as worker:
        handle = await engine.start(hold)
        await until(lambda: worker.running, "the action runs")
        before = worker.id
        (item,) = await engine.store.leased_to(before)
        await engine.store.retire(before)
        await engine.coordinator.submit(LapseWork(**_lease(item)))
        assert await handle.result(timeout=5) == 2
        await until(lambda: told == ["stop"], "the code is asked to stop")
        await until(lambda: worker.id != before, "the worker has a new id")
        await until(lambda: _serves(engine, worker), "it is enrolled under it, and nobody else is")
        assert counted(engine, "lease_losses") >= 1
