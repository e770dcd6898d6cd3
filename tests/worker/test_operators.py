"""Cancel, pause, resume, retry, skip and maintenance, while a worker is at it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast.core.rows import BLOCKED, CANCELLED, COMPLETED, FAILED, GATE_PAUSED, LEASED, READY, SKIPPED
from tests.endtoend.programs import app, journal
from tests.worker.support import Processes, assert_sound, counted, engine_on, statuses, until, work_of


class Stage:
    """A registry whose actions wait for the test, and tell it what they were told."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.go = asyncio.Event()
        self.begun: list[str] = []
        self.stopped: list[str] = []
        stage = self

        @hf.action(registry=self.registry)
        async def hold(name: str) -> str:
            stage.begun.append(name)
            try:
                await stage.go.wait()
            except asyncio.CancelledError:
                stage.stopped.append(name)
                raise
            return name

        @hf.action(registry=self.registry)
        async def stubborn(name: str) -> str:
            stage.begun.append(name)
            while not stage.go.is_set():
                try:
                    await stage.go.wait()
                except asyncio.CancelledError:
                    stage.stopped.append(name)
            return name

        @hf.action(registry=self.registry)
        async def quick(name: str) -> str:
            stage.begun.append(name)
            return name

        class Pair(hf.Dag, registry=self.registry, on_failure="pause"):
            """Two entries side by side, and a step after both."""

            broken: bool = False

            @hf.step(depends_on=None)
            async def left(self) -> None:
                stage.begun.append("left")
                await stage.go.wait()
                if self.broken and not stage.mended:
                    raise ValueError("left is broken")

            @hf.step(depends_on=None)
            async def right(self) -> None:
                stage.begun.append("right")
                await stage.go.wait()

            @hf.step(depends_on=["left", "right"])
            async def last(self) -> None:
                stage.begun.append("last")

        self.mended = False
        self.hold, self.stubborn, self.quick, self.Pair = hold, stubborn, quick, Pair


# --- cancel --------------------------------------------------------------------------------------------------------


async def test_i10_cancel_removes_queued_work_raises_tokens_and_asks_running_code_to_stop(url: str) -> None:
    """I10, G7: in one transaction; from then on nothing of the run is claimed, and it never changes again."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker(concurrency=1):
        handle = await engine.start(stage.Pair())
        await until(lambda: stage.begun, "one of two entries runs")
        before = {work.node: work for work in await work_of(engine, handle.id)}
        assert sorted(work.status for work in before.values()) == [LEASED, READY]
        assert await handle.cancel(by="the test")
        after = await work_of(engine, handle.id)
        assert [work.status for work in after] == [CANCELLED, CANCELLED]
        assert all(work.token > before[work.node].token for work in after)
        assert await handle.status() == CANCELLED
        with pytest.raises(hf.RunCancelled, match="the test"):
            await handle.result(timeout=1)
        stage.go.set()
        assert await engine.run(stage.quick, "next", timeout=5) == "next", "the only slot is free again"
        assert stage.begun[1:] == ["next"]
        # It is an end: nothing revives it.
        assert not await handle.cancel()
        assert not await handle.resume()
        with pytest.raises(hf.UsageError, match="nothing to retry"):
            await handle.retry()
        assert await work_of(engine, handle.id) == after
        await assert_sound(engine)


async def test_i10_running_code_is_asked_to_stop(url: str) -> None:
    """I10: an async action gets a CancelledError at its next await; in the same process without waiting for a sweep."""
    stage = Stage()
    engine = engine_on(url, stage.registry, sweep_seconds=60.0, notify=False)
    async with engine, engine.worker():
        handle = await engine.start(stage.hold, "a")
        await until(lambda: stage.begun, "it runs")
        await handle.cancel()
        await until(lambda: stage.stopped == ["a"], "it is asked to stop")
        await until(lambda: not engine._workers[0].running, "its slot is free")


async def test_i10_g7_what_code_returns_after_a_cancel_is_stale(url: str) -> None:
    """I10, G7: code that does not stop finishes for nobody."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.stubborn, "a")
        await until(lambda: stage.begun, "it runs")
        await handle.cancel()
        await until(lambda: stage.stopped, "it is asked to stop, and does not")
        stored = await work_of(engine, handle.id)
        stage.go.set()
        await until(lambda: counted(engine, "stale_completions") == 1, "its result is refused")
        assert await work_of(engine, handle.id) == stored
        assert await handle.status() == CANCELLED
        await assert_sound(engine)


async def test_i10_a_cancel_in_one_process_reaches_the_code_in_another(
    shared_url: str, journal_path: str, processes: Processes
) -> None:
    """I10: within a sweep, without anybody's help."""
    async with engine_on(shared_url, app.registry) as engine:
        await processes.serving(engine, shared_url)
        handle = await engine.start(app.give_up_when_stopped, journal_path)
        await until(lambda: journal.begun(journal_path), "the other process has begun")
        assert await handle.cancel()
        await until(lambda: journal.read(journal_path)[-1].what == "stopped", "the code in the other process stops")
        assert await statuses(engine, handle.id) == [CANCELLED]


async def test_i10_a_delayed_run_that_was_cancelled_never_starts(url: str) -> None:
    """I10: queued work goes, whenever it was due."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        cancelled = await engine.start(stage.quick, "never", at=soon)
        kept = await engine.start(stage.quick, "later", at=soon)
        await cancelled.cancel()
        assert await kept.result(timeout=5) == "later"
        (work,) = await work_of(engine, kept.id)
        assert work.started is not None
        assert work.started >= int(soon.timestamp() * 1e6)
        assert stage.begun == ["later"]


# --- pause and resume ----------------------------------------------------------------------------------------------


async def test_i11_a_paused_run_starts_nothing_and_resume_runs_what_is_overdue_at_once(url: str) -> None:
    """I11: what is running goes on to its end, what is queued keeps its due time and waits."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker(concurrency=1):
        handle = await engine.start(stage.Pair())
        await until(lambda: len(stage.begun) == 1, "one entry runs, the other waits for the slot")
        (queued,) = [work for work in await work_of(engine, handle.id) if work.status == READY]
        assert await handle.pause(by="the test", reason="lunch")
        with pytest.raises(hf.RunPaused, match="lunch"):
            await handle.result(timeout=1)
        stage.go.set()
        await until(lambda: _one_completed(engine, handle.id), "what was running ends")
        assert await engine.run(stage.quick, "other", timeout=5) == "other", "others are served meanwhile"
        (held,) = await work_of(engine, handle.id, queued.node)
        assert (held.status, held.gate, held.due) == (READY, GATE_PAUSED, queued.due)
        assert stage.begun[1:] == ["other"]
        assert await handle.resume()
        await handle.result(timeout=5)
        assert stage.begun[2:] == [queued.node, "last"]
        assert not await handle.resume()
        await assert_sound(engine)


async def test_i11_resume_leaves_future_times_alone(url: str) -> None:
    """I11: a pause neither brings a due time forward nor puts it off."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        later = datetime.now(UTC) + timedelta(hours=1)
        handle = await engine.start(stage.quick, "later", at=later)
        await handle.pause()
        await handle.resume()
        assert await engine.run(stage.quick, "now", timeout=5) == "now"
        (work,) = await work_of(engine, handle.id)
        assert (work.status, work.due) == (READY, int(later.timestamp() * 1_000_000))
        assert stage.begun == ["now"]


async def _paused_by_a_failure(stage: Stage, engine: hf.Engine) -> hf.Handle[None]:
    """A run of which one entry gave up."""
    stage.go.set()
    handle = await engine.start(stage.Pair(broken=True))
    with pytest.raises(hf.RunPaused, match="left"):
        await handle.result(timeout=5)
    return handle


async def test_i11_a_run_that_a_failure_paused_is_retried_by_resume(url: str) -> None:
    """I11, I30: the other branch ran to its end; resume grants the node that gave up one more attempt."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await _paused_by_a_failure(stage, engine)
        assert await statuses(engine, handle.id, "right") == [COMPLETED]
        stage.mended = True
        assert await handle.resume()
        await handle.result(timeout=5)
        assert await statuses(engine, handle.id, "left") == [FAILED, COMPLETED]
        assert await statuses(engine, handle.id, "last") == [COMPLETED]


async def _paused_then_broken(stage: Stage, engine: hf.Engine) -> hf.Handle[None]:
    """A run that an operator paused while both entries ran, and of which one then gave up."""
    handle = await engine.start(stage.Pair(broken=True))
    await until(lambda: len(stage.begun) == 2, "both entries run")
    assert await handle.pause(by="ada", reason="lunch")
    stage.go.set()

    async def settled() -> bool:
        return sorted(await statuses(engine, handle.id)) == [BLOCKED, COMPLETED, FAILED]

    await until(settled, "left has failed and right completed")
    stage.mended = True
    return handle


async def _waits_with_the_rest(engine: hf.Engine, handle: hf.Handle[None], node: str) -> None:
    (row,) = await engine.store.runs([handle.id])
    assert (row.status, row.reason, row.error) == ("paused", "paused by ada: lunch", None)
    work = (await work_of(engine, handle.id, node))[-1]
    assert (work.status, work.gate) == (READY, GATE_PAUSED)
    assert "paused by ada: lunch" in str(await handle.explain())


@pytest.mark.parametrize("verb", ["retry", "reattempt", "skip"])
async def test_i11_a_pause_that_somebody_asked_for_stays_until_the_resume(url: str, verb: str) -> None:
    """I11: what is done about a failure meanwhile makes work ready, and that waits with the rest."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await _paused_then_broken(stage, engine)
        assert "until what gave up is skipped" not in str(await handle.explain())
        if verb == "retry":
            assert await handle.retry() == ["left"]
        else:
            await getattr(handle, verb)("left")
        await _waits_with_the_rest(engine, handle, "last" if verb == "skip" else "left")
        begun = len(stage.begun)
        assert await engine.run(stage.quick, "other", timeout=5) == "other", "others are served meanwhile"
        assert stage.begun[begun:] == ["other"]
        assert await handle.resume()
        await handle.result(timeout=5)
        assert await statuses(engine, handle.id, "left") == ([SKIPPED] if verb == "skip" else [FAILED, COMPLETED])
        await assert_sound(engine)


async def test_i11_a_run_that_a_failure_paused_can_be_paused_by_an_operator_too(url: str) -> None:
    """I11: from then on it is the operator's pause, which a reattempt does not end."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await _paused_by_a_failure(stage, engine)
        assert await handle.pause(by="ada", reason="lunch")
        assert not await handle.pause(by="bob"), "it is paused already"
        stage.mended = True
        await handle.reattempt("left")
        await _waits_with_the_rest(engine, handle, "left")
        assert await handle.resume()
        await handle.result(timeout=5)


async def test_i11_a_run_that_was_started_paused_stays_so_whatever_is_skipped(url: str) -> None:
    stage = Stage()
    stage.go.set()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.Pair(), paused=True)
        await handle.skip("left")
        assert (await handle.status(), stage.begun) == ("paused", [])
        assert await handle.resume()
        await handle.result(timeout=5)
        assert stage.begun == ["right", "last"]


async def test_i11_retry_grants_one_more_attempt_and_wakes_the_worker(url: str) -> None:
    """I11: on a failed run, with everything that was completed left alone."""
    registry = hf.Registry()
    broken = [True]

    @hf.action(registry=registry)
    async def flaky() -> int:
        if broken[0]:
            raise ValueError("down")
        return hf.current().attempt

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(flaky)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=5)
        assert await handle.retry() == ["flaky"]
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=5)
        broken[0] = False
        assert await handle.retry() == ["flaky"]
        assert await handle.result(timeout=5) == 3
        assert await statuses(engine, handle.id) == [FAILED, FAILED, COMPLETED]


async def test_i11_skip_satisfies_what_depends_on_the_node(url: str) -> None:
    """I11: a node that gave up is skipped by an operator, and the rest of the run goes on."""
    stage = Stage()
    stage.go.set()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.Pair(broken=True))
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=5)
        await handle.skip("left")
        await handle.result(timeout=5)
        assert await statuses(engine, handle.id, "left") == [SKIPPED]
        assert stage.begun[-1] == "last"
        with pytest.raises(hf.UsageError, match="cannot be skipped"):
            await handle.skip("last")
        await assert_sound(engine)


@pytest.mark.parametrize("skipped", [["left", "right"], ["left"], ["last"]])
async def test_i11_what_a_skip_makes_ready_waits_for_the_time_that_the_run_was_started_for(
    url: str, skipped: list[str]
) -> None:
    """I11: to go on without a node is not to begin earlier."""
    stage = Stage()
    stage.go.set()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        later = datetime.now(UTC) + timedelta(hours=1)
        handle = await engine.start(stage.Pair(), at=later)
        for node in skipped:
            await handle.skip(node)
        assert await engine.run(stage.quick, "now", timeout=5) == "now"
        await engine.settle(timeout=5)
        ready = [work for work in await work_of(engine, handle.id) if work.status == READY]
        assert {work.due for work in ready} == {int(later.timestamp() * 1_000_000)}
        assert (await handle.status(), stage.begun) == ("pending", ["now"])
        await assert_sound(engine)


# --- maintenance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["all", "workflow", "queue"])
async def test_i11_maintenance_stops_claims_and_accepts_all_else(url: str, scope: str) -> None:
    """I11: for everything, one workflow or one queue; what is not meant is served, and `off` lets it go on."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    what = {"all": {}, "workflow": {"workflow": "quick"}, "queue": {"queue": "slow"}}[scope]
    async with engine, engine.worker(queues=["default", "slow"]):
        await engine.maintenance(True, **what, by="the test")
        held = await engine.start(stage.quick, "held", queue="slow")
        assert "maintenance" in str(await held.explain())
        if scope != "all":
            stage.go.set()
            assert await engine.run(stage.stubborn, "served", timeout=5) == "served"
        await _a_few_polls(engine)
        assert await statuses(engine, held.id) == [READY]
        await engine.maintenance(False, **what)
        assert await held.result(timeout=5) == "held"


async def test_i11_maintenance_stops_the_hand_over_inside_a_chain_too(url: str) -> None:
    """I11: a step that becomes ready while everything is held is neither claimed nor handed over."""
    stage = Stage()
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(stage.Pair())
        await until(lambda: len(stage.begun) == 2, "both entries run")
        await engine.maintenance(True)
        stage.go.set()
        await until(lambda: _is(engine, handle.id, "last", [READY]), "the last step is ready")
        await _a_few_polls(engine)
        assert "last" not in stage.begun
        await engine.maintenance(False)
        await handle.result(timeout=5)


async def _a_few_polls(engine: hf.Engine) -> None:
    """Until the worker has looked for work three times more."""
    before = counted(engine, "claims")
    await until(lambda: counted(engine, "claims") >= before + 3, "the worker polls")


async def _one_completed(engine: hf.Engine, run: str) -> bool:
    return (await statuses(engine, run)).count(COMPLETED) == 1


async def _is(engine: hf.Engine, run: str, node: str, wanted: list[str]) -> bool:
    return await statuses(engine, run, node) == wanted
