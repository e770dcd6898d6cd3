"""Classes that change: in a process that runs, under runs that have ended, and before a deploy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import holdfast as hf
from tests.dags.test_seed_healing import Deploy, Wiring, changes, follows
from tests.worker.support import assert_sound, engine_on, until


async def test_i31_a_class_that_is_defined_again_in_a_running_worker_decides_what_is_settled_next(url: str) -> None:
    """No worker starts, and no sweep comes by: who settles the step tells the store of the code first."""
    did: list[str] = []
    go = asyncio.Event()
    before = Deploy(did, {"a": [], "b": ["a"]}, a=go.wait)
    engine = engine_on(url, before.registry, sweep_seconds=3600.0)
    async with engine, engine.worker():
        handle = await engine.start(before.dag())
        await until(lambda: did == ["a"], "a runs")
        after = Deploy(did, {"a": [], "audit": ["a"], "b": ["audit"]}, registry=before.registry)
        go.set()
        await handle.result(timeout=20)
        assert did == ["a", "audit", "b"]
        (told,) = changes(await handle.history())
        assert told["signature"] == after.signature
        assert await handle.verify_ancestry()
        await assert_sound(engine)


async def test_i31_a_class_that_is_defined_again_reaches_runs_of_which_nothing_is_settled(url: str) -> None:
    """Where nothing comes to an end, the next sweep takes the runs up, long before the minute is over."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"]}, later=("b",))
    engine = engine_on(url, before.registry)
    async with engine, engine.worker():
        handle = await engine.start(before.dag())
        await until(lambda: did == ["a"], "a has run, and b waits for its queue")
        after = Deploy(did, {"a": [], "b": ["a"], "audit": ["a"]}, later=("b",), registry=before.registry)
        await until(lambda: did == ["a", "audit"], "the new step was picked up")
        assert await follows(engine, handle.id, after)


async def test_i31_a_class_that_is_defined_as_before_takes_its_runs_up_again(url: str) -> None:
    """Forth and back in one process, as in a rollback: nobody alive has the newer version any more."""
    did: list[str] = []
    forth, back = asyncio.Event(), asyncio.Event()
    shape: Wiring = {"a": [], "b": ["a"], "c": ["b"]}
    before = Deploy(did, shape, a=forth.wait, b=back.wait)
    engine = engine_on(url, before.registry)
    async with engine, engine.worker():
        handle = await engine.start(before.dag())
        await until(lambda: did == ["a"], "a runs")
        Deploy(did, {"a": [], "b": ["a"], "audit": ["b"]}, b=back.wait, registry=before.registry)
        forth.set()
        await until(lambda: did == ["a", "b"], "b runs")
        Deploy(did, shape, registry=before.registry)
        back.set()
        await handle.result(timeout=20)
        assert did == ["a", "b", "c"]
        await assert_sound(engine)


async def test_i31_a_run_that_has_ended_is_shown_with_the_graph_that_it_followed(url: str) -> None:
    """A later deploy neither gives it nodes that it never had nor takes those away that ran."""
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"], "c": ["b"]})
    engine = engine_on(url, before.registry)
    async with engine, engine.worker():
        ended = await engine.start(before.dag())
        await ended.result(timeout=20)
        exported, drawn = await ended.export_dag(), await ended.mermaid()
        after = Deploy(did, {"a": [], "c": ["a"], "audit": []}, registry=before.registry)
        assert [(node.name, node.state) for node in await ended.nodes_with_state()] == [
            ("a", "completed"),
            ("b", "completed"),
            ("c", "completed"),
        ]
        assert (await ended.export_dag(), await ended.mermaid()) == (exported, drawn)
        assert await ended.verify_ancestry()
        assert (await ended.dag()).signature == before.signature
        another = await engine.start(after.dag())
        await another.result(timeout=20)
        assert (await another.dag()).signature == after.signature


async def test_i31_a_run_that_failed_is_frozen_with_the_graph_that_its_class_has_now(url: str) -> None:
    """It is shown as it was, and goes on with what was deployed since."""
    registry = hf.Registry()
    before = _failing(registry, audited=False)
    engine = engine_on(url, registry)
    async with engine:
        handle = await engine.start(before())
        async with engine.worker():
            with pytest.raises(hf.RunFailed):
                await handle.result(timeout=20)
        _failing(registry, audited=True)
        assert [node.name for node in await handle.nodes_with_state()] == ["ship"]
        await handle.freeze_dag()
        assert [node.name for node in await handle.nodes_with_state()] == ["ship", "audit"]


def _failing(registry: hf.Registry, *, audited: bool) -> type[hf.Dag]:
    class Order(hf.Dag, registry=registry, on_failure="fail"):
        @hf.step
        async def ship(self) -> None:
            raise ValueError("broken")

        if audited:

            @hf.step
            async def audit(self) -> None: ...

    return Order


async def test_i31_a_run_that_was_cancelled_is_shown_with_the_graph_that_it_followed(url: str) -> None:
    did: list[str] = []
    before = Deploy(did, {"a": [], "b": ["a"]}, later=("b",))
    engine = engine_on(url, before.registry)
    async with engine, engine.worker():
        ended = await engine.start(before.dag())
        await until(lambda: did == ["a"], "a has run")
        await ended.cancel()
        Deploy(did, {"a": [], "audit": ["a"]}, registry=before.registry)
        assert [node.name for node in await ended.nodes_with_state()] == ["a", "b"]


@pytest.mark.parametrize("frozen", [False, True])
async def test_i31_a_check_tells_of_open_runs_whose_fields_the_new_class_cannot_read(url: str, frozen: bool) -> None:
    """A field that is added needs a default: without one, every open run would become a dead letter."""
    engine = engine_on(url, hf.Registry())
    async with engine:
        handle = await engine.start(_order(engine.registry, has_amount=False)(number=1))
        if frozen:
            await handle.freeze_dag()
        assert [checked.verdict for checked in await engine.check()] == ["fine"]
        _order(engine.registry, has_amount=True)
        (checked,) = await engine.check()
        assert (checked.run, checked.verdict, checked.ok) == (handle.id, "breaks", False)
        assert "missing required field `amount`" in checked.difference


def _order(registry: hf.Registry, *, has_amount: bool) -> type[hf.Dag]:
    class Order(hf.Dag, registry=registry):
        number: int
        if has_amount:
            amount: int

        @hf.step
        async def ship(self) -> None: ...

    return Order


async def test_i31_a_check_tells_of_an_action_that_cannot_read_what_it_was_started_with(url: str) -> None:
    engine = engine_on(url, hf.Registry())
    async with engine:
        handle = await engine.start(_ship(engine.registry, has_amount=False), 1)
        assert [checked.verdict for checked in await engine.check()] == ["fine"]
        _ship(engine.registry, has_amount=True)
        (checked,) = await engine.check()
        assert (checked.run, checked.verdict) == (handle.id, "breaks")


def _ship(registry: hf.Registry, *, has_amount: bool) -> Any:
    if has_amount:

        @hf.action(registry=registry)
        async def ship(number: int, amount: int) -> None: ...

    else:

        @hf.action(registry=registry)
        async def ship(number: int) -> None: ...

    return ship


async def test_i31_a_node_of_a_built_dag_that_an_import_takes_out_is_told_by_its_name(url: str) -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def job() -> None: ...

    w = hf.DagBuilder("one", registry=registry)
    first = w.node("first", job=job)
    w.node("second", job=job, depends_on=[first])
    async with engine_on(url, registry) as engine:
        handle = await engine.start(w.build())
        document = json.loads(await handle.export_dag())
        kept = {node: facts for node, facts in document["nodes"].items() if facts["name"] == "second"}
        document["nodes"] = {node: {**facts, "depends_on": []} for node, facts in kept.items()}
        await handle.import_dag(json.dumps(document))
        (told,) = changes(await handle.history())
        assert told["skipped"] == ["first"]
