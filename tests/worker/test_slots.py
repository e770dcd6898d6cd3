"""How much runs at once, in which order, and how a chain goes on without asking for work."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.rows import COMPLETED, READY
from tests.endtoend.programs import app, journal
from tests.worker.support import counted, engine_on, statuses, until


class Gauge:
    """How many are inside, and how many there were at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self.inside -= 1


class WatchedSelector(selectors.DefaultSelector):
    """Counts how often the loop had nothing to do and waited for a time to come."""

    waits = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.waits += timeout is None or timeout > 0
        return super().select(timeout)


def test_slots_that_become_free_together_are_filled_without_a_pause() -> None:
    """While there is a backlog and nothing runs, the worker claims: it does not wait for a millisecond first."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> None: ...

    async def crowd() -> int:
        async with engine_on("memory://", registry=registry) as engine:
            handles = [await engine.start(quick) for _ in range(200)]
            async with engine.worker(concurrency=10):
                await handles[0].result()
                before = selector.waits
                await asyncio.gather(*(handle.result() for handle in handles))
                return selector.waits - before

    selector = WatchedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert runner.run(crowd()) == 0


async def test_concurrency_is_a_limit_and_is_used(url: str) -> None:
    """Never more than n at once, chains and fan-outs included; and n when there is enough to do."""
    registry = hf.Registry()
    gauge = Gauge()

    async def turn() -> None:
        with gauge:
            for _ in range(3):
                await asyncio.sleep(0)

    class Wide(hf.Dag, registry=registry):
        @hf.step
        async def first(self) -> None:
            await turn()

        @hf.step(depends_on="first")
        async def left(self) -> None:
            await turn()

        @hf.step(depends_on="first")
        async def middle(self) -> None:
            await turn()

        @hf.step(depends_on="first")
        async def right(self) -> None:
            await turn()

    engine = engine_on(url, registry)
    async with engine, engine.worker(concurrency=3):
        handles = await asyncio.gather(*(engine.start(Wide()) for _ in range(20)))
        await asyncio.gather(*(handle.result(timeout=20) for handle in handles))
    assert gauge.most == 3


async def test_threads_have_a_limit_of_their_own(url: str) -> None:
    """`threads` bounds plain functions, whatever the worker's concurrency."""
    registry = hf.Registry()
    gauge = Gauge()

    @hf.action(registry=registry)
    def block() -> None:
        with gauge:
            time.sleep(0.01)

    engine = engine_on(url, registry, threads=2)
    async with engine, engine.worker(concurrency=20):
        handles = await asyncio.gather(*(engine.start(block) for _ in range(12)))
        await asyncio.gather(*(handle.result(timeout=20) for handle in handles))
    assert gauge.most == 2


async def test_processes_have_a_limit_of_their_own(sqlite_url: str, tmp_path: Path) -> None:
    """`processes` bounds isolated actions: two run, the third waits for one of them."""
    engine = engine_on(sqlite_url, app.registry, processes=2)
    paths = [str(tmp_path / f"journal-{number}") for number in range(3)]
    async with engine, engine.worker(concurrency=20):
        handles = [await engine.start(app.hold_in_process, path) for path in paths]
        await until(lambda: sum(bool(journal.begun(path)) for path in paths) == 2, "two of three have begun")
        (waiting,) = [path for path in paths if not journal.begun(path)]
        for path in paths:
            assert not journal.begun(waiting)
            if path != waiting:
                Path(f"{path}.go").touch()
        await until(lambda: journal.begun(waiting), "the third begins when one has ended")
        Path(f"{waiting}.go").touch()
        assert [await handle.result(timeout=10) for handle in handles] == [1, 1, 1]
        pids = {deed.pid for path in paths for deed in journal.read(path)}
    assert len(pids) == 2


async def test_a_chain_is_handed_from_step_to_step_without_a_claim(url: str, journal_path: str) -> None:
    """Each commit leases the next step to the worker that completed the one before: no claim in between."""
    engine = engine_on(url, app.registry, poll_seconds=60.0)
    async with engine, engine.worker():
        await engine.run(app.Walk(journal=journal_path), timeout=10)
        assert [deed.node for deed in journal.begun(journal_path)] == ["one", "two", "three", "four", "five"]
        assert counted(engine, "claimed_items") == 0
        assert counted(engine, "handed_over") == 4


async def test_without_hand_over_every_step_is_claimed(url: str, journal_path: str) -> None:
    """`hand_over=False` is the plain way, and gives the same run."""
    engine = engine_on(url, app.registry, hand_over=False)
    async with engine, engine.worker():
        await engine.run(app.Walk(journal=journal_path), timeout=10)
        assert counted(engine, "claimed_items") == 5
        assert counted(engine, "handed_over") == 0


async def test_higher_priorities_are_claimed_first_and_equals_in_order_of_time(url: str) -> None:
    """One slot, everything queued before the worker comes."""
    registry = hf.Registry()
    order: list[str] = []

    @hf.action(registry=registry)
    async def note(name: str) -> None:
        order.append(name)

    engine = engine_on(url, registry)
    async with engine:
        handles = [
            await engine.start(note, f"{priority} {number}", priority=priority)
            for number, priority in enumerate([0, 5, -3, 5, 0])
        ]
        async with engine.worker(concurrency=1):
            await asyncio.gather(*(handle.result(timeout=10) for handle in handles))
    assert order == ["5 1", "5 3", "0 0", "0 4", "-3 2"]


async def test_a_worker_serves_its_queues_and_no_others(url: str) -> None:
    """An action's own queue, a start's queue, and the default."""
    registry = hf.Registry()

    @hf.action(registry=registry, queue="mail")
    async def send() -> str:
        return "sent"

    @hf.action(registry=registry)
    async def plain() -> str:
        return "done"

    engine = engine_on(url, registry)
    async with engine:
        mail = await engine.start(send)
        moved = await engine.start(plain, queue="slow")
        usual = await engine.start(plain)
        async with engine.worker(queues=["mail"]):
            assert await mail.result(timeout=5) == "sent"
            assert await statuses(engine, moved.id) == [READY]
            async with engine.worker(queues=["slow"]):
                assert await moved.result(timeout=5) == "done"
                assert await statuses(engine, usual.id) == [READY]
                assert "no worker serves queue 'default'" in str(await usual.explain())
        async with engine.worker():
            assert await usual.result(timeout=5) == "done"


async def test_g9_work_that_was_handed_over_and_never_received_is_found_and_run(
    shared_url: str, journal_path: str
) -> None:
    """G9: the commit leased the next step to us, and its answer was lost on the way; a sweep notices."""
    engine = engine_on(shared_url, app.registry, lease_seconds=30.0)
    lost: list[str] = []

    def lose_the_answer(name: str) -> None:
        if name == "handover.received" and not lost:
            lost.append(name)
            raise ConnectionResetError("the answer was lost")

    async with engine, engine.worker():
        failpoints.arm(lose_the_answer)
        try:
            await engine.run(app.Walk(journal=journal_path), timeout=10)
        finally:
            failpoints.disarm()
    assert lost
    assert [deed.node for deed in journal.begun(journal_path)] == ["one", "two", "three", "four", "five"]


async def test_g3_while_nobody_dies_every_attempt_executes_once(url: str) -> None:
    """G3: a crowd of chains on two workers, and as many executions as there are nodes."""
    registry = hf.Registry()
    executions: list[tuple[str, str, int]] = []

    def record() -> None:
        context = hf.current()
        executions.append((context.run_id, context.node.name, context.attempt))

    class Diamond(hf.Dag, registry=registry):
        @hf.step
        async def top(self) -> None:
            record()

        @hf.step(depends_on="top")
        async def left(self) -> None:
            record()

        @hf.step(depends_on="top")
        def right(self) -> None:
            record()

        @hf.step(depends_on=["left", "right"])
        async def bottom(self) -> None:
            record()

    engines = [engine_on(url, registry) for _ in range(1 if url == "memory://" else 2)]
    async with AsyncExitStack() as opened:
        for engine in engines:
            await opened.enter_async_context(engine)
            await opened.enter_async_context(engine.worker(concurrency=7))
        handles = [await engines[number % len(engines)].start(Diamond()) for number in range(50)]
        await asyncio.gather(*(handle.result(timeout=30) for handle in handles))
        for handle in handles:
            assert await statuses(engines[0], handle.id) == [COMPLETED] * 4
    assert len(executions) == len(set(executions)) == 200
    assert {attempt for _, _, attempt in executions} == {1}


@pytest.mark.parametrize("count", [0, -1, 2.5, "many"])
async def test_a_concurrency_that_makes_no_sense_is_refused(count: Any) -> None:
    async with hf.Engine("memory://") as engine:
        with pytest.raises(hf.UsageError, match="concurrency"):
            engine.worker(concurrency=count)


async def test_g9_a_queue_that_is_never_empty_does_not_starve_another(url: str) -> None:
    """One slot, two queues: whoever is asked first has always something to do, and the other one gets its turn."""
    registry = hf.Registry()
    done: list[str] = []

    @hf.action(registry=registry)
    async def busy(number: int) -> None:
        done.append("busy")

    @hf.action(registry=registry, queue="side")
    async def aside() -> None:
        done.append("aside")

    async with hf.Engine(url, registry=registry, hand_over=False) as engine:
        for number in range(20):
            await engine.start(busy, number)
        last = await engine.start(aside)
        async with engine.worker(queues=("default", "side"), concurrency=1):
            await last.result(timeout=60)
    assert done.index("aside") <= 3
