"""What a review found about `tx=`: inputs in a transaction of the caller's own."""

from __future__ import annotations

import asyncpg
import pytest

import holdfast as hf
from tests.deciders.orders import Act, World


async def test_k4_what_was_read_in_a_transaction_that_is_rolled_back_is_not_remembered(postgres_url: str) -> None:
    """Its second input reads what its first one wrote, which nobody else ever sees."""
    ours, theirs = World(), World()
    async with (
        hf.Engine(postgres_url, registry=ours.registry) as engine,
        hf.Engine(postgres_url, registry=theirs.registry) as other,
    ):
        connection = await asyncpg.connect(postgres_url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            await engine.execute(ours.Puppet, Act("p", ("phantom", "phantom")), tx=connection)
            await engine.execute(ours.Puppet, Act("p", ("phantom",)), tx=connection)
            await transaction.rollback()
        finally:
            await connection.close()
        await other.execute(theirs.Puppet, Act("p", ("theirs",)))
        await engine.execute(ours.Puppet, Act("p", ("ours",)))
        assert [each.sequence for each in await other.stream(theirs.Puppet, "p")] == [1, 2]
        assert await theirs.words(other) == ("theirs", "ours")


async def test_an_instance_with_a_long_stream_takes_an_input_in_a_transaction_of_the_callers(postgres_url: str) -> None:
    world = World(snapshot_every=0)
    words = tuple(["w"] * 600)
    async with hf.Engine(postgres_url, registry=world.registry) as engine:
        await engine.execute(world.Puppet, Act("p", words))
        await engine.execute(world.Puppet, Act("p", words))
        engine.definitions.folding.clear()
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                await engine.execute(world.Puppet, Act("p", ("last",)), tx=connection)
        finally:
            await connection.close()
        assert (await world.words(engine))[-1] == "last"
