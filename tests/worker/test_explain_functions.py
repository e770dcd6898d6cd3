"""What `holdfast explain` says of functions that wait, run, or cannot go on, each in a situation made for real.

Run with `pytest -s` to read the texts: does each say what would move the run?
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.rows import BLOCKED, DEAD, LEASED
from tests.worker.support import engine_on, statuses, until, work_of
from tests.worker.test_explain import told

HERE = __name__
"""The module that a worker must import to know what is defined in these tests."""


@dataclass
class Approval:
    by: str


class Desk:
    """Functions that wait for the test, in a registry of their own."""

    def __init__(self, *, greets_twice: bool = False) -> None:
        self.registry = registry = hf.Registry()
        self.go = asyncio.Event()
        desk = self
        approved = hf.event("approved", Approval, registry=registry)
        rejected = hf.any_of("rejected")
        hf.event("woken", None, registry=registry)

        @hf.action(registry=registry)
        async def greet(name: str) -> str:
            return f"Hello, {name}!"

        @hf.action(registry=registry)
        async def hold() -> None:
            await desk.go.wait()

        @hf.action(registry=registry, queue="payments")
        async def charge(cents: int) -> int:
            return cents

        @hf.action(registry=registry, retry=hf.Retry(attempts=3, base=600.0, cap=600.0))
        async def flaky() -> None:
            raise ConnectionError("the bank does not answer")

        @hf.workflow(registry=registry)
        async def onboard(name: str) -> str:
            await greet(name)
            if greets_twice:
                await greet(name + "!")
            match await hf.wait_for(approved | rejected | hf.after(days=2)):
                case hf.Received(value=Approval(by=by)):
                    return f"approved by {by}"
                case _:
                    return "not approved"

        @hf.workflow(registry=registry)
        async def dozes() -> None:
            await hf.wait_for("woken")

        @hf.workflow(registry=registry)
        async def sleeps() -> None:
            await hf.sleep(hours=2, seconds=30)

        @hf.workflow(registry=registry)
        async def family(name: str) -> str:
            return await onboard(name)

        @hf.workflow(registry=registry)
        async def pays() -> int:
            return await charge(5)

        @hf.workflow(registry=registry)
        async def tries() -> None:
            await flaky()

        @hf.workflow(registry=registry)
        async def works() -> None:
            await greet("Ada")
            await hold()

        @hf.workflow(registry=registry)
        async def cleans_up() -> None:
            try:
                await hf.wait_for("woken")
            finally:
                await hold()

        @hf.workflow(registry=registry)
        async def strands() -> None:
            await asyncio.Event().wait()

        class Downstream(hf.Dag, registry=registry):
            after: str

            @hf.step(depends_on_run="after")
            async def ship(self) -> None: ...

        self.onboard, self.dozes, self.sleeps, self.family, self.pays = onboard, dozes, sleeps, family, pays
        self.tries, self.works, self.cleans_up, self.strands = tries, works, cleans_up, strands
        self.Downstream = Downstream


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def suspended(engine: hf.Engine, run: str) -> None:
    async def is_suspended() -> bool:
        return await engine.get(run).status() == "suspended"

    await until(is_suspended, f"run {run} waits")


# --- functions that wait --------------------------------------------------------------------------------------------


async def test_i50_a_function_that_waits_for_events_says_which_since_when_until_when_and_how_to_send_them(
    shared_url: str, desk: Desk
) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.onboard, "Ada")
        await suspended(engine, handle.id)
        latest = datetime.now(UTC) + timedelta(days=2)
        explanation = await told(
            handle,
            f"run {handle.id} of onboard waits for event approved, event rejected, or for {latest:%Y-%m-%d %H}:",
            f"it waits since {datetime.now(UTC):%Y-%m-%d %H}:",
            "for event approved or event rejected, at wait_for(",
            "(in 1 day): it goes on then if nothing else comes first",
            "to wake it with event approved (PAYLOAD is Approval, as JSON):",
            "to wake it with event rejected (PAYLOAD is what the event carries, as JSON or text; without it, null):",
            fixes=[
                f"holdfast send approved PAYLOAD --to {handle.id} --app {HERE}",
                f"holdfast send rejected PAYLOAD --to {handle.id} --app {HERE}",
            ],
        )
        assert explanation.status == "suspended"
        assert "Nothing needs to be done" not in explanation.summary
        async with engine_on(shared_url, hf.Registry()) as elsewhere:  # as in a shell without --app
            await told(
                elsewhere.get(handle.id),
                "for event approved or event rejected",
                fixes=[f"holdfast send {name} PAYLOAD --to {handle.id}" for name in ("approved", "rejected")],
            )


async def test_i50_an_event_that_carries_nothing_is_sent_without_a_payload(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine:
        async with engine.worker():
            handle = await engine.start(desk.dozes)
            await suspended(engine, handle.id)
            await engine.send("nap", {"long": True}, to=handle)
            await engine.send("nap", {"long": True}, to=handle)
            await told(
                handle,
                f"run {handle.id} of dozes waits for event woken\n",
                "events that it does not wait for now are kept for it: nap (2)",
                fixes=[f"holdfast send woken --to {handle.id} --app {HERE}"],
            )
        await told(
            handle,
            "whatever it waits for, somebody has to go on with it then, and no worker is running",
            fixes=[f"holdfast send woken --to {handle.id} --app {HERE}", f"holdfast worker {HERE}"],
        )


async def test_i50_an_event_that_could_not_be_read_is_told_with_where_it_is_now(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.onboard, "Ada")
        await suspended(engine, handle.id)
        async with engine_on(shared_url, hf.Registry()) as elsewhere:  # which does not know the event's type
            await elsewhere.send("approved", 7, to=handle.id)

        async def dead() -> list[Any]:
            return await engine.dead()

        (letter,) = await until(dead, "it is a dead letter")
        explanation = await handle.explain()
        print(f"\n{explanation}")
        assert "1 event that was sent to it is a dead letter; the last, approved: the payload of event" in str(
            explanation
        )
        assert f"holdfast dead replay {letter.id}" in [fix.command for fix in explanation.fixes]


async def test_i56_a_function_that_sleeps_says_until_when_and_whether_anybody_will_be_there(
    shared_url: str, desk: Desk
) -> None:
    async with engine_on(shared_url, desk.registry) as engine:
        async with engine.worker():
            handle = await engine.start(desk.sleeps)
            await suspended(engine, handle.id)
            (turn,) = await work_of(engine, handle.id)
            at = datetime.fromtimestamp(turn.due / 1e6, UTC)
            await told(
                handle,
                f"run {handle.id} of sleeps sleeps until {at:%Y-%m-%d %H:%M:%S} UTC. Nothing needs to be done",
                f"a time that it waits for comes at {at:%Y-%m-%d %H:%M:%S} UTC (in 2 hours): it goes on then",
            )
        await told(handle, "and no worker is running", fixes=[f"holdfast worker {HERE}"])


async def test_i55_a_function_that_waits_for_another_run_names_it_with_its_status(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.family, "Ada")
        await suspended(engine, handle.id)
        (wait,) = await handle.waits()
        child = wait.topic.removeprefix("end:")
        await suspended(engine, child)
        await told(
            handle,
            f"run {handle.id} of family waits for the end of its child run {child} of onboard (suspended)",
            fixes=[f"holdfast explain {child}"],
        )


async def test_i55_a_node_that_depends_on_another_run_names_it_with_its_status(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        other = await engine.start(desk.sleeps, paused=True)
        handle = await engine.start(desk.Downstream(after=other.id))

        async def waits() -> bool:
            return (await statuses(engine, handle.id, "ship"))[-1:] == [BLOCKED]

        await until(waits, "the node waits")
        await told(
            handle,
            f"run {handle.id} of Downstream waits for the end of run {other.id} of sleeps (paused)",
            "node ship waits since ",
            f" for the end of run {other.id} of sleeps (paused)",
            fixes=[f"holdfast explain {other.id}"],
        )
        await handle.pause(by="ada")
        await told(
            handle,
            "is paused by ada",
            f" for the end of run {other.id} of sleeps (paused)",
            fixes=[f"holdfast resume {handle.id}", f"holdfast explain {other.id}"],
        )


async def test_i8_a_call_in_the_work_table_says_where_it_stands(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        pays, tries = await engine.start(desk.pays), await engine.start(desk.tries)
        await suspended(engine, pays.id)
        await suspended(engine, tries.id)
        await told(
            pays,
            f"run {pays.id} of pays waits for call charge (#1)",
            "call charge (#1) is ready since ",
            "but no worker serves queue 'payments' (live workers serve: default)",
            fixes=[f"holdfast worker {HERE} --queue payments"],
        )
        await told(
            tries,
            f"run {tries.id} of tries waits for call flaky (#1). Nothing needs to be done",
            "call flaky (#1) is backing off until ",
            "before attempt 2, after ConnectionError: the bank does not answer",
            fixes=[f"holdfast show {tries.id} --traceback"],
        )


async def test_i11_a_paused_function_says_what_it_waits_for_and_how_to_resume_it(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.dozes)
        await suspended(engine, handle.id)
        await handle.pause(by="ada", reason="lunch")
        await told(
            handle,
            "is paused by ada: lunch (since ",
            "for event woken",
            fixes=[f"holdfast resume {handle.id}", f"holdfast send woken --to {handle.id} --app {HERE}"],
        )


# --- functions that run, or should ----------------------------------------------------------------------------------


async def test_i8_a_function_that_runs_is_told_with_who_runs_it_and_what_it_recorded_last(
    shared_url: str, desk: Desk
) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.works)

        async def holds() -> bool:
            return len(await handle.history()) == 1 and LEASED in await statuses(engine, handle.id)

        await until(holds, "its second action runs")
        (row,) = await engine.workers()
        explanation = await told(
            handle,
            f"run {handle.id} of works is running. Nothing needs to be done",
            f"on worker {row.id} (host {row.host}, pid {row.pid}), which holds the lease until ",
            "the last entry of its history is the result of greet at ",
        )
        assert explanation.status == "running"
        desk.go.set()
        await handle.result(timeout=10)


async def test_i8_a_function_that_nobody_takes_says_which_worker_to_start(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine:
        handle = await engine.start(desk.dozes)
        await told(
            handle,
            f"run {handle.id} of dozes waits for a worker to start it",
            "function dozes is ready since ",
            "and no worker is running",
            fixes=[f"holdfast worker {HERE}"],
        )
    other = hf.Registry()

    @hf.workflow(registry=other)
    async def something() -> None: ...

    async with engine_on(shared_url, other) as engine, engine.worker():
        await told(
            engine.get(handle.id),
            "function dozes is ready since ",
            "but no live worker of queue 'default' knows dozes",
            fixes=["holdfast worker MODULE"],
        )


async def test_i10_a_function_that_is_being_cancelled_says_what_it_still_does(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine:
        async with engine.worker():
            handle = await engine.start(desk.cleans_up)
            await suspended(engine, handle.id)
        await handle.cancel(by="ada")
        force = f"holdfast cancel {handle.id} --force"
        await told(
            handle,
            f"run {handle.id} of cleans_up is being cancelled by ada: it runs its rollbacks and `finally` blocks",
            "function cleans_up is ready since ",
            fixes=[f"holdfast worker {HERE}", force],
        )
        async with engine.worker():
            await until(lambda: _runs(engine, handle.id), "it cleans up")
            await told(handle, "what it does now are its rollbacks and `finally` blocks", fixes=[force])
            desk.go.set()
            with pytest.raises(hf.RunCancelled):
                await handle.result(timeout=10)


async def _runs(engine: hf.Engine, run: str) -> bool:
    return LEASED in await statuses(engine, run)


# --- functions that cannot go on ------------------------------------------------------------------------------------


async def test_i48_code_that_differs_from_its_history_is_told_with_both_ways_out(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.onboard, "Ada")
        await suspended(engine, handle.id)
    changed = Desk(greets_twice=True)
    async with engine_on(shared_url, changed.registry) as engine, engine.worker():
        again = engine.get(handle.id)
        await engine.send("approved", Approval(by="Eve"), to=again)
        with pytest.raises(hf.RunFailed):
            await again.result(timeout=10)
        explanation = await told(
            again,
            "failed at ",
            f"NonDeterminism: run {handle.id} differs from its history at #2: ",
            "after the deploy was rolled back, or the code keeps its old path for old runs with hf.patched(…)",
            fixes=[
                f"holdfast retry {handle.id}",
                f"holdfast replay {handle.id} --app {HERE}",
                f"holdfast show {handle.id}",
            ],
        )
        assert str(explanation).count("differs from its history") == 1
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():  # rolled back
        await engine.get(handle.id).retry()
        assert await engine.get(handle.id).result(timeout=10) == "approved by Eve"


async def test_i49_a_function_that_nothing_durable_can_wake_says_at_which_line(shared_url: str, desk: Desk) -> None:
    async with engine_on(shared_url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.strands)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        explanation = await told(
            handle,
            "NotDurable: ",
            "test_explain_functions.py:",
            fixes=[f"holdfast retry {handle.id}", f"holdfast show {handle.id} --traceback"],
        )
        assert str(explanation).count("NotDurable") == 1


async def test_i9_a_function_that_nobody_has_known_for_long_is_a_dead_letter_with_both_ways_out(
    shared_url: str, desk: Desk
) -> None:
    async with engine_on(shared_url, desk.registry) as starter:
        run = (await starter.start(desk.dozes)).id
    engine = engine_on(shared_url, hf.Registry(), unknown_after_seconds=0.2, sweep_seconds=0.02)
    async with engine, engine.worker():

        async def is_dead() -> bool:
            return await statuses(engine, run) == [DEAD]

        await until(is_dead, "nobody has known it for long")
        await told(
            engine.get(run),
            "function dozes is a dead letter since ",
            "no live worker has known dozes",
            fixes=[f"holdfast dead replay {run} dozes", f"holdfast dead discard {run} dozes"],
        )
        assert await engine.replay_dead(run, "dozes")
        assert await engine.get(run).status() != "failed"


async def test_i9_a_call_that_nobody_knows_is_told_to_its_function_and_tried_again_by_a_retry_of_that(
    shared_url: str, desk: Desk
) -> None:
    """A new attempt of the call alone would be one that nobody waits for: the function has had its answer."""
    engine = engine_on(shared_url, desk.registry, unknown_after_seconds=0.2, sweep_seconds=0.02)
    async with engine, engine.worker():
        handle = await engine.start(desk.pays)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        assert await engine.dead() == []
        await told(
            handle,
            "MissingJob: no live worker has known charge of workflow pays",
            "then `holdfast retry`",
            fixes=[f"holdfast retry {handle.id}", f"holdfast show {handle.id} --traceback"],
        )
        with pytest.raises(hf.UsageError, match="is a call of pays, which alone decides what becomes of it"):
            await handle.reattempt("#1")
        with pytest.raises(hf.UsageError, match="is a function, which has no nodes that could be skipped"):
            await handle.skip("pays")
        async with engine.worker(queues=["payments"]):
            await handle.retry()
            assert await handle.result(timeout=10) == 5
