"""Seed 002, change detection: signatures, and what becomes of a run whose class a deploy has changed under it.

A deploy is an engine with another registry on the same database. Nodes of the queue `later` wait for one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.operations import LapseWork
from holdfast.handle import HistoryEntry
from holdfast.runtime import caretaker
from holdfast.store.contract import ClaimRequest
from tests.dags.side_effects import query_sql
from tests.worker.support import assert_sound, engine_on, until, work_of

Wiring = Mapping[str, list[str]]
EVERYTHING = ["default", "later"]


class Deploy:
    """A version of the class Order: its nodes with what they depend on, and what ran of it."""

    def __init__(
        self,
        did: list[str],
        wiring: Wiring,
        *,
        later: tuple[str, ...] = (),
        registry: hf.Registry | None = None,
        **bodies: Any,
    ) -> None:
        self.registry = registry or hf.Registry()
        namespace: dict[str, Any] = {"__module__": __name__}
        for name, parents in wiring.items():
            namespace[name] = _task(name, parents, did, "later" if name in later else None, bodies.get(name))
        self.dag: type[hf.Dag] = type(hf.Dag)("Order", (hf.Dag,), namespace, registry=self.registry)

    @property
    def signature(self) -> str:
        return self.dag.dag_signature()


def _task(name: str, parents: list[str], did: list[str], queue: str | None, body: Any) -> Any:
    async def run(self: hf.Dag) -> None:
        did.append(name)
        if body is not None:
            await body()

    run.__name__ = run.__qualname__ = name
    return hf.task(depends_on=parents or None, queue=queue)(run)


async def run_until(url: str, deploy: Deploy, did: list[str], expected: list[str]) -> str:
    """Start a run under this deploy and let it do what it can without the queue `later`; its id."""
    engine = engine_on(url, deploy.registry)
    async with engine, engine.worker():
        handle = await engine.start(deploy.dag())

        async def settled() -> bool:
            active = [work for work in await work_of(engine, handle.id) if work.status in ("ready", "leased")]
            return did == expected and all(work.queue == "later" and work.status == "ready" for work in active)

        await until(settled, f"{expected} have run")
        return handle.id


async def finish_under(url: str, deploy: Deploy, run: str) -> list[HistoryEntry]:
    """The new deploy serves everything and the run completes, without anybody's help; its history."""
    engine = engine_on(url, deploy.registry)
    async with engine, engine.worker(queues=EVERYTHING):
        handle = engine.get(run)
        await handle.result(timeout=20)
        assert await handle.verify_ancestry()
        await assert_sound(engine)
        return await handle.history()


def changes(history: list[HistoryEntry]) -> list[dict[str, Any]]:
    return [entry.data for entry in history if entry.kind == "graph changed"]


# --- the signature -------------------------------------------------------------------------------------------------


def test_i31_a_signature_is_stable_and_differs_with_every_change() -> None:
    """The same class gives the same digits, in any order of its source; one edge more gives others."""
    did: list[str] = []
    plain = Deploy(did, {"a": [], "b": ["a"], "c": ["a"]})
    assert plain.signature == Deploy(did, {"a": [], "c": ["a"], "b": ["a"]}).signature
    others = (
        {"a": [], "b": ["a"], "c": ["b"]},
        {"a": [], "b": ["a"], "c": ["a"], "d": []},
        {"a": [], "b": ["a"], "other": ["a"]},
    )
    assert len({plain.signature, *(Deploy(did, wiring).signature for wiring in others)}) == 1 + len(others)
    assert len(plain.signature) == 16


async def test_i31_a_change_of_signature_is_recorded_and_an_equal_one_is_not(shared_url: str) -> None:
    """Who reads the history sees which graph the run followed, and since when another one."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"]}, later=("b",))
    after = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]}, later=("b",))
    first = await run_until(shared_url, before, did, ["a"])
    history = await finish_under(shared_url, before, first)
    assert changes(history) == [], "the same class again is no change"
    did.clear()
    second = await run_until(shared_url, before, did, ["a"])
    (told,) = changes(await finish_under(shared_url, after, second))
    assert (told["before"], told["signature"]) == (before.signature, after.signature)
    assert await query_sql(shared_url, f"SELECT signature FROM runs WHERE id = '{second}'") == [(after.signature,)]


@pytest.mark.parametrize("wiring", [{"a": [], "b": ["a"], "new": ["b"]}, {"a": [], "new": ["a"]}])
@pytest.mark.parametrize("by_whom", ["the new code", "no code"])
async def test_i31_a_change_of_signature_is_recorded_after_a_crash_too(
    shared_url: str, wiring: Wiring, by_whom: str
) -> None:
    """Whoever takes the dead worker's lease over has other code, or none; what the run followed is not forgotten."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]}, later=("b", "c"))
    after = Deploy(did, wiring, later=("b",))
    run = await run_until(shared_url, before, did, ["a"])
    async with engine_on(shared_url, after.registry if by_whom == "the new code" else hf.Registry()) as engine:
        (held,) = await engine.store.claim(
            ClaimRequest(worker="w", queue="later", limit=1, workflows=("Order",), actions=("Order.b",))
        )
        await engine.coordinator.submit(LapseWork(run=run, node="b", attempt=1, token=held.work.token))
    (told,) = changes(await finish_under(shared_url, after, run))
    assert (told["before"], told["signature"]) == (before.signature, after.signature)


async def test_i31_a_failed_step_that_is_gone_is_not_called_one_that_has_not_begun(shared_url: str) -> None:
    did: list[str] = []

    async def broken() -> None:
        raise ValueError("b")

    before = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]}, b=broken)
    after = Deploy(did, {"a": [], "c": ["a"]})
    run = await run_until(shared_url, before, did, ["a", "b"])
    async with engine_on(shared_url, after.registry) as engine:
        await engine.get(run).resume()
    (told,) = changes(await finish_under(shared_url, after, run))
    assert told["skipped"] == ["b"]
    assert told["warning"] == "nodes that had not completed are no longer in the graph, and were skipped"


async def test_i31_the_signature_of_a_built_dag_is_computed_once_and_kept_with_it(url: str) -> None:
    """Dynamic DAGs do not change; their signature is for reference."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def job() -> None: ...

    w = hf.DagBuilder("one", registry=registry)
    w.node("a", job=job)
    dag = w.build()
    async with engine_on(url, registry) as engine:
        definition = await (await engine.start(dag)).dag_definition()
    assert definition is not None
    assert definition["signature"] == dag.dag_signature()


def test_i25_a_change_that_makes_a_cycle_never_becomes_a_class() -> None:
    """The third danger that the seed names is refused where it is written."""
    with pytest.raises(hf.DagError, match="cycle"):
        Deploy([], {"a": ["c"], "b": ["a"], "c": ["b"]})


# --- healing -------------------------------------------------------------------------------------------------------


async def test_i31_a_step_that_a_deploy_adds_is_picked_up_by_running_runs(shared_url: str) -> None:
    """The seed's promise for class-based workflows: add a step, deploy, and existing runs take it."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"]}, later=("b",))
    after = Deploy(did, {"a": [], "audit": ["a"], "b": ["audit"]}, later=("b",))
    run = await run_until(shared_url, before, did, ["a"])
    (told,) = changes(await finish_under(shared_url, after, run))
    assert did == ["a", "audit", "b"]
    assert told["not_begun"] == ["audit"]
    assert "warning" not in told


async def test_i31_a_completed_step_that_is_gone_is_a_warning_and_stays_completed(shared_url: str) -> None:
    """The seed's first danger. Healing is the feature, so the run goes on; and the history says what is odd."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"]}, later=("b",))
    after = Deploy(did, {"b": []}, later=("b",))
    run = await run_until(shared_url, before, did, ["a"])
    (told,) = changes(await finish_under(shared_url, after, run))
    async with engine_on(shared_url, after.registry) as engine:
        assert [(each.name, each.state) for each in await engine.get(run).step_executions("a")] == [("a", "completed")]
        with pytest.raises(hf.UnknownNode):
            await engine.get(run).step_executions("c")
    assert did == ["a", "b"]
    assert told["gone"] == ["a"]
    assert "completed nodes are no longer in the graph" in told["warning"]
    assert await query_sql(shared_url, f"SELECT node, status FROM work WHERE run = '{run}' ORDER BY node") == [
        ("a", "completed"),
        ("b", "completed"),
    ]


async def test_i31_a_pending_step_that_is_gone_is_skipped_with_a_warning(shared_url: str) -> None:
    """What has not begun and is not wanted any more must not hold up what is."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]}, later=("b", "c"))
    after = Deploy(did, {"a": [], "c": ["a"]}, later=("c",))
    run = await run_until(shared_url, before, did, ["a"])
    (told,) = changes(await finish_under(shared_url, after, run))
    assert did == ["a", "c"]
    assert told["skipped"] == ["b"]
    assert "skipped" in told["warning"]
    assert await query_sql(shared_url, f"SELECT status FROM work WHERE run = '{run}' AND node = 'b'") == [("skipped",)]


async def test_i31_a_pending_step_that_nothing_had_reached_is_told_when_it_is_gone(shared_url: str) -> None:
    """It has no row yet; which nodes the run was to do is known from the code of then."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}, later=("b",))
    after = Deploy(did, {"a": [], "b": ["a"], "d": ["b"]}, later=("b",))
    run = await run_until(shared_url, before, did, ["a"])
    (told,) = changes(await finish_under(shared_url, after, run))
    assert did == ["a", "b", "d"]
    assert (told["skipped"], told["not_begun"]) == (["c"], ["d"])
    assert told["warning"] == "nodes that had not completed are no longer in the graph, and were skipped"


async def test_i31_a_new_first_step_waits_for_the_time_that_the_run_was_started_for(shared_url: str) -> None:
    """Whoever puts it there: a deploy, or an import that takes out what came first."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"]})
    after = Deploy(did, {"new": [], "a": ["new"], "b": ["a"]})
    later = datetime.now(UTC) + timedelta(hours=1)
    async with engine_on(shared_url, before.registry) as engine:
        deployed, edited = [await engine.start(before.dag(), at=later) for _ in range(2)]
        document = json.loads(await edited.export_dag())
        del document["nodes"]["a"]
        document["nodes"]["b"]["depends_on"] = []
        await edited.import_dag(json.dumps(document))
    async with engine_on(shared_url, after.registry) as engine, engine.worker():

        async def reshaped() -> bool:
            return bool(await work_of(engine, deployed.id, "new"))

        await until(reshaped, "the run follows the new code")
        await engine.settle(timeout=10)
        ready = await work_of(engine, deployed.id, "new") + await work_of(engine, edited.id, "b")
        assert [(work.status, work.due) for work in ready] == [("ready", int(later.timestamp() * 1_000_000))] * 2
        assert did == []
        await assert_sound(engine)


async def test_i31_a_step_that_an_import_takes_out_before_it_was_reached_is_told(url: str) -> None:
    did: list[str] = []
    deploy = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]})
    engine = engine_on(url, deploy.registry)
    async with engine:
        handle = await engine.start(deploy.dag())
        document = json.loads(await handle.export_dag())
        del document["nodes"]["c"]
        await handle.import_dag(json.dumps(document))
        (told,) = changes(await handle.history())
        assert told["skipped"] == ["c"]
        async with engine.worker():
            await handle.result(timeout=20)
    assert did == ["a", "b"]


async def test_i31_a_new_dependency_on_a_completed_node_is_satisfied(shared_url: str) -> None:
    """It has completed, so there is nothing to wait for; c is counted to two and runs once."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]}, later=("c",))
    after = Deploy(did, {"a": [], "b": ["a"], "c": ["a", "b"]}, later=("c",))
    run = await run_until(shared_url, before, did, ["a", "b"])
    await finish_under(shared_url, after, run)
    assert did == ["a", "b", "c"]
    assert await query_sql(shared_url, f"SELECT required, completed FROM work WHERE run = '{run}' AND node = 'c'") == [
        (2, 2)
    ]


async def test_i31_a_completed_node_with_a_new_unmet_dependency_stays_completed(shared_url: str) -> None:
    """The seed's second danger: what is done is not done again, and the order it was done in can still be verified."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": []}, later=("b",))
    after = Deploy(did, {"b": [], "a": ["b"]}, later=("b",))
    run = await run_until(shared_url, before, did, ["a"])
    history = await finish_under(shared_url, after, run)
    assert did == ["a", "b"]
    assert len(changes(history)) == 1


async def test_i31_a_deploy_that_is_rolled_back_restores_what_it_had_skipped(shared_url: str) -> None:
    """The new code skipped b; the old code is deployed again, nobody serves the new one, and b is done after all."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]}, later=("b", "c"))
    after = Deploy(did, {"a": [], "c": ["a"]}, later=("c",))
    run = await run_until(shared_url, before, did, ["a"])
    engine = engine_on(shared_url, after.registry)
    async with engine, engine.worker():

        async def healed() -> bool:
            return bool(changes(await engine.get(run).history()))

        await until(healed, "the new deploy shapes the run")
        assert [work.status for work in await work_of(engine, run, "b")] == ["skipped"]
    told = changes(await finish_under(shared_url, before, run))
    assert did == ["a", "b", "c"]
    assert [each["signature"] for each in told] == [after.signature, before.signature]


async def test_i31_in_a_rolling_deploy_an_old_worker_only_settles_what_it_ran(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions serve at once: a is finished by the old one, and what follows is what the new one says."""
    monkeypatch.setattr(caretaker, "HEAL_SECONDS", 0.1)  # a minute in real life
    did: list[str] = []
    go = asyncio.Event()
    before = Deploy(did, {"a": [], "b": ["a"]}, a=go.wait)
    after = Deploy(did, {"a": [], "audit": ["a"], "b": ["audit"]})
    old = engine_on(shared_url, before.registry)
    async with old, old.worker():
        handle = await old.start(before.dag())
        await until(lambda: did == ["a"], "the old worker runs a")
        new = engine_on(shared_url, after.registry)
        async with new, new.worker():
            await until(lambda: follows(new, handle.id, after), "the new worker has taken the run up")
            go.set()
            await new.get(handle.id).result(timeout=20)
            assert did == ["a", "audit", "b"]
            await assert_sound(new)


async def follows(engine: hf.Engine, run: str, deploy: Deploy) -> bool:
    return (await engine.store.runs([run]))[0].signature == deploy.signature


async def test_i31_a_bug_fix_reaches_a_run_that_failed_on_the_bug(shared_url: str) -> None:
    """Fix, redeploy, resume: the first thing that the seed says of class-based workflows."""
    did: list[str] = []

    async def bug() -> None:
        raise ZeroDivisionError("the bug")

    before = Deploy(did, {"a": [], "b": ["a"]}, b=bug)
    fixed = Deploy(did, {"a": [], "b": ["a"]})
    engine = engine_on(shared_url, before.registry)
    async with engine, engine.worker():
        handle = await engine.start(before.dag())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
    engine = engine_on(shared_url, fixed.registry)
    async with engine, engine.worker():
        await engine.get(handle.id).resume()
        await engine.get(handle.id).result(timeout=20)
    assert did == ["a", "b", "b"]


async def test_i31_a_paused_run_is_healed_when_it_is_resumed(shared_url: str) -> None:
    """Housekeeping leaves paused runs alone; who resumes one resumes it with the code of now."""
    did: list[str] = []

    async def broken() -> None:
        raise ValueError("broken")

    before = Deploy(did, {"a": [], "b": ["a"]}, b=broken)
    after = Deploy(did, {"a": [], "audit": ["a"], "b": ["audit"]})
    engine = engine_on(shared_url, before.registry)
    async with engine, engine.worker():
        handle = await engine.start(before.dag())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
    engine = engine_on(shared_url, after.registry)
    async with engine:
        again = engine.get(handle.id)
        async with engine.worker():
            assert changes(await again.history()) == []
        await again.resume()
        (told,) = changes(await again.history())
        assert told["not_begun"] == ["audit"]
        async with engine.worker():
            await again.result(timeout=20)
        assert await again.verify_ancestry()
    assert sorted(did) == ["a", "audit", "b", "b"]
