"""What a review found about projections: rows that outlived a rebuild, events pruned before they were seen."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, World
from tests.deciders.projection_world import SECONDS, Added, Book
from tests.worker.support import until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def test_i36_a_rebuild_leaves_nothing_of_a_batch_that_commits_while_it_empties_the_tables(
    postgres_url: str,
) -> None:
    """A reset that deletes rows does not see those of an open transaction: that one must not commit any more."""
    book = Book("postgresql", batch_size=1, reset=False)
    reached, emptied, on_its_way = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(events: list[hf.Recorded[Added]]) -> None:
        if emptied.is_set():
            on_its_way.set()  # the batch of number 3 was committed, or refused
        elif events[0].event.number == 3:
            reached.set()
            await emptied.wait()

    async def reset(tx: hf.Tx) -> None:
        await book.rows.empty(tx)
        emptied.set()

        async def came_of_it() -> bool:
            return on_its_way.is_set() or await tx.fetchval(WAITING) > 0

        await until(came_of_it, "the batch is committed, or waits for us")

    book.before = hold
    book.projection.reset(reset)
    async with hf.Engine(postgres_url, registry=book.registry) as engine, engine.worker():
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2)
        await engine.settle(timeout=SECONDS)
        await book.add(engine, "a", 3, 4)
        await reached.wait()
        await engine.rebuild_projection("book")
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3, 4]


async def test_i36_events_that_a_projection_has_not_seen_are_not_pruned(stage: Stage, world: World) -> None:
    """However long it stands still. One that was cancelled needs none any more."""
    seen: dict[str, list[str]] = {"slow": [], "gone": []}

    def define(name: str) -> Any:
        async def take(event: hf.Recorded[Any], tx: hf.Tx) -> None:
            seen[name].append(event.type)

        return hf.projection(world.Puppet, name=name, registry=world.registry)(take)

    define("slow")
    gone = define("gone")
    async with stage.virtual(world.registry) as (engine, clock):
        await engine.pause_projection("slow")
        await engine.pause_projection("gone")
        await engine.execute(world.Puppet, Act("p", ("said",), end=True))
        await clock.advance(days=2)
        await engine.get(next(each.run_id for each in await engine.projections() if each.name == "gone")).cancel()
        assert await engine.prune(older_than_seconds=86_400) == 0
        await engine.resume_projection("slow")
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert seen == {"slow": ["Spoke", "Ended"], "gone": []}, gone
        assert await engine.prune(older_than_seconds=86_400) == 1
        assert await engine.stream(world.Puppet, "p") == []
