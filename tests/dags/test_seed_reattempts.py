"""Seed 002, reattempts: rows that are added and never changed back, who may ask, and what follows which attempt."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

import holdfast as hf
from holdfast.core.codec import encode_error
from holdfast.core.operations import STALE, BuryUnknown, ClaimWork
from holdfast.store.contract import ClaimRequest
from tests.dags.side_effects import Stage, ancestry_by_hand, assert_in_order, query_sql
from tests.worker.support import assert_sound, engine_on, until, work_of


def claim_request(engine: hf.Engine, worker: str = "w") -> ClaimRequest:
    """All that this process knows."""
    known = engine.definitions
    return ClaimRequest(
        worker=worker,
        queue="default",
        limit=9,
        workflows=known.known_workflows(),
        actions=known.known_actions(),
    )


def one_node(stage: Stage, go: asyncio.Event) -> type[hf.Dag]:
    class OneNode(hf.Dag, registry=stage.registry):
        @hf.step
        async def a(self) -> None:
            await go.wait()
            stage.play()

    return OneNode


def diamond(stage: Stage, retry: hf.Retry | None = None) -> type[hf.Dag]:
    """The seed's drawing: validate, two checks, charge."""

    class Diamond(hf.Dag, registry=stage.registry):
        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.task(depends_on="validate")
        async def check_inventory(self) -> None:
            stage.play()

        @hf.task(depends_on="validate", retry=retry or hf.Retry(attempts=1))
        async def check_fraud(self) -> None:
            stage.play()

        @hf.step(depends_on=["check_inventory", "check_fraud"])
        async def charge(self) -> None:
            stage.play()

    return Diamond


# --- the lifecycle, row by row -------------------------------------------------------------------------------------


async def test_i29_the_lifecycle_of_a_reattempt_row_by_row(shared_url: str) -> None:
    """The seed's four boxes: running; failed with an error; a second row running; both kept, the second completed."""
    stage, go = Stage(), asyncio.Event()
    dag = one_node(stage, go)
    stage.broken["a"] = ValueError("not yet")
    engine = engine_on(shared_url, stage.registry)

    async def rows() -> list[tuple[object, ...]]:
        question = "SELECT node, attempt, status, error IS NOT NULL, ancestry FROM work ORDER BY attempt"
        return await query_sql(shared_url, question)

    async def running(attempt: int) -> bool:
        return any(row.attempt == attempt and row.state == "leased" for row in await handle.step_executions("a"))

    first = ancestry_by_hand("a", 1)
    second = ancestry_by_hand("a", 2)
    async with engine, engine.worker():
        assert await rows() == []
        handle = await engine.start(dag())
        await until(lambda: running(1), "attempt 1 runs")
        assert await rows() == [("a", 1, "leased", False, first)]
        go.set()
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        assert await rows() == [("a", 1, "failed", True, first)]
        go.clear()
        await handle.reattempt("a", by="Ada")
        await until(lambda: running(2), "attempt 2 runs")
        # The second row carries the error of the attempt before it until it has an outcome of its own.
        assert [(row[1], row[2], row[4]) for row in await rows()] == [(1, "failed", first), (2, "leased", second)]
        stage.broken.clear()
        go.set()
        await handle.result(timeout=20)
        assert await rows() == [("a", 1, "failed", True, first), ("a", 2, "completed", False, second)]
        assert [entry.data["by"] for entry in await handle.history() if entry.kind == "reattempted"] == ["Ada"]
        assert await handle.verify_ancestry()
        await assert_sound(engine)


async def test_i29_a_row_is_unique_by_run_node_and_attempt(shared_url: str) -> None:
    """The seed's index is our primary key: uniqueness is by attempt, not by node."""
    stage, go = Stage(), asyncio.Event()
    async with engine_on(shared_url, stage.registry) as engine:
        handle = await engine.start(one_node(stage, go)())
        (work,) = await work_of(engine, handle.id)
        with pytest.raises(Exception, match=r"(?i)unique"):
            await query_sql(shared_url, "INSERT INTO work SELECT * FROM work")
        assert await work_of(engine, handle.id) == [work]


# --- locking: three scenarios --------------------------------------------------------------------------------------


async def test_g2_of_two_workers_one_gets_an_attempt(url: str) -> None:
    """Locking, first scenario: two claims at once hand the attempt to one; the other's claim finds nothing."""
    stage = Stage()
    async with engine_on(url, stage.registry) as engine:
        handle = await engine.start(one_node(stage, asyncio.Event())())
        both = await asyncio.gather(*(engine.store.claim(claim_request(engine, name)) for name in ("w1", "w2")))
        assert sorted(len(claimed) for claimed in both) == [0, 1]
        (work,) = await work_of(engine, handle.id)
        assert (work.status, work.token) == ("leased", 1)
        claim = ClaimWork(run=handle.id, node="a", attempt=1, token=1, worker="w3")
        assert (await engine.coordinator.submit(claim)).verdict == STALE


async def test_i29_two_reattempts_at_once_make_one_attempt(url: str) -> None:
    """Locking, second scenario: whoever asks second finds the attempt that the first was given."""
    stage, go = Stage(), asyncio.Event()
    go.set()
    stage.broken["a"] = ValueError("broken")
    dag = one_node(stage, go)
    engine = engine_on(url, stage.registry)
    async with engine:
        handle = await engine.start(dag())
        async with engine.worker():
            with pytest.raises(hf.RunPaused):
                await handle.result(timeout=20)
        await asyncio.gather(*(handle.reattempt("a", by=who) for who in ("Ada", "Bob")))
        assert [(work.attempt, work.status) for work in await work_of(engine, handle.id)] == [
            (1, "failed"),
            (2, "ready"),
        ]
        stage.broken.clear()
        async with engine.worker():
            await handle.result(timeout=20)
        assert stage.did == ["a", "a"]
        await assert_sound(engine)


@pytest.mark.parametrize("paused", [False, True])
async def test_i29_a_reattempt_of_a_node_that_is_backing_off_makes_its_next_attempt_due(url: str, paused: bool) -> None:
    """It would have run in an hour. That is one attempt, whoever asks again, and a pause still holds it."""
    stage = Stage()
    stage.broken["check_fraud"] = ValueError("broken")
    dag = diamond(stage, hf.Retry(attempts=2, base=3600.0, cap=7200.0))
    engine = engine_on(url, stage.registry)
    async with engine:
        handle = await engine.start(dag())
        async with engine.worker():

            async def backs_off() -> bool:
                return [row.state for row in await handle.step_executions("check_fraud")] == ["failed", "ready"]

            await until(backs_off, "its second attempt waits")
        stage.broken.clear()
        if paused:
            await handle.pause(by="Ada")
        await asyncio.gather(*(handle.reattempt("check_fraud", by="Bob") for _ in range(2)))
        assert [(work.attempt, work.status) for work in await work_of(engine, handle.id, "check_fraud")] == [
            (1, "failed"),
            (2, "ready"),
        ]
        told = [(entry.kind, entry.data["by"]) for entry in await handle.history()]
        assert told == [*([("paused", "Ada")] if paused else []), ("reattempted", "Bob")]
        assert await handle.resume() is paused
        async with engine.worker():
            await handle.result(timeout=20)
        await assert_sound(engine)


@pytest.mark.parametrize("state", ["leased", "completed", "ready"])
async def test_i29_a_reattempt_of_what_runs_has_completed_or_waits_is_refused(url: str, state: str) -> None:
    """Locking, third scenario: only an attempt that ended badly can be followed by another."""
    stage, go = Stage(), asyncio.Event()
    dag = diamond(stage)
    if state == "completed":
        stage.broken["check_fraud"] = ValueError("broken")

    class Waits(hf.Dag, registry=stage.registry):
        @hf.step
        async def validate(self) -> None:
            await go.wait()

    engine = engine_on(url, stage.registry)
    async with engine:
        handle = await engine.start(dag() if state == "completed" else Waits())
        async with engine.worker(queues=["other"] if state == "ready" else ["default"]):

            async def reached() -> bool:
                return [row.state for row in await handle.step_executions("validate")] == [state]

            await until(reached, f"it is {state}")
            before = await handle.step_executions("validate")
            with pytest.raises(hf.ReattemptRefused, match=r"node validate of run .* cannot be attempted again"):
                await handle.reattempt("validate")
            assert await handle.step_executions("validate") == before
            go.set()


@pytest.mark.parametrize("how", ["failed", "timed_out", "dead", "cancelled"])
async def test_i29_every_way_to_end_badly_can_be_reattempted(url: str, how: str) -> None:
    """The seed's retryable states, and dead letters; a node cancelled with its run is final with it."""
    stage = Stage()
    mended = asyncio.Event()

    class Fragile(hf.Dag, registry=stage.registry):
        @hf.step(timeout=0.05 if how == "timed_out" else None)
        async def a(self) -> None:
            if not mended.is_set() and how == "failed":
                raise ValueError("broken")
            if how in ("timed_out", "cancelled"):
                await mended.wait()

    engine = engine_on(url, stage.registry)
    async with engine:
        handle = await engine.start(Fragile())
        if how == "dead":
            await bury(engine, handle)
        elif how == "cancelled":
            await handle.cancel()
        else:
            async with engine.worker():
                with pytest.raises(hf.RunPaused):
                    await handle.result(timeout=20)
        assert [row.state for row in await handle.step_executions()] == [how]
        if how == "cancelled":
            with pytest.raises(hf.ReattemptRefused, match="the run is cancelled"):
                await handle.reattempt("a")
            return
        mended.set()
        await handle.reattempt("a")
        async with engine.worker():
            await handle.result(timeout=20)
        states = [(row.attempt, row.state) for row in await handle.step_executions()]
        # A dead letter that was replayed is one no more.
        assert states == [(1, "failed" if how == "dead" else how), (2, "completed")]


async def bury(engine: hf.Engine, handle: hf.Handle[None]) -> None:
    """What a sweep does with work that nobody has known for an hour."""
    error = encode_error(hf.MissingJob("nobody knows a"))
    await engine.coordinator.submit(BuryUnknown(run=handle.id, node="a", attempt=1, error=error))


# --- the diamond ---------------------------------------------------------------------------------------------------


async def test_i28_the_diamond_with_cs_second_attempt_proves_it_in_ds_hash(url: str) -> None:
    """A, B and a failing C; D waits; C's second attempt completes; D's hash is over B's first and C's second."""
    stage = Stage()
    dag = diamond(stage)
    stage.broken["check_fraud"] = TimeoutError("no answer")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(dag())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        states = {each.name: (each.state, each.detail) for each in await handle.nodes_with_state()}
        assert states == {
            "validate": ("completed", ""),
            "check_inventory": ("completed", ""),
            "check_fraud": ("failed", ""),
            "charge": ("blocked", "1 of 2"),
        }
        stage.broken.clear()
        await handle.reattempt("check_fraud")
        await handle.result(timeout=20)
        assert sorted(stage.did) == ["charge", "check_fraud", "check_fraud", "check_inventory", "validate"]
        found = {(row.node, row.attempt): row.ancestry_hash for row in await handle.step_executions()}
        a = ancestry_by_hand("validate", 1)
        b = ancestry_by_hand("check_inventory", 1, a)
        c = ancestry_by_hand("check_fraud", 2, a)
        assert found["check_fraud", 2] == c != found["check_fraud", 1]
        assert found["charge", 1] == ancestry_by_hand("charge", 1, b, c)
        assert found["charge", 1] != ancestry_by_hand("charge", 1, b, str(found["check_fraud", 1]))
        report = await handle.verify_ancestry()
        assert (report.ok, report.checked) == (True, 5)


async def test_i29_a_is_not_reattempted_after_b_completed_and_the_fork_that_is_offered_works(url: str) -> None:
    """The seed's strict policy. The new run shares what A did not lead to, and runs A and all below it afresh."""
    stage = Stage()
    keys: list[str] = []

    class Order(hf.Dag, registry=stage.registry):
        @hf.step
        async def prepare(self) -> None:
            stage.play()

        @hf.step
        async def validate(self) -> None:
            keys.append(hf.current().idempotency_key)
            stage.play()

        @hf.task(depends_on="validate")
        async def check_inventory(self) -> None:
            stage.play()

        @hf.task(depends_on="validate")
        async def check_fraud(self) -> None:
            stage.play()

        @hf.step(depends_on=["check_inventory", "check_fraud"])
        async def charge(self) -> None:
            stage.play()

    stage.broken["check_fraud"] = ValueError("a fraud")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(Order())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        before = await work_of(engine, handle.id)
        with pytest.raises(hf.ReattemptRefused) as refused:
            await handle.reattempt("validate")
        assert "validate" in str(refused.value)
        assert "it has completed; check_inventory, which depends on it, has completed" in str(refused.value)
        assert "--app and the module of Order" in str(refused.value.hint)
        assert "engine.fork(…, from_node='validate')" in str(refused.value.hint)
        assert f"holdfast fork {handle.id} --from validate" in str(refused.value.hint)
        assert await work_of(engine, handle.id) == before, "a refusal writes nothing"

        stage.did.clear()
        stage.broken.clear()
        forked = await engine.fork(handle, from_node="validate", by="Ada")
        assert forked.id != handle.id
        await forked.result(timeout=20)
        assert sorted(stage.did) == ["charge", "check_fraud", "check_inventory", "validate"]
        assert {each.state for each in await forked.nodes_with_state()} == {"completed"}
        assert await forked.verify_ancestry()
        assert len(set(keys)) == 2, "I13: a fork has idempotency keys of its own"
        (shared,) = await work_of(engine, forked.id, "prepare")
        (source,) = await work_of(engine, handle.id, "prepare")
        assert (shared.ancestry, shared.finished) == (source.ancestry, source.finished)
        assert await handle.status() == "paused", "the run it was taken from stays as it is"
        (told,) = [entry.data for entry in await forked.history() if entry.kind == "forked"]
        assert (told["source"], told["node"], told["shared"], told["by"]) == (handle.id, "validate", 1, "Ada")
        await assert_sound(engine)


async def test_i29_a_node_can_be_named_by_whatever_name_it_was_given(url: str) -> None:
    """255 characters, which are more bytes: one rule for those who define a node and for those who name it."""
    stage, name = Stage(), "ü" * 255
    stage.broken["a"] = ValueError("broken")

    class Long(hf.Dag, registry=stage.registry):
        @hf.step(name=name)
        async def a(self) -> None:
            stage.play("a")

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(Long())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        stage.broken.clear()
        await handle.reattempt(name)
        await handle.result(timeout=20)
        await (await engine.fork(handle, from_node=name)).result(timeout=20)
        with pytest.raises(hf.UsageError, match="node is"):
            await handle.skip("ü" * 10_000)


@pytest.mark.parametrize(("state", "said"), [("completed", "has completed"), ("leased", "is running")])
async def test_i29_a_failed_node_with_a_descendant_that_went_ahead_is_refused_and_names_it(
    url: str, state: str, said: str
) -> None:
    """An edited graph put a failed node above one that had begun: its next attempt could not be told apart later."""
    stage, go = Stage(), asyncio.Event()
    stage.broken["check_fraud"] = ValueError("a fraud")

    class Order(hf.Dag, registry=stage.registry):
        @hf.task
        async def check_fraud(self) -> None:
            stage.play()

        @hf.task
        async def check_inventory(self) -> None:
            if state == "leased":
                await go.wait()

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(Order())

        async def reached() -> bool:
            states = {each.name: each.state for each in await handle.nodes_with_state()}
            return (states["check_fraud"], states["check_inventory"]) == ("failed", state)

        await until(reached, f"one check has failed, the other is {state}")
        document = json.loads(await handle.export_dag())
        document["nodes"]["check_inventory"]["depends_on"] = ["check_fraud"]
        await handle.import_dag(json.dumps(document))
        with pytest.raises(hf.ReattemptRefused, match=f"check_inventory, which depends on it, {said}") as refused:
            await handle.reattempt("check_fraud")
        assert "--from check_fraud" in str(refused.value.hint)
        assert [row.attempt for row in await handle.step_executions("check_fraud")] == [1]
        go.set()


# --- retries by policy, and history --------------------------------------------------------------------------------


async def test_i3_a_node_is_retried_with_growing_delays_by_its_own_policy(url: str) -> None:
    """The seed's retry option: three attempts in all, each later than the one before, no one's help needed."""
    stage = Stage()
    retry = hf.Retry(attempts=3, base=0.02, cap=1.0)
    dag = diamond(stage, retry)
    errors: list[BaseException] = [TimeoutError("slow"), ConnectionError("limited")]
    stage.broken["check_fraud"] = errors[0]

    class Recovering(dag):  # type: ignore[misc, valid-type]
        @hf.task
        async def check_fraud(self) -> None:
            stage.did.append("check_fraud")
            if errors:
                raise errors.pop(0)

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(Recovering())
        await handle.result(timeout=20)
        assert stage.did.count("check_fraud") == 3
        one, two, three = await handle.step_executions("check_fraud")
        for attempt, (earlier, later) in enumerate([(one, two), (two, three)], 1):
            waited_us = (later.started_at - earlier.completed_at) // timedelta(microseconds=1)
            delay_us = int(retry.delay_seconds(handle.id, "check_fraud", attempt) * 1e6)
            assert waited_us >= delay_us >= 20_000 * 2 ** (attempt - 1)


async def test_i3_the_attempts_of_a_node_are_its_execution_history(url: str) -> None:
    """The seed's three rows: two failures with type and message, then the completion with its hash."""
    stage = Stage()
    errors: list[BaseException] = [TimeoutError("no answer"), ConnectionError("too many requests")]

    class Order(hf.Dag, registry=stage.registry):
        @hf.step(retry=hf.Retry(attempts=3, base=0.01))
        async def check_fraud(self) -> None:
            if errors:
                raise errors.pop(0)

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(Order())
        await handle.result(timeout=20)
        history = await handle.step_executions("check_fraud")
    assert [(row.attempt, row.state) for row in history] == [(1, "failed"), (2, "failed"), (3, "completed")]
    assert [(row.error.type, row.error.message) for row in history if row.error] == [
        ("TimeoutError", "no answer"),
        ("ConnectionError", "too many requests"),
    ]
    assert history[2].error is None
    assert len({row.ancestry_hash for row in history}) == 3


async def test_i29_downstream_nodes_become_ready_when_a_reattempted_node_completes(url: str) -> None:
    """The seed's answer about partial retries: nothing that completed runs again, and nothing else is asked for."""
    stage = Stage()
    dag = diamond(stage)
    stage.broken["check_fraud"] = ValueError("a fraud")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(dag())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        del stage.did[stage.did.index("check_fraud")]
        stage.broken.clear()
        await handle.reattempt("check_fraud")
        await handle.result(timeout=20)
    assert_in_order(stage.did, dag.compiled_dag())
