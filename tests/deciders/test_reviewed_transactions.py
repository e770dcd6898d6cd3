"""What a review found about `tx=`: inputs in a transaction of the caller's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

import holdfast as hf
from tests.deciders.orders import Act, World
from tests.worker.support import until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_k4_what_was_read_in_a_transaction_that_is_rolled_back_is_not_remembered(postgres_url: str) -> None:
    """Its second input reads what its first one wrote, which nobody else ever sees."""
    ours, theirs = World(), World()
    async with (
        hf.Engine(postgres_url, registry=ours.registry) as engine,
        hf.Engine(postgres_url, registry=theirs.registry) as other,
    ):
        async with connected(postgres_url) as connection:
            transaction = connection.transaction()
            await transaction.start()
            await engine.execute(ours.Puppet, Act("p", ("phantom", "phantom")), tx=connection)
            await engine.execute(ours.Puppet, Act("p", ("phantom",)), tx=connection)
            await transaction.rollback()
        await other.execute(theirs.Puppet, Act("p", ("theirs",)))
        await engine.execute(ours.Puppet, Act("p", ("ours",)))
        assert [each.sequence for each in await other.stream(theirs.Puppet, "p")] == [1, 2]
        assert await theirs.words(other) == ("theirs", "ours")


async def test_inputs_of_one_transaction_follow_each_other(postgres_url: str, world: World) -> None:
    async with hf.Engine(postgres_url, registry=world.registry) as engine, connected(postgres_url) as connection:
        async with connection.transaction():
            for word in "abc":
                await engine.execute(world.Puppet, Act("p", (word,)), tx=connection)
        await engine.execute(world.Puppet, Act("p", ("d",)))
        assert await world.words(engine) == ("a", "b", "c", "d")


async def test_an_instance_with_a_long_stream_takes_an_input_in_a_transaction_of_the_callers(postgres_url: str) -> None:
    """Its stream is too long to be folded inside a decision, and is folded before it, as everywhere else."""
    world = World(snapshot_every=0)
    async with hf.Engine(postgres_url, registry=world.registry) as engine, connected(postgres_url) as connection:
        await engine.execute(world.Puppet, Act("p", ("w",) * 1_001))
        engine.definitions.folding.clear()
        async with connection.transaction():
            await engine.execute(world.Puppet, Act("p", ("last",)), tx=connection)
        assert (await world.words(engine))[1_000:] == ("w", "last")


async def test_of_two_transactions_that_begin_an_instance_the_later_one_finds_it(
    postgres_url: str, world: World
) -> None:
    async with (
        hf.Engine(postgres_url, registry=world.registry) as engine,
        connected(postgres_url) as first,
        connected(postgres_url) as second,
    ):

        async def begin_too() -> None:
            async with second.transaction():
                await engine.execute(world.Puppet, Act("p", ("second",)), tx=second)

        async with first.transaction():
            await engine.execute(world.Puppet, Act("p", ("first",)), tx=first)
            late = asyncio.create_task(begin_too())

            async def waits() -> bool:
                return bool(await first.fetchval(WAITING))

            await until(waits, "the second waits for the first")
        await late
        assert await world.words(engine) == ("first", "second")
