"""Rows that somebody or something damaged: the run they belong to suffers, and nothing else does."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest

import holdfast as hf
from tests.badinput.checks import DEADLINE_SECONDS

registry = hf.Registry()
GARBAGE = b"\xff{not json"


@hf.action(registry=registry)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@hf.action(registry=registry)
async def stumble() -> None:
    raise ValueError("stumbled")


class Parcel(hf.Dag, registry=registry):
    weight: int

    @hf.step
    async def pack(self) -> None: ...


async def damage(engine: hf.Engine, table: str, column: str, run: str, value: bytes | str) -> None:
    """Overwrite one column of a run's rows, as no code of ours would."""
    store: Any = engine.store
    name = "id" if table == "runs" else "run"
    if store.kind == "sqlite":
        with contextlib.closing(sqlite3.connect(store.path)) as db, db:
            changed = db.execute(f"UPDATE {table} SET {column} = ? WHERE {name} = ?", (value, run)).rowcount
    else:
        import asyncpg

        connection = await asyncpg.connect(engine.url)
        try:
            status = await connection.execute(f"UPDATE {table} SET {column} = $1 WHERE {name} = $2", value, run)
        finally:
            await connection.close()
        changed = int(status.split()[1])
    assert changed, f"{table} has no row of {run}"


def opened_on(url: str) -> hf.Engine:
    return hf.Engine(url, registry=registry, poll_seconds=0.05, sweep_seconds=0.1)


@pytest.mark.parametrize("value", [GARBAGE, b"[[7],{}]", b'{"weight":"heavy"}', b"null"])
async def test_i8_an_input_that_does_not_decode_is_a_dead_letter_and_the_worker_goes_on(
    database_url: str, value: bytes
) -> None:
    async with opened_on(database_url) as starter:  # another process, as far as the worker's memory is concerned
        victim = await starter.start(greet, "Ada")
        parcel = await starter.start(Parcel(weight=1))
        await damage(starter, "runs", "input", victim.id, value)
        await damage(starter, "runs", "input", parcel.id, value)
    async with opened_on(database_url) as engine, engine.worker():
        assert await engine.run(greet, "Bob", timeout=DEADLINE_SECONDS) == "Hello, Bob!"
        for run in (victim.id, parcel.id):
            with pytest.raises((hf.RunFailed, hf.RunPaused)):
                await engine.get(run).result(DEADLINE_SECONDS)
        letters = {work.run: work for work in await engine.dead()}
        assert letters.keys() == {victim.id, parcel.id}
        executions = await engine.get(victim.id).step_executions()
        assert executions[0].error is not None
        assert "greet" in executions[0].error.message


async def test_a_result_that_does_not_decode_is_refused_with_its_workflow(database_url: str) -> None:
    async with opened_on(database_url) as engine, engine.worker():
        handle = await engine.start(greet, "Ada")
        await handle.result(DEADLINE_SECONDS)
        await damage(engine, "runs", "result", handle.id, GARBAGE)
        with pytest.raises(hf.PayloadRefused, match="the result of action greet"):
            await handle.result(DEADLINE_SECONDS)
        assert await engine.run(greet, "Bob", timeout=DEADLINE_SECONDS) == "Hello, Bob!"


async def test_an_error_that_does_not_decode_still_says_that_the_run_failed(database_url: str) -> None:
    async with opened_on(database_url) as engine, engine.worker():
        handle = await engine.start(stumble)
        with pytest.raises(hf.RunFailed):
            await handle.result(DEADLINE_SECONDS)
        await damage(engine, "runs", "error", handle.id, GARBAGE)
        await damage(engine, "work", "error", handle.id, GARBAGE)
        with pytest.raises(hf.RunFailed) as failed:
            await handle.result(DEADLINE_SECONDS)
        assert "can't be read" in str(failed.value.__cause__)
        assert [one.error is not None for one in await handle.step_executions()] == [True]
        await handle.nodes_with_state()
        await handle.explain()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("runs", "tags", "{not json"), ("history", "data", GARBAGE), ("work", "outcome", GARBAGE)],
)
async def test_what_people_look_at_shows_a_damaged_row_instead_of_failing(
    database_url: str, table: str, column: str, value: bytes | str
) -> None:
    """A listing of a thousand runs must not fail because of one, nor a run's page because of one line."""
    async with opened_on(database_url) as engine, engine.worker():
        fine = await engine.start(greet, "Bob")
        handle = await engine.start(greet, "Ada", paused=True)
        await handle.resume()
        await fine.result(DEADLINE_SECONDS)
        await handle.result(DEADLINE_SECONDS)
        if column == "tags" and database_url.startswith("postgresql"):
            value = "[7]"  # this column takes nothing but JSON there
        await damage(engine, table, column, handle.id, value)
        assert {run.id for run in await engine.find()} == {fine.id, handle.id}
        await handle.history()
        await handle.step_executions()
        await handle.explain()


async def test_a_policy_that_does_not_decode_is_a_dead_letter_and_the_worker_goes_on(database_url: str) -> None:
    async with opened_on(database_url) as starter:
        victim = await starter.start(greet.options(timeout=5), "Ada")
        await damage(starter, "work", "policy", victim.id, "{not json")
    async with opened_on(database_url) as engine, engine.worker():
        with pytest.raises((hf.RunFailed, hf.RunPaused)):
            await engine.get(victim.id).result(DEADLINE_SECONDS)
        assert [work.run for work in await engine.dead()] == [victim.id]
        assert await engine.run(greet, "Bob", timeout=DEADLINE_SECONDS) == "Hello, Bob!"


async def test_a_codec_that_is_not_there_is_a_dead_letter_that_names_it(database_url: str) -> None:
    async with opened_on(database_url) as starter:
        victim = await starter.start(greet, "Ada")
        await damage(starter, "runs", "codec", victim.id, "pickle")
    async with opened_on(database_url) as engine, engine.worker():
        with pytest.raises((hf.RunFailed, hf.RunPaused)):
            await engine.get(victim.id).result(DEADLINE_SECONDS)
        executions = await engine.get(victim.id).step_executions()
        assert executions[0].error is not None
        assert "'pickle'" in executions[0].error.message
