"""The coordinator: what one operation may do to the others, to the cache, and to the loop that serves them all."""

from __future__ import annotations

import asyncio
import logging

import pytest
from msgspec.structs import replace

from holdfast.batches import Submitted
from holdfast.coordinator import Commit
from holdfast.core import failpoints
from holdfast.core.errors import EngineClosed, KeyConflict, UnknownWorkflow, UsageError
from holdfast.core.operations import CancelRun, RunOperation, Started
from holdfast.core.rows import RUNS, WORK
from holdfast.core.view import NotLoaded, RowCache, View
from holdfast.models.machine import record
from holdfast.runtime.system import RealClock
from holdfast.store.contract import Busy
from tests.kernel.kernels import GRAPHS, complete, make_coordinator, opened_kernel, start
from tests.kernel.scripts import follow, write_script
from tests.support.stores import EPOCH_US, SHARED_KINDS, Site, VirtualClock, empty, every_row
from tests.worker.support import until


class Vandalise(RunOperation, frozen=True, kw_only=True, gc=False):
    """Writes wherever it can, and then raises."""

    error: str


def vandalise(view: View, op: Vandalise) -> None:
    run = view.run(op.run)
    assert run is not None
    record(view, replace(run, reason="vandalised"), "vandalised")
    for node in GRAPHS[run.workflow].by_id:
        work = view.get(WORK, (op.run, node, 1))
        if work is not None:
            view.put(WORK, replace(work, status="dead", token=work.token + 9))
    raise {"refusal": UsageError("refused"), "crash": ZeroDivisionError("a bug in a decision")}[op.error]


WITH_VANDALS = {Vandalise: vandalise}


@pytest.mark.parametrize("error", ["refusal", "crash"])
@pytest.mark.parametrize("remembered", [True, False])
async def test_k7_an_operation_that_is_refused_undoes_only_itself(site: Site, error: str, remembered: bool) -> None:
    """Whatever it wrote before it raised, on remembered rows and on loaded ones, the rest does not notice."""
    async with opened_kernel(site, extra=WITH_VANDALS) as (coordinator, store):
        await coordinator.submit_batch([start("r1", "chain", lease=True), start("r2", lease=True)])
        if not remembered:
            coordinator.cache.clear()
        results = await coordinator.submit_batch(
            [
                complete("r1", "a", lease=True),
                Vandalise(run="r1", error=error),
                complete("r1", "b"),
                Vandalise(run="r2", error=error),
                complete("r2"),
            ]
        )
        found = await every_row(store)
    verdicts = [getattr(result, "verdict", type(result)) for result in results]
    raised = UsageError if error == "refusal" else ZeroDivisionError
    assert verdicts == ["recorded", raised, "recorded", raised, "recorded"]
    async with opened_kernel(Site("memory")) as (undisturbed, plain):
        await undisturbed.submit_batch([start("r1", "chain", lease=True), start("r2", lease=True)])
        await undisturbed.submit_batch([complete("r1", "a", lease=True), complete("r1", "b"), complete("r2")])
        assert found == await every_row(plain)


async def test_k7_a_key_conflict_and_an_unknown_run_are_answers_to_their_callers_alone(site: Site) -> None:
    """Errors are values of a batch, in their places."""
    async with opened_kernel(site) as (coordinator, store):
        results = await coordinator.submit_batch(
            [
                start("r1", key="k", input_digest="one"),
                start("r2", key="k", input_digest="two"),
                CancelRun(run="nowhere"),
                start("r3", key="k", input_digest="one"),
                start("r4"),
            ]
        )
        stored = await every_row(store)
    assert [type(result) for result in results] == [Started, KeyConflict, UnknownWorkflow, Started, Started]
    assert (results[3].run, results[3].existed) == ("r1", True)
    assert [run.id for run in stored["runs"]] == ["r1", "r4"]


async def test_k9_a_decision_that_raises_is_logged_and_the_next_operation_is_served(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in one decision is one caller's exception."""
    async with opened_kernel(site, extra=WITH_VANDALS) as (coordinator, _):
        await coordinator.submit(start("r1"))
        with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
            await coordinator.submit(Vandalise(run="r1", error="crash"))
        assert [record.getMessage() for record in caplog.records] == ["deciding Vandalise raised"]
        assert (await coordinator.submit(start("r2"))).run == "r2"


async def test_k9_an_operation_nobody_can_decide_is_an_error_for_its_caller_alone(site: Site) -> None:
    """No decision is known for it: the batch goes on."""
    async with opened_kernel(site) as (coordinator, _):
        results = await coordinator.submit_batch([start("r1"), Vandalise(run="r1", error="crash"), start("r2")])
        assert [type(result) for result in results] == [Started, KeyError, Started]


async def test_k9_an_observer_that_raises_stops_nothing(site: Site) -> None:
    """Whoever listens is not part of the commit."""

    def broken(commit: Commit) -> None:
        raise RuntimeError("observers may fail")

    async with opened_kernel(site) as (coordinator, _):
        seen: list[Commit] = []
        coordinator.observers += [broken, seen.append]
        await coordinator.submit(start("r1"))
        await coordinator.submit(start("r2"))
        assert len(seen) == 2


async def test_k9_a_caller_who_cannot_be_told_costs_the_others_nothing(site: Site) -> None:
    """Its loop is closed by now; what it asked for is committed with the rest."""
    async with opened_kernel(site) as (coordinator, store):
        elsewhere = asyncio.new_event_loop()
        nobody = elsewhere.create_future()
        nobody.add_done_callback(print)
        elsewhere.close()
        coordinator._queue.append(Submitted(start("r1"), nobody, 0))
        results = await coordinator.submit_batch([start("r2"), start("r3")])
        assert [result.run for result in results] == ["r2", "r3"]
        assert [run.id for run in await store.runs(["r1", "r2", "r3"])] == ["r1", "r2", "r3"]


@pytest.mark.parametrize("place", ["batch.taken", "flush.before", "flush.after_commit"])
async def test_k9_a_caller_that_was_cancelled_changes_nothing_for_the_others(site: Site, place: str) -> None:
    """Cancelled before, during or after the commit: the operation stands, the batch and the next one are answered."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r0"))
        callers: list[asyncio.Task[Started]] = []

        def cancel_one(name: str) -> None:
            if name == place and not callers[1].done():
                callers[1].cancel()

        async def ask(run: str) -> Started:
            started: Started = await coordinator.submit(start(run))
            return started

        callers += [asyncio.create_task(ask(f"r{number}")) for number in (1, 2, 3)]
        failpoints.arm(cancel_one)
        results = await asyncio.gather(*callers, return_exceptions=True)
        failpoints.disarm()
        assert [type(result) for result in results] == [Started, asyncio.CancelledError, Started]
        assert (await coordinator.submit(start("r4"))).run == "r4"
        assert {run.id for run in (await every_row(store))["runs"]} == {"r0", "r1", "r2", "r3", "r4"}


async def test_i53_results_come_in_the_order_of_the_operations(site: Site) -> None:
    """Whatever path each of them takes."""
    async with opened_kernel(site) as (coordinator, _):
        await coordinator.submit_batch([start(f"old{number}") for number in range(4)])
        coordinator.cache.drop("old1")
        batch = []
        for number in range(4):
            batch += [start(f"new{number}"), CancelRun(run=f"old{number}"), complete(f"old{number}")]
        results = await coordinator.submit_batch(batch)
    assert [result.run for result in results[::3]] == [f"new{number}" for number in range(4)]
    assert [(result.changed, result.status) for result in results[1::3]] == [(True, "cancelled")] * 4
    assert [(result.verdict, result.run_status) for result in results[2::3]] == [("stale", "cancelled")] * 4


async def test_i53_more_operations_than_fit_into_a_batch_are_all_served(site: Site) -> None:
    """In several commits, in order."""
    async with opened_kernel(site, batch_limit=7) as (coordinator, _):
        commits: list[Commit] = []
        coordinator.observers.append(commits.append)
        results = await coordinator.submit_batch([start(f"r{number:02d}") for number in range(30)])
        assert [result.run for result in results] == [f"r{number:02d}" for number in range(30)]
        assert len(commits) >= 5


async def test_i54_after_close_every_future_has_a_result_or_engine_closed(site: Site) -> None:
    """What was submitted before is finished, what comes after is refused; nobody is left waiting."""
    async with opened_kernel(site) as (coordinator, store):
        before = [coordinator.submit(start(f"r{number}")) for number in range(3)]
        await coordinator.close()
        after = coordinator.submit(start("late"))
        assert all(future.done() for future in [*before, after])
        assert [(await future).run for future in before] == ["r0", "r1", "r2"]
        with pytest.raises(EngineClosed):
            await after
        assert len((await every_row(store))["runs"]) == 3


async def test_k1_an_operation_that_cannot_be_written_is_found_by_halving(site: Site) -> None:
    """Text that no database takes: its own caller gets the error, everybody else a run."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory writes anything")
    poison = "a lone surrogate \ud800 is not text"
    async with opened_kernel(site) as (coordinator, store):
        batch = [start(f"r{number}", tags=poison if number == 5 else "{}") for number in range(8)]
        results = await coordinator.submit_batch(batch)
        stored = await every_row(store)
        assert (await coordinator.submit(start("next"))).run == "next"
    assert "surrogates not allowed" in str(results[5])
    del results[5]
    assert [result.run for result in results] == ["r0", "r1", "r2", "r3", "r4", "r6", "r7"]
    assert len(stored["runs"]) == 7


async def test_i53_operations_on_a_run_that_was_set_aside_keep_their_order() -> None:
    """Its first operation finds the run locked by someone slow; later ones wait for it, and nobody else does."""
    go_on = asyncio.Event()
    tries = 0

    def hook(name: str) -> asyncio.Task[bool] | None:
        nonlocal tries
        if name != "load.after_locks":
            return None
        tries += 1
        if tries == 1:
            raise Busy("somebody holds the run")
        return asyncio.ensure_future(go_on.wait()) if tries == 2 else None

    async with opened_kernel(Site("memory")) as (coordinator, _):
        await coordinator.submit(start("hot", "chain", lease=True))
        coordinator.cache.clear()
        failpoints.arm(hook)  # type: ignore[arg-type]
        hot = [coordinator.submit(complete("hot", "a", lease=True))]
        assert (await coordinator.submit(start("r1"))).run == "r1"
        hot += [coordinator.submit(complete("hot", node, lease=True)) for node in ("b", "c")]
        assert (await coordinator.submit(start("r2"))).run == "r2"
        assert not any(future.done() for future in hot)
        go_on.set()
        assert [(await future).run_status for future in hot] == ["running", "running", "completed"]


async def test_i54_closing_waits_for_what_was_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    """A run that stays locked until the time is up: its callers get EngineClosed, not silence."""

    def hook(name: str) -> asyncio.Task[None] | None:
        if name != "load.after_locks":
            return None
        if asyncio.current_task().get_name() != "holdfast-aside":  # type: ignore[union-attr]
            raise Busy("somebody holds the run")
        return asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[arg-type]

    async with opened_kernel(Site("memory"), RealClock(), store_timeout_seconds=0.1) as (coordinator, _):
        await coordinator.submit(start("hot", "chain", lease=True))
        coordinator.cache.clear()
        failpoints.arm(hook)
        first = coordinator.submit(complete("hot", "a"))
        await until(lambda: bool(coordinator._aside), "it is set aside, or the start would be of the same batch")
        await coordinator.submit(start("r1"))
        second = coordinator.submit(complete("hot", "b"))
        await coordinator.close()
        for future in (first, second):
            with pytest.raises(EngineClosed):
                await future


# -- what is remembered


def test_k6_a_view_knows_present_absent_and_not_loaded() -> None:
    """Reading what was never loaded raises; it is not taken for absent."""
    cache = RowCache()
    view = View(cache, now=EPOCH_US, optimistic=False)
    with pytest.raises(NotLoaded) as missing:
        view.get(WORK, ("r1", "n", 1))
    assert missing.value.needs == ((WORK, ("r1", "n", 1)),)
    view.supply((WORK, ("r1", "n", 1)), [])
    assert view.get(WORK, ("r1", "n", 1)) is None
    with pytest.raises(NotLoaded):
        view.get(RUNS, ("r1",))
    view.supply((RUNS, ("r1",)), [])
    assert view.run("r1") is None


async def test_k6_the_operation_that_asked_for_an_unloaded_row_is_decided_again_from_its_start(site: Site) -> None:
    """Rows are loaded in rounds; what it had written before it asked is not there twice."""

    class Tour(RunOperation, frozen=True, kw_only=True, gc=False):
        """Appends an entry for every node, reading one row after the other."""

    decided = 0

    def tour(view: View, op: Tour) -> list[str | None]:
        nonlocal decided
        decided += 1
        seen: list[str | None] = []
        for node in ("x", "nowhere", "y", "z"):
            run = view.run(op.run)
            assert run is not None
            record(view, run, "visited", node=node)
            work = view.get(WORK, (op.run, node, 1))
            seen.append(None if work is None else work.status)
        return seen

    async with opened_kernel(site, extra={Tour: tour}) as (coordinator, store):
        await coordinator.submit(start("r1", "join"))
        coordinator.cache.clear()
        seen, other = await coordinator.submit_batch([Tour(run="r1"), start("r2")])
        assert seen == ["ready", None, "ready", "ready"]
        assert isinstance(other, Started)
        assert decided > 1
        assert [entry.sequence for entry in await store.history("r1")] == [1, 2, 3, 4]


async def test_k6_a_good_completion_is_not_stale_because_nothing_is_remembered(site: Site) -> None:
    """Forgetting everything between the lease and the report costs a read and nothing else."""
    async with opened_kernel(site) as (coordinator, _):
        await coordinator.submit(start("r1", "join", lease=True))
        for node in ("x", "y", "z"):
            coordinator.cache.clear()
            assert (await coordinator.submit(complete("r1", node))).verdict == "recorded"


async def test_k5_emptying_the_cache_in_the_middle_of_a_batch_changes_nothing(site: Site) -> None:
    """At every named place between taking a batch and its commit."""
    for seed in (1, 2, 3):
        script = await write_script(seed, 12)
        clock = VirtualClock()
        async with site.opened(clock) as store:
            coordinator = make_coordinator(store, clock)
            failpoints.arm(lambda name, cache=coordinator.cache: cache.clear())  # type: ignore[misc]
            await follow(script, [(coordinator, store)], clock, fused=True)
            failpoints.disarm()
            assert await every_row(store) == script.rows
            await coordinator.close()
            await empty(store)
