"""What people do to a projection by name, in code and on the command line: pause, rebuild, retry, skip (I36, I9)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import holdfast as hf
from holdfast.cli import program
from holdfast.core.errors import UnknownWorkflow, UsageError
from tests.deciders.conftest import Stage
from tests.deciders.projection_world import SECONDS, Added, Book, fails_on, has_come_to, info


async def test_i11_a_paused_projection_takes_nothing_and_goes_on_where_it_stood(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1)
        await engine.settle(timeout=SECONDS)
        assert await engine.pause_projection("book", reason="lunch")
        assert not await engine.pause_projection(book.projection)
        await book.add(engine, "a", 2, 3)
        await engine.settle(timeout=SECONDS)
        found = await info(engine)
        assert (found.status, found.lag_events, found.owner) == ("paused", 2, None)
        assert found.lag_seconds >= 0
        assert "lunch" in str(await engine.get(found.run_id).explain())
        assert [row[2] for row in await book.rows.read(engine)] == [1]
        assert await engine.resume_projection("book")
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3]


async def test_i36_a_batch_that_a_pause_meets_is_rolled_back(shared_stage: Stage) -> None:
    """Its owner is told nothing of it, and finds out when it commits."""
    book = Book(shared_stage.kind)
    async with shared_stage.engine(book.registry, work=False, sweep_seconds=60.0) as engine:
        await book.rows.create(engine)
        async with engine.worker():
            await has_come_to(engine, "running")
            run = (await info(engine)).run_id
            async with shared_stage.engine(book.registry, work=False) as operator:
                await operator.get(run).pause()
            await book.add(engine, "a", 1)
            async with asyncio.timeout(SECONDS):
                while (await info(engine)).owner is not None:  # noqa: ASYNC110 - it gives the lease back by itself
                    await asyncio.sleep(0)
            assert await book.rows.read(engine) == []
            assert book.calls == [[1]]


async def test_i36_a_rebuild_empties_the_tables_and_gives_every_event_again(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2, 3)
        await engine.settle(timeout=SECONDS)
        await engine.rebuild_projection("book")
        await book.add(engine, "a", 4)
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3, 4]
        assert [numbers for numbers in book.calls if numbers == [1]] == [[1], [1]]


async def test_i36_a_rebuild_whose_reset_fails_changes_nothing(shared_stage: Stage) -> None:
    """The position goes back with the emptied tables, or not at all."""
    book = Book(shared_stage.kind, reset=False)

    async def fails(tx: hf.Tx) -> None:
        await book.rows.empty(tx)
        raise LookupError("no")

    book.projection.reset(fails)
    async with shared_stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2)
        await engine.settle(timeout=SECONDS)
        with pytest.raises(LookupError):
            await engine.rebuild_projection("book")
        await book.add(engine, "a", 3)
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3]


async def test_i36_a_rebuild_refuses_the_owner_that_is_in_the_middle_of_a_batch(postgres_url: str) -> None:
    """What it took belongs to the time before: the new owner begins with the first event."""
    book = Book("postgresql")
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold(events: list[hf.Recorded[Added]]) -> None:
        if events[0].event.number == 3 and not reached.is_set():
            reached.set()
            await go_on.wait()

    book.before = hold
    async with hf.Engine(postgres_url, registry=book.registry, sweep_seconds=60.0) as engine, engine.worker():
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2)
        await engine.settle(timeout=SECONDS)
        await book.add(engine, "a", 3)
        await reached.wait()
        async with hf.Engine(postgres_url, registry=book.registry) as operator:
            await operator.rebuild_projection("book")
        go_on.set()
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3]


async def test_i36_a_projection_that_stopped_can_be_rebuilt(stage: Stage) -> None:
    book = Book(stage.kind, before=fails_on(2))
    async with stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2, 3)
        await has_come_to(engine, "failed")
        book.before = None
        await engine.rebuild_projection(book.projection)
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3]
        assert await engine.dead() == []


@pytest.mark.parametrize("verb", ["skip", "discard"])
async def test_i36_one_event_is_passed_over_and_the_history_tells_it(stage: Stage, verb: str) -> None:
    """To discard the dead letter of a projection means the same (I9)."""
    book = Book(stage.kind, before=fails_on(2))
    async with stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2, 3)
        found = await has_come_to(engine, "failed")
        if verb == "skip":
            with pytest.raises(UsageError, match=f"stands before position {found.failed_position}"):
                await engine.skip_projection_event("book", position=found.failed_position + 1)
            assert await engine.skip_projection_event("book", by="ada") == found.failed_position
        else:
            assert await engine.discard_dead(found.run_id, "projection", by="ada")
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 3]
        history = await engine.store.history(found.run_id)
        (skipped,) = [json.loads(entry.data) for entry in history if entry.kind == "event skipped"]
        assert skipped == {"by": "ada", "position": found.failed_position, "type": "Added", "of": "counter", "key": "a"}


async def test_a_projection_that_goes_on_has_nothing_to_skip_or_retry(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1)
        await engine.settle(timeout=SECONDS)
        with pytest.raises(UsageError, match="no event to skip"):
            await engine.skip_projection_event("book")
        assert not await engine.retry_projection("book")
        assert not await engine.resume_projection("book")


async def test_i1_a_cancelled_projection_stops_for_good(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await has_come_to(engine, "running")
        await engine.get((await info(engine)).run_id).cancel()
        await book.add(engine, "a", 1)
        await engine.settle(timeout=SECONDS)
        assert (await info(engine)).status == "cancelled"
        assert await book.rows.read(engine) == []
        with pytest.raises(UsageError, match="cancelled"):
            await engine.rebuild_projection("book")


async def test_a_name_that_no_projection_has_is_told_with_those_that_there_are() -> None:
    book = Book("memory")
    async with Stage.memory().engine(book.registry) as engine:
        for verb in (engine.pause_projection, engine.retry_projection, engine.rebuild_projection):
            with pytest.raises(UnknownWorkflow, match="no projection 'boook'"):
                await verb("boook")
        with pytest.raises(UsageError, match="is no projection"):
            await engine.pause_projection(7)  # type: ignore[arg-type]
        assert [each.name for each in await engine.projections()] == ["book"]


async def test_a_projection_that_no_worker_has_begun_is_listed_with_its_lag(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry, work=False) as engine:
        await book.add(engine, "a", 1, 2)
        found = await info(engine)
        assert (found.status, found.position, found.lag_events, found.owner) == ("pending", 0, 2, None)
        assert await engine.pause_projection("book"), "also before its first worker"
        assert (await info(engine)).status == "paused"


async def test_i11_maintenance_keeps_a_projection_from_being_owned() -> None:
    """Like all work it is accepted and not claimed; `settle` does not wait for it."""
    book = Book("memory")
    async with Stage.memory().engine(book.registry, work=False) as engine:
        await engine.maintenance(True, workflow="projection:book")
        async with engine.worker():
            await book.add(engine, "a", 1)
            await engine.settle(timeout=SECONDS)
            assert (await info(engine)).owner is None
            await engine.maintenance(False, workflow="projection:book")
            await engine.settle(timeout=SECONDS)
            assert [row[2] for row in await book.rows.read(engine)] == [1]


# -- the command line


def _holdfast(url: str, *words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(program, ["--url", url, *words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def stopped(tmp_path: Path) -> str:
    """A SQLite file with a projection that stopped at its second event of three."""
    url = f"sqlite:///{tmp_path / 'app.db'}"

    async def prepare() -> None:
        book = Book("sqlite", before=fails_on(2))
        async with hf.Engine(url, registry=book.registry) as engine, engine.worker():
            await book.rows.create(engine)
            await book.add(engine, "a", 1, 2, 3)
            await has_come_to(engine, "failed")

    asyncio.run(prepare())
    return url


def test_the_command_line_shows_where_projections_stand(stopped: str) -> None:
    """Without their code: how far each is behind is known from what its run keeps."""
    shown = _holdfast(stopped, "projections").stdout
    assert "book" in shown
    assert "failed" in shown
    assert "2: Added, event 2 of a" in shown
    assert "book has stopped: " in shown  # with the error, and what can be done
    assert "no 2 please\n    after a fix: holdfast projections retry book; or pass over that event: " in shown
    (found,) = json.loads(_holdfast(stopped, "projections", "list", "--json").stdout)["projections"]
    assert (found["status"], found["position"], found["lag_events"], found["failed_key"]) == ("failed", 1, 2, "a")
    explained = _holdfast(stopped, "explain", "projection:book/book").stdout
    assert "projections retry book" in explained
    assert "projections skip book" in explained
    assert "position 2" in _holdfast(stopped, "dead", "list").stdout or "no 2 please" in explained


def test_the_command_line_skips_pauses_and_resumes(stopped: str) -> None:
    pause = _holdfast(stopped, "projections", "pause", "book", code=1)
    assert "it is failed" in pause.stderr
    assert "behind position 2" in _holdfast(stopped, "projections", "skip", "book", "--position", "2").stdout
    assert "is paused" in _holdfast(stopped, "projections", "pause", "book", "--reason", "lunch").stdout
    assert "paused already" in _holdfast(stopped, "projections", "pause", "book").stdout
    assert "goes on" in _holdfast(stopped, "projections", "resume", "book").stdout
    told = _holdfast(stopped, "projections", "retry", "book", code=1)
    assert "has not stopped" in told.stderr


def test_the_command_line_retries_one_that_stopped(stopped: str) -> None:
    done: dict[str, Any] = json.loads(_holdfast(stopped, "projections", "retry", "book", "--json").stdout)
    assert done["changed"]
    assert done["projection"]["status"] == "running"


def test_the_command_line_needs_the_code_for_a_rebuild(stopped: str) -> None:
    told = _holdfast(stopped, "projections", "rebuild", "book", code=3)
    assert "--app" in told.stderr
    told = _holdfast(stopped, "projections", "retry", "boook", code=3)
    assert "'book'" in told.stderr
