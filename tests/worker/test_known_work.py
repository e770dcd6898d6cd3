"""What a worker claims, what it leaves to others, and where work goes that nobody can run."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.core.codec import decode_error
from holdfast.core.operations import CompleteWork
from holdfast.core.rows import CANCELLED, COMPLETED, DEAD, FAILED, READY
from holdfast.core.view import View
from holdfast.runtime.caretaker import Caretaker
from holdfast.runtime.system import real_system
from tests.endtoend.programs import app, journal
from tests.worker.support import Processes, assert_sound, engine_on, statuses, until, work_of


async def execute_sql(url: str, statement: str) -> None:
    """What somebody does to the database behind our back."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            db.execute(statement)
        db.close()
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def applications() -> tuple[hf.Registry, Any, hf.Registry, Any]:
    """Two applications that share a database and nothing else."""
    left, right = hf.Registry(), hf.Registry()

    @hf.action(registry=left)
    async def bake(loaves: int) -> int:
        return loaves

    @hf.action(registry=right)
    async def brew(cups: int) -> int:
        return cups

    return left, bake, right, brew


async def test_i8_i15_a_worker_claims_only_what_it_knows_and_two_applications_share_a_database(shared_url: str) -> None:
    """I8, I15: each application's worker runs its own work and leaves the other's ready."""
    left, bake, right, brew = applications()
    bakery, bar = engine_on(shared_url, left), engine_on(shared_url, right)
    async with bakery, bar:
        drink = await bar.start(brew, 2)
        async with bakery.worker():
            assert await bakery.run(bake, 3, timeout=5) == 3
            assert await statuses(bar, drink.id) == [READY]
            why = str(await drink.explain())
            assert "no live worker of queue 'default' knows brew" in why
            async with bar.worker():
                assert await drink.result(timeout=5) == 2
        await assert_sound(bar)


async def test_i8_work_that_nobody_knows_becomes_a_dead_letter_that_says_what_to_do(shared_url: str) -> None:
    """I8: after `unknown_after_seconds` it is dead with MissingJob, and the worker that buried it works on."""
    left, bake, right, brew = applications()
    bakery = engine_on(shared_url, left, unknown_after_seconds=0.3, sweep_seconds=0.02)
    bar = engine_on(shared_url, right)
    async with bakery, bar:
        drink = await bar.start(brew, 2)
        async with bakery.worker():
            await until(lambda: _is(bar, drink.id, [DEAD]), "the work is buried")
            (buried,) = await bakery.dead()
            assert buried.run == drink.id
            assert buried.error is not None
            error = decode_error(buried.error)
            assert error.type == "MissingJob"
            assert "brew" in error.message
            assert buried.finished is not None
            assert buried.finished - buried.due >= 300_000, "not before its time"
            assert await bakery.run(bake, 3, timeout=5) == 3
        with pytest.raises(hf.RunFailed, match="brew"):
            await drink.result(timeout=5)
        async with bar.worker():
            assert await bar.replay_dead(drink.id, "brew")
            assert await drink.result(timeout=5) == 2
        await assert_sound(bar)


class TurnedClock:
    """Stands still until somebody turns it."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def now_us(self) -> int:
        return int(self.seconds * 1e6)

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize("limit", [1.0, 60.0, 3600.0])
async def test_i8_work_that_nobody_knows_is_dead_soon_after_the_limit_and_never_before(
    sqlite_url: str, limit: float
) -> None:
    """I8: the limit counts from when it became ready, and a short one is kept as well as an hour."""
    left, _, right, brew = applications()
    clock = TurnedClock()
    system = replace(real_system(), clock=clock)
    bakery = hf.Engine(sqlite_url, registry=left, system=system, unknown_after_seconds=limit)
    async with bakery, hf.Engine(sqlite_url, registry=right, system=system) as bar:
        drink = await bar.start(brew, 2)
        caretaker = caretaker_of(bakery)
        started, rounds = clock.seconds, 0
        while await statuses(bar, drink.id) == [READY]:
            clock.seconds += min(limit / 20, 1.0)
            await caretaker.look_after_others("nobody")
            rounds += 1
            assert rounds < 10_000
        assert limit <= clock.seconds - started <= limit * 1.11


async def test_i8_work_of_a_fleet_that_was_down_waits_a_while_for_the_worker_that_knows_it(sqlite_url: str) -> None:
    """I8: a day has passed; the first worker to come up is of another application, and buries nothing yet."""
    left, _, right, brew = applications()
    clock = TurnedClock()
    system = replace(real_system(), clock=clock)
    async with hf.Engine(sqlite_url, registry=left, system=system) as bakery:
        async with hf.Engine(sqlite_url, registry=right, system=system) as bar:
            drink = await bar.start(brew, 2)
        clock.seconds += 86_400
        caretaker = caretaker_of(bakery)
        for _ in range(299):
            await caretaker.look_after_others("nobody")
            clock.seconds += 1
        assert await statuses(bakery, drink.id) == [READY]
        for _ in range(40):
            await caretaker.look_after_others("nobody")
            clock.seconds += 1
        assert await statuses(bakery, drink.id) == [DEAD]


def caretaker_of(engine: hf.Engine) -> Caretaker:
    """Of a worker that does not run, so that its rounds are the test's."""
    return Caretaker(
        store=engine.store,
        coordinator=engine.coordinator,
        definitions=engine.definitions,
        settings=engine.settings,
        clock=engine.system.clock,
        randomness=engine.system.randomness,
        metrics=engine.metrics,
    )


async def test_i8_a_payload_that_does_not_decode_is_dead_at_once_and_stops_nobody(shared_url: str) -> None:
    """I8: the row was damaged by hand; its run gets a dead letter, and the worker goes on with the next."""
    left, bake, _, _ = applications()
    engine = engine_on(shared_url, left)
    async with engine:
        broken = await engine.start(bake, 1)
        whole = await engine.start(bake, 2)
        assert await statuses(engine, broken.id) == [READY]
        damaged = "x'7b'" if shared_url.startswith("sqlite") else "'\\x7b'::bytea"
        await execute_sql(shared_url, f"UPDATE runs SET input = {damaged} WHERE id = '{broken.id}'")
        async with engine.worker(concurrency=1):
            assert await whole.result(timeout=5) == 2
            await until(lambda: _is(engine, broken.id, [DEAD]), "the broken one is dead")
            assert await engine.run(bake, 3, timeout=5) == 3
        (letter,) = await engine.dead()
        assert (letter.run, letter.attempt) == (broken.id, 1)
        with pytest.raises(hf.RunFailed):
            await broken.result(timeout=1)
        await assert_sound(engine)


async def test_i9_dead_letters_are_listed_counted_replayed_and_discarded(shared_url: str) -> None:
    """I9: replaying wakes whoever waits for the run; discarding closes it for good."""
    left, bake, _, _ = applications()
    engine = engine_on(shared_url, left)
    async with engine:
        letters = [await engine.start(bake, number) for number in (1, 2)]
        inputs = {}
        for letter in letters:
            (row,) = await engine.store.runs([letter.id])
            inputs[letter.id] = row.input
            damaged = "x'7b'" if shared_url.startswith("sqlite") else "'\\x7b'::bytea"
            await execute_sql(shared_url, f"UPDATE runs SET input = {damaged} WHERE id = '{letter.id}'")
        async with engine.worker():
            await until(lambda: _count(engine, DEAD, 2), "both are dead")
            assert [work.run for work in await engine.dead(limit=10)] == [letter.id for letter in letters]
            assert len(await engine.dead(limit=1)) == 1
            replayed, discarded = letters
            whole = inputs[replayed.id].hex()
            repaired = f"x'{whole}'" if shared_url.startswith("sqlite") else f"'\\x{whole}'::bytea"
            await execute_sql(shared_url, f"UPDATE runs SET input = {repaired} WHERE id = '{replayed.id}'")
            assert await engine.replay_dead(replayed.id, "bake")
            assert await replayed.result(timeout=5) == 1
            assert await engine.discard_dead(discarded.id, "bake")
            assert await engine.dead() == []
            assert await statuses(engine, replayed.id) == [FAILED, COMPLETED]
            assert await statuses(engine, discarded.id) == [CANCELLED]
            assert await discarded.status() == "failed"
            # Neither is a dead letter any more.
            assert not await engine.replay_dead(replayed.id, "bake")
            assert not await engine.discard_dead(discarded.id, "bake")
        await assert_sound(engine)


async def test_i8_a_step_waits_for_the_worker_that_has_it(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I8: yesterday's worker runs the step it has, and today's new step waits until a worker of today is there."""
    async with engine_on(shared_url, app.registry_without_second) as yesterday:
        old, _ = await processes.serving(yesterday, shared_url, registry="registry_without_second")
    async with engine_on(shared_url, app.registry) as engine:
        handle = await engine.start(app.Deployed(journal=journal_path))
        await until(lambda: _node_is(engine, handle.id, "first", COMPLETED), "the old worker runs what it has")
        assert {deed.pid for deed in journal.begun(journal_path)} == {old.pid}
        assert await statuses(engine, handle.id, "second") == [READY]
        assert "knows Deployed.second" in str(await handle.explain())
        async with engine.worker():
            await handle.result(timeout=5)
        assert [deed.node for deed in journal.begun(journal_path)] == ["first", "second"]
        await assert_sound(engine)


async def test_i15_a_rename_keeps_its_runs_through_aliases(shared_url: str) -> None:
    """I15: work stored under the old name is run by the definition that lists it as an alias."""
    before, after = hf.Registry(), hf.Registry()

    @hf.action(registry=before)
    async def charge(amount: int) -> int:
        return amount

    @hf.action(registry=after, name="charge_card", aliases=["charge"])
    async def charge_again(amount: int) -> int:
        return amount * 100

    async with engine_on(shared_url, before) as old:
        handle = await old.start(charge, 7, key="k")
        (row,) = await old.store.runs([handle.id])
        assert row.workflow == "charge", "the name is __name__, with no module in front"
    new = engine_on(shared_url, after)
    async with new, new.worker():
        assert await new.get(handle.id).result(timeout=5) == 700


async def test_i8_one_poisonous_item_after_another_stops_no_worker(url: str) -> None:
    """I8: whatever user code raises or returns, the next item is served."""
    registry = hf.Registry()

    class Nasty(BaseException):
        pass

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @hf.action(registry=registry)
    async def poison(kind: str) -> object:
        if kind == "base":
            raise Nasty("not even an Exception")
        if kind == "unprintable":
            raise Unprintable
        if kind == "exit":
            raise SystemExit(3)
        if kind == "unencodable":
            return object()
        if kind == "generator":
            raise StopIteration
        return kind

    engine = engine_on(url, registry)
    async with engine, engine.worker(concurrency=1):
        for kind in ("unprintable", "unencodable", "generator", "base", "exit"):
            handle = await engine.start(poison, kind)
            with pytest.raises(hf.RunFailed):
                await handle.result(timeout=5)
        assert await engine.run(poison, "fine", timeout=5) == "fine"


async def test_i16_g3_a_decision_about_an_outcome_that_raises_ends_the_attempt_and_not_the_worker(url: str) -> None:
    """I16, G3: the attempt is told, as a dead letter, and is not executed again for it."""
    registry = hf.Registry()
    executions: list[str] = []

    @hf.action(registry=registry)
    async def work(name: str) -> str:
        executions.append(name)
        return name

    engine = engine_on(url, registry, sweep_seconds=0.02)
    async with engine, engine.worker():
        decisions: dict[Any, Any] = engine.coordinator._decisions  # type: ignore[assignment]
        real = decisions[CompleteWork]

        def raising(view: View, operation: CompleteWork) -> Any:
            if operation.result == b'"bad"':
                raise ZeroDivisionError("in a decision")
            return real(view, operation)

        decisions[CompleteWork] = raising
        with pytest.raises(hf.RunFailed, match="in a decision"):
            await engine.run(work, "bad", timeout=5)
        assert await engine.run(work, "good", timeout=5) == "good"
        assert [letter.node for letter in await engine.dead()] == ["work"]
    assert executions == ["bad", "good"]


async def _is(engine: hf.Engine, run: str, wanted: list[str]) -> bool:
    return await statuses(engine, run) == wanted


async def _node_is(engine: hf.Engine, run: str, node: str, wanted: str) -> bool:
    return [work.status for work in await work_of(engine, run, node)] == [wanted]


async def _count(engine: hf.Engine, status: str, wanted: int) -> bool:
    return (await engine.stats()).store.work.get(status, 0) == wanted


def two_versions() -> tuple[hf.Registry, type[hf.Dag], hf.Registry, type[hf.Dag]]:
    """A workflow before and after a deploy that adds a step."""
    old, new = hf.Registry(), hf.Registry()

    class Yesterday(hf.Dag, registry=old, name="Ship"):
        @hf.step
        async def pack(self) -> None: ...

    class Today(hf.Dag, registry=new, name="Ship"):
        @hf.step
        async def pack(self) -> None: ...

        @hf.step
        async def label(self) -> None: ...

    return old, Yesterday, new, Today


async def test_g9_a_run_that_an_old_worker_cannot_continue_goes_on_with_the_new_code(shared_url: str) -> None:
    """G9, I8: in a rolling deploy a worker without the next step neither fails nor completes the run."""
    old, _, new, today = two_versions()
    before, after = engine_on(shared_url, old), engine_on(shared_url, new)
    async with before, before.worker(), after:
        handle = await after.start(today())
        await until(lambda: _is(after, handle.id, [COMPLETED]), "the old worker runs what it has")
        assert await handle.status() == "running"
        async with after.worker():
            assert await handle.result(10) is None
        assert [row.node for row in await work_of(after, handle.id)] == ["label", "pack"]
        await assert_sound(after)
