"""What `holdfast explain` says of runs that do not go on, each in a situation made for real.

Run with `pytest -s` to read the texts: does each say what to do?
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.rows import COMPLETED, DEAD, FAILED, LEASED, READY
from holdfast.explain import MOST_FIXES, MOST_REASONS, Explanation
from tests.endtoend.programs import app, journal
from tests.worker.support import Processes, engine_on, statuses, stopped, until

HERE = __name__
"""The module that a worker must import to know what is defined in these tests."""


class Stage:
    """Definitions that wait for the test, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.go = asyncio.Event()
        stage = self

        @hf.action(registry=self.registry)
        async def hold() -> None:
            await stage.go.wait()

        @hf.action(registry=self.registry)
        async def quick() -> None: ...

        @hf.action(registry=self.registry, retry=hf.Retry(attempts=3, base=600.0, cap=600.0))
        async def flaky() -> None:
            raise ConnectionError("the bank does not answer")

        @hf.action(registry=self.registry)
        async def broken() -> None:
            raise ValueError("no such\naccount")

        class Order(hf.Dag, registry=self.registry):
            @hf.step
            async def validate(self) -> None: ...

            @hf.step
            async def charge(self) -> None:
                raise RuntimeError("card refused")

            @hf.step
            async def ship(self) -> None: ...

        class Join(hf.Dag, registry=self.registry):
            @hf.task
            async def a(self) -> None: ...

            @hf.task
            async def b(self) -> None: ...

            @hf.task
            async def slow(self) -> None:
                await stage.go.wait()

            @hf.task(depends_on=["a", "b", "slow"])
            async def join(self) -> None: ...

        class Approval(hf.Dag, registry=self.registry):
            @hf.step
            async def approve(self) -> None:
                hf.current().pause("the boss must look")

            @hf.step
            async def pay(self) -> None: ...

        self.hold, self.quick, self.flaky, self.broken = hold, quick, flaky, broken
        self.Order, self.Join, self.Approval = Order, Join, Approval

    def fan_out(self, job: hf.Action[..., Any], count: int) -> hf.BuiltDag:
        builder = hf.DagBuilder("mutations", registry=self.registry)
        builder.fan_out(range(count), name=lambda number: f"mutation_{number}", job=job)
        builder.node("aggregate", job=self.quick)
        return builder.build()


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def told(handle: hf.Handle[Any], *words: str, fixes: Sequence[str] = ()) -> Explanation:
    """The explanation, which holds these words and exactly these commands."""
    explanation = await handle.explain()
    text = str(explanation)
    print(f"\n{text}")
    for word in words:
        assert word in text
    assert [fix.command for fix in explanation.fixes] == list(fixes)
    assert len(explanation.reasons) <= MOST_REASONS
    assert len(explanation.fixes) <= MOST_FIXES
    return explanation


async def running(engine: hf.Engine, handle: hf.Handle[Any]) -> bool:
    return LEASED in await statuses(engine, handle.id)


# --- work that somebody has ----------------------------------------------------------------------------------------


async def test_i8_a_running_node_is_told_with_who_holds_its_lease_until_when(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.hold)
        await until(lambda: running(engine, handle), "it runs")
        (row,) = await engine.workers()
        told_ = await told(
            handle,
            f"run {handle.id} of hold is running hold. Nothing needs to be done",
            "node hold (attempt 1) is running since ",
            "without a timeout",
            f"on worker {row.id} (host {row.host}, pid {row.pid}), which holds the lease until ",
        )
        assert told_.status == "running"
        stage.go.set()


async def test_i7_the_lease_of_a_dead_worker_is_about_to_be_taken_over_or_needs_a_worker(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I7: its death is proved by its lock, long before the lease ends."""
    engine = engine_on(shared_url, app.registry, sweep_seconds=600.0)
    async with engine:
        process, row = await processes.serving(engine, shared_url)
        handle = await engine.start(app.hold, journal_path)
        await until(lambda: journal.begun(journal_path), "it has begun")
        async with engine.worker(queues=["elsewhere"]):
            process.kill()
            await until(lambda: _is_dead(engine, row.id), "its death is known")
            await told(
                handle,
                "whose worker is gone. Nothing needs to be done",
                f"was running on worker {row.id} (host {row.host}, pid {row.pid}), which has died",
                "a live worker takes it over within seconds",
            )
        await told(
            handle,
            "no worker is running to take it over",
            "to start a worker:",
            fixes=[f"holdfast worker {app.__name__}"],
        )


async def _is_dead(engine: hf.Engine, worker: str) -> bool:
    return any(row.id == worker and row.lease_until < engine.store.now() for row in await engine.workers())


async def test_i6_a_worker_that_was_not_heard_of_for_too_long_has_lost_its_lease(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    engine = engine_on(shared_url, app.registry)
    async with engine:
        process, row = await processes.serving(engine, shared_url, settings={"lease_seconds": 0.6})
        handle = await engine.start(app.hold, journal_path)
        await until(lambda: journal.begun(journal_path), "it has begun")
        with stopped(process):
            await until(lambda: _is_dead(engine, row.id), "its lease is over")
            await told(
                handle,
                f"worker {row.id}",
                "which was last heard of at ",
                "its lease ran out at ",
                fixes=[f"holdfast worker {app.__name__}"],
            )


# --- work whose time has not come ----------------------------------------------------------------------------------


async def test_i3_a_node_that_backs_off_is_told_with_the_time_and_the_error(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.flaky)
        await until(lambda: _has(engine, handle, [FAILED, READY]), "it failed once")
        await told(
            handle,
            "Nothing needs to be done",
            "node flaky is backing off until ",
            " minutes) before attempt 2, ",
            "after ConnectionError: the bank does not answer",
            "it is tried again then without anybody's help",
            fixes=[f"holdfast show {handle.id} --traceback"],
        )


async def _has(engine: hf.Engine, handle: hf.Handle[Any], wanted: list[str]) -> bool:
    return await statuses(engine, handle.id) == wanted


async def test_a_run_that_was_started_for_later_says_when_and_whether_anybody_will_be_there(
    shared_url: str, stage: Stage
) -> None:
    at = datetime.now(UTC) + timedelta(hours=2, seconds=30)
    async with engine_on(shared_url, stage.registry) as engine:
        handle = await engine.start(stage.quick, at=at)
        async with engine.worker():
            await told(
                handle,
                f"to be started at {at:%Y-%m-%d %H:%M:%S} UTC. Nothing needs to be done",
                f"node quick is due at {at:%Y-%m-%d %H:%M:%S} UTC (in 2 hours)",
            )
        await told(
            handle,
            f"node quick is due at {at:%Y-%m-%d %H:%M:%S} UTC (in 2 hours), and no worker is running",
            fixes=[f"holdfast worker {HERE}"],
        )


# --- work that nobody takes ----------------------------------------------------------------------------------------


async def test_i8_without_any_worker_it_says_which_one_to_start(shared_url: str, stage: Stage) -> None:
    async with engine_on(shared_url, stage.registry) as engine:
        handle = await engine.start(stage.Order())
        await told(
            handle,
            f"run {handle.id} of Order waits for validate to be started",
            "and no worker is running",
            fixes=[f"holdfast worker {HERE}"],
        )
    async with engine_on(shared_url, hf.Registry()) as elsewhere:  # as in a shell without --app
        await told(
            elsewhere.get(handle.id),
            "to start a worker (MODULE is the one that defines Order):",
            fixes=["holdfast worker MODULE"],
        )


async def test_i8_a_queue_that_nobody_serves_is_named_with_those_that_are_served(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker(queues=["default", "mail"]):
        handle = await engine.start(stage.quick, queue="payments")
        await told(
            handle,
            "no worker serves queue 'payments' (live workers serve: default, mail)",
            fixes=[f"holdfast worker {HERE} --queue payments"],
        )


async def test_i8_a_step_that_no_live_worker_knows_is_named(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I8: yesterday's worker knows the workflow, and not its new step."""
    async with engine_on(shared_url, app.registry_without_second) as yesterday:
        _, row = await processes.serving(yesterday, shared_url, registry="registry_without_second")
    async with engine_on(shared_url, app.registry) as engine:
        handle = await engine.start(app.Deployed(journal=journal_path))
        await until(lambda: _has(engine, handle, [COMPLETED, READY]), "the old worker runs what it has")
        await told(
            handle,
            "no live worker of queue 'default' knows Deployed.second",
            f"worker {row.id} (host {row.host}, pid {row.pid}) has Deployed without it: other code",
            fixes=[f"holdfast worker {app.__name__}", f"holdfast skip {handle.id} second --app {app.__name__}"],
        )


async def test_i8_i31_a_job_that_nobody_knows_is_named_with_the_three_ways_out(shared_url: str, stage: Stage) -> None:
    """I31: no deploy changes a stored graph."""
    async with engine_on(shared_url, stage.registry) as engine:
        handle = await engine.start(stage.fan_out(stage.hold, 2))
    other = hf.Registry()

    @hf.action(registry=other)
    async def something() -> None: ...

    engine = engine_on(shared_url, other)
    async with engine, engine.worker():
        run = handle.id
        await told(
            engine.get(run),
            "2 nodes (mutation_0, mutation_1) are ready since ",
            "no live worker of queue 'default' knows the action 'hold'",
            "the graph of this run is stored, so that no deploy changes it",
            "give its successor aliases=['hold']",
            fixes=[
                "holdfast worker MODULE",
                f"holdfast cancel {run}",
                f"holdfast export {run} -o mutations.json && ${{EDITOR:-vi}} mutations.json && "
                f"holdfast import {run} mutations.json --app MODULE",
            ],
        )


async def test_i8_a_busy_worker_is_named_with_its_slots(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker(concurrency=1):
        first = await engine.start(stage.hold)
        await until(lambda: running(engine, first), "the only slot is taken")
        handle = await engine.start(stage.quick)
        (row,) = await engine.workers()
        await told(
            handle,
            "waits for a free slot: 1 of 1 slot of ",
            f"worker {row.id} ",
            fixes=[f"holdfast worker {HERE}"],
        )
        stage.go.set()


@pytest.mark.parametrize("scope", ["all", "workflow", "queue"])
async def test_i11_maintenance_is_told_with_its_scope_and_who_ordered_it(
    shared_url: str, stage: Stage, scope: str
) -> None:
    what: dict[str, Any] = {"all": {}, "workflow": {"workflow": "quick"}, "queue": {"queue": "default"}}[scope]
    option = {"all": "", "workflow": " --workflow quick", "queue": " --queue default"}[scope]
    shown = {"all": "everything", "workflow": "workflow quick", "queue": "queue default"}[scope]
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        await engine.maintenance(True, **what, by="ada")
        handle = await engine.start(stage.quick)
        await told(
            handle,
            f"{shown} is in maintenance since ",
            "(by ada): nothing of it is started",
            fixes=[f"holdfast maintenance off{option}"],
        )


# --- runs that wait for a person -----------------------------------------------------------------------------------


async def test_i11_a_pause_by_an_operator_is_told_with_who_when_and_why(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.Join())
        await until(lambda: _has_blocked(engine, handle, 2), "a and b are done")
        await handle.pause(by="ada", reason="lunch")
        await told(
            handle,
            f"run {handle.id} of Join is paused by ada: lunch (since {datetime.now(UTC):%Y-%m-%d}",
            "Nothing of it starts until it is resumed",
            "slow still runs to the end",
            fixes=[f"holdfast resume {handle.id}"],
        )
        begun_paused = await engine.start(stage.quick, paused=True)
        await told(begun_paused, "started paused", fixes=[f"holdfast resume {begun_paused.id}"])
        stage.go.set()


async def _has_blocked(engine: hf.Engine, handle: hf.Handle[Any], completed: int) -> bool:
    return any(state.detail == f"{completed} of 3" for state in await handle.nodes_with_state())


async def test_i30_a_pause_by_a_failure_names_node_path_error_and_what_is_blocked(
    shared_url: str, stage: Stage
) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.Order())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
        explanation = await told(
            handle,
            "paused: node charge gave up after 1 attempt: RuntimeError: card refused (path validate > charge); "
            "1 node blocked by it",
            "to run what gave up again, after a fix:",
            fixes=[
                f"holdfast resume {handle.id}",
                f"holdfast skip {handle.id} charge --app {HERE}",
                f"holdfast show {handle.id} --traceback",
            ],
        )
        assert str(explanation).count("card refused") == 1


async def test_i30_while_other_branches_go_on_a_node_that_gave_up_is_told_first(shared_url: str, stage: Stage) -> None:
    builder = hf.DagBuilder("two-branches", registry=stage.registry)
    builder.node("left", job=stage.broken)
    builder.node("right", job=stage.hold, depends_on=None)
    builder.node("last", job=stage.quick, depends_on=["left", "right"])
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(builder.build())
        await until(lambda: _failed_beside_running(engine, handle), "one branch gave up, the other runs")
        explanation = await told(
            handle,
            "is running right",
            fixes=[
                f"holdfast reattempt {handle.id} left",
                f"holdfast skip {handle.id} left",
                f"holdfast show {handle.id} --traceback",
            ],
        )
        assert explanation.reasons[0] == (
            "node left gave up after 1 attempt: ValueError: no such account; 1 node blocked by it"
        )
        stage.go.set()


async def _failed_beside_running(engine: hf.Engine, handle: hf.Handle[Any]) -> bool:
    return set(await statuses(engine, handle.id)) >= {FAILED, LEASED}


async def test_a_pause_by_the_runs_own_node_is_told_with_its_reason(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.Approval())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
        await told(
            handle,
            "is paused by node approve: the boss must look (since ",
            "to let it go on: the node that paused it runs again:",
            fixes=[f"holdfast resume {handle.id}"],
        )


async def test_i9_a_dead_letter_is_told_with_its_reason_and_both_ways_out(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry, unknown_after_seconds=0.2, sweep_seconds=0.02)
    async with engine, engine.worker(queues=["elsewhere"]):
        handle = await engine.start(stage.Order())
        await until(lambda: _has(engine, handle, [DEAD]), "nobody has known it for long")
        explanation = await told(
            handle,
            "is paused: node validate gave up after 1 attempt: MissingJob: no live worker has known Order.validate",
            "node validate is a dead letter since ",
            fixes=[f"holdfast dead replay {handle.id} validate", f"holdfast dead discard {handle.id} validate"],
        )
        assert str(explanation).count("no live worker has known") == 1


async def test_i9_a_dead_letter_of_a_run_whose_code_nobody_has_is_told_with_its_reason(
    shared_url: str, stage: Stage
) -> None:
    async with engine_on(shared_url, stage.registry) as starter:
        run = (await starter.start(stage.Order())).id
    engine = engine_on(shared_url, hf.Registry(), unknown_after_seconds=0.2, sweep_seconds=0.02)
    async with engine, engine.worker():
        await until(lambda: _has(engine, engine.get(run), [DEAD]), "nobody has known it for long")
        explanation = await engine.get(run).explain()
        print(f"\n{explanation}")
        assert "node validate is a dead letter" in str(explanation)
        assert "no live worker has known Order.validate" in str(explanation)
        assert f"holdfast dead replay {run} validate" in [fix.command for fix in explanation.fixes]


async def test_i2_a_blocked_node_says_which_parents_it_waits_for(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.Join())
        await until(lambda: _has_blocked(engine, handle, 2), "two of three parents are done")
        await told(handle, "node join is blocked (2 of 3) since ", ": it waits for slow (running)")
        async with engine_on(shared_url, hf.Registry()) as elsewhere:  # as in a shell without --app
            await told(
                elsewhere.get(handle.id), "node join is blocked (2 of 3) since ", ": it waits for slow (running)"
            )
        stage.go.set()


async def test_i31_a_run_that_waits_for_newer_code_says_which(shared_url: str) -> None:
    """I31: in a rolling deploy an old worker settles what it ran, and the new code must say what follows."""
    old, new = _versions()
    before, after = engine_on(shared_url, old[0]), engine_on(shared_url, new[0])
    async with before, before.worker(), after:
        handle = await after.start(new[1]())
        await until(lambda: _waits_for_code(after, handle.id), "the old worker has settled the first step")
        (row,) = await after.workers()
        await told(
            handle,
            f"run {handle.id} of Rolling waits for newer code of Rolling",
            "It takes a worker with the code that was first seen at ",
            f"Live workers have version {old[1].dag_signature()} ({row.host} pid {row.pid})",
            fixes=[f"holdfast worker {HERE}"],
        )
        async with after.worker():
            await handle.result(timeout=10)


def _versions() -> tuple[tuple[hf.Registry, Any], tuple[hf.Registry, Any]]:
    """The same class before and after a deploy that added a step."""
    old_registry, new_registry = hf.Registry(), hf.Registry()

    class Rolling(hf.Dag, registry=old_registry):
        @hf.step
        async def first(self) -> None: ...

    old = Rolling

    class Rolling(hf.Dag, registry=new_registry):  # type: ignore[no-redef]
        @hf.step
        async def first(self) -> None: ...

        @hf.step
        async def second(self) -> None: ...

    return (old_registry, old), (new_registry, Rolling)


async def _waits_for_code(engine: hf.Engine, run: str) -> bool:
    (row,) = await engine.store.runs([run])
    return row.signature is None


# --- runs that have ended ------------------------------------------------------------------------------------------


async def test_i1_ended_runs_say_how_and_what_can_still_be_done(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        done = await engine.start(stage.quick)
        await done.result(timeout=10)
        await told(done, f"run {done.id} of quick completed at ", "there is nothing left to do")
        failed = await engine.start(stage.broken)
        with pytest.raises(hf.RunFailed):
            await failed.result(timeout=10)
        explanation = await told(
            failed,
            "failed at ",
            "ValueError: no such",
            fixes=[
                f"holdfast retry {failed.id}",
                f"holdfast show {failed.id} --traceback",
            ],
        )
        assert str(explanation).count("ValueError") == 1
        cancelled = await engine.start(stage.Join())
        await until(lambda: _has_blocked(engine, cancelled, 2), "some of it is done")
        await cancelled.cancel(by="ada")
        await told(
            cancelled,
            "was cancelled by ada, at ",
            "It never changes again",
            fixes=[f"holdfast fork {cancelled.id} --from slow --app {HERE}"],
        )


# --- large runs ----------------------------------------------------------------------------------------------------


async def test_a_graph_of_thousands_of_nodes_is_told_in_a_few_lines(shared_url: str, stage: Stage) -> None:
    """However many nodes wait for the same thing, it is one line; and names, not ids."""
    async with engine_on(shared_url, stage.registry) as engine:
        handle = await engine.start(stage.fan_out(stage.quick, 2_000))
        await told(
            handle,
            "2,000 nodes (mutation_0, mutation_1, mutation_2 and 1,997 more) are ready since ",
            "and no worker is running",
            fixes=[f"holdfast worker {HERE}"],
        )


async def test_many_nodes_that_gave_up_are_counted_after_the_first_few(shared_url: str, stage: Stage) -> None:
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.fan_out(stage.broken, 30))
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
        explanation = await handle.explain()
        print(f"\n{explanation}")
        assert "\n" not in explanation.summary
        assert "node mutation_" in explanation.summary
        assert len(explanation.reasons) == 4
        assert explanation.reasons[-1] == "and 26 more nodes gave up"
        assert explanation.fixes[0].command == f"holdfast resume {handle.id}"
