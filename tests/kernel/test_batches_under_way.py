"""A crowd on PostgreSQL is served in two batches that take turns; what one of them meets the other does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.coordinator import CROWD, Commit, Coordinator
from holdfast.core import failpoints
from holdfast.core.errors import EngineClosed
from holdfast.core.operations import CancelRun, Started
from holdfast.core.rows import RUNS
from holdfast.runtime.system import RealClock
from tests.kernel.kernels import complete, opened_kernel, start
from tests.support.stores import Site
from tests.worker.support import until

CROWDED = [f"r{number:03}" for number in range(2 * CROWD)]
FIRST, SECOND = CROWDED[:CROWD], CROWDED[CROWD:]


class Held:
    """Flushes wait here, each until it is let go."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    def let_go(self) -> None:
        for flush in self.waiting:
            if not flush.done():
                flush.set_result(None)


@contextmanager
def flushes_held() -> Iterator[Held]:
    held = Held()

    def hook(name: str) -> asyncio.Future[None] | None:
        if name != "flush.before":
            return None
        held.waiting.append(asyncio.get_running_loop().create_future())
        return held.waiting[-1]

    failpoints.arm(hook)
    try:
        yield held
    finally:
        failpoints.disarm()
        held.let_go()


def watched(coordinator: Coordinator) -> list[Commit]:
    commits: list[Commit] = []
    coordinator.observers.append(commits.append)
    return commits


async def test_k1_a_crowd_is_flushed_in_two_batches_at_the_same_time(postgres_site: Site) -> None:
    """The second is decided and sent while the first is under way; each is one commit."""
    async with opened_kernel(postgres_site) as (coordinator, _):
        commits = watched(coordinator)
        with flushes_held() as held:
            answers = [coordinator.submit(start(run)) for run in CROWDED]
            await until(lambda: len(held.waiting) == 2, "both are under way")
            assert not any(answer.done() for answer in answers)
        assert [(await answer).run for answer in answers] == CROWDED
        assert sorted(len(commit.pairs) for commit in commits) == [CROWD, CROWD]


async def test_k1_few_operations_share_one_commit(postgres_site: Site) -> None:
    """A commit is worth more than a turn: what is no crowd goes together."""
    async with opened_kernel(postgres_site) as (coordinator, _):
        commits = watched(coordinator)
        await coordinator.submit_batch([start(run) for run in CROWDED[: CROWD - 1]])
        assert [len(commit.pairs) for commit in commits] == [CROWD - 1]


async def test_k1_what_concerns_a_run_that_is_under_way_is_decided_after_it(postgres_site: Site) -> None:
    """Two parents of one node, in the order in which they were submitted, though a place for a batch is free."""
    async with opened_kernel(postgres_site) as (coordinator, _):
        await coordinator.submit_batch([start(run, "join", lease=True) for run in CROWDED])
        commits = watched(coordinator)
        with flushes_held() as held:
            before = [coordinator.submit(complete(run, "x", lease=True)) for run in CROWDED]
            await until(lambda: len(held.waiting) == 2, "both halves are under way")
            held.waiting[1].set_result(None)
            await before[-1]
            after = [coordinator.submit(complete(run, "y", lease=True)) for run in FIRST]
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(held.waiting) == 2
        assert {(await answer).verdict for answer in [*before, *after]} == {"recorded"}
        nodes = [{operation.node for operation, _ in commit.pairs} for commit in commits]
        assert nodes[:2] == [{"x"}, {"x"}]
        assert set().union(*nodes[2:]) == {"y"}  # a crowd again, by then
        assert not any(commit.locked for commit in commits)


async def test_k2_what_takes_the_locked_path_waits_for_all_that_is_under_way(postgres_site: Site) -> None:
    """It may concern any run, so nothing is under way while it is decided."""
    async with opened_kernel(postgres_site) as (coordinator, store):
        await coordinator.submit(start("other", lease=True))
        commits = watched(coordinator)
        with flushes_held() as held:
            starts = [coordinator.submit(start(run)) for run in CROWDED]
            await until(lambda: len(held.waiting) == 2, "both are under way")
            held.waiting[0].set_result(None)
            await starts[0]  # there is a place, and it is not taken
            cancelled = coordinator.submit(CancelRun(run="other"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not cancelled.done()
        assert (await cancelled).changed
        await asyncio.gather(*starts)
        assert [commit.locked for commit in commits] == [False, False, True]
        (row,) = await store.runs(["other"])
        assert row.status == "cancelled"


async def test_k9_a_batch_that_fails_under_way_leaves_the_other_alone(postgres_site: Site) -> None:
    """A key that somebody else took meanwhile: one half takes the locked path, the other is committed as it is."""
    async with opened_kernel(postgres_site) as (ours, _), opened_kernel(postgres_site) as (theirs, _):
        commits = watched(ours)
        with flushes_held() as held:
            starts = [ours.submit(start(run, key=run, input_digest="x")) for run in CROWDED]
            await until(lambda: len(held.waiting) == 2, "both are under way")
            failpoints.disarm()
            await theirs.submit(start("first", key=FIRST[0], input_digest="x"))
        answers = [await answer for answer in starts]
        assert answers[0] == Started(run="first", existed=True)
        assert [answer.run for answer in answers[1:]] == CROWDED[1:]
        assert sorted((commit.locked, len(commit.changes.inserts[RUNS])) for commit in commits) == [
            (False, CROWD),
            (True, CROWD - 1),
        ]


async def test_i54_closing_waits_for_what_is_under_way(postgres_site: Site) -> None:
    """What cannot be finished in time is told so: EngineClosed, not silence."""
    async with opened_kernel(postgres_site, RealClock(), store_timeout_seconds=0.1) as (coordinator, _):
        with flushes_held() as held:
            starts = [coordinator.submit(start(run)) for run in CROWDED]
            await until(lambda: len(held.waiting) == 2, "both are under way")
            await coordinator.close()
            for answer in starts:
                with pytest.raises(EngineClosed):
                    await answer
