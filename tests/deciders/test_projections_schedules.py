"""Must-show 4: whatever the order of positions and commits, a projection skips no event and takes none twice (I36).

Each schedule is a handful of writers that begin, and so take their positions, at one tick and commit or roll back at a
later one. Between two ticks somebody looks how far the streams may be read, and the projection's owner goes on. So
there are always looks between the moment in which a position is given and the one in which its event becomes visible.

On the memory store a write is its own commit: there a writer is delayed on both sides of it.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.decider_operations import ExecuteInput
from holdfast.core.ids import instance_id
from holdfast.core.operations import StartRun
from holdfast.core.projection_operations import PROJECTION_MODEL
from holdfast.runtime.projection_owner import ProjectionOwner
from holdfast.store.contract import ClaimRequest, Conflict, Store
from tests.deciders.projection_world import Add, Book
from tests.support.postgres import Databases
from tests.support.stores import Site, site_for

SCHEDULES = {"memory": 1_000, "sqlite": 1_000, "postgresql": 100}
WRITERS = 4
TICKS = 5
DEADLINE_SECONDS = 30.0


class _RollBack(Exception):
    """A writer changes its mind."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Events for one instance, all of one transaction, from the tick where they get positions to that of the end."""

    key: str
    events: int
    begins: int
    ends: int
    commits: bool


def schedule(seed: int) -> list[Writer]:
    draw = random.Random(seed)
    writers = []
    for _ in range(draw.randint(2, WRITERS)):
        begins = draw.randrange(TICKS)
        writers.append(
            Writer(
                key=f"{seed}-{draw.choice('ab')}",
                events=draw.randint(1, 3),
                begins=begins,
                ends=draw.randint(begins, TICKS),
                commits=draw.random() < 0.85,
            )
        )
    return writers


class Ticks:
    """A clock that moves when somebody has looked at the streams."""

    def __init__(self) -> None:
        self.now = 0
        self._moved = asyncio.Condition()

    async def at(self, tick: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.now >= tick)

    async def move(self) -> None:
        async with self._moved:
            self.now += 1
            self._moved.notify_all()


class Scene:
    """Engines that write, a store that is only looked at, and the projection with its owner."""

    def __init__(self, book: Book, engines: list[hf.Engine], watched: Store, owner: ProjectionOwner) -> None:
        self.book = book
        self.engines = engines
        self.watched = watched
        self.owner = owner
        self.expected: dict[str, int] = defaultdict(int)

    async def play(self, seed: int) -> None:
        ticks, writers = Ticks(), schedule(seed)
        tasks = [
            asyncio.ensure_future(
                self._write(self.engines[(seed + number) % len(self.engines)], writer, ticks, f"{seed}.{number}")
            )
            for number, writer in enumerate(writers)
        ]
        while not all(task.done() for task in tasks):
            await self.look()
            await ticks.move()
        for task in tasks:
            task.result()
        for writer in writers:
            self.expected[writer.key] += writer.events if writer.commits else 0
        await self.catch_up()

    async def _write(self, engine: hf.Engine, writer: Writer, ticks: Ticks, name: str) -> None:
        await ticks.at(writer.begins)
        if engine.store.kind == "memory":
            await ticks.at(writer.ends)  # its write is its commit
            if writer.commits:
                await engine.execute(self.book.Counter, Add(writer.key, tuple(range(writer.events))))
            return
        code = engine.definitions.decider("counter")
        assert code is not None
        routed = code.route(Add(writer.key, tuple(range(writer.events))))
        given = ExecuteInput(
            run=instance_id("counter", writer.key),
            workflow="counter",
            key=writer.key,
            data=routed.data,
            codec=routed.codec,
            input_type=routed.type,
            id=name,
        )
        while True:
            with suppress(_RollBack):
                try:
                    async with engine.store.transaction() as tx:
                        _, committed = await engine.coordinator.apply_in(tx, given)
                        await ticks.at(writer.ends)
                        if not writer.commits:
                            raise _RollBack
                except Conflict:
                    continue  # another writer created the same instance meanwhile
                committed()
            return

    async def look(self) -> None:
        self.owner.may_read_to(await self.watched.stream_bound())
        await asyncio.sleep(0)

    async def catch_up(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(await self.watched.read_stream("counter", self.owner.position, 2**62, 1)):
                await self.look()

    async def check(self) -> None:
        """Against what the writers know: every event, once, each stream in its order."""
        taken: dict[str, list[int]] = defaultdict(list)
        for key, sequence, _ in await self.book.rows.read(self.engines[0]):
            taken[key].append(sequence)
        for key, events in self.expected.items():
            assert taken.pop(key, []) == list(range(1, events + 1)), f"the stream {key}; its number is the seed"
        assert not taken, "events that nobody committed"


@asynccontextmanager
async def scene(site: Site) -> AsyncIterator[Scene]:
    book = Book(site.kind, batch_size=3)
    async with AsyncExitStack() as stack:
        owning = await stack.enter_async_context(hf.Engine(registry=book.registry, store=site.store()))
        await book.rows.create(owning)
        engines, watched = [owning], owning.store
        if site.kind != "memory":
            other = await stack.enter_async_context(hf.Engine(registry=book.registry, store=site.store()))
            watched = await stack.enter_async_context(site.opened())
            # A second connection has to wait for SQLite's one writer by asking again and again: so it writes seldom.
            engines = [owning] * 15 + [other] if site.kind == "sqlite" else [owning, other]
        owner = await _owner(book, owning)
        owner.task = asyncio.ensure_future(owner.run())
        try:
            yield Scene(book, engines, watched, owner)
        finally:
            owner.stop()
            await owner.task


async def _owner(book: Book, engine: hf.Engine) -> ProjectionOwner:
    name = "projection:book"
    await engine.coordinator.submit(StartRun(run="p", workflow=name, model=PROJECTION_MODEL, key="book"))
    request = ClaimRequest(worker="w", queue="default", limit=1, workflows=(name,), actions=(name,))
    (handed,) = await engine.store.claim(request)
    return ProjectionOwner(
        projection=book.projection,
        work=handed.work,
        run=handed.run,
        store=engine.store,
        coordinator=engine.coordinator,
        definitions=engine.definitions,
    )


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases: Databases | None = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    """Another one each time; printed, with how to repeat it."""
    given = os.environ.get("SCHEDULES_SEED")
    seed = random.SystemRandom().randrange(10**6) if given is None else int(given)
    print(f"schedules begin with seed {seed}; repeat them with SCHEDULES_SEED={seed}", file=sys.stderr)
    return seed


async def test_i36_no_schedule_of_commits_makes_a_projection_skip_or_repeat_an_event(
    site: Site, first_seed: int
) -> None:
    async with scene(site) as play:
        for seed in range(first_seed, first_seed + SCHEDULES[site.kind]):
            await play.play(seed)
        await play.check()


async def test_i36_on_the_memory_store_delays_around_a_write_change_nothing(first_seed: int) -> None:
    """Other tasks run before and after every write, and the owner among them."""
    draw = random.Random(first_seed)

    async def linger(name: str) -> None:
        for _ in range(draw.randrange(4)):
            await asyncio.sleep(0)

    failpoints.arm(linger)
    try:
        async with scene(Site("memory")) as play:
            for seed in range(first_seed, first_seed + 200):
                await play.play(seed)
            await play.check()
    finally:
        failpoints.disarm()
