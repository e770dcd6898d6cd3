"""Who drives a function: one process after another, never two; and what an operator's wish does to it meanwhile."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.function_operations import ENTRY_KINDS, entry_of
from tests.endtoend.programs import journal as deeds
from tests.functions import journey
from tests.functions import kernel_moves as moves
from tests.functions.lives import Lives
from tests.kernel.kernels import opened_kernel
from tests.support.stores import Site, every_row
from tests.worker.support import PATIENT, assert_sound, engine_on, until

AT_ONCE_SECONDS = 1.5
SLEEPY: dict[str, Any] = {"lease_seconds": 30.0, "sweep_seconds": 30.0, "poll_seconds": 30.0}
"""Whoever goes on sooner was told to."""


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    if request.param == "memory":
        return "memory://"
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


async def is_now(handle: hf.Handle[Any], status: str) -> None:
    async def look() -> bool:
        return await handle.status() == status

    await until(look, f"run {handle.id} is {status}")


def begun(path: Path, count: int = 1) -> Any:
    return lambda: len(deeds.begun(path)) >= count


async def entries(handle: hf.Handle[Any], engine: hf.Engine) -> list[str]:
    rows = await engine.store.history(handle.id)
    return [entry_of(row.data).address for row in rows if row.kind in ENTRY_KINDS]


# --- one process after another -------------------------------------------------------------------------------------


async def test_g5_i55_a_function_that_waits_outlives_its_process_and_another_goes_on_with_it(
    shared_url: str, tmp_path: Path, lives: Lives
) -> None:
    """G5, I55: A suspends and exits; B delivers, finds the run by that, and finishes. A's call does not run again."""
    path = tmp_path / "journal"
    async with engine_on(shared_url, journey.registry, **PATIENT) as engine:
        handle = await engine.start(journey.waits, str(path))
        first = lives.give(shared_url, str(path))
        await is_now(handle, "suspended")
        lives.signal(first, signal.SIGTERM)
        assert await lives.ended(first) == 0
        assert await engine.send(journey.news, "spring", to=handle) == hf.Delivered(handle.id)
        async with engine.worker():
            assert await handle.result(timeout=10) == ["before1", "spring", "after1"]
        assert len(deeds.begun(path)) == 2
        await assert_sound(engine)


async def test_i55_a_winner_that_was_stored_before_its_process_died_is_found_again(
    shared_url: str, tmp_path: Path, lives: Lives
) -> None:
    """I50, I55: the event is in the history and the turn is ready, all in one commit: there is nothing to repair."""
    path = tmp_path / "journal"
    async with engine_on(shared_url, journey.registry, **PATIENT) as engine:
        handle = await engine.start(journey.waits, str(path))
        first = lives.give(shared_url, str(path))
        await is_now(handle, "suspended")
        lives.signal(first, signal.SIGSTOP)  # it cannot go on with what it is sent
        await engine.send(journey.news, "spring", to=handle)
        assert await handle.status() == "running"
        lives.signal(first, signal.SIGKILL)
        await lives.ended(first)
        lives.give(shared_url, str(path))
        assert await handle.result(timeout=10) == ["before1", "spring", "after1"]
        await assert_sound(engine)


# --- two that believe they own it ----------------------------------------------------------------------------------


async def test_k3_of_two_owners_the_one_that_stood_still_is_refused(
    shared_url: str, tmp_path: Path, lives: Lives
) -> None:
    """K3, I1: its lease ran out while it was stopped. What its call returns later is not recorded, nor is anything."""
    path = tmp_path / "journal"
    hurry = {**PATIENT, "lease_seconds": 1.0}
    async with engine_on(shared_url, journey.registry, **hurry) as engine:
        first = lives.give(shared_url, str(path), settings=hurry)
        handle = await engine.start(journey.holds, str(path))
        await until(begun(path, 2), "the first owner is in its held call")
        lives.signal(first, signal.SIGSTOP)
        second = lives.give(shared_url, str(path), settings=hurry)
        await until(begun(path, 3), "the second owner has begun the same call")
        Path(f"{path}.go").touch()
        assert await handle.result(timeout=10) == ["before1", second, "after1"]
        recorded = await entries(handle, engine)
        lives.signal(first, signal.SIGCONT)
        await until(lambda: lives.said(first, "was declared dead"), "the first owner learns of it")
        assert await entries(handle, engine) == recorded == ["#1", "#2", "#3"]
        assert [deed.pid for deed in deeds.begun(path)] == [first, first, second, second]
        await assert_sound(engine)


async def test_k3_an_entry_that_was_on_its_way_when_the_turn_was_lost_is_refused(
    postgres_url: str, tmp_path: Path, lives: Lives
) -> None:
    """K3: the owner has decided, and stands still right before its flush; the flush finds another token."""
    path, file = tmp_path / "journal", tmp_path / "flush"
    hurry = {**PATIENT, "lease_seconds": 1.0}
    async with engine_on(postgres_url, journey.registry, **hurry) as engine:
        handle = await engine.start(journey.holds, str(path))
        first = lives.give(postgres_url, str(path), settings=hurry, held_before_flush=str(file))
        await until(begun(path, 2), "the first owner is in its held call")
        Path(f"{path}.go").touch()
        await until(Path(f"{file}.reached").exists, "the first owner is about to record it")
        second = lives.give(postgres_url, str(path), settings=hurry)
        assert await handle.result(timeout=10) == ["before1", second, "after1"]
        recorded = await entries(handle, engine)
        file.touch()
        lives.signal(first, signal.SIGTERM)
        assert await lives.ended(first) == 0, "it ends when all that it had to say was said"
        assert await entries(handle, engine) == recorded == ["#1", "#2", "#3"]
        await assert_sound(engine)


async def test_k3_an_owner_without_the_newest_token_records_nothing(site: Site) -> None:
    """K3: the turn is the same attempt, was taken away by a cancel, and somebody else has it now."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit_batch([moves.start("r"), moves.cancel("r")])
        (handed,) = await store.claim(moves.claim_functions("v"))
        late = moves.turn("r", known=1, token=1, entries=(moves.result("0#1"),))
        rows = await every_row(store)
        for refused in (late, moves.returns("r", token=1), moves.goes_on("r", known=1, token=1)):
            assert (await coordinator.submit(refused)).verdict == "stale"
        assert await every_row(store) == rows
        said = moves.turn("r", known=1, token=handed.work.token, entries=(moves.result("0#1"),))
        assert (await coordinator.submit(said)).verdict == "recorded"


# --- events for a function that is busy ----------------------------------------------------------------------------


async def test_g5_a_function_that_acts_and_waits_gets_an_event_of_another_process_at_once(
    shared_url: str, tmp_path: Path, lives: Lives
) -> None:
    """G5: no poll, no sweep and no lease is short enough to have brought it."""
    path = tmp_path / "journal"
    async with engine_on(shared_url, journey.registry, **SLEEPY) as engine:
        lives.give(shared_url, str(path), settings=SLEEPY)
        handle = await engine.start(journey.holds_and_hears, str(path))
        await until(begun(path), "it acts")

        async def waits() -> bool:
            return bool(await handle.waits())

        await until(waits, "it waits too")
        sent = time.monotonic()
        assert await engine.send(journey.news, "hear", to=handle) == hf.Delivered(handle.id)
        await until(begun(path, 2), "it does what it does with news", AT_ONCE_SECONDS)
        print(f"heard after {time.monotonic() - sent:.3f} s")
        Path(f"{path}.go").touch()
        assert await handle.result(timeout=10) == ["hear1"]


# --- what an operator asks for -------------------------------------------------------------------------------------


def farm(path: Path) -> tuple[hf.Registry, dict[str, Any]]:
    """Functions for one test, in its own process: what they do is written into the lists that come with them."""
    registry = hf.Registry()
    gates, did = dict[str, asyncio.Event](), list[str]()
    late = asyncio.Event()

    @hf.action(registry=registry)
    async def do(what: str) -> str:
        did.append(what)
        return what

    @hf.action(registry=registry)
    async def hold(what: str) -> str:
        did.append(what)
        try:
            await gates.setdefault(what, asyncio.Event()).wait()
        except asyncio.CancelledError:
            did.append(f"{what} stopped")
            await late.wait()  # and returns all the same
        return what

    @hf.workflow(registry=registry)
    async def two_branches() -> list[str]:
        async def branch(name: str) -> str:
            await hold(name)
            return await do(f"{name} again")

        return list(await asyncio.gather(branch("slow"), branch("quick")))

    @hf.workflow(registry=registry)
    async def chain() -> list[str]:
        return [await do("one"), await hold("two"), await do("three")]

    @hf.workflow(registry=registry)
    async def tidy() -> None:
        """Undoes what it did, and says so."""
        hf.on_rollback(do, "undo one")
        await do("one")
        hf.on_rollback(do, "undo two")
        try:
            await hf.wait_for("never")
        finally:
            await do("finally")

    @hf.workflow(registry=registry)
    async def stubborn() -> None:
        """Takes no for an answer only by force."""
        while True:
            try:
                await hf.wait_for("never")
            except asyncio.CancelledError:
                await do("no")

    @hf.workflow(registry=registry)
    async def waiting() -> None:
        await hf.wait_for("never")

    @hf.workflow(registry=registry)
    async def family() -> None:
        kept = await hf.start_child(waiting, detached=True)
        lost = await hf.start_child(waiting)
        did.extend([kept.id, lost.id])
        await waiting()

    @hf.workflow(registry=registry)
    async def eternal() -> None:
        try:
            await hf.wait_for("never")
        except asyncio.CancelledError:
            hf.continue_as(eternal)

    things = {thing.__name__: thing for thing in (two_branches, chain, tidy, stubborn, waiting, family, eternal)}
    return registry, {**things, "did": did, "gates": gates, "late": late}


async def test_i11_a_paused_function_stops_at_its_next_recorded_call_and_goes_on_when_resumed(
    url: str, tmp_path: Path
) -> None:
    """I11: what is running goes on to its end and is recorded; nothing else begins."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["chain"])
        await until(lambda: world["did"] == ["one", "two"], "it is in its second call")
        assert await handle.pause()
        world["gates"]["two"].set()

        async def recorded() -> bool:
            return await entries(handle, engine) == ["#1", "#2"]

        await until(recorded, "the call that was running is recorded")
        assert await handle.status() == "paused"
        assert world["did"] == ["one", "two"]
        await until(lambda: not engine._workers[0].running, "nobody drives it any more")
        assert await handle.resume()
        assert await handle.result(timeout=10) == ["one", "two", "three"]
        assert world["did"] == ["one", "two", "three"]
        await assert_sound(engine)


async def test_i11_what_runs_in_another_branch_of_a_paused_function_is_not_cut_off(url: str, tmp_path: Path) -> None:
    """I11: one branch comes to its next call and stops; the other's call ends in peace, and runs once."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["two_branches"])
        await until(lambda: len(world["gates"]) == 2, "both branches have begun")
        await handle.pause()
        world["gates"]["quick"].set()

        async def one_is_recorded() -> bool:
            return await entries(handle, engine) == ["2#1"]

        await until(one_is_recorded, "the quick branch's call is recorded")
        world["gates"]["slow"].set()
        await until(lambda: not engine._workers[0].running, "nobody drives it any more")
        assert await entries(handle, engine) == ["2#1", "1#1"]
        assert await handle.status() == "paused"
        assert "slow stopped" not in world["did"]
        assert await handle.resume()
        assert await handle.result(timeout=10) == ["slow again", "quick again"]
        assert sorted(world["did"]) == ["quick", "quick again", "slow", "slow again"]


async def test_i11_a_function_that_waits_and_was_paused_is_suspended_again(url: str, tmp_path: Path) -> None:
    """I2, I11: resumed, it still waits; nothing about it is running."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["waiting"])
        await is_now(handle, "suspended")
        await handle.pause()
        assert await engine.send("never", to=handle) == hf.Delivered(handle.id)
        assert await handle.status() == "paused"
        await handle.resume()
        assert await handle.result(timeout=10) is None
        other = await engine.start(world["waiting"])
        await is_now(other, "suspended")
        await other.pause()
        await other.resume()
        assert await other.status() == "suspended"
        await assert_sound(engine)


async def test_i10_a_cancelled_function_runs_finally_and_its_rollbacks_in_reverse(url: str, tmp_path: Path) -> None:
    """I10, I54: cancelling first, then what the code makes of it, then cancelled, for whom it was."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["tidy"])
        await is_now(handle, "suspended")
        assert await handle.cancel(by="ann")
        with pytest.raises(hf.RunCancelled, match="ann"):
            await handle.result(timeout=10)
        assert world["did"] == ["one", "finally", "undo two", "undo one"]
        assert await engine.send("never", to=handle) == hf.TargetEnded("cancelled")
        assert not await handle.cancel()
        await assert_sound(engine)


async def test_g9_i10_a_function_that_is_cancelled_before_its_task_takes_a_step_is_driven_to_its_end(
    url: str, tmp_path: Path
) -> None:
    """Its task runs no code, so nothing in it can say that it is over; the turn that the cancel made is begun."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry, **SLEEPY) as engine, engine.worker(concurrency=1) as worker:
        for _ in range(3):
            handle = await engine.start(world["waiting"])
            assert await handle.cancel()
            with pytest.raises(hf.RunCancelled):
                await handle.result(timeout=10)
        await until(lambda: worker.free == 1, "its slot is free")
        await assert_sound(engine)


async def test_i10_force_ends_a_function_that_will_not(url: str, tmp_path: Path) -> None:
    """I10: a graceful cancel it may survive, force is one transaction."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["stubborn"])
        await is_now(handle, "suspended")
        await handle.cancel()
        await until(lambda: world["did"] == ["no"], "it said no")
        assert await handle.status() == "cancelling"
        assert await handle.cancel(force=True)
        assert await handle.status() == "cancelled"
        assert await handle.waits() == []
        assert world["did"] == ["no"]
        await assert_sound(engine)


async def test_i10_a_function_that_nobody_has_begun_is_cancelled_at_once(url: str, tmp_path: Path) -> None:
    """I10: there is nothing to undo, and perhaps no worker that would do it; also one that is to begin later."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        for handle in (await engine.start(world["waiting"]), await engine.start(world["waiting"], at=tomorrow)):
            assert await handle.cancel()
            assert await handle.status() == "cancelled"
            with pytest.raises(hf.RunCancelled, match="was cancelled by an operator") as cancelled:
                await handle.result(timeout=5)
            assert cancelled.value.by == "an operator"
        await assert_sound(engine)


async def test_i10_children_are_cancelled_with_their_parent_unless_they_are_detached(url: str, tmp_path: Path) -> None:
    """I10: in the same transaction; the detached one does not notice."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["family"])
        await until(lambda: len(world["did"]) == 2, "it has started both")
        kept, lost = (engine.get(run) for run in world["did"])
        await is_now(handle, "suspended")
        await is_now(kept, "suspended")
        await is_now(lost, "suspended")
        await handle.cancel()
        for cancelled in (handle, lost):
            with pytest.raises(hf.RunCancelled):
                await cancelled.result(timeout=10)

        async def all_ended() -> bool:
            return len(list(await engine.find(status="cancelled"))) == 3

        await until(all_ended, "the child that was awaited is cancelled too")
        assert await kept.status() == "suspended"
        await assert_sound(engine)


async def test_i10_what_is_told_of_a_child_that_was_cancelled_names_its_run_and_its_workflow(url: str) -> None:
    registry = hf.Registry()

    @hf.workflow(registry=registry)
    async def child() -> None:
        await hf.wait_for("never")

    @hf.workflow(registry=registry)
    async def parent() -> str:
        started = await hf.start_child(child)
        hf.expose("child", lambda: started.id)
        try:
            await started.result()
        except hf.RunCancelled as cancelled:
            return cancelled.message
        return "it ended"

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(parent)
        await is_now(handle, "suspended")
        run = await handle.query("child")
        await engine.get(run).cancel()
        assert await handle.result(timeout=10) == f"child run {run} of child was cancelled"


@pytest.mark.parametrize("force", [False, True])
async def test_i1_i10_what_a_call_returns_after_its_run_was_cancelled_is_stale(
    url: str, tmp_path: Path, force: bool
) -> None:
    """I1, I10: it is asked to stop, takes its time, and returns to nobody."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["chain"])
        await until(lambda: world["did"] == ["one", "two"], "it is in its second call")
        assert await handle.cancel(force=force)
        await until(lambda: "two stopped" in world["did"], "the call is asked to stop")
        world["late"].set()
        with pytest.raises(hf.RunCancelled):
            await handle.result(timeout=10)
        await until(lambda: not engine._workers[0].running, "nobody drives it any more")
        assert await entries(handle, engine) == (["#1"] if force else ["#1", ""])
        assert world["did"] == ["one", "two", "two stopped"]
        await assert_sound(engine)


async def test_i10_a_cancelled_function_cannot_go_on_as_another(url: str, tmp_path: Path) -> None:
    """I10: whatever its code makes of the cancel, its run ends."""
    registry, world = farm(tmp_path)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(world["eternal"])
        await is_now(handle, "suspended")
        await handle.cancel()
        with pytest.raises(hf.RunCancelled):
            await handle.result(timeout=10)
        await assert_sound(engine)


# --- children with keys --------------------------------------------------------------------------------------------


async def test_i12_a_child_whose_key_another_run_has_is_that_run(url: str) -> None:
    """I12: two parents, one child; a key that belongs to another input is a call that fails, and can be caught."""
    registry = hf.Registry()

    @hf.workflow(registry=registry)
    async def keyed(number: int) -> int:
        await hf.wait_for("end")
        return number

    @hf.workflow(registry=registry)
    async def parent(number: int) -> str:
        try:
            started = await hf.start_child(keyed, number, key="the only one")
        except hf.KeyConflict:
            return "refused"
        return f"{started.id} returned {await started.result()}"

    async with engine_on(url, registry) as engine, engine.worker():
        parents = [await engine.start(parent, 1) for _ in range(2)]
        for handle in parents:
            await is_now(handle, "suspended")
        assert await engine.run(parent, 2, timeout=10) == "refused"
        (child,) = await engine.find(workflow="keyed")
        await engine.send("end", to=child.id)
        assert [await handle.result(timeout=10) for handle in parents] == [f"{child.id} returned 1"] * 2
        await assert_sound(engine)


@pytest.mark.parametrize("name", ["again", "again before"])
async def test_i12_a_child_under_the_key_of_its_own_parent_is_refused(url: str, name: str) -> None:
    """I12: it would be the parent itself, which would wait for its own end; under an older name of its workflow too."""
    registry = hf.Registry()

    @hf.workflow(name="again before", registry=registry)
    async def before(number: int) -> str:
        raise NotImplementedError

    @hf.workflow(name="again", aliases=["again before"], registry=hf.Registry())
    async def again(number: int) -> str:
        try:
            child = await hf.start_child(again, number, key="mine")
        except hf.UsageError as refused:
            return refused.message
        return f"started {child.id}"

    now = hf.Registry()
    now.add(again)
    async with engine_on(url, registry if name == "again before" else now) as engine:
        handle = await engine.start(name, 1, key="mine")
        async with hf.Engine(store=engine.store, registry=now) as other, other.worker():
            told = await other.get(handle.id).result(timeout=10)
            assert told.startswith(f"run {handle.id} of again has the key 'mine' itself")
            assert len(await other.find()) == 1
            await assert_sound(other)


async def test_i12_what_the_hints_say_of_an_action_that_would_start_or_send_works(shared_url: str) -> None:
    """I12: an engine of its own, and its idempotency key: the second attempt does nothing once more."""
    registry, hints = hf.Registry(), list[str]()
    answer = hf.event("answer", int, registry=registry)

    @hf.workflow(registry=registry)
    async def survey(order: str) -> list[int | None]:
        first = await hf.wait_for(answer)
        await hf.wait_for("no more")
        return [first.value, (await hf.wait_for(answer | hf.after(seconds=0))).value]

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.0))
    async def invite(order: str) -> str:
        for refused in (
            lambda: survey(order),
            lambda: hf.start_child(survey, order),
            lambda: hf.send(answer, 1, to="a run"),
            lambda: hf.broadcast(answer, 1),
            lambda: hf.execute("shop", order),
        ):
            with pytest.raises(hf.UsageError) as error:
                refused()
            hints.append(error.value.hint)
        key = hf.current().idempotency_key
        async with hf.Engine(shared_url, registry=registry) as engine:
            started = await engine.start(survey, order, key=key)
            await engine.send(answer, hf.current().attempt, to=started, id=key)
        if hf.current().attempt == 1:
            raise OSError("the process was tired")
        return started.id

    async with engine_on(shared_url, registry) as engine, engine.worker():
        run = await engine.run(invite, "order-4", timeout=20)
        await engine.send("no more", to=run)
        assert await engine.get(run).result(timeout=20) == [1, None]
        assert len(await engine.find(workflow=survey)) == 1
    wanted = ["start(survey, …, key", "start(…, key", "send(…, id", "broadcast(…, id", "execute(…, command_id"]
    assert [hint.partition("and write engine.")[2].partition("=")[0] for hint in hints] == wanted * 2
    assert all("`async with hf.Engine(…) as engine`" in hint for hint in hints)
