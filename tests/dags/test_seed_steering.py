"""Flow control: what a node says about itself and its run, conditions that are asked before it, and giving up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from tests.dags.side_effects import Stage
from tests.dags.steering_jobs import journal, registry, steer_process, steered
from tests.worker.support import assert_sound, engine_on

KINDS = ["async", "sync", "process"]


async def states(handle: hf.Handle[Any]) -> dict[str, str]:
    return {each.name: each.state for each in await handle.nodes_with_state()}


async def told(handle: hf.Handle[Any], kind: str) -> dict[str, Any]:
    """The one entry of this kind in the run's history."""
    (entry,) = [entry for entry in await handle.history() if entry.kind == kind]
    return entry.data


# --- from inside a node --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_i30_a_node_that_skips_itself_satisfies_what_depends_on_it(url: str, tmp_path: Path, kind: str) -> None:
    """`hf.current().skip()`: it counts as skipped, and the run goes on."""
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(steered(kind, "skip", str(tmp_path)))
        await handle.result(timeout=30)
        assert journal(str(tmp_path)) == ["before:1", "steer:1", "after:1"]
        assert await states(handle) == {"before": "completed", "steer": "skipped", "after": "completed"}
        entry = await told(handle, "skipped")
        assert (entry["by"], entry["node"], entry["reason"]) == ("the node itself", "steer", "as agreed")
        assert await handle.verify_ancestry()
        await assert_sound(engine)


@pytest.mark.parametrize("kind", KINDS)
async def test_i11_a_node_that_pauses_its_run_runs_again_when_it_is_resumed(
    url: str, tmp_path: Path, kind: str
) -> None:
    """`hf.current().pause()`: nothing more starts; resumed, the node begins anew."""
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(steered(kind, "pause", str(tmp_path)))
        with pytest.raises(hf.RunPaused, match="paused by node steer: as agreed"):
            await handle.result(timeout=30)
        assert journal(str(tmp_path)) == ["before:1", "steer:1"]
        assert await handle.resume()
        await handle.result(timeout=30)
        assert journal(str(tmp_path)) == ["before:1", "steer:1", "steer:2", "after:1"]
        assert [row.state for row in await handle.step_executions("steer")] == ["cancelled", "completed"]
        assert await handle.verify_ancestry()
        await assert_sound(engine)


@pytest.mark.parametrize("kind", KINDS)
async def test_i10_a_node_that_cancels_its_run_is_the_last_of_it(url: str, tmp_path: Path, kind: str) -> None:
    """`hf.current().cancel()`: the run is cancelled for good, and says by whom and why."""
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(steered(kind, "cancel", str(tmp_path)))
        with pytest.raises(hf.RunCancelled, match="cancelled by node steer: as agreed"):
            await handle.result(timeout=30)
        assert journal(str(tmp_path)) == ["before:1", "steer:1"]
        assert (await states(handle))["steer"] == "cancelled"
        assert not await handle.resume()
        await assert_sound(engine)


@pytest.mark.parametrize("kind", KINDS)
async def test_i3_a_node_that_asks_for_another_attempt_has_not_failed_and_waits_as_long_as_it_said(
    url: str, tmp_path: Path, kind: str
) -> None:
    """`hf.current().reattempt(after=…)`: with a budget of one attempt, so that it cannot be the policy's."""
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(steered(kind, "reattempt", str(tmp_path), after=0.2))
        await handle.result(timeout=30)
        assert journal(str(tmp_path)) == ["before:1", "steer:1", "steer:2", "after:1"]
        first, second = await handle.step_executions("steer")
        assert (first.state, second.state) == ("cancelled", "completed")
        assert (first.error, second.error) == (None, None)
        assert (second.started_at - first.completed_at).total_seconds() >= 0.2
        assert (await told(handle, "reattempted"))["by"] == "the node itself"
        assert await handle.verify_ancestry()


@pytest.mark.parametrize("kind", KINDS)
async def test_i1_a_node_that_finishes_its_run_completes_it_without_the_rest(
    url: str, tmp_path: Path, kind: str
) -> None:
    """`hf.current().finish()`: the node and the run are completed; what has not begun is shown as skipped."""
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(steered(kind, "finish", str(tmp_path)))
        await handle.result(timeout=30)
        assert await handle.status() == "completed"
        assert journal(str(tmp_path)) == ["before:1", "steer:1"]
        assert await states(handle) == {"before": "completed", "steer": "completed", "after": "skipped"}
        assert (await told(handle, "finished"))["by"] == "node steer"
        await assert_sound(engine)


@pytest.mark.parametrize("decorate", [True, False], ids=["async", "sync"])
async def test_i30_methods_of_a_class_steer_like_jobs(url: str, decorate: bool) -> None:
    """The same calls in a step of a class; an `except Exception` on the way does not swallow them."""
    stage = Stage()

    class Order(hf.Dag, registry=stage.registry):
        paid: bool

        if decorate:

            @hf.step
            async def charge(self) -> None:
                try:
                    if self.paid:
                        hf.current().skip("paid already")
                except Exception:
                    stage.did.append("swallowed")
                stage.play()
        else:

            @hf.step
            def charge(self) -> None:
                try:
                    if self.paid:
                        hf.current().skip("paid already")
                except Exception:
                    stage.did.append("swallowed")
                stage.play()

        @hf.step
        async def ship(self) -> None:
            stage.play()

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        await engine.run(Order(paid=True), timeout=20)
        assert stage.did == ["ship"]
        await engine.run(Order(paid=False), timeout=20)
        assert stage.did == ["ship", "charge", "ship"]


# --- skip_if and cancel_if -----------------------------------------------------------------------------------------


def conditional(stage: Stage) -> type[hf.Dag]:
    @hf.action(registry=stage.registry)
    async def print_label() -> None:
        stage.play()

    async def is_frozen(dag: Any) -> bool:
        return bool(dag.frozen)

    class Order(hf.Dag, registry=stage.registry, cancel_if="withdrawn"):
        gift: bool = False
        digital: bool = False
        frozen: bool = False
        withdrawn: bool = False

        def is_gift(self) -> bool:
            return self.gift

        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.step(skip_if=["is_gift", lambda dag: dag.digital])
        def invoice(self) -> None:
            stage.play()

        label = hf.step(job=print_label, skip_if="digital", cancel_if=is_frozen)

        @hf.step
        async def ship(self) -> None:
            stage.play()

    return Order


@pytest.mark.parametrize(
    ("fields", "did"),
    [
        ({}, ["validate", "invoice", "label", "ship"]),
        ({"gift": True}, ["validate", "label", "ship"]),
        ({"digital": True}, ["validate", "ship"]),
    ],
)
async def test_i30_skip_if_skips_a_node_and_what_depends_on_it_goes_on(
    url: str, fields: dict[str, bool], did: list[str]
) -> None:
    """Asked of the instance before the node runs: by name, by function, on methods and on jobs."""
    stage = Stage()
    order = conditional(stage)
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(order(**fields))
        await handle.result(timeout=20)
        assert stage.did == did
        shown = await states(handle)
    assert {name for name, state in shown.items() if state == "skipped"} == set(shown) - set(did)


@pytest.mark.parametrize("option", ["skip_if", "cancel_if"])
async def test_i30_a_condition_is_asked_before_a_process_is_given_the_node(
    url: str, tmp_path: Path, option: str
) -> None:
    """A condition is code of the class, so it is asked here; the process never hears of the node."""
    own = hf.Registry()
    own.add(steer_process)
    condition: Any = {option: lambda dag: dag.held}

    class Order(hf.Dag, registry=own):
        held: bool
        node = hf.step(job=steer_process, args={"wish": "finish", "folder": str(tmp_path)}, **condition)

    engine = engine_on(url, own)
    async with engine, engine.worker():
        held = await engine.start(Order(held=True))
        if option == "skip_if":
            await held.result(timeout=30)
            assert await states(held) == {"node": "skipped"}
        else:
            with pytest.raises(hf.RunCancelled):
                await held.result(timeout=30)
        assert journal(str(tmp_path)) == []
        await engine.run(Order(held=False), timeout=30)
        assert journal(str(tmp_path)) == ["node:1"]


@pytest.mark.parametrize(
    ("fields", "did", "node"),
    [({"frozen": True}, ["validate", "invoice"], "label"), ({"withdrawn": True}, [], "validate")],
)
async def test_i10_cancel_if_cancels_the_run_before_the_node(
    url: str, fields: dict[str, bool], did: list[str], node: str
) -> None:
    """On a node, and on the class, where it is asked before every node; it comes before skip_if."""
    stage = Stage()
    order = conditional(stage)
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(order(**fields, digital=False))
        with pytest.raises(hf.RunCancelled, match=f"cancelled by node {node}: cancel_if holds"):
            await handle.result(timeout=20)
    assert stage.did == did


# --- giving up -----------------------------------------------------------------------------------------------------


def two_branches(stage: Stage, on_failure: Any) -> type[hf.Dag]:
    """One branch breaks at `charge`, which holds up three nodes; the other has two nodes and nothing to do with it."""

    class Order(hf.Dag, registry=stage.registry, on_failure=on_failure):
        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.step
        async def charge(self) -> None:
            stage.play()

        @hf.step
        async def ship(self) -> None:
            stage.play()

        @hf.task(depends_on="ship")
        async def receipt(self) -> None:
            stage.play()

        @hf.task(depends_on="ship")
        async def analytics(self) -> None:
            stage.play()

        @hf.task(depends_on="validate")
        async def index(self) -> None:
            stage.play()

        @hf.task(depends_on="index")
        async def search(self) -> None:
            stage.play()

    return Order


BLOCKED = ["analytics", "receipt", "ship"]


@pytest.mark.parametrize(
    ("on_failure", "status", "raised"),
    [("pause", "paused", hf.RunPaused), ("fail", "failed", hf.RunFailed), ("cancel", "cancelled", hf.RunCancelled)],
)
async def test_i30_independent_branches_go_on_and_then_on_failure_applies(
    url: str, on_failure: str, status: str, raised: type[hf.RunError]
) -> None:
    """The error names the node, its path from an entry point, and how many nodes it holds up."""
    stage = Stage()
    order = two_branches(stage, on_failure)
    stage.broken["charge"] = ValueError("no money")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(order())
        with pytest.raises(raised) as caught:
            await handle.result(timeout=20)
        said = str(caught.value)
        for part in ("node charge", "no money", "path validate > charge", "3 nodes blocked by it"):
            assert part in said
        assert sorted(stage.did) == ["charge", "index", "search", "validate"]
        shown = await states(handle)
        assert [shown[name] for name in ("validate", "charge", "index", "search")] == [
            "completed",
            "failed",
            "completed",
            "completed",
        ]
        assert await handle.status() == status
        waiting = [state for name, state in shown.items() if name in BLOCKED]
        assert set(waiting) <= {"pending", "blocked", "cancelled"}
        await assert_sound(engine)


async def test_i30_a_run_that_its_policy_cancelled_says_so_and_records_it(url: str) -> None:
    stage = Stage()
    order = two_branches(stage, "cancel")
    stage.broken["charge"] = ValueError("no money")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(order())
        with pytest.raises(
            hf.RunCancelled, match="was cancelled because node charge gave up after 1 attempt"
        ) as caught:
            await handle.result(timeout=20)
        assert caught.value.by == "on_failure"
        (entry,) = await handle.history()
        assert (entry.kind, entry.data["by"]) == ("cancel requested", "on_failure")
        assert entry.data["reason"].startswith("node charge gave up after 1 attempt: ValueError: no money")


async def test_i30_on_failure_skip_lets_what_depends_on_the_node_go_on(url: str) -> None:
    """The node that gave up counts as skipped: its dependents run, and the run completes and says so."""
    stage = Stage()
    order = two_branches(stage, "skip")
    stage.broken["charge"] = ValueError("no money")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(order())
        await handle.result(timeout=20)
        assert sorted(stage.did) == sorted(["validate", "charge", "index", "search", *BLOCKED])
        assert (await states(handle))["charge"] == "skipped"
        entry = await told(handle, "skipped")
        assert (entry["by"], entry["node"]) == ("on_failure", "charge")
        (row,) = await handle.step_executions("charge")
        assert row.error is not None
        assert row.error.message == "no money"


async def test_i30_a_built_dag_gives_up_by_the_rule_that_its_builder_was_given(url: str) -> None:
    """on_failure is the builder's as it is the class's; pause unless it says otherwise."""
    stage = Stage()
    stage.broken["a"] = ValueError("broken")

    @hf.action(registry=stage.registry)
    async def job() -> None:
        stage.play()

    def dag(**options: Any) -> hf.BuiltDag:
        w = hf.DagBuilder("ab", registry=stage.registry, **options)
        w.node("a", job=job)
        w.node("b", job=job)
        return w.build()

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        with pytest.raises(hf.RunPaused, match="1 node blocked by it"):
            await engine.run(dag(), timeout=20)
        with pytest.raises(hf.RunFailed):
            await engine.run(dag(on_failure="fail"), timeout=20)
        await engine.run(dag(on_failure="skip"), timeout=20)
    assert stage.did == ["a", "a", "a", "b"]


async def test_i11_a_failed_node_can_be_skipped_by_an_operator_and_the_run_completes(url: str) -> None:
    """`handle.skip`: also of a node that has not been reached."""
    stage = Stage()
    order = two_branches(stage, "pause")
    stage.broken["charge"] = ValueError("no money")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(order())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        await handle.skip("receipt", by="Ada")
        await handle.skip("charge", by="Ada")
        await handle.result(timeout=20)
        shown = await states(handle)
    assert {name for name, state in shown.items() if state == "skipped"} == {"charge", "receipt"}
    assert "receipt" not in stage.did
