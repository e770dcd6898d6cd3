"""How work is noticed, each way alone; and what happens while the database is away or a pooler is in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.operations import Handed
from holdfast.core.rows import COMPLETED, LOST, Run
from holdfast.runtime import watch
from holdfast.runtime.postgres_server import PostgresServer
from holdfast.store.contract import ClaimRequest
from tests.endtoend.programs import app, journal
from tests.worker.support import HURRY, Processes, assert_sound, counted, engine_on, statuses, until

NEVER: dict[str, Any] = {"poll_seconds": 60.0, "sweep_seconds": 60.0, "lease_seconds": 60.0}
"""Nothing happens by itself within a test: whatever does, was woken."""
SOON_SECONDS = 3.0
FEW_SLOTS = 9  # so that none of them is kept for what becomes due


def make_registry() -> tuple[hf.Registry, Any, Any]:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick(number: int) -> int:
        return number

    @hf.action(registry=registry, retry=hf.Retry(attempts=3, base=0.05, cap=0.1))
    async def flaky() -> int:
        if hf.current().attempt < 3:
            raise ValueError("again")
        return hf.current().attempt

    return registry, quick, flaky


async def test_k11_commits_of_the_same_process_alone_wake_its_worker(url: str) -> None:
    """K11: no notifications, no polls, no hand-over; new work, chains and retries go on all the same."""
    registry, quick, flaky = make_registry()
    engine = engine_on(url, registry, **NEVER, notify=False, hand_over=False)
    async with engine, engine.worker():
        assert await engine.run(quick, 1, timeout=SOON_SECONDS) == 1
        assert await engine.run(flaky, timeout=SOON_SECONDS) == 3


async def test_k11_what_came_while_all_slots_were_lent_is_taken_when_they_are_given_back(url: str) -> None:
    """A completion lends every free slot to what it makes ready, for as long as it is written."""
    registry, quick, _ = make_registry()
    engine = engine_on(url, registry, **NEVER, notify=False)
    async with engine, engine.worker(concurrency=FEW_SLOTS) as worker:
        await until(lambda: counted(engine, "claims") >= 1, "the worker has looked once, and sleeps")
        lent = worker.lend()
        handle = await engine.start(quick, 1)
        await until(lambda: worker._backlog, "it has noted that there is no room for what is ready")
        worker.take_back(lent)
        assert await handle.result(timeout=SOON_SECONDS) == 1


async def test_k11_a_tenth_of_the_slots_is_not_lent_so_that_what_becomes_due_need_not_wait_for_a_commit(
    url: str,
) -> None:
    registry, quick, _ = make_registry()
    engine = engine_on(url, registry, **NEVER, notify=False)
    async with engine, engine.worker(concurrency=100) as worker:
        lent = worker.lend()
        assert lent == 90
        assert await engine.run(quick, 1, timeout=SOON_SECONDS) == 1
        worker.take_back(lent)


async def test_k11_what_is_due_while_all_slots_are_lent_is_taken_when_they_are_given_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slots are lent while the claim is under way: when it comes back there is nothing to claim, and no room."""
    registry, quick, _ = make_registry()
    engine = engine_on(url, registry, **NEVER, notify=False)
    async with engine, engine.worker(concurrency=FEW_SLOTS) as worker:
        await until(lambda: counted(engine, "claims") >= 1, "the worker has looked once, and sleeps")
        claim, lent = engine.store.claim, []

        async def claim_while_lending(request: ClaimRequest) -> list[Handed]:
            handed = await claim(request)
            lent.append(worker.lend())
            return handed

        with monkeypatch.context() as patched:
            patched.setattr(engine.store, "claim", claim_while_lending)
            handle = await engine.start(quick, 1, at=datetime.now(UTC) + timedelta(seconds=0.2))
            await until(lambda: bool(lent), "the worker has looked again, and waits for the time")
        await until(lambda: worker._backlog, "the time has come, and there is no room")
        worker.take_back(sum(lent))
        assert await handle.result(timeout=SOON_SECONDS) == 1


async def test_k11_what_a_claim_stepped_over_is_looked_for_once_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody had it locked, and left it as it was: nobody tells of that."""
    registry, quick, _ = make_registry()
    engine = engine_on(url, registry, **NEVER, notify=False, hand_over=False)
    async with engine, engine.worker():
        await until(lambda: counted(engine, "claims") >= 1, "the worker has looked once, and sleeps")
        claim, stepped_over = engine.store.claim, []

        async def claim_but_the_first_time(request: ClaimRequest) -> list[Handed]:
            if stepped_over:
                return await claim(request)
            stepped_over.append(request)
            return []

        monkeypatch.setattr(engine.store, "claim", claim_but_the_first_time)
        assert await engine.run(quick, 1, timeout=SOON_SECONDS) == 1
        assert stepped_over


async def test_k11_announcements_of_other_processes_alone_wake_a_worker(shared_url: str) -> None:
    """K11: NOTIFY on PostgreSQL, the change of the file on SQLite; the waiting starter hears of the end, too."""
    registry, quick, flaky = make_registry()
    starter, server = engine_on(shared_url, registry, **NEVER), engine_on(shared_url, registry, **NEVER)
    async with starter, server, server.worker():
        await until(lambda: counted(server, "claims") >= 1, "the worker has looked once, and sleeps")
        assert await starter.run(quick, 1, timeout=SOON_SECONDS) == 1
        assert await starter.run(flaky, timeout=SOON_SECONDS) == 3


async def test_k11_others_are_told_before_the_caller_goes_on(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller does next would else come before a worker elsewhere hears of the work: W4 is made of that."""
    registry, quick, _ = make_registry()
    async with engine_on(shared_url, registry, **NEVER) as engine:
        announce, order = engine.store.announce, []

        async def noted(channels: frozenset[str]) -> None:
            order.append(sorted(channels))
            await announce(channels)

        monkeypatch.setattr(engine.store, "announce", noted)
        engine.coordinator.observers.append(lambda commit: order.append(["who is told here"]))
        await engine.start(quick, 1)
        order.append(["the caller"])
        assert order == [["work"], ["who is told here"], ["the caller"]]


async def test_k11_results_that_are_asked_for_together_are_looked_up_together(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of runs that have ended, or that another process started: one statement, whoever waits."""
    registry, quick, _ = make_registry()
    engine = engine_on(url, registry, **NEVER)
    async with engine, engine.worker():
        handles = await asyncio.gather(*(engine.start(quick, number) for number in range(50)))
        for handle in handles:
            await handle.result(timeout=SOON_SECONDS)
        looked: list[int] = []
        runs = engine.store.runs

        async def counted_runs(ids: Sequence[str], **how: Any) -> list[Run]:
            looked.append(len(ids))
            return await runs(ids, **how)

        monkeypatch.setattr(engine.store, "runs", counted_runs)
        asked = (*handles, engine.get("no such run"))
        answers = await asyncio.gather(
            *(handle.result(timeout=SOON_SECONDS) for handle in asked), return_exceptions=True
        )
        assert answers[:-1] == list(range(50))
        assert isinstance(answers[-1], hf.UnknownWorkflow)
        assert looked == [51]


async def test_k11_one_slow_answer_does_not_keep_a_lone_waiter_from_the_next_hint(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K11: who asks for thousands of runs rests after a slow answer; for a few that would only be latency."""
    registry, quick, _ = make_registry()
    starter, server = engine_on(shared_url, registry), engine_on(shared_url, registry)
    async with starter, server:
        monkeypatch.setattr(watch, "QUICK_SECONDS", -1.0)  # every answer is slow
        monkeypatch.setattr(watch, "REST_BEFORE_HINT", float("inf"))
        monkeypatch.setattr(watch, "LONGEST_REST_SECONDS", 60.0)
        asked, runs = [0], starter.store.runs

        async def counting(ids: Sequence[str], *, settled: bool = False) -> list[Run]:
            asked[0] += 1
            return await runs(ids, settled=settled)

        monkeypatch.setattr(starter.store, "runs", counting)
        handle = await starter.start(quick, 1)
        result = asyncio.ensure_future(handle.result())
        await until(lambda: asked[0] >= 1, "the starter has asked once, in vain")
        starter.watch.hint()
        await until(lambda: asked[0] >= 2, "and again, without a rest", SOON_SECONDS)
        async with server.worker():
            assert await asyncio.wait_for(result, SOON_SECONDS) == 1


async def test_k11_an_answer_that_was_under_way_is_not_for_who_waits_since(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was retried while a poll was asked for it: whoever waits now waits for what comes of that."""
    registry, broken, may_end = hf.Registry(), [True], asyncio.Event()

    @hf.action(registry=registry, retry=hf.Retry(attempts=1))
    async def fragile() -> str:
        await may_end.wait()
        if broken.pop() if broken else False:
            raise ValueError("broken")
        return "mended"

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        runs, asked, may_read, read, may_answer = engine.store.runs, *(asyncio.Event() for _ in range(4))

        async def held(ids: Sequence[str], *, settled: bool = False) -> list[Run]:
            if asked.is_set() or not settled:
                return await runs(ids, settled=settled)
            asked.set()
            await may_read.wait()
            rows = await runs(ids)
            read.set()
            await may_answer.wait()
            return rows

        handle = await engine.start(fragile)
        monkeypatch.setattr(engine.store, "runs", held)
        first = asyncio.ensure_future(handle.result(timeout=10))
        await asyncio.wait_for(asked.wait(), 10)
        may_end.set()
        with pytest.raises(hf.RunFailed):
            await first
        may_read.set()
        await asyncio.wait_for(read.wait(), 10)
        may_end.clear()
        await handle.retry()
        second = asyncio.ensure_future(handle.result(timeout=10))
        await until(lambda: handle.id in engine.watch._waiting, "somebody waits for it again")
        may_answer.set()
        may_end.set()
        assert await second == "mended"


async def test_k11_polls_alone_are_enough(shared_url: str) -> None:
    """K11: with no notification at all, latency is the only thing that changes."""
    registry, quick, flaky = make_registry()
    starter = engine_on(shared_url, registry, notify=False)
    server = engine_on(shared_url, registry, notify=False, hand_over=False)
    async with starter, server, server.worker():
        assert await starter.run(quick, 1, timeout=SOON_SECONDS) == 1
        assert await starter.run(flaky, timeout=SOON_SECONDS) == 3


async def test_k11_a_worker_in_another_process_is_woken_on_one_sqlite_file(
    sqlite_url: str, journal_path: str, processes: Processes
) -> None:
    """K11: across two real processes, with polls a minute apart."""
    async with engine_on(sqlite_url, app.registry, **NEVER) as engine:
        await processes.serving(engine, sqlite_url, settings=NEVER)
        for number in range(3):
            assert await engine.run(app.square, number, journal_path, timeout=SOON_SECONDS) == number**2
        await engine.run(app.Walk(journal=f"{journal_path}-2"), timeout=SOON_SECONDS)
        assert len(journal.begun(f"{journal_path}-2")) == 5


async def test_k11_a_worker_in_another_process_is_woken_by_notify(
    postgres_url: str, journal_path: str, processes: Processes
) -> None:
    """K11: across two real processes, with polls a minute apart."""
    async with engine_on(postgres_url, app.registry, **NEVER) as engine:
        await processes.serving(engine, postgres_url, settings=NEVER)
        for number in range(3):
            assert await engine.run(app.square, number, journal_path, timeout=SOON_SECONDS) == number**2


async def test_g9_work_goes_on_by_itself_after_the_database_was_away(
    postgres: PostgresServer, postgres_url: str
) -> None:
    """G9: stopped for two seconds while runs are under way, then started: nobody has to do anything."""
    registry = hf.Registry()
    executions: list[tuple[str, str, int]] = []
    go = asyncio.Event()

    class Journey(hf.Dag, registry=registry):
        @hf.step
        async def before(self) -> None:
            await self.note()
            await go.wait()

        @hf.step
        async def between(self) -> None:
            await self.note()

        @hf.step
        async def after(self) -> None:
            await self.note()

        async def note(self) -> None:
            context = hf.current()
            executions.append((context.run_id, context.node.name, context.attempt))

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.2, cap=0.4))
    async def flaky() -> int:
        if hf.current().attempt == 1:
            raise ValueError("as the database goes away")
        return hf.current().attempt

    engine = engine_on(postgres_url, registry, lease_seconds=30.0)
    async with engine, engine.worker():
        handles = [await engine.start(Journey()) for _ in range(10)]
        await until(lambda: len(executions) == 10, "all have begun")
        retried = await engine.start(flaky)
        await until(lambda: _failed_once(engine, retried.id), "the retry is due soon")
        await asyncio.to_thread(postgres.stop)
        down = time.monotonic()
        go.set()  # everything finishes its step now, and cannot say so
        waiting = asyncio.create_task(engine.start(flaky))
        await until(lambda: time.monotonic() - down > 2.0 and counted(engine, "reconnects") > 0, "it is noticed")
        assert not waiting.done(), "a start waits for the database, as it may within store_timeout_seconds"
        await asyncio.to_thread(postgres.start)
        up = time.monotonic()
        await asyncio.gather(*(handle.result(timeout=15) for handle in handles))
        print(f"all done {time.monotonic() - up:.2f} s after the database was back")
        assert await retried.result(timeout=10) == 2
        assert await (await waiting).result(timeout=10) == 2
        for handle in handles:
            assert await statuses(engine, handle.id) == [COMPLETED] * 3
        assert len(executions) == len(set(executions)) == 30, "no lease was lost, so nothing ran twice"
        await assert_sound(engine)


async def _failed_once(engine: hf.Engine, run: str) -> bool:
    return len(await statuses(engine, run)) == 2


async def test_g9_a_listener_that_was_cut_off_comes_back_by_itself(postgres_url: str) -> None:
    """G9, K11: an administrator ends all our sessions; the listener comes back, polls are a minute apart."""
    registry, quick, _ = make_registry()
    starter, server = engine_on(postgres_url, registry, **NEVER), engine_on(postgres_url, registry, **NEVER)
    async with starter, server, server.worker():
        assert await starter.run(quick, 1, timeout=SOON_SECONDS) == 1
        async with server.store.transaction() as tx:
            await tx.user.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert await starter.run(quick, 2, timeout=SOON_SECONDS) == 2


# --- behind a pooler -----------------------------------------------------------------------------------------------


async def test_i7_behind_a_transaction_pooler_runs_complete_and_leases_decide(
    pgbouncer_url: str, postgres_url: str, journal_path: str, processes: Processes
) -> None:
    """I7, K11: no session, so no proof and no notification; everything works, and a killed worker's lease runs out."""
    lease_seconds = 1.5
    settings = {**HURRY, "lease_seconds": lease_seconds}
    async with engine_on(pgbouncer_url, app.registry, **settings) as engine:
        victim, row = await processes.serving(engine, pgbouncer_url, settings=settings)
        assert not row.provable
        assert await engine.run(app.square, 3, journal_path, timeout=10) == 9
        await engine.run(app.Walk(journal=f"{journal_path}-2"), timeout=10)
        handle = await engine.start(app.hold, f"{journal_path}-3")
        await until(lambda: journal.begun(f"{journal_path}-3"), "the process has begun")
        async with engine.worker():
            killed = time.monotonic()
            victim.kill()
            again = await until(lambda: journal.begun(f"{journal_path}-3")[1:], "it goes on when the lease has ended")
            assert again[0].at - killed >= lease_seconds * 2 / 3 - 0.1, "nothing proved that it was dead"
            Path(f"{journal_path}-3.go").touch()
            assert await handle.result(timeout=5) == 2
            chains = [app.CHAINS[n % 4](number=n, journal=f"{journal_path}-4") for n in range(12)]
            handles = await asyncio.gather(*(engine.start(chain) for chain in chains))
            await asyncio.gather(*(chained.result(timeout=20) for chained in handles))
        assert await statuses(engine, handle.id) == [LOST, COMPLETED]
        await assert_sound(engine)
