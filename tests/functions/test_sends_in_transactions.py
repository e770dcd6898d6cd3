"""`engine.send(…, tx=…)`: an event that is sent if, and only if, the caller's own transaction commits."""

from __future__ import annotations

import asyncpg
import pytest

import holdfast as hf
from tests.worker.support import assert_sound, engine_on, until


def waiting(registry: hf.Registry) -> hf.Workflow[[], str]:
    @hf.workflow(registry=registry)
    async def wait_for_go() -> str:
        received = await hf.wait_for("go")
        return str(received.value)

    return wait_for_go


async def _suspended(handle: hf.Handle[str]) -> bool:
    return await handle.status() == "suspended"


async def test_g5_an_event_sent_in_a_transaction_is_sent_when_that_commits(postgres_url: str) -> None:
    """Rolled back it was never sent; committed it wakes the run, together with what else was written."""
    registry = hf.Registry()
    workflow = waiting(registry)
    async with engine_on(postgres_url, registry) as engine, engine.worker():
        handle = await engine.start(workflow)
        await until(lambda: _suspended(handle), "the run waits")
        connection = await asyncpg.connect(postgres_url)
        try:
            await connection.execute("CREATE TABLE note (text text)")
            rolled_back = connection.transaction()
            await rolled_back.start()
            await connection.execute("INSERT INTO note VALUES ('no')")
            assert isinstance(await engine.send("go", "no", to=handle, tx=connection), hf.Delivered)
            await rolled_back.rollback()
            assert await handle.status() == "suspended"
            async with connection.transaction():
                await connection.execute("INSERT INTO note VALUES ('yes')")
                await engine.send("go", "yes", to=handle, tx=connection, id="once")
            assert await handle.result(timeout=10) == "yes"
            assert [row[0] for row in await connection.fetch("SELECT text FROM note")] == ["yes"]
        finally:
            await connection.close()
        await assert_sound(engine)


async def test_an_event_cannot_join_a_transaction_that_is_not_postgresqls(sqlite_url: str) -> None:
    registry = hf.Registry()
    workflow = waiting(registry)
    async with engine_on(sqlite_url, registry) as engine:
        handle = await engine.start(workflow)
        with pytest.raises(hf.UsageError, match="tx= joins a PostgreSQL transaction"):
            await engine.send("go", "no", to=handle, tx=object())
