"""Functions and events that cannot be right: refused with the line or the type, and never at the cost of others."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.queries import QueuedEvents
from holdfast.core.rows import Event
from tests.badinput.checks import DEADLINE_SECONDS, nothing_written, refused
from tests.badinput.function_world import Approval, World, failure_of, line_of
from tests.worker.support import assert_sound, until


@pytest.fixture
def world() -> World:
    return World()


# -- events


async def test_i52_an_event_of_another_type_is_refused_where_it_is_sent(url: str, world: World) -> None:
    """Whoever knows the type is told at once, by its name too, and nothing is written."""
    async with world.engine(url) as engine, engine.worker():
        run = await engine.start(world.waits)
        await engine.settle(timeout=DEADLINE_SECONDS)
        async with nothing_written(engine):
            for event in (world.approved, "approved"):
                for payload in ({"by": "Ada"}, "Ada", None):
                    with refused(hf.PayloadRefused, "event approved", "Approval"):
                        await engine.send(event, payload, to=run)
                    with refused(hf.PayloadRefused, "event approved", "Approval"):
                        await engine.broadcast(event, payload)
        await engine.send(world.approved, Approval(by="Ada"), to=run, id="m")
        assert await run.result(DEADLINE_SECONDS) == "Ada, m"


async def test_i52_an_event_that_the_waiter_cannot_read_is_a_dead_letter_and_the_run_waits_on(
    url: str, world: World
) -> None:
    """Sent by a process that does not know the type: the run is not told, in no replay either, and loses no time."""
    async with (
        world.engine(url, resident_seconds=1e-6) as engine,  # every turn replays the history
        engine.worker(),
        world.stranger(engine) as stranger,
    ):
        run = await engine.start(world.waits)
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await stranger.send("approved", {"who": "Eve"}, to=run, id="bad-1") == hf.Delivered(run.id)
        assert await stranger.broadcast("approved", "Eve", id="bad-2") in (hf.Delivered(run.id, (run.id,)), Queued2)
        await until(lambda: dead_events(engine, 2), "both are dead letters")
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await run.status() == "suspended"
        first, second = await dead_events(engine, 2)
        assert (first.payload, second.payload) == (b'{"who":"Eve"}', b'"Eve"')
        assert {letter.target for letter in (first, second)} == {run.id}
        assert "event approved" in (first.reason or "")
        assert "Approval" in (first.reason or "")
        assert await engine.send(world.approved, Approval(by="Ada"), to=run, id="good") == hf.Delivered(run.id)
        assert await run.result(DEADLINE_SECONDS) == "Ada, good"
        assert [entry.kind for entry in await run.history()] == ["refused", "refused", "event"]
        await assert_sound(engine)


Queued2 = hf.Queued("bad-2")  # the waiter had not opened its wait again yet: it takes it then


async def dead_events(engine: hf.Engine, count: int) -> list[Event]:
    found = [letter for letter in await engine.dead() if isinstance(letter, Event)]
    return found if len(found) >= count else []


async def test_i9_a_dead_event_is_replayed_to_whoever_waits_or_discarded(url: str, world: World) -> None:
    """Through the interface of all dead letters; unknown ids and second times say so."""
    kept = hf.event("kept", str, on_target_end="dead", registry=world.registry)

    @hf.workflow(registry=world.registry)
    async def takes() -> str:
        received = await hf.wait_for(kept)
        return f"{received.value}, {received.id}"

    async with world.engine(url) as engine, engine.worker():
        ended = await engine.start(world.waits)
        for id in ("one", "two", "three"):
            assert isinstance(await engine.send(kept, id, to=ended, id=id), hf.Queued)
        await ended.cancel(force=True)
        letters = await dead_events(engine, 3)
        assert [letter.reason for letter in letters] == [f"run {ended.id} ended before it took this"] * 3
        by_id = {letter.id.rpartition("/")[2]: letter.id for letter in letters}
        waiting = await engine.start(takes)
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await engine.replay_dead(by_id["two"])
        assert await waiting.result(DEADLINE_SECONDS) == "two, two"
        assert await engine.replay_dead(by_id["one"])  # nobody waits: it is kept until somebody does
        assert await (await engine.start(takes)).result(DEADLINE_SECONDS) == "one, one"
        assert await engine.discard_dead(by_id["three"])
        assert await engine.dead() == []
        for id in ("no-such-event", *by_id.values()):
            assert not await engine.replay_dead(id)
            assert not await engine.discard_dead(id)
        for bad in ("", 7, "a\n"):
            with refused(hf.UsageError, repr(bad), fix="holdfast dead list"):
                await engine.replay_dead(bad)  # type: ignore[arg-type]
        await assert_sound(engine)


@pytest.mark.parametrize("died", [False, True])
async def test_i52_events_of_an_ended_run_go_on_to_others_also_when_the_process_died_meanwhile(
    url: str, world: World, died: bool
) -> None:
    """At once by whoever ended the run; by a caretaker if that one never came to it."""
    spare = hf.event("spare", str, on_target_end="broadcast", registry=world.registry)

    @hf.workflow(registry=world.registry)
    async def takes() -> str:
        return (await hf.wait_for(spare)).value

    async with world.engine(url, sweep_seconds=0.02 if died else 600.0) as engine, engine.worker():
        if died:
            assert engine.stray_events is not None
            engine.coordinator.observers.remove(engine.stray_events.on_commit)
        ended, waiting = await engine.start(world.waits), await engine.start(takes)
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert isinstance(await engine.send(spare, "for you", to=ended), hf.Queued)
        await engine.send(world.approved, Approval(by="Ada"), to=ended)
        assert await waiting.result(DEADLINE_SECONDS) == "for you"
        await assert_sound(engine)


async def test_i52_an_event_that_nobody_took_in_time_is_dropped(url: str, world: World) -> None:
    """It is not delivered late, and does not stay in the store for ever."""
    brief = hf.event("brief", str, expires=timedelta(milliseconds=1), registry=world.registry)
    async with world.engine(url, sweep_seconds=0.02) as engine, engine.worker():
        run = await engine.start(world.waits)
        await engine.settle(timeout=DEADLINE_SECONDS)
        await engine.send(brief, "x", to=run)
        await engine.broadcast(brief, "x")

        async def gone() -> bool:
            targets = (run.id, None)
            return not any([await engine.store.rows(QueuedEvents("brief", target)) for target in targets])

        await until(gone, "both are dropped")
        await engine.send(world.approved, Approval(by="Ada"), to=run, id="m")
        assert await run.result(DEADLINE_SECONDS) == "Ada, m"
        await assert_sound(engine)


async def test_i52_an_unknown_or_ended_target_is_an_answer_and_nothing_is_written(url: str, world: World) -> None:
    """Outside and inside a workflow: the sender decides what that means."""

    @hf.workflow(registry=world.registry)
    async def sends(to: list[str]) -> list[str]:
        return [type(await hf.send(world.approved, Approval(by="me"), to=run)).__name__ for run in to]

    async with world.engine(url) as engine, engine.worker():
        done, cancelled = await engine.start(world.call, "x"), await engine.start(world.waits)
        await done.result(DEADLINE_SECONDS)
        await cancelled.cancel(force=True)
        async with nothing_written(engine):
            for to, answer in (
                ("nobody", hf.TargetNotFound()),
                (done, hf.TargetEnded("completed")),
                (cancelled, hf.TargetEnded("cancelled")),
            ):
                assert await engine.send(world.approved, Approval(by="Ada"), to=to) == answer
            with refused(hf.UsageError, "to is empty"):
                await engine.send(world.approved, Approval(by="Ada"), to="")
        answers = await engine.run(sends, ["nobody", done.id], timeout=DEADLINE_SECONDS)
        assert answers == ["TargetNotFound", "TargetEnded"]


async def test_i12_an_id_is_the_senders_own_within_one_run_or_name(url: str, world: World) -> None:
    """The same id to two runs, or for two names, is two events; the second time to one run is none."""
    async with world.engine(url) as engine, engine.worker():
        runs = [await engine.start(world.waits) for _ in range(2)]
        for _ in range(2):
            for run in runs:
                assert await engine.send("later", 1, to=run, id="m") == hf.Queued("m")
            for name in ("later", "sooner"):
                assert await engine.broadcast(name, 1, id="m") == hf.Queued("m")
        stored = [await engine.store.rows(QueuedEvents("later", target)) for target in (runs[0].id, runs[1].id, None)]
        assert [len(events) for events in stored] == [1, 1, 1]


async def test_i12_an_empty_id_is_refused_and_not_taken_for_none(url: str, world: World) -> None:
    """Its sender believes that a repetition is noticed."""
    async with world.engine(url) as engine:
        run = await engine.start(world.waits)
        async with nothing_written(engine):
            with refused(hf.UsageError, "id is empty"):
                await engine.send("later", 1, to=run, id="")
            with refused(hf.UsageError, "id is empty"):
                await engine.broadcast("later", 1, id="")


async def test_i51_very_many_events_for_one_run_are_taken_one_by_one_without_reading_the_others(
    url: str, world: World
) -> None:
    """What one costs does not grow with how many wait behind it."""
    count = 600

    @hf.workflow(registry=world.registry)
    async def adds(times: int) -> list[int]:
        return [(await hf.wait_for("tick")).value for _ in range(times)]

    async with world.engine(url) as engine, engine.worker():
        run = await engine.start(adds, count, paused=True)
        await asyncio.gather(*(engine.send("tick", number, to=run, id=f"{number:04}") for number in range(count)))
        loaded = rows_loaded(engine)
        await run.resume()
        assert await run.result(DEADLINE_SECONDS) == list(range(count))
        # Each look reads eight at most, and at most two looks are needed when a race made one be decided again.
        assert len(loaded) >= count
        assert max(loaded) <= 8
        assert sum(loaded) <= 16 * count
        await assert_sound(engine)


def rows_loaded(engine: hf.Engine) -> list[int]:
    """How many queued events each look of a decision reads, from now on."""
    loaded: list[int] = []
    coordinator = engine.coordinator
    decide_in = coordinator.decide_in

    async def watched(tx: Any, *args: Any) -> Any:
        load = tx.load

        async def counted(needs: Any) -> Any:
            answers = await load(needs)
            asked = zip(needs, answers, strict=True)
            loaded.extend(len(rows) for need, rows in asked if isinstance(need, QueuedEvents) and need.target)
            return answers

        tx.load = counted
        return await decide_in(tx, *args)

    coordinator.decide_in = watched  # type: ignore[method-assign]
    return loaded


# -- what cannot be stored


async def test_i14_what_cannot_be_stored_is_refused_with_the_function_that_returned_it(url: str, world: World) -> None:
    """The result of an action, of a workflow, and the payload of an event, sent from outside or inside."""

    @hf.action(registry=world.registry)
    async def gives() -> Any:
        return object()

    @hf.workflow(registry=world.registry)
    async def calls() -> None:
        await gives()

    @hf.workflow(registry=world.registry)
    async def returns() -> Any:
        return {1, 2}

    @hf.workflow(registry=world.registry)
    async def sends(to: str) -> None:
        await hf.send("odd", {1: "x"}, to=to)

    @hf.workflow(registry=world.registry)
    async def is_told() -> str:
        try:
            await gives()
        except hf.PayloadRefused as error:
            return error.message
        return ""

    async with world.engine(url) as engine, engine.worker():
        for workflow, args, named in ((calls, (), "gives"), (returns, (), "returns"), (sends, ("x",), "event odd")):
            failed = await failure_of(engine, workflow, *args)
            assert isinstance(failed.cause, hf.PayloadRefused), failed
            assert named in failed.cause.message
        assert "gives" in await engine.run(is_told, timeout=DEADLINE_SECONDS)
        async with nothing_written(engine):
            with refused(hf.PayloadRefused, "event odd"):
                await engine.send("odd", object(), to="x")


# -- what is not durable


async def to_thread(world: World) -> None:
    await asyncio.to_thread(world.calls.append, "effect")


async def open_connection(world: World) -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def subprocess(world: World) -> None:
    await asyncio.create_subprocess_exec("true")


async def foreign_future(world: World) -> None:
    assert world.foreign is not None
    await world.foreign


async def nobody_sets_it(world: World) -> None:
    await asyncio.Event().wait()


async def own_future(world: World) -> None:
    await asyncio.get_running_loop().create_future()


async def spins(world: World) -> None:
    while not world.calls:  # noqa: ASYNC110 - that is what is wrong with it
        await asyncio.sleep(0)


async def the_engine(world: World) -> None:
    await world.opened.start(world.call, "effect")


async def a_result_of_the_engine(world: World) -> None:
    await world.opened.get("some run").result()


async def an_engine_of_its_own(world: World) -> None:
    async with world.engine("memory://"):
        world.calls.append("effect")


NOT_DURABLE: list[tuple[Callable[[World], Awaitable[None]], int, str]] = [
    (to_thread, 1, "run_in_executor"),
    (open_connection, 1, "create_connection"),
    (subprocess, 1, "subprocess_exec"),
    (foreign_future, 2, "different loop"),
    (nobody_sets_it, 1, "no action, timer or event can complete"),
    (own_future, 1, "no action, timer or event can complete"),
    (spins, 2, "spins"),
    (the_engine, 1, "used the engine itself"),
    (a_result_of_the_engine, 1, "used the engine itself"),
    (an_engine_of_its_own, 1, "used the engine itself"),
]


@pytest.mark.parametrize(("code", "offset", "named"), NOT_DURABLE, ids=lambda each: getattr(each, "__name__", ""))
async def test_i49_what_no_history_can_repeat_fails_the_run_with_the_line(
    world: World, code: Callable[[World], Awaitable[None]], offset: int, named: str
) -> None:
    """Before it has an effect; the worker goes on, and so does the run once its code is right."""

    @hf.workflow(registry=world.registry)
    async def strays() -> str:
        await code(world)
        return "never"

    world.foreign = asyncio.get_running_loop().create_future()
    async with world.engine("memory://") as engine, engine.worker():
        world.opened = engine
        failed = await failure_of(engine, strays)
        first = code.__code__.co_firstlineno  # type: ignore[attr-defined]
        assert named in str(failed)
        assert f"{__file__}:{first + offset} in {code.__name__}" in str(failed)  # type: ignore[attr-defined]
        assert failed.__cause__ is not None
        assert isinstance(failed.cause, hf.UsageError)
        assert world.calls == []
        assert await engine.run(world.call, "next", timeout=DEADLINE_SECONDS) == "next"


async def test_i49_a_wake_up_from_outside_is_refused_to_who_wakes_and_fails_the_run(world: World) -> None:
    """Both lines are named. An event, an action or another run is the way in."""
    futures: list[asyncio.Future[None]] = []

    @hf.workflow(registry=world.registry)
    async def listens() -> None:
        futures.append(asyncio.get_running_loop().create_future())
        background = [asyncio.create_task(world.hold()) for _ in range(2)]
        await futures[0]
        await asyncio.wait(background)

    async with world.engine("memory://") as engine, engine.worker():
        run = await engine.start(listens)
        await until(lambda: futures, "the function waits")
        with pytest.raises(hf.UsageError, match="woken from outside"):
            futures[0].set_result(None)
        with pytest.raises(hf.RunFailed) as failed:
            await run.result(DEADLINE_SECONDS)
        assert "woken from outside" in str(failed.value)
        assert line_of(listens, 4) in str(failed.value)
        assert "in test_i49_a_wake_up_from_outside" in str(failed.value)


async def test_g9_a_workflow_that_blocks_the_loop_is_named_with_its_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can interrupt it; whoever reads the log can change the line."""
    named = threading.Event()

    class Noticing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            named.set()

    @hf.workflow(registry=world.registry)
    async def blocks() -> bool:
        await world.call("before")
        return named.wait(DEADLINE_SECONDS)

    handler = Noticing()
    logging.getLogger("holdfast.functions").addHandler(handler)
    try:
        async with world.engine("memory://") as engine, engine.worker():
            run = await engine.start(blocks)
            assert await run.result(2 * DEADLINE_SECONDS) is True
    finally:
        logging.getLogger("holdfast.functions").removeHandler(handler)
    assert f"run {run.id} has held the event loop" in caplog.text
    assert line_of(blocks, 3) in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-watchdog"]


# -- too deep


@pytest.mark.parametrize("how", ["called", "detached"])
async def test_children_that_start_children_for_ever_are_stopped(url: str, world: World, how: str) -> None:
    """The error is told at the bottom, and known at the top; a loop of detached runs ends as well."""

    @hf.workflow(registry=world.registry)
    async def again(number: int) -> int:
        world.calls.append(str(number))
        if how == "called":
            return await again(number + 1)
        await hf.start_child(again, number + 1, detached=True)
        return number

    async with world.engine(url, child_depth=4) as engine, engine.worker():
        run = await engine.start(again, 0)
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert set(world.calls) == {"0", "1", "2", "3", "4"}
        failed = await engine.find(workflow="again", status="failed")
        assert len(failed) == (5 if how == "called" else 1)
        for each in failed if how == "detached" else (run,):
            with pytest.raises(hf.RunFailed) as told:
                await engine.get(each.id).result(DEADLINE_SECONDS)
            assert "has 4 runs above it that started each other" in str(told.value)
            assert "hf.continue_as" in str(told.value)
            assert "child_depth (now 4)" in str(told.value)
        await assert_sound(engine)
