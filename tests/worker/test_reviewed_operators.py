"""Operators' verbs in awkward order and with awkward words: a run is never stuck without saying why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import pytest

import holdfast as hf
from holdfast.authoring.flows import flow
from holdfast.core.codec import encode_error
from holdfast.core.operations import BuryUnknown, KillWork
from holdfast.core.rows import COMPLETED, FAILED, READY, Run
from holdfast.store.contract import ClaimRequest
from tests.worker.support import assert_sound, engine_on, statuses, until, work_of


async def run_row(engine: hf.Engine, handle: hf.Handle[Any]) -> Run:
    (row,) = await engine.store.runs([handle.id])
    found: Run = row
    return found


async def test_g9_after_discard_and_retry_a_run_is_paused_and_not_running_with_nothing_to_run(url: str) -> None:
    """G9: a discarded dead letter leaves a node that nobody will run; the run says so instead of looking busy."""
    registry = hf.Registry()
    failing = {"b"}

    class Wide(hf.Dag, registry=registry, on_failure="pause"):
        @hf.task
        async def a(self) -> None: ...

        @hf.task
        async def b(self) -> None:
            if "b" in failing:
                raise ValueError("b")

    engine = engine_on(url, registry)
    async with engine:
        handle = await engine.start(Wide())
        (claimed,) = await engine.store.claim(
            ClaimRequest(worker="w", queue="default", limit=9, workflows=("Wide",), actions=("Wide.a",))
        )
        error = encode_error(ValueError("undecodable"))
        await engine.coordinator.submit(
            KillWork(run=handle.id, node="a", attempt=1, token=claimed.work.token, error=error)
        )
        async with engine.worker():
            with pytest.raises(hf.RunPaused):
                await handle.result(timeout=5)
            assert await engine.discard_dead(handle.id, "a")
            failing.clear()
            assert await handle.retry() == ["b"]
            with pytest.raises(hf.RunPaused):
                await handle.result(timeout=5)
            assert await handle.resume()

            async def paused() -> bool:
                row = await run_row(engine, handle)
                return (row.status, row.active) == ("paused", 0)

            await until(paused, "the run is paused again", 5)
            assert "none can start" in str(await handle.explain())


class Sum(TypedDict, total=False):
    total: int


@pytest.mark.parametrize("model", ["action", "dag", "flow", "function", "graph"])
async def test_i9_what_was_discarded_is_tried_again_by_a_reattempt_alone_and_every_message_says_so(
    url: str, model: str
) -> None:
    """I11: nothing of the run has given up that a retry could grant an attempt to, and it is refused in every model."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def act() -> int:
        return 1

    async def flowing() -> int:
        return await act()

    @hf.workflow(registry=registry)
    async def fn() -> int:
        return 1

    graph = hf.StateGraph(Sum, name="graph", registry=registry)

    @graph.node
    async def add(state: Sum) -> Any:
        return {"total": 1}

    graph.start_at("add")
    graph.finish("add")
    dag = hf.DagBuilder("dag", registry=registry)
    dag.node("one", job=act)
    started: dict[str, tuple[Any, tuple[Any, ...], str]] = {
        "action": (act, (), "act"),
        "dag": (dag.build(), (), "one"),
        "flow": (flow(registry=registry)(flowing), (), "act"),
        "function": (fn, (), "fn"),
        "graph": (graph, ({"total": 0},), "add@1"),
    }
    what, args, node = started[model]
    async with engine_on(url, registry) as engine:
        handle = await engine.start(what, *args)
        (work,) = await work_of(engine, handle.id)
        error = encode_error(hf.MissingJob("nobody knows it", hint="import it"))
        await engine.coordinator.submit(BuryUnknown(run=handle.id, node=work.node, attempt=1, error=error))
        assert await engine.discard_dead(handle.id, node)
        assert not await engine.replay_dead(handle.id, node), "it is no dead letter any more"
        command = f"holdfast reattempt {handle.id} {node}"
        with pytest.raises(hf.RunFailed, match=f"the dead letter of node {node} was discarded") as failed:
            await handle.result(timeout=5)
        with pytest.raises(hf.UsageError, match="has nothing to retry") as refused:
            await handle.retry()
        for hint in (failed.value.hint, refused.value.hint):
            assert command in hint
            assert "holdfast retry" not in hint
        assert command in [fix.command for fix in (await handle.explain()).fixes]
        assert (await handle.history())[-1].data["node"] == node
        await handle.reattempt(node)
        async with engine.worker():
            await handle.result(timeout=5)
        await assert_sound(engine)


async def test_i9_only_a_dead_letter_is_replayed(url: str) -> None:
    """What backs off keeps its time, and what failed waits for a retry."""
    registry = hf.Registry()

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=3600.0, cap=3600.0))
    async def backs_off() -> None:
        raise ValueError("later")

    @hf.action(registry=registry)
    async def fails() -> None:
        raise ValueError("no")

    async with engine_on(url, registry) as engine, engine.worker():
        waiting, failed = await engine.start(backs_off), await engine.start(fails)
        with pytest.raises(hf.RunFailed):
            await failed.result(timeout=5)
        await until(lambda: _is_tried_again(engine, waiting), "the first attempt has failed")
        before = [await work_of(engine, handle.id) for handle in (waiting, failed)]
        assert not await engine.replay_dead(waiting.id, "backs_off")
        assert not await engine.replay_dead(failed.id, "fails")
        assert [await work_of(engine, handle.id) for handle in (waiting, failed)] == before


async def _is_tried_again(engine: hf.Engine, handle: hf.Handle[Any]) -> bool:
    return await statuses(engine, handle.id) == [FAILED, READY]


@pytest.mark.parametrize("model", ["flow", "function", "graph"])
async def test_i11_an_open_run_starts_its_children_also_of_a_workflow_that_is_drained(url: str, model: str) -> None:
    """A drain takes no new runs, and lets those that are open go on to their end: what they call is part of them."""
    registry, may_call = hf.Registry(), asyncio.Event()

    @hf.action(registry=registry)
    async def gate() -> None:
        await may_call.wait()

    @hf.workflow(registry=registry)
    async def child() -> int:
        return 1

    @hf.workflow(registry=registry)
    async def fn() -> int:
        await gate()
        return await child()

    async def flowing() -> int:
        await gate()
        return await child()

    inner = hf.StateGraph(Sum, name="inner", registry=registry)
    outer = hf.StateGraph(Sum, name="outer", registry=registry)

    @inner.node
    async def add(state: Sum) -> Any:
        return {"total": 1}

    @outer.node
    async def waits(state: Sum) -> Any:
        await may_call.wait()

    inner.start_at("add")
    inner.finish("add")
    outer.subgraph("part", inner)
    outer.start_at("waits")
    outer.edge("waits", "part")
    outer.finish("part")
    made = flow(registry=registry)(flowing)
    async with engine_on(url, registry) as engine, engine.worker():
        if model == "graph":
            handle: hf.Handle[Any] = await engine.start(outer, {"total": 0})
        else:
            handle = await engine.start(made if model == "flow" else fn)
        for workflow in ("child", "inner"):
            await engine.drain(workflow)
        may_call.set()
        assert await handle.result(timeout=5) == ({"total": 1} if model == "graph" else 1)
        with pytest.raises(hf.UsageError, match="is being drained"):
            await engine.start(child)
        await assert_sound(engine)


async def test_i29_a_refused_reattempt_says_what_the_node_waits_for(url: str) -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def act() -> None: ...

    async with engine_on(url, registry) as engine:
        later = datetime.now(UTC) + timedelta(hours=1)
        for handle, told in (
            (await engine.start(act, at=later), "it waits for its time"),
            (await engine.start(act, paused=True), "it is ready, and the run is paused"),
            (await engine.start(act), "it is ready and waits for a worker"),
        ):
            with pytest.raises(hf.ReattemptRefused, match=f"cannot be attempted again: {told}"):
                await handle.reattempt("act")


async def test_i11_the_reason_of_a_pause_is_that_of_the_node_that_still_fails(url: str) -> None:
    """I11: a reattempt that mends one node leaves the other's failure as the reason."""
    registry = hf.Registry()
    failing = {"a", "b"}

    class Wide(hf.Dag, registry=registry, on_failure="pause"):
        @hf.task
        async def a(self) -> None:
            if "a" in failing:
                raise ValueError("a")

        @hf.task
        async def b(self) -> None:
            if "b" in failing:
                raise ValueError("b")

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(Wide())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=5)
        failing.discard("a")
        await handle.reattempt("a")

        async def mended() -> bool:
            return (await statuses(engine, handle.id, "a"))[-1] == COMPLETED

        await until(mended, "the reattempt completes")
        row = await run_row(engine, handle)
        assert (row.status, row.reason) == ("paused", "node b gave up after 1 attempt: ValueError: b")


async def test_i11_a_run_resumed_after_its_first_step_completed_is_running(url: str) -> None:
    """I11: a pause in the middle does not make a run that has begun look as if it had not."""
    registry = hf.Registry()
    begun, go = asyncio.Event(), asyncio.Event()

    class Chain(hf.Dag, registry=registry):
        @hf.step
        async def one(self) -> None:
            begun.set()
            await go.wait()

        @hf.step
        async def two(self) -> None: ...

    engine = engine_on(url, registry, hand_over=False)
    async with engine, engine.worker():
        handle = await engine.start(Chain())
        await begun.wait()
        await handle.pause()
        go.set()

        async def completed() -> bool:
            return await statuses(engine, handle.id, "one") == [COMPLETED]

        await until(completed, "the first step completes in a paused run")
        await engine.maintenance(True)
        await handle.resume()
        assert (await run_row(engine, handle)).status == "running"


async def test_i8_a_queue_that_no_worker_serves_is_named_although_another_is_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: a worker for one queue is no answer for another, whether the start or the action names it."""
    monkeypatch.setattr("holdfast.runtime.unserved.NO_WORKER_SECONDS", 0.05)
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    @hf.action(registry=registry, queue="payments")
    async def pay() -> int:
        return 2

    engine = engine_on("memory://", registry)
    async with engine, engine.worker(queues=["default"]):
        with caplog.at_level(logging.WARNING):
            await engine.start(quick, queue="other")
            await until(lambda: "queue 'other'" in caplog.text, "the start's queue is named", 5)
            await engine.start(pay)
            await until(lambda: "queue 'payments'" in caplog.text, "the action's queue is named", 5)


async def test_g9_an_operation_that_is_refused_harms_none_of_those_beside_it(sqlite_url: str) -> None:
    """G9: operations that arrive together share a commit, and only the wrong one is told so."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick() -> int:
        return 2

    async with engine_on(sqlite_url, registry) as engine:
        nobody: Any = None
        refused, *started = await asyncio.gather(
            engine.maintenance(True, by=nobody), engine.start(quick), engine.start(quick), return_exceptions=True
        )
        assert isinstance(refused, hf.HoldfastError)
        assert [isinstance(handle, hf.Handle) for handle in started] == [True, True]


Verb = Callable[[hf.Engine, hf.Handle[Any]], Awaitable[Any]]

UNPRINTABLE: dict[str, Verb] = {
    "pause": lambda engine, handle: handle.pause(reason="a\0"),
    "cancel": lambda engine, handle: handle.cancel(by="a\0"),
    "skip": lambda engine, handle: handle.skip("a\0"),
    "reattempt": lambda engine, handle: handle.reattempt("a\0"),
    "maintenance": lambda engine, handle: engine.maintenance(True, workflow="a\0"),
    "maintenance by": lambda engine, handle: engine.maintenance(True, by="\0"),
    "drain": lambda engine, handle: engine.drain("a\0"),
    "discard": lambda engine, handle: engine.discard_dead(handle.id, "a\0"),
}


@pytest.mark.parametrize("verb", UNPRINTABLE)
async def test_i14_what_an_operator_says_is_refused_when_it_cannot_be_stored(url: str, verb: str) -> None:
    """I14: NUL is refused before anything is written, the same on every store, with the fix in the message."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    async with engine_on(url, registry) as engine:
        handle = await engine.start(pay, 1)
        before = await run_row(engine, handle)
        with pytest.raises(hf.HoldfastError, match="use printable ones only"):
            await UNPRINTABLE[verb](engine, handle)
        assert await run_row(engine, handle) == before


async def test_g9_who_waits_for_a_run_that_was_pruned_is_told(shared_url: str) -> None:
    """G9: a result that will never come is an error, and not a wait until the timeout."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        return amount

    ours, theirs = engine_on(shared_url, registry, notify=False), engine_on(shared_url, registry, notify=False)
    async with ours, theirs:
        handle = await ours.start(pay, 1)
        waiting = asyncio.ensure_future(handle.result(timeout=10))
        await theirs.get(handle.id).cancel()
        await theirs.prune(older_than_seconds=0)
        with pytest.raises(hf.HoldfastError) as caught:
            await waiting
    assert not isinstance(caught.value, TimeoutError)


async def test_g3_a_child_is_not_pruned_while_its_parent_is_open(url: str) -> None:
    """G3: a parent that has not been told of its end yet would find no run, or start it once more."""
    registry, made = hf.Registry(), list[int]()

    @hf.action(registry=registry)
    async def pay(amount: int) -> int:
        made.append(amount)
        return amount

    @hf.workflow(registry=registry)
    async def child(amount: int) -> int:
        return await pay(amount)

    @hf.workflow(registry=registry)
    async def parent(amount: int) -> int:
        started = await hf.start_child(child, amount)
        await hf.wait_for("go on")
        return await started.result()

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(parent, 3)
        await engine.settle(timeout=10)
        assert await engine.prune(older_than_seconds=0) == 0
        await engine.send("go on", None, to=handle)
        assert await handle.result(timeout=10) == 3
        assert made == [3]
        assert await engine.prune(older_than_seconds=0) == 2
