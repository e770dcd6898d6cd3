"""Seed 002, class-based and dynamic: where the graph of a run lives, what runs a node, what a missing job says."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

import pytest

import holdfast as hf
from tests.dags.side_effects import edges_of, query_sql
from tests.worker.support import assert_sound, engine_on, until

Did = defaultdict[str, list[str]]
"""What was done, by run."""


def greeting(registry: hf.Registry, did: Did, said: str, *steps: str) -> type[hf.Dag]:
    """A class Greeting of these steps; each writes down what this deploy says."""

    def method(name: str) -> Any:
        async def body(self: hf.Dag) -> None:
            did[hf.current().run_id].append(f"{name}: {said}")

        body.__name__ = body.__qualname__ = name
        return hf.step(body)

    namespace = {"__module__": __name__, **{name: method(name) for name in steps}}
    made: type[hf.Dag] = type(hf.Dag)("Greeting", (hf.Dag,), namespace, registry=registry)
    return made


def built(registry: hf.Registry, did: Did, said: str, *names: str) -> hf.BuiltDag:
    """A built DAG of these nodes, with the one job that this deploy has."""

    @hf.action(registry=registry)
    async def greet() -> None:
        did[hf.current().run_id].append(f"{hf.current().node.name}: {said}")

    w = hf.DagBuilder("greetings", registry=registry)
    for name in names:
        w.node(name, job=greet)
    return w.build()


# --- the table of differences, row by row --------------------------------------------------------------------------


async def test_i31_dag_source_and_persistence_of_a_class_the_code_and_no_stored_row(shared_url: str) -> None:
    """Class-based: the graph lives in code, so nothing of it is stored."""
    registry, did = hf.Registry(), Did(list)
    dag = greeting(registry, did, "old", "hello", "bye")
    async with engine_on(shared_url, registry) as engine:
        handle = await engine.start(dag())
        assert await handle.dag_definition() is None
        assert await handle.dag() is dag.compiled_dag()
        assert await query_sql(shared_url, "SELECT workflow, definition FROM runs") == [("Greeting", None)]
        assert await query_sql(shared_url, "SELECT id FROM definitions") == []


async def test_i31_dag_source_and_persistence_of_a_built_dag_one_frozen_row(shared_url: str) -> None:
    """Dynamic: the graph is in the database, complete, from the very commit that starts the run."""
    registry, did = hf.Registry(), Did(list)
    dag = built(registry, did, "old", "hello", "bye")
    async with engine_on(shared_url, registry) as engine:
        handle = await engine.start(dag)
        ((definition, run, signature, nodes),) = await query_sql(
            shared_url, "SELECT id, run, signature, nodes FROM definitions"
        )
        assert await query_sql(shared_url, "SELECT workflow, definition FROM runs") == [("greetings", definition)]
        assert (run, signature) == (handle.id, dag.dag_signature())
        assert [node["name"] for node in json.loads(nodes).values()] == ["hello", "bye"]
    async with engine_on(shared_url, hf.Registry()) as stranger:
        assert edges_of(await stranger.get(handle.id).dag()) == {("hello", "bye")}, "readable without any code"


async def test_i31_node_code_is_a_method_of_the_class_or_a_registered_action(url: str) -> None:
    """Node code: `self` is the instance in a class; a job finds the instance in its context, None in a built DAG."""
    registry = hf.Registry()
    found: list[tuple[object, str, int]] = []

    @hf.action(registry=registry)
    async def job() -> None:
        context = hf.current()
        found.append((context.workflow, context.node.name, context.node.attempt))

    class Order(hf.Dag, registry=registry):
        order_id: int

        @hf.step
        async def method(self) -> None:
            assert hf.current().workflow is self
            found.append((self, hf.current().node.name, hf.current().attempt))

        mixed = hf.step(job=job)

    w = hf.DagBuilder("built", registry=registry)
    w.node("alone", job=job)
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        await engine.run(Order(order_id=7), timeout=20)
        await engine.run(w.build(), timeout=20)
    assert found == [(Order(order_id=7), "method", 1), (Order(order_id=7), "mixed", 1), (None, "alone", 1)]


async def test_i31_a_deploy_heals_runs_of_a_class_and_leaves_built_ones_as_they_are(shared_url: str) -> None:
    """Healing on deploy: the class's run takes the new step and the new code; the built run takes the code only."""
    old, new = hf.Registry(), hf.Registry()
    did = Did(list)
    dag = greeting(old, did, "old", "hello", "bye")
    frozen = built(old, did, "old", "first", "second")
    async with engine_on(shared_url, old) as engine:
        of_class = await engine.start(dag())
        of_builder = await engine.start(frozen)
    greeting(new, did, "new", "hello", "smile", "bye")
    built(new, did, "new", "first", "between", "second")
    engine = engine_on(shared_url, new)
    async with engine, engine.worker():
        await engine.get(of_class.id).result(timeout=20)
        await engine.get(of_builder.id).result(timeout=20)
    assert did[of_class.id] == ["hello: new", "smile: new", "bye: new"]
    assert did[of_builder.id] == ["first: new", "second: new"]


async def test_i15_the_workflow_column_names_the_class_or_the_name_that_the_builder_was_given(url: str) -> None:
    """The seed's type column. A built DAG has a name of its own here, so that people can find its runs."""
    registry, did = hf.Registry(), Did(list)
    async with engine_on(url, registry) as engine:
        of_class = await engine.start(greeting(registry, did, "old", "hello")())
        of_builder = await engine.start(built(registry, did, "old", "first"))
        assert [run.id for run in await engine.find(workflow="Greeting")] == [of_class.id]
        assert [run.id for run in await engine.find(workflow="greetings")] == [of_builder.id]


# --- stored before class -------------------------------------------------------------------------------------------


async def test_i31_a_stored_dag_comes_before_the_class_from_the_moment_it_is_frozen(shared_url: str) -> None:
    """Freeze, then change the class: the frozen run keeps its nodes, the other follows the deploy."""
    old, new = hf.Registry(), hf.Registry()
    did = Did(list)
    dag = greeting(old, did, "old", "hello", "bye")
    async with engine_on(shared_url, old) as engine:
        frozen_run = await engine.start(dag())
        free_run = await engine.start(dag())
        stored = await frozen_run.freeze_dag(by="Ada")
        assert stored["signature"] == await _signature(frozen_run)
        assert stored["frozen_at"] is not None
        assert await frozen_run.freeze_dag() == stored, "freezing it again changes nothing"
        (told,) = [entry.data for entry in await frozen_run.history() if entry.kind == "graph frozen"]
        assert told["by"] == "Ada"
    greeting(new, did, "new", "hello", "smile", "bye")
    engine = engine_on(shared_url, new)
    async with engine, engine.worker():
        await engine.get(free_run.id).result(timeout=20)
        await engine.get(frozen_run.id).result(timeout=20)
        assert did[free_run.id] == ["hello: new", "smile: new", "bye: new"]
        assert did[frozen_run.id] == ["hello: new", "bye: new"], "nodes of the stored graph, code of the class"
        assert (await engine.get(frozen_run.id).dag_definition()) == stored
        await assert_sound(engine)


async def _signature(handle: hf.Handle[Any]) -> str:
    return (await handle.dag()).signature


async def test_i31_a_stored_dag_changes_only_by_import_which_validates_and_keeps_what_is_done(url: str) -> None:
    """The seed's surgical edit: a cycle, a lost node, an unknown job and a stale export are refused, and tell why."""
    registry, went = hf.Registry(), list[str]()
    go = asyncio.Event()

    @hf.action(registry=registry)
    async def wait() -> None:
        went.append(hf.current().node.name)
        if hf.current().node.name == "b":
            await go.wait()

    w = hf.DagBuilder("abc", registry=registry)
    a, b, c = (w.node(name, job=wait) for name in "abc")
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(w.build())
        await until(lambda: went == ["a", "b"], "a has completed and b runs")

        exported = await handle.export_dag()

        def edited(change: Any) -> str:
            document = json.loads(exported)
            change(document["nodes"])
            return json.dumps(document)

        for change, said in (
            (lambda nodes: nodes.pop(a.id), "depends on"),
            (lambda nodes: (nodes.pop(a.id), nodes[b.id].update(depends_on=[])), "has completed"),
            (lambda nodes: (nodes.pop(b.id), nodes[c.id].update(depends_on=[a.id])), "node b .* is running"),
            (lambda nodes: nodes[a.id].update(depends_on=[c.id]), "cycle"),
            (lambda nodes: nodes[c.id].update(job="nobody"), "'nobody'"),
        ):
            with pytest.raises(hf.DagError, match=said):
                await handle.import_dag(edited(change))
        assert await handle.export_dag() == exported, "nothing half-written"
        extra = {**json.loads(exported)["nodes"][c.id], "name": "d", "depends_on": [b.id]}
        await handle.import_dag(edited(lambda nodes: (nodes.pop(c.id), nodes.update(n_0000000d=extra))), by="Ada")
        with pytest.raises(hf.DagError, match="changed since this document was exported"):
            await handle.import_dag(edited(lambda nodes: nodes[c.id].update(name="late")))
        go.set()
        await handle.result(timeout=20)
        assert went == ["a", "b", "d"]
        (told,) = [entry for entry in await handle.history() if entry.kind == "graph imported"]
        assert told.data["by"] == "Ada"
        assert told.at is not None
        await assert_sound(engine)


# --- job or method -------------------------------------------------------------------------------------------------


async def test_i31_the_node_says_whether_a_job_or_a_method_runs_also_in_a_stored_graph(url: str) -> None:
    """A class with both; frozen, and its method node edited to run a job: the node is the authority."""
    registry, did = hf.Registry(), Did(list)

    @hf.action(registry=registry)
    async def notify(level: int) -> None:
        did[hf.current().run_id].append(f"{hf.current().node.name} notifies at {level}")

    class Order(hf.Dag, registry=registry):
        @hf.step
        async def validate(self) -> None:
            did[hf.current().run_id].append("method validate")

        tell = hf.step(job=notify, args={"level": 2})

        @hf.step
        async def complete(self) -> None:
            did[hf.current().run_id].append("method complete")

    engine = engine_on(url, registry)
    async with engine:
        plain = await engine.start(Order())
        edited = await engine.start(Order())
        await edited.freeze_dag()
        document = json.loads(await edited.export_dag())
        assert (document["nodes"]["tell"]["job"], document["nodes"]["tell"]["method"]) == ("notify", None)
        assert (document["nodes"]["complete"]["job"], document["nodes"]["complete"]["method"]) == (None, "complete")
        document["nodes"]["complete"] |= {"job": "notify", "method": None, "args": {"level": 9}}
        await edited.import_dag(json.dumps(document))
        async with engine.worker():
            await plain.result(timeout=20)
            await edited.result(timeout=20)
    assert did[plain.id] == ["method validate", "tell notifies at 2", "method complete"]
    assert did[edited.id] == ["method validate", "tell notifies at 2", "complete notifies at 9"]


# --- the missing job -----------------------------------------------------------------------------------------------


async def test_i8_a_missing_job_names_run_node_frozen_at_and_three_ways_out(shared_url: str) -> None:
    """A deploy deleted the action. Each of the ways that the message offers is then gone, and works."""
    before, after = hf.Registry(), hf.Registry()

    @hf.action(registry=before)
    async def validate_order() -> None: ...

    done: list[str] = []

    @hf.action(registry=after)
    async def check_order() -> None:
        done.append(hf.current().run_id)

    w = hf.DagBuilder("orders", registry=before)
    node = w.node("validate", job=validate_order)
    dag = w.build()
    async with engine_on(shared_url, before) as engine:
        runs = [(await engine.start(dag)).id for _ in range(3)]
    settings = {"unknown_after_seconds": 0.01, "sweep_seconds": 0.02}
    engine = engine_on(shared_url, after, **settings)
    async with engine, engine.worker():
        restored, cancelled, edited = (engine.get(run) for run in runs)
        for handle in (restored, cancelled, edited):
            with pytest.raises(hf.RunPaused) as paused:
                await handle.result(timeout=20)
            cause = paused.value.__cause__
            assert isinstance(cause, hf.MissingJob)
            frozen_at = (await handle.dag_definition())["frozen_at"]
            said = str(cause)
            for part in (handle.id, "'validate_order'", "node validate", node.id, f"frozen at {frozen_at}, "):
                assert part in said, said
            assert "(1) bring 'validate_order' back" in str(cause.hint)
            assert "(2) cancel the run and start a new one" in str(cause.hint)
            assert "(3) change its graph" in str(cause.hint)
            assert [row.state for row in await handle.step_executions()] == ["dead"]
        assert {work.run for work in await engine.dead()} == set(runs)
        await cancelled.cancel()
        document = json.loads(await edited.export_dag())
        document["nodes"][node.id]["job"] = "check_order"
        await edited.import_dag(json.dumps(document), by="Ada")
        await edited.retry()
        await edited.result(timeout=20)
        assert done == [edited.id]
    async with engine_on(shared_url, before) as engine, engine.worker():
        await engine.replay_dead(restored.id, "validate")
        await engine.get(restored.id).result(timeout=20)
        assert await engine.get(cancelled.id).status() == "cancelled"
        assert not {work.run for work in await engine.dead()} & {restored.id, edited.id}


async def test_i31_a_run_whose_class_is_gone_can_be_shown_exported_and_cancelled(shared_url: str) -> None:
    """What operators need does not need the code."""
    old, did = hf.Registry(), Did(list)
    dag = greeting(old, did, "old", "hello", "bye")
    async with engine_on(shared_url, old) as engine:
        frozen_run, free_run = await engine.start(dag()), await engine.start(dag())
        await frozen_run.freeze_dag()
    async with engine_on(shared_url, hf.Registry()) as engine:
        for run in (frozen_run.id, free_run.id):
            assert [each.name for each in await engine.get(run).nodes_with_state()] == ["hello", "bye"]
            assert set(json.loads(await engine.get(run).export_dag())["nodes"]) == {"hello", "bye"}
        assert "Greeting" in str(await engine.get(free_run.id).explain())
        for run in (frozen_run.id, free_run.id):
            assert await engine.get(run).cancel()
            assert await engine.get(run).status() == "cancelled"
