"""What people and deploys do to runs of flows: tried again, refused, and gone on with under other code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.flows import flow
from holdfast.core.queries import AllWork, ChildrenOf, OpenWork
from tests.support.stores import KINDS, Site, site_for
from tests.worker.support import assert_sound, engine_on, until

logger = logging.getLogger("tests.flows.lives")
working: set[str] = set()
called: list[str] = []


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


async def risky(name: str) -> str:
    called.append(name)
    if name not in working:
        raise ValueError(name)
    return name


async def first_then_second() -> str:
    try:
        found = await risky("first")
    except ValueError:
        found = "caught"
    return found + await risky("second")


def registered() -> tuple[hf.Registry, hf.Action[[str], str]]:
    registry = hf.Registry()
    return registry, hf.action(registry=registry)(risky)


@pytest.fixture(autouse=True)
def nothing_works() -> None:
    working.clear()
    called.clear()


async def test_i21_retry_tries_what_failed_the_run_again_and_nothing_that_a_handler_took(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I21, I11: the flow has gone on with the failure that it caught, so no verb of an operator can undo it."""
    registry, action = registered()
    monkeypatch.setitem(first_then_second.__globals__, "risky", action)
    made = flow(registry=registry)(first_then_second)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(made)
        with pytest.raises(hf.RunFailed, match="risky_2: ValueError: second"):
            await handle.result(timeout=10)
        with pytest.raises(hf.ReattemptRefused, match="its failure was taken, and the flow has gone on"):
            await handle.reattempt("risky")
        with pytest.raises(hf.UsageError, match="its failure was taken, and the flow has gone on"):
            await handle.skip("risky")
        working.update(("first", "second"))
        assert await handle.retry() == ["risky_2"]
        assert await handle.result(timeout=10) == "caughtsecond"
        await assert_sound(engine)
    assert called == ["first", "second", "second"]


async def test_i21_a_run_that_goes_on_after_a_handler_bears_no_blame(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, action = registered()
    monkeypatch.setitem(first_then_second.__globals__, "risky", action)
    working.add("second")
    made = flow(registry=registry)(first_then_second)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(made)
        assert await handle.result(timeout=10) == "caughtsecond"
        (row,) = await engine.store.runs([handle.id])
        assert (row.reason, row.error, row.gave_up) == (None, None, 0)
        with pytest.raises(hf.UsageError, match="has nothing to retry"):
            await handle.retry()


async def counted(number: int) -> int:
    called.append("counted")
    return number + 1


def old_code() -> tuple[hf.Registry, hf.Flow[[int], int]]:
    registry = hf.Registry()
    add_one = hf.action(registry=registry, name="add one")(counted)

    async def steps(number: int) -> int:
        first = await add_one(number)
        return 100 + await add_one(first)

    return registry, flow(registry=registry)(steps)


def new_code() -> tuple[hf.Registry, hf.Flow[[int], int]]:
    registry = hf.Registry()
    add_one = hf.action(registry=registry, name="add one")(counted)

    async def steps(number: int) -> int:
        return 1000 + await add_one(number)

    return registry, flow(registry=registry)(steps)


async def test_i24_a_run_keeps_the_graph_it_was_started_with_when_the_source_changes(site: Site) -> None:
    """The same name, other source: the run that is under way ends as the old one says, a new one as the new one."""
    old_registry, old = old_code()
    new_registry, new = new_code()
    async with site.opened() as store, hf.Engine(store=store, registry=old_registry) as engine:
        run = (await engine.start(old, 1)).id
        async with hf.Engine(store=store, registry=new_registry) as later, later.worker():
            assert await later.get(run).result(timeout=10) == 103
            assert await later.run(new, 1, timeout=10) == 1002
            await assert_sound(later)


async def talkative() -> str:
    logger.info("begins")
    try:
        await risky("first")
    except ValueError as error:
        logger.warning("caught %s", error)
    found = await risky("second")
    logger.info("got %s", found, extra={"order": 7})
    return found


async def test_i24_what_a_flow_logs_is_written_once_when_it_is_committed(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, in a handler, and after a completion."""
    registry, action = registered()
    monkeypatch.setitem(talkative.__globals__, "risky", action)
    working.add("second")
    made = flow(registry=registry)(talkative)
    with caplog.at_level(logging.INFO, "tests.flows.lives"):
        async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
            assert await engine.run(made, timeout=10) == "second"
    lines = [record for record in caplog.records if record.name == "tests.flows.lives"]
    assert [record.getMessage() for record in lines] == ["begins", "caught first", "got second"]
    assert getattr(lines[-1], "order", None) == 7


@hf.pure
def twice(number: int) -> int:
    return 2 * number


def code_with_a_helper() -> tuple[hf.Registry, hf.Flow[[int], int]]:
    registry = hf.Registry()
    add_one = hf.action(registry=registry, name="add one")(counted)

    async def steps(number: int) -> int:
        try:
            first = await add_one(number)
            return twice(first)
        except Exception:
            return -1

    return registry, flow(registry=registry)(steps)


async def test_i8_what_follows_is_left_for_a_worker_that_has_the_code_of_the_running_graph(site: Site) -> None:
    """A deploy that is too new is no exception of the flow: what it completed counts, and others go on from there."""
    old_registry, old = code_with_a_helper()
    new_registry, _ = new_code()
    async with site.opened() as store, hf.Engine(store=store, registry=old_registry) as engine:
        run = (await engine.start(old, 1)).id
        async with hf.Engine(store=store, registry=new_registry) as later:
            async with later.worker():

                async def left() -> bool:
                    work = await store.rows(AllWork(run))
                    return any(item.kind == "settle" and item.status == "ready" for item in work)

                await until(left, "what follows is left to others")
                assert await later.get(run).status() == "running"
                told = str(await later.get(run).explain())
                assert "no live worker" in told or "knows" in told, told
            await assert_sound(later)
            assert called == ["counted"]
            async with engine.worker():
                assert await engine.get(run).result(timeout=10) == 4
            assert called == ["counted"], "what was completed is not run again"
            await assert_sound(engine)


async def test_i29_a_refused_reattempt_offers_no_fork_of_a_flow(site: Site) -> None:
    """It would be refused."""
    registry = hf.Registry()
    work = hf.action(registry=registry)(counted)

    async def once() -> int:
        return await work(1)

    made = flow(registry=registry)(once)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(made)
        await handle.result(timeout=10)
        (done, *_) = await handle.step_executions()
        with pytest.raises(hf.ReattemptRefused) as refused:
            await handle.reattempt(done.node)
        assert "holdfast fork" not in refused.value.hint
        assert "start another run of once" in refused.value.hint


async def test_i11_what_a_skip_makes_ready_waits_for_the_time_that_the_run_was_started_for(site: Site) -> None:
    registry = hf.Registry()
    work = hf.action(registry=registry)(counted)

    async def twice_counted() -> int:
        await work(1)
        return await work(2)

    made = flow(registry=registry)(twice_counted)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        later = datetime.now(UTC) + timedelta(hours=1)
        handle = await engine.start(made, at=later)
        (first,) = await engine.store.rows(OpenWork(handle.id))
        await handle.skip(first.node)
        await engine.settle(timeout=10)
        (second,) = await engine.store.rows(OpenWork(handle.id))
        assert second.due == first.due == int(later.timestamp() * 1_000_000)
        assert called == []
        await assert_sound(engine)


async def test_i11_a_node_that_runs_as_a_child_is_not_skipped_before_that_has_ended(site: Site) -> None:
    """The child would go on with nobody to tell: it is cancelled first, and then the node gave up."""
    registry = hf.Registry()
    work = hf.action(registry=registry)(counted)

    @hf.workflow(registry=registry)
    async def waiting() -> int:
        await hf.wait_for("never")
        return 0

    async def parent() -> int:
        await waiting()
        return await work(1)

    made = flow(registry=registry)(parent)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(made)

        async def child() -> str | None:
            found = await engine.store.rows(ChildrenOf(handle.id))
            return found[0].id if found and found[0].status == "suspended" else None

        started = await until(child, "the child waits")
        with pytest.raises(hf.UsageError, match=f"it is running, as run {started}.*holdfast cancel {started}"):
            await handle.skip("waiting")
        with pytest.raises(hf.ReattemptRefused, match=f"it is running, as run {started}"):
            await handle.reattempt("waiting")
        with pytest.raises(hf.ReattemptRefused, match="it waits for what it has asked for"):
            await engine.get(started).reattempt("waiting")
        assert await engine.get(started).status() == "suspended"
        await engine.get(started).cancel()
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        await handle.skip("waiting")
        assert await handle.result(timeout=10) == 2
        await assert_sound(engine)


async def test_g3_a_child_that_was_to_be_pruned_before_the_flow_saw_its_end_is_not_started_again(site: Site) -> None:
    registry = hf.Registry()
    work = hf.action(registry=registry)(counted)

    @hf.workflow(registry=registry)
    async def child() -> int:
        return await work(1)

    async def parent() -> int:
        return await child()

    made = flow(registry=registry)(parent)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        await engine.maintenance(True, workflow="child")
        handle = await engine.start(made)
        await until(lambda: engine.store.rows(ChildrenOf(handle.id)), "the child has been started")
        await engine.settle(timeout=10)
        await handle.pause()
        await engine.maintenance(False, workflow="child")
        (started,) = await engine.store.rows(ChildrenOf(handle.id))
        assert await engine.get(started.id).result(timeout=10) == 2
        assert await engine.prune(older_than_seconds=0) == 0
        await handle.resume()
        assert await handle.result(timeout=10) == 2
        assert called == ["counted"]
        assert await engine.prune(older_than_seconds=0) == 2


async def result_too_large() -> str:
    return "x" * (5_000 * await counted(1))


async def argument_too_large() -> str:
    number = await counted(1)
    return await same("x" * (5_000 * number))


async def variable_too_large() -> str:
    text = "x" * (5_000 * await counted(1))
    await counted(2)
    return text[:10] * 1_000


async def same(text: str) -> str:
    return text


@pytest.mark.parametrize("source", [result_too_large, argument_too_large, variable_too_large])
async def test_g3_what_a_flow_cannot_store_fails_the_flow_and_no_call_is_made_again(
    site: Site, source: Callable[[], Coroutine[Any, Any, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was called has completed. A retry computes again, and goes on once there is room for it."""
    registry = hf.Registry()
    for action in (counted, same):
        monkeypatch.setitem(globals(), action.__name__, hf.action(registry=registry)(action))
    made = flow(registry=registry)(source)
    small = engine_on(site.url or "memory://", registry, payload_limit_bytes=9_000)
    async with small, small.worker():
        handle = await small.start(made)
        for tried in (1, 2):
            if tried > 1:
                await handle.retry()
            with pytest.raises(hf.RunFailed) as failed:
                await handle.result(timeout=10)
            assert isinstance(failed.value.cause, hf.PayloadTooLarge)
            assert [step.state for step in await handle.step_executions("counted")] == ["completed"]
            assert await small.dead() == []
        assert called == ["counted"]
        await assert_sound(small)
    if site.kind == "memory":  # which is gone
        return
    async with engine_on(site.url, registry) as large, large.worker():
        mended = large.get(handle.id)
        await mended.retry()
        assert await mended.result(timeout=10) == "x" * 10_000


async def test_i11_a_skip_after_which_a_flow_could_not_go_on_is_refused(site: Site) -> None:
    registry = hf.Registry()

    async def risen() -> int:
        return await failing(1)

    @hf.action(registry=registry)
    async def failing(number: int) -> int:
        raise ValueError(number)

    made = flow(registry=registry)(risen)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(made)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        with pytest.raises(hf.PayloadRefused, match="result of flow risen"):
            await handle.skip("failing")
        assert await handle.status() == "failed"
        assert [step.state for step in await handle.step_executions()] == ["failed"]


async def test_i10_cancelling_a_flow_cancels_the_runs_that_it_started(site: Site) -> None:
    registry = hf.Registry()

    @hf.workflow(registry=registry)
    async def waiting() -> None:
        await hf.wait_for("never")

    async def parent() -> None:
        await waiting()

    made = flow(registry=registry)(parent)
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(made)

        async def child() -> str | None:
            found = await engine.store.rows(ChildrenOf(handle.id))
            return found[0].id if found and found[0].status == "suspended" else None

        started = await until(child, "the child waits")
        await handle.cancel()
        with pytest.raises(hf.RunCancelled):
            await engine.get(started).result(timeout=10)
        assert await handle.status() == "cancelled"
        await assert_sound(engine)
