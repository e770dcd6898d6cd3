"""Seed 002, dynamic workflows: built at run time, frozen as JSON, with ids beside names."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import holdfast as hf
from tests.dags.side_effects import Stage, assert_in_order, drawn_edges, edges_of, execute_sql, query_sql
from tests.worker.support import assert_sound, engine_on

MUTATIONS = 200


# --- 200 mutations -------------------------------------------------------------------------------------------------


def mutation_jobs(registry: hf.Registry) -> tuple[Any, Any, Any]:
    """The seed's three job classes. They speak through the user's own tables, and through nothing else."""

    @hf.action(registry=registry, transactional=True)
    async def process_mutation(mutation_id: int) -> None:
        changed = await hf.current().tx.execute(
            f"UPDATE mutation SET status = 'processed' WHERE id = {int(mutation_id)} AND status = 'pending'"
        )
        assert changed == 1, "each mutation is processed once"

    @hf.action(registry=registry, transactional=True)
    async def aggregate_mutations(user_id: int) -> None:
        tx = hf.current().tx
        found = await tx.fetchval(
            f"SELECT count(*) FROM mutation WHERE user_id = {int(user_id)} AND status = 'processed'"
        )
        await tx.execute(f"INSERT INTO summary VALUES ({int(user_id)}, {int(found)})")

    @hf.action(registry=registry, transactional=True)
    async def notify_user(user_id: int) -> None:
        tx = hf.current().tx
        total = await tx.fetchval(f"SELECT total FROM summary WHERE user_id = {int(user_id)}")
        await tx.execute(f"INSERT INTO notice VALUES ({int(user_id)}, '{int(total)} mutations')")

    return process_mutation, aggregate_mutations, notify_user


async def test_g4_two_hundred_mutations_are_processed_in_parallel_aggregated_once_and_notified(shared_url: str) -> None:
    """The seed's just-in-time workflow, with real side effects: the aggregate finds all 200, the user hears once."""
    registry = hf.Registry()
    process, aggregate, notify = mutation_jobs(registry)
    engine = engine_on(shared_url, registry)
    tables = ("mutation (id INTEGER, user_id INTEGER, status TEXT)", "summary (user_id INTEGER, total INTEGER)")
    async with engine, engine.worker():
        for table in (*tables, "notice (user_id INTEGER, text TEXT)"):
            await execute_sql(shared_url, f"DROP TABLE IF EXISTS {table.split()[0]}")
            await execute_sql(shared_url, f"CREATE TABLE {table}")
        rows = ", ".join(f"({number}, 7, 'pending')" for number in range(MUTATIONS))
        await execute_sql(shared_url, f"INSERT INTO mutation VALUES {rows}")
        pending = [row[0] for row in await query_sql(shared_url, "SELECT id FROM mutation WHERE status = 'pending'")]

        w = hf.DagBuilder("mutations", registry=registry)
        nodes = [
            w.node(f"mutation_{number}", job=process, args={"mutation_id": number}, depends_on=None)
            for number in pending
        ]
        w.node("aggregate", job=aggregate, args={"user_id": 7}, depends_on=nodes)
        w.node("notify", job=notify, args={"user_id": 7})
        built = w.build()
        assert len(built.graph.entries) == MUTATIONS
        assert edges_of(built.graph) == {(f"mutation_{number}", "aggregate") for number in pending} | {
            ("aggregate", "notify")
        }

        handle = await engine.start(built)
        await handle.result(timeout=60)
        executions = await handle.step_executions()
        assert len(executions) == MUTATIONS + 2
        assert {(row.state, row.attempt) for row in executions} == {("completed", 1)}
        assert await handle.verify_ancestry()
        await assert_sound(engine)
    assert await query_sql(shared_url, "SELECT status, count(*) FROM mutation GROUP BY status") == [("processed", 200)]
    assert await query_sql(shared_url, "SELECT * FROM summary") == [(7, MUTATIONS)]
    assert await query_sql(shared_url, "SELECT * FROM notice") == [(7, "200 mutations")]


# --- depends_on ----------------------------------------------------------------------------------------------------


def test_i27_what_depends_on_means_in_a_builder_from_a_to_e() -> None:
    """The seed's five lines: nothing for the first, the one before, None, a name, several names."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def job() -> None: ...

    w = hf.DagBuilder("letters", registry=registry)
    w.node("a", job=job)
    w.node("b", job=job)
    w.node("c", job=job, depends_on=None)
    w.node("d", job=job, depends_on="a")
    w.node("e", job=job, depends_on=["c", "d"])
    graph = w.build().graph
    assert edges_of(graph) == {("a", "b"), ("a", "d"), ("c", "e"), ("d", "e")}
    assert [graph.by_id[entry].name for entry in graph.entries] == ["a", "c"]


async def test_i27_the_reference_example_of_a_builder_runs(url: str) -> None:
    """Entry point, implicit dependency, fan-out by a loop, fan-in by names, and on with the chain."""
    stage = Stage()

    @hf.action(registry=stage.registry)
    async def start(user_id: int) -> None:
        stage.play()

    @hf.action(registry=stage.registry)
    async def work() -> None:
        stage.play()

    @hf.action(registry=stage.registry)
    def process_item(item_id: int) -> None:
        stage.play(f"process_{item_id}")

    items = [11, 12, 13]
    w = hf.DagBuilder("items", registry=stage.registry)
    w.node("start", job=start, args={"user_id": 7}, depends_on=None)
    w.node("validate", job=work)
    for item in items:
        w.node(f"process_{item}", job=process_item, args={"item_id": item}, depends_on="validate")
    w.node("aggregate", job=work, depends_on=[f"process_{item}" for item in items])
    w.node("notify", job=work)
    built = w.build()
    expected = {("start", "validate"), ("aggregate", "notify")}
    expected |= {("validate", f"process_{item}") for item in items}
    expected |= {(f"process_{item}", "aggregate") for item in items}
    assert edges_of(built.graph) == expected
    assert drawn_edges(built.mermaid()) == expected
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        await engine.run(built, timeout=20)
    assert_in_order(stage.did, built.graph)


async def test_i27_the_fan_out_helper_gives_what_the_next_node_depends_on(url: str) -> None:
    """Names and arguments are functions of the item; the handles that come back are a depends_on."""
    stage = Stage()
    got: list[int] = []

    @hf.action(registry=stage.registry)
    async def process_item(item_id: int) -> None:
        got.append(item_id)
        stage.play()

    @hf.action(registry=stage.registry)
    async def aggregate() -> None:
        stage.play()

    w = hf.DagBuilder("items", registry=stage.registry)
    nodes = w.fan_out(
        [{"id": 3}, {"id": 5}],
        name=lambda item: f"process_{item['id']}",
        job=process_item,
        args=lambda item: {"item_id": item["id"]},
    )
    assert [node.name for node in nodes] == ["process_3", "process_5"]
    w.node("aggregate", job=aggregate, depends_on=nodes)
    built = w.build()
    assert edges_of(built.graph) == {("process_3", "aggregate"), ("process_5", "aggregate")}
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        await engine.run(built, timeout=20)
    assert_in_order(stage.did, built.graph)
    assert sorted(got) == [3, 5]


async def test_i27_a_template_expands_at_the_start_and_its_runs_share_the_jobs(url: str) -> None:
    """The seed's open question about templates: a function that returns a builder, started by its name."""
    stage = Stage()

    @hf.action(registry=stage.registry)
    async def load(shard: int) -> None:
        stage.play()

    @hf.dag_template(registry=stage.registry)
    def nightly(shards: int) -> hf.DagBuilder:
        w = hf.DagBuilder("nightly", registry=stage.registry)
        w.fan_out(range(shards), name=lambda shard: f"load_{shard}", job=load, args=lambda shard: {"shard": shard})
        return w

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        small = await engine.start("nightly", 2)
        large = await engine.start(nightly.bind(shards=4))
        await small.result(timeout=20)
        await large.result(timeout=20)
        assert [node.name for node in (await small.dag()).nodes] == ["load_0", "load_1"]
        assert len(await large.dag()) == 4
        assert {run.workflow for run in await engine.find(workflow="nightly")} == {"nightly"}
    assert sorted(stage.did) == ["load_0", "load_0", "load_1", "load_1", "load_2", "load_3"]


async def test_i12_a_node_can_start_another_run_and_wait_for_it_once_however_often_it_is_tried(url: str) -> None:
    """The seed's open question about other workflows: a node uses the engine, and its key finds the run again."""
    stage = Stage()
    engine = engine_on(url, stage.registry)

    @hf.action(registry=stage.registry)
    async def settle_account(account: int) -> int:
        stage.did.append(f"settle {account}")
        return account

    class Closing(hf.Dag, registry=stage.registry):
        @hf.step(retry=hf.Retry(attempts=2, base=0.01))
        async def settle(self) -> None:
            settled = await engine.run(settle_account, 7, key=hf.current().idempotency_key, timeout=20)
            stage.did.append(f"settled {settled}")
            if hf.current().attempt == 1:
                raise ConnectionError("after it was settled")

        @hf.step
        async def report(self) -> None:
            stage.play()

    async with engine, engine.worker():
        await engine.run(Closing(), timeout=20)
    assert stage.did == ["settle 7", "settled 7", "settled 7", "report"]


# --- the frozen JSON -----------------------------------------------------------------------------------------------


async def test_i27_the_frozen_json_has_these_keys_and_no_others(url: str) -> None:
    """Structure only: no state, no context, no code; the keys are a contract with whoever reads an export."""
    registry = hf.Registry()

    @hf.action(registry=registry, retry=hf.Retry(attempts=3, base=2, cap=60), queue="checks", timeout=9)
    async def check(order_id: int, deep: bool = False) -> None: ...

    w = hf.DagBuilder("check-order", registry=registry)
    first = w.node("validate", job=check, args={"order_id": 123})
    second = w.node("check_inventory", job=check, args={"order_id": 123, "deep": True})
    async with engine_on(url, registry) as engine:
        handle = await engine.start(w.build())
        exported = await handle.export_dag()
        document = json.loads(exported)
        assert await handle.dag_definition() == document
    assert list(document) == ["version", "signature", "frozen_at", "nodes"]
    assert document["version"] == 1
    assert re.fullmatch(r"[0-9a-f]{16}", document["signature"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", document["frozen_at"])
    policy = {"retry": {"attempts": 3, "base": 2.0, "cap": 60.0}, "timeout_seconds": 9.0, "queue": "checks"}
    assert document["nodes"] == {
        first.id: {
            "name": "validate",
            "job": "check",
            "method": None,
            "args": {"order_id": 123},
            "depends_on": [],
            "policy": policy,
        },
        second.id: {
            "name": "check_inventory",
            "job": "check",
            "method": None,
            "args": {"order_id": 123, "deep": True},
            "depends_on": [first.id],
            "policy": policy,
        },
    }


async def test_i27_a_loop_in_the_builder_is_stored_as_what_it_expanded_to(url: str) -> None:
    """The code that built it ran once; what is stored can be read, and run, without it."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def process_mutation(mutation_id: int) -> None: ...

    w = hf.DagBuilder("mutations", registry=registry)
    for number in range(1, MUTATIONS + 1):
        w.node(f"mutation_{number}", job=process_mutation, args={"mutation_id": number}, depends_on=None)
    async with engine_on(url, registry) as engine:
        document = json.loads(await (await engine.start(w.build())).export_dag())
    assert {(node["name"], node["job"], node["args"]["mutation_id"]) for node in document["nodes"].values()} == {
        (f"mutation_{number}", "process_mutation", number) for number in range(1, MUTATIONS + 1)
    }


# --- names and ids -------------------------------------------------------------------------------------------------


def two_in_a_row(stage: Stage) -> hf.BuiltDag:
    @hf.action(registry=stage.registry)
    async def check() -> None:
        stage.play()

    w = hf.DagBuilder("checks", registry=stage.registry)
    w.node("validate", job=check)
    w.node("check_inventory", job=check)
    return w.build()


def test_i27_a_node_has_an_id_that_shows_what_it_is_and_a_name_for_people() -> None:
    """`n_` and 8 hex digits, different in a graph; dependencies are ids."""
    graph = two_in_a_row(Stage()).graph
    first, second = graph.nodes
    assert all(re.fullmatch(r"n_[0-9a-f]{8}", node.id) for node in graph.nodes)
    assert first.id != second.id
    assert (first.name, second.name) == ("validate", "check_inventory")
    assert second.depends_on == (first.id,)


async def test_i27_renaming_a_node_through_import_dag_breaks_no_reference(url: str) -> None:
    """The seed's rename of validate to validate_order, while it has completed and its child has not."""
    stage = Stage()
    built = two_in_a_row(stage)
    first, second = built.graph.nodes
    stage.broken["check_inventory"] = ValueError("out of stock")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(built)
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        document = json.loads(await handle.export_dag())
        document["nodes"][first.id]["name"] = "validate_order"
        await handle.import_dag(json.dumps(document), by="Ada")
        after = await handle.dag()
        assert after.by_name["validate_order"].id == first.id
        assert after.by_id[second.id].depends_on == (first.id,)
        assert [(state.id, state.name, state.state) for state in await handle.nodes_with_state()] == [
            (first.id, "validate_order", "completed"),
            (second.id, "check_inventory", "failed"),
        ]
        (told,) = [entry for entry in await handle.history() if entry.kind == "graph imported"]
        assert told.data["by"] == "Ada"
        stage.broken.clear()
        await handle.resume()
        await handle.result(timeout=20)
        assert stage.did == ["validate", "check_inventory", "check_inventory"], "what completed did not run again"
        assert await handle.verify_ancestry()
        await assert_sound(engine)
