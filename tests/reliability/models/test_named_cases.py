"""Situations that have a name, with real processes and sessions. The others are listed in docs/reliability.md."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.rows import COMPLETED, LOST
from tests.endtoend.programs import app, journal
from tests.worker.support import PATIENT, Processes, assert_sound, engine_on, statuses, until, work_of

DEADLINE_SECONDS = 20.0


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as started:
        yield started


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


class Meeting:
    """Everybody who comes to a failpoint waits there until so many have come."""

    def __init__(self, failpoint: str, seats: int) -> None:
        self._failpoint, self._seats = failpoint, seats
        self.came = 0
        self._all_here = asyncio.Event()

    def hook(self, name: str) -> Awaitable[None] | None:
        if name != self._failpoint or self._all_here.is_set():
            return None
        self.came += 1
        if self.came >= self._seats:
            self._all_here.set()
            return None
        return self._wait()

    async def _wait(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self._all_here.wait()


async def test_i6_i7_two_workers_that_take_over_from_the_dead_at_once_do_it_once(
    shared_url: str, tmp_path: Path, processes: Processes
) -> None:
    """Both have seen that the worker is dead and both take its leases: one loss is counted, one new attempt runs."""
    path = str(tmp_path / "journal")
    one, other = (engine_on(shared_url, app.registry, **PATIENT) for _ in range(2))
    async with one, other:
        victim, row = await processes.serving(one, shared_url)
        handle = await one.start(app.hold, path)
        await until(lambda: journal.begun(path), "the process has begun")
        victim.kill()
        victim.wait()
        Path(f"{path}.go").touch()
        meeting = Meeting("takeover.before", seats=2)
        failpoints.arm(meeting.hook)
        over = asyncio.Event()
        serving = [asyncio.create_task(_serve(engine, over)) for engine in (one, other)]
        assert await handle.result(DEADLINE_SECONDS) == 2
        over.set()
        await asyncio.gather(*serving)
        assert meeting.came >= 2, "they did not meet"
        assert await statuses(one, handle.id) == [LOST, COMPLETED]
        assert [work.losses for work in await work_of(one, handle.id)] == [1, 1]
        assert row.id not in {worker.id for worker in await one.workers()}
        await assert_sound(one)
    assert len(journal.begun(path)) == 2


async def _serve(engine: hf.Engine, over: asyncio.Event) -> None:
    async with engine.worker():
        await over.wait()
