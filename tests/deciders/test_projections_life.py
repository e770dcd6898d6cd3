"""A projection's life: it takes every event once, in order, with its rows, and stops where it cannot go on (I36)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast as hf
from holdfast.core.rows import DEAD, STREAM, Work
from holdfast.store.memory import MemoryStore
from tests.deciders.conftest import Stage
from tests.deciders.projection_world import (
    SECONDS,
    Add,
    Added,
    Book,
    Rows,
    counter,
    fails_on,
    has_come_to,
    info,
)
from tests.worker.support import until


async def test_i36_a_projection_takes_every_event_once_and_each_stream_in_order(stage: Stage) -> None:
    """Those that were there before it, and those that come while it runs."""
    book = Book(stage.kind)
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        for number in range(10):
            await book.add(engine, f"a{number % 3}", number)
        async with engine.worker():
            for number in range(10, 20):
                await book.add(engine, f"a{number % 3}", number)
            await engine.settle(timeout=SECONDS)
        rows = await book.rows.read(engine)
        assert sorted(row[2] for row in rows) == list(range(20))
        for key in ("a0", "a1", "a2"):
            mine = [sequence for id, sequence, _ in rows if id == key]
            assert mine == list(range(1, len(mine) + 1)), "each stream from its beginning, in order"
        found = await info(engine)
        assert (found.status, found.lag_events, found.position) == ("running", 0, found.head)


async def test_i36_a_batch_projection_gets_lists_of_at_most_its_batch_size(stage: Stage) -> None:
    book = Book(stage.kind, batch=True, batch_size=4)
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", *range(10))
        async with engine.worker():
            await engine.settle(timeout=SECONDS)
        assert book.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert [row[2] for row in await book.rows.read(engine)] == list(range(10))


async def test_i36_a_projection_of_several_deciders_takes_their_events_by_position(stage: Stage) -> None:
    registry = hf.Registry()
    deciders = [counter(registry, name) for name in ("one", "two")]
    taken: list[tuple[str, int]] = []

    @hf.projection(deciders, name="both", batch_size=2, registry=registry)
    async def both(event: hf.Recorded[Any], tx: hf.Tx) -> None:
        taken.append((event.workflow, event.event.number))

    async with stage.engine(registry, work=False) as engine:
        for number in range(12):
            await engine.execute(deciders[number % 3 == 0], Add("a", (number,)))
        async with engine.worker():
            await engine.settle(timeout=SECONDS)
    assert taken == [("two" if number % 3 == 0 else "one", number) for number in range(12)]


@pytest.mark.parametrize("batch", [False, True])
async def test_i36_an_event_that_cannot_be_taken_stops_that_projection_and_no_other(stage: Stage, batch: bool) -> None:
    """Those before it count, it is retried, and the reason names the event."""
    book = Book(stage.kind, before=fails_on(5), batch=batch)
    others = Rows(stage.kind, "others")

    @hf.projection(book.Counter, name="other", registry=book.registry)
    async def other(event: hf.Recorded[Added], tx: hf.Tx) -> None:
        await others.write(event, tx)

    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await others.create(engine)
        await book.add(engine, "a", *range(1, 9))
        async with engine.worker():
            await _failed(engine)
            await engine.settle(timeout=SECONDS)
            found = await info(engine)
            assert (found.failed_type, found.failed_key, found.failed_sequence) == ("Added", "a", 5)
            assert found.position == found.failed_position - 1
            assert found.lag_events == 4
            assert found.attempts == 3
            assert found.owner is None
            place = f"position {found.failed_position:,} (Added, event 5 of counter 'a')"
            for word in ("book", place, "ValueError: no 5 please"):
                assert word in found.error
            assert book.calls.count([5]) == 3, "so many attempts, and not one more (I3)"
            assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3, 4]
            assert len(await others.read(engine)) == 8
            assert "book stopped at" in str(await engine.get(found.run_id).explain())


async def test_i36_i9_a_projection_that_stopped_is_a_dead_letter_and_goes_on_when_replayed(stage: Stage) -> None:
    book = Book(stage.kind, before=fails_on(5))
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", *range(1, 9))
        async with engine.worker():
            await _failed(engine)
            (letter,) = await engine.dead()
            assert isinstance(letter, Work)
            assert (letter.workflow, letter.status) == ("projection:book", DEAD)
            book.before = None
            assert await engine.replay_dead(letter.run, letter.node)
            await engine.settle(timeout=SECONDS)
            assert await engine.dead() == []
            assert [row[2] for row in await book.rows.read(engine)] == list(range(1, 9))
            assert (await info(engine)).status == "running"


async def test_i3_a_projection_waits_between_its_attempts_and_nobody_owns_it_meanwhile() -> None:
    """The delay is a due time: 1 s, then 2 s, each with up to a second of jitter."""
    book = Book("memory", before=fails_on(1), retry=hf.Retry(attempts=3, base=1.0, cap=60.0))
    async with Stage.memory().virtual(book.registry) as (engine, clock):
        await book.add(engine, "a", 1)
        await clock.advance(seconds=0.5)
        found = await info(engine)
        assert (book.calls, found.owner, found.attempts, found.failed_sequence) == ([[1]], None, 1, 1)
        await clock.advance(seconds=1.5)
        assert len(book.calls) == 2
        await clock.advance(seconds=1.0)
        assert len(book.calls) == 2, "early"
        await clock.advance(seconds=2.0)
        assert len(book.calls) == 3
        assert (await info(engine)).status == "failed"


async def test_i36_an_event_that_the_code_cannot_read_stops_a_projection_at_once(stage: Stage) -> None:
    """I8: what cannot be decoded is not retried. Events before it were taken."""
    book = Book(stage.kind)
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2)
        await _damage(engine, sequence=2)
        async with engine.worker():
            await _failed(engine)
            found = await info(engine)
            assert (found.attempts, found.failed_sequence) == (1, 2)
            assert "PayloadRefused" in found.error
            assert [row[2] for row in await book.rows.read(engine)] == [1]


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError("mine"), KeyboardInterrupt()])
async def test_i8_a_handler_that_raises_no_exception_does_not_end_the_worker(raised: BaseException) -> None:
    book = Book("memory")

    async def leave(events: list[hf.Recorded[Added]]) -> None:
        raise raised

    book.before = leave
    async with Stage.memory().engine(book.registry) as engine:
        await book.add(engine, "a", 1)
        await _failed(engine)
        assert type(raised).__name__ in (await info(engine)).error


async def test_i36_rows_of_a_batch_that_failed_are_not_there(shared_stage: Stage) -> None:
    """The first two of a batch of four were written before the third raised: neither they nor the position stay."""
    book = Book(shared_stage.kind, batch=True, retry=hf.Retry(attempts=1))
    inside: list[list[tuple[str, int, int]]] = []

    async def check(events: list[hf.Recorded[Added]]) -> None:
        if len(events) > 1:
            raise ValueError("together")
        inside.append([])

    book.before = check
    async with shared_stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2, 3, 4)
        async with engine.worker():
            await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3, 4]
    assert book.calls == [[1, 2, 3, 4], [1], [2], [3], [4]], "what fails together is tried apart"


async def test_g3_a_statement_that_fails_and_is_hidden_fails_the_event(shared_stage: Stage) -> None:
    """On PostgreSQL such a transaction is lost whatever the handler thinks; on SQLite only the statement is."""
    registry = hf.Registry()
    decider = counter(registry)

    @hf.projection(decider, name="hides", retry=hf.Retry(attempts=1), registry=registry)
    async def hides(event: hf.Recorded[Added], tx: hf.Tx) -> None:
        try:
            await tx.execute("INSERT INTO there_is_no_such_table VALUES (1)")
        except Exception:
            return

    async with shared_stage.engine(registry) as engine:
        await engine.execute(decider, Add("a", (1, 2)))
        if shared_stage.kind == "sqlite":
            await engine.settle(timeout=SECONDS)
            assert (await info(engine, "hides")).lag_events == 0
        else:
            await _failed(engine, "hides")
            assert "aborted" in (await info(engine, "hides")).error


async def test_i14_tx_of_the_memory_store_says_that_there_is_no_database() -> None:
    registry = hf.Registry()
    decider = counter(registry)

    @hf.projection(decider, name="writes", retry=hf.Retry(attempts=1), registry=registry)
    async def writes(event: hf.Recorded[Added], tx: hf.Tx) -> None:
        await tx.execute("SELECT 1")

    async with Stage.memory().engine(registry) as engine:
        await engine.execute(decider, Add("a"))
        await _failed(engine, "writes")
        assert "memory:// has no database" in (await info(engine, "writes")).error


async def test_the_engine_inside_a_handler_is_refused_on_sqlite_where_it_would_wait_for_ever(tmp_path: Any) -> None:
    registry = hf.Registry()
    decider = counter(registry)
    engine = hf.Engine(f"sqlite:///{tmp_path / 'a.db'}", registry=registry)

    @hf.projection(decider, name="asks", retry=hf.Retry(attempts=1), registry=registry)
    async def asks(event: hf.Recorded[Added], tx: hf.Tx) -> None:
        await engine.execute(decider, Add("b"))

    async with engine, engine.worker():
        await engine.execute(decider, Add("a"))
        await _failed(engine, "asks")
        assert "UsageError" in (await info(engine, "asks")).error


async def test_a_projection_that_is_defined_while_a_worker_runs_begins(stage: Stage) -> None:
    book = Book(stage.kind)
    async with stage.engine(book.registry) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2)
        await engine.settle(timeout=SECONDS)
        late = Rows(stage.kind, "late")
        await late.create(engine)
        book.define("late", late)
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await late.read(engine)] == [1, 2]


async def test_i15_a_projection_that_was_renamed_goes_on_where_it_stood(stage: Stage) -> None:
    before, after = Book(stage.kind, name="old"), Book(stage.kind, name="new", aliases=["old"])
    async with stage.engine(before.registry) as engine:
        await before.rows.create(engine)
        await before.add(engine, "a", 1, 2)
        await engine.settle(timeout=SECONDS)
    async with stage.engine(after.registry) as engine:
        after.rows.memory = before.rows.memory
        await after.add(engine, "a", 3)
        await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await after.rows.read(engine)] == [1, 2, 3]
        assert [each.name for each in await engine.projections()] == ["old"]


async def test_i36_a_pruned_database_still_knows_where_a_projection_stopped(stage: Stage) -> None:
    """It failed, which is an end, and ended runs are pruned: without its position it would take every event again."""
    book = Book(stage.kind, before=fails_on(2), retry=hf.Retry(attempts=1))
    async with stage.engine(book.registry, work=False) as engine:
        await book.rows.create(engine)
        await book.add(engine, "a", 1, 2, 3)
        async with engine.worker():
            await _failed(engine)
        await engine.prune(older_than_seconds=0)
        book.before = None
        assert await engine.retry_projection("book")
        async with engine.worker():
            await engine.settle(timeout=SECONDS)
        assert [row[2] for row in await book.rows.read(engine)] == [1, 2, 3]


async def test_i36_a_transaction_that_holds_projections_back_is_told_in_the_log(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.runtime.projection_runner.HELD_BACK_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.runtime.projection_runner.HORIZON_LOOK_SECONDS", 0.0)
    book = Book("postgresql")
    async with hf.Engine(postgres_url, registry=book.registry) as engine, engine.worker():
        await book.rows.create(engine)
        async with engine.store.transaction(user=True) as tx:
            await tx.user.execute("CREATE TABLE idle (n int)")
            with caplog.at_level(logging.WARNING, "holdfast.projections"):
                await book.add(engine, "a", 1)
                await until(lambda: "open for" in caplog.text, "the log tells of it")
            assert (await info(engine)).held_back_seconds > 0
            assert await book.rows.read(engine) == [], "nobody knows yet whether that transaction has a lower position"
        await engine.settle(timeout=SECONDS)
        assert len(await book.rows.read(engine)) == 1


async def _failed(engine: hf.Engine, name: str = "book") -> None:
    """Until the projection has stopped."""
    await has_come_to(engine, "failed", name)


async def _damage(engine: hf.Engine, sequence: int) -> None:
    """Somebody changed a row by hand."""
    store = engine.store
    if isinstance(store, MemoryStore):
        for facts in store._positions._by_workflow.values():
            for place, fact in enumerate(facts):
                if fact.sequence == sequence:
                    facts[place] = store.tables[STREAM][STREAM.key(fact)] = replace(fact, data=b"[]")
        return
    nothing = "CAST('[]' AS BLOB)" if store.kind == "sqlite" else "convert_to('[]', 'UTF8')"
    async with store.transaction(user=True) as tx:
        await tx.user.execute(f"UPDATE stream SET data = {nothing} WHERE sequence = {sequence}")
