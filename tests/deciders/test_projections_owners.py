"""One owner at a time: taken over when it dies, refused when it is late, and never in the way of other work (I36)."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

import holdfast as hf
from holdfast.core.operations import LapseWork
from holdfast.core.queries import Attempts
from holdfast.core.rows import LEASED, Work
from holdfast.runtime import killswitch
from holdfast.runtime.projection_owner import ProjectionOwner
from tests.deciders.conftest import Stage
from tests.deciders.projection_world import SECONDS, Added, Book, has_come_to, info
from tests.worker.support import ROOT, child_environment, until

LATE = {"sweep_seconds": 60.0, "poll_seconds": 60.0}
"""A worker that is told of nothing and hardly ever looks."""


class Gate:
    """Holds the first who comes, until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def pass_through(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.open.wait()


async def _work(engine: hf.Engine) -> Work:
    run = (await info(engine)).run_id
    rows: list[Work] = await engine.store.rows(Attempts(run, frozenset({"projection"})))
    return rows[-1]


async def _lapse(engine: hf.Engine, **fields: int) -> None:
    """The owner's lease ran out, and somebody noticed."""
    work = await _work(engine)
    assert work.status == LEASED
    await engine.coordinator.submit(
        LapseWork(run=work.run, node=work.node, attempt=work.attempt, token=work.token, **fields)
    )


async def _owned_anew(engine: hf.Engine) -> bool:
    work = await _work(engine)
    return work.status == LEASED and work.losses == 0


async def _rows(book: Book, engine: hf.Engine, count: int) -> None:
    async def there() -> bool:
        return len(await book.rows.read(engine)) >= count

    await until(there, f"{count} rows")


async def test_i36_the_commit_of_an_owner_that_lost_its_lease_is_refused(
    shared_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held just before its transaction; another takes the events meanwhile, and the first one's rows go."""
    book, gate = Book(shared_stage.kind), Gate()
    commit = ProjectionOwner._commit
    refused: list[str] = []

    async def held(owner: ProjectionOwner, batch: list[object]) -> object:
        await gate.pass_through()
        settled = await commit(owner, batch)  # type: ignore[arg-type]
        refused.append(settled.verdict)
        return settled

    monkeypatch.setattr(ProjectionOwner, "_commit", held)
    async with (
        shared_stage.engine(book.registry, work=False, **LATE) as first,
        shared_stage.engine(book.registry, work=False) as second,
    ):
        await book.rows.create(first)
        async with first.worker():
            await _zombie(book, gate, first, second, refused)


async def _zombie(book: Book, gate: Gate, first: hf.Engine, second: hf.Engine, refused: list[str]) -> None:
    await book.add(first, "a", 1, 2, 3)
    await gate.reached.wait()
    await _lapse(second)
    async with second.worker():
        await second.settle(timeout=SECONDS)
        position = (await info(second)).position
        assert [row[2] for row in await book.rows.read(second)] == [1, 2, 3]
        gate.open.set()
        await until(lambda: "stale" in refused, "the first owner is refused")
        assert book.calls == [[1], [2], [3]] * 2, "the zombie's handler ran, too"
        assert [row[2] for row in await book.rows.read(second)] == [1, 2, 3], "and left nothing"
        assert (await info(second)).position == position


async def test_i36_an_owner_that_is_held_in_its_handler_is_refused_after_a_take_over(postgres_url: str) -> None:
    """On PostgreSQL a second transaction can take the same events while the first one is open."""
    book, gate = Book("postgresql"), Gate()

    async def hold(events: list[hf.Recorded[Added]]) -> None:
        await gate.pass_through()

    book.before = hold
    async with (
        hf.Engine(postgres_url, registry=book.registry, **LATE) as first,
        hf.Engine(postgres_url, registry=book.registry) as second,
        first.worker(),
    ):
        await book.rows.create(first)
        await book.add(first, "a", 1, 2)
        await gate.reached.wait()
        await _lapse(second)
        async with second.worker():
            await _rows(book, second, 2)
            gate.open.set()
            await book.add(second, "a", 3)
            await second.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(second)] == [1, 2, 3]


@pytest.mark.parametrize("order", ["projection.before_commit:1", "projection.before_commit:2"])
async def test_i36_i7_a_projection_whose_owner_was_killed_is_taken_over(shared_stage: Stage, order: str) -> None:
    """Killed between its rows and its commit: another goes on, and no event is missing or there twice."""
    book = Book(shared_stage.kind, batch_size=2)
    async with shared_stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", *range(250))
        victim = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.deciders.projection_world",
            shared_stage.site.url,
            cwd=ROOT,
            env=child_environment() | {killswitch.VARIABLE: order},
        )
        try:
            async with asyncio.timeout(20):
                assert await victim.wait() == -signal.SIGKILL
        finally:
            if victim.returncode is None:
                victim.kill()
        taken = len(await book.rows.read(engine))
        assert taken == (0 if order.endswith(":1") else 100), "in batches of a hundred, there"
        async with engine.worker():
            await engine.settle(timeout=SECONDS)
            assert [row[2] for row in await book.rows.read(engine)] == list(range(250))


async def test_a_worker_that_stops_gives_its_projections_back_at_once(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        async with engine.worker() as worker:
            await book.add(engine, "a", 1)
            await engine.settle(timeout=SECONDS)
            assert (await info(engine)).owner == worker.id
            assert worker.projections.owned == ["book"]
        assert (await info(engine)).owner is None
        work = await _work(engine)
        assert (work.status, work.losses, work.failures) == ("ready", 0, 0)
        async with engine.worker() as another:
            await book.add(engine, "a", 2)
            await engine.settle(timeout=SECONDS)
            assert (await info(engine)).owner == another.id
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2]


async def test_a_worker_finishes_the_batch_that_is_under_way_when_it_stops(stage: Stage) -> None:
    book, gate = Book(stage.kind), Gate()

    async def hold(events: list[hf.Recorded[Added]]) -> None:
        await gate.pass_through()

    book.before = hold
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1)
        async with engine.worker() as worker:
            await gate.reached.wait()
            stopping = asyncio.ensure_future(worker.stop())
            gate.open.set()
            await stopping
        assert [row[2] for row in await book.rows.read(engine)] == [1]
        assert (await info(engine)).lag_events == 0


async def test_a_projection_takes_no_slot_of_its_worker(stage: Stage) -> None:
    """With one slot, both the work and three projections go on."""
    book = Book(stage.kind)
    for name in ("second", "third"):
        book.define(name, book.rows)

    @hf.action(registry=book.registry)
    async def double(number: int) -> int:
        return 2 * number

    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        async with engine.worker(concurrency=1) as worker:
            await book.add(engine, "a", 1)
            await engine.settle(timeout=SECONDS)
            assert len(worker.projections.owned) == 3
            for _ in range(3):  # what is leased to a worker that does not run it is taken for lost on the way here
                await worker._compare_with_store()
            assert (worker.free, worker.running) == (1, [])
            assert await engine.run(double, 4, timeout=SECONDS) == 8
            assert len(await book.rows.read(engine)) == 3


async def test_i36_two_workers_share_projections_and_never_one_of_them(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        async with engine.worker() as one, engine.worker() as two:
            for number in range(20):
                await book.add(engine, "a", number)
            await engine.settle(timeout=SECONDS)
            assert sorted([one.projections.owned, two.projections.owned]) == [[], ["book"]]
            assert [row[2] for row in await book.rows.read(engine)] == list(range(20))


async def test_i6_a_projection_whose_workers_die_again_and_again_stops(stage: Stage) -> None:
    """Nothing new was recorded in between: something in it kills the process."""
    book = Book(stage.kind)
    async with stage.engine(book.registry, work=False, **LATE) as engine:
        await book.rows.create(engine)
        async with engine.worker():
            await has_come_to(engine, "running")
            await _lapse(engine, lost_limit=1)
            found = await has_come_to(engine, "failed")
            assert "the worker died 1 times" in found.error
            assert await engine.retry_projection("book")
            await book.add(engine, "a", 1)
            await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1]


async def test_i6_an_owner_that_dies_while_there_is_nothing_to_do_is_no_culprit(stage: Stage) -> None:
    """A deploy that kills an idle owner must not count towards the end of its projection."""
    book = Book(stage.kind)
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        async with engine.worker():
            await book.add(engine, "a", 1)
            await engine.settle(timeout=SECONDS)
            for _ in range(3):
                await _lapse(engine)
                await until(lambda: _owned_anew(engine), "it is owned again")
            await book.add(engine, "a", 2)
            await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2]


async def test_k11_events_of_another_process_are_announced(
    shared_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whole minute between polls: what comes, comes by an announcement."""
    monkeypatch.setattr("holdfast.runtime.projection_runner.SHORTEST_LOOK_SECONDS", 60.0)
    book = Book(shared_stage.kind)
    async with (
        shared_stage.engine(book.registry, work=False) as writer,
        shared_stage.engine(book.registry, poll_seconds=60.0) as reader,
    ):
        await book.rows.create(writer)
        await has_come_to(reader, "running")
        for number in range(3):
            await book.add(writer, "a", number)
            await _rows(book, writer, number + 1)


async def test_k11_without_announcements_polls_find_new_events(shared_stage: Stage) -> None:
    book = Book(shared_stage.kind)
    async with (
        shared_stage.engine(book.registry, work=False, notify=False) as writer,
        shared_stage.engine(book.registry, notify=False) as reader,
    ):
        await book.rows.create(writer)
        await has_come_to(reader, "running")
        await book.add(writer, "a", 1)
        await _rows(book, writer, 1)
