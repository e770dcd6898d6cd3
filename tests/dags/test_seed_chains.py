"""Seed 002, from the chain to the unified namespace: steps, tasks, positions, PREVIOUS, and the big order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import holdfast as hf
from tests.dags.side_effects import Stage, assert_in_order, drawn_edges, edges_of
from tests.worker.support import engine_on, until

# Every arrow of the seed's drawing of its OrderWorkflow, and no other.
DRAWN_ORDER = {
    ("validate", "enrich_data"),
    ("validate", "check_inventory"),
    ("validate", "check_fraud"),
    ("check_inventory", "ready_to_charge"),
    ("check_fraud", "ready_to_charge"),
    ("ready_to_charge", "charge_card"),
    ("charge_card", "send_receipt"),
    ("charge_card", "update_analytics"),
    ("charge_card", "complete"),
    ("send_receipt", "complete"),
    ("update_analytics", "complete"),
}


def chain_of(dag: type[hf.Dag]) -> list[str]:
    """The nodes of a purely linear class, from the first to the last."""
    graph = dag.compiled_dag()
    (first,) = graph.entries
    chain = [first]
    while following := graph.successors(chain[-1]):
        (only,) = following
        chain.append(only)
    assert len(chain) == len(graph.nodes), "not linear"
    return chain


# --- the linear chain ----------------------------------------------------------------------------------------------


async def test_i25_a_linear_chain_runs_its_steps_in_the_order_written(url: str) -> None:
    """The seed's first example: three steps, nothing declared but their order."""
    stage = Stage()

    class OrderWorkflow(hf.Dag, registry=stage.registry):
        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.step
        def process(self) -> None:
            stage.play()

        @hf.step
        async def complete(self) -> None:
            stage.play()

    assert chain_of(OrderWorkflow) == ["validate", "process", "complete"]
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(OrderWorkflow())
        await handle.result(timeout=20)
        assert stage.did == ["validate", "process", "complete"]
        assert [work.attempt for work in await handle.step_executions()] == [1, 1, 1]


async def test_g4_a_true_dag_runs_independent_nodes_at_the_same_time(url: str) -> None:
    """The seed's second drawing. The two checks wait for each other: run one after the other they would hang."""
    stage = Stage()
    both_here = asyncio.Barrier(2)

    class OrderWorkflow(hf.Dag, registry=stage.registry):
        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.task(depends_on="validate")
        async def check_inventory(self) -> None:
            await both_here.wait()
            stage.play()

        @hf.task(depends_on="validate")
        async def check_fraud(self) -> None:
            await both_here.wait()
            stage.play()

        @hf.step(depends_on=["check_inventory", "check_fraud"])
        async def charge(self) -> None:
            stage.play()

        @hf.step
        async def ship(self) -> None:
            stage.play()

        @hf.step
        async def complete(self) -> None:
            stage.play()

    drawn = {
        ("validate", "check_inventory"),
        ("validate", "check_fraud"),
        ("check_inventory", "charge"),
        ("check_fraud", "charge"),
        ("charge", "ship"),
        ("ship", "complete"),
    }
    assert edges_of(OrderWorkflow.compiled_dag()) == drawn
    assert drawn_edges(OrderWorkflow.mermaid()) == drawn
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        await engine.run(OrderWorkflow(), timeout=20)
        assert_in_order(stage.did, OrderWorkflow.compiled_dag())


# --- insertion -----------------------------------------------------------------------------------------------------


def test_i25_a_step_inserted_after_another_is_between_it_and_the_next() -> None:
    """The seed's example of after_step: validate, audit, complete."""

    class OrderWorkflow(hf.Dag, registry=hf.Registry()):
        @hf.step
        async def validate(self) -> None: ...
        @hf.step
        async def complete(self) -> None: ...
        @hf.step(after_step="validate")
        async def audit(self) -> None: ...

    assert chain_of(OrderWorkflow) == ["validate", "audit", "complete"]


def test_i25_a_step_inserted_before_another_is_between_it_and_the_one_above() -> None:
    """The same with before_step."""

    class OrderWorkflow(hf.Dag, registry=hf.Registry()):
        @hf.step
        async def validate(self) -> None: ...
        @hf.step
        async def complete(self) -> None: ...
        @hf.step(before_step="complete")
        async def audit(self) -> None: ...

    assert chain_of(OrderWorkflow) == ["validate", "audit", "complete"]


async def test_i25_a_step_inserted_before_the_first_one_is_the_entry_point(url: str) -> None:
    """Entry points come from the finished chain, not from the order of the source."""
    stage = Stage()

    class OrderWorkflow(hf.Dag, registry=stage.registry):
        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.step(before_step="validate")
        async def authenticate(self) -> None:
            stage.play()

    assert OrderWorkflow.compiled_dag().entries == ("authenticate",)
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        await engine.run(OrderWorkflow(), timeout=20)
        assert stage.did == ["authenticate", "validate"]


def test_i25_of_two_steps_inserted_after_one_the_later_is_nearer_to_it() -> None:
    """Each is put directly after its target, so the second pushes the first away."""

    class OrderWorkflow(hf.Dag, registry=hf.Registry()):
        @hf.step
        async def validate(self) -> None: ...
        @hf.step
        async def complete(self) -> None: ...
        @hf.step(after_step="validate")
        async def audit(self) -> None: ...
        @hf.step(after_step="validate")
        async def log(self) -> None: ...

    assert chain_of(OrderWorkflow) == ["validate", "log", "audit", "complete"]


async def test_i25_a_subclass_inserts_into_its_parents_chain_and_both_can_run(url: str) -> None:
    """The parent keeps its chain; the subclass has one step more in the middle of it."""
    stage = Stage()

    class OrderWorkflow(hf.Dag, registry=stage.registry):
        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.step
        async def complete(self) -> None:
            stage.play()

    class AuditedOrder(OrderWorkflow):
        @hf.step(after_step="validate")
        async def audit(self) -> None:
            stage.play()

    assert chain_of(OrderWorkflow) == ["validate", "complete"]
    assert chain_of(AuditedOrder) == ["validate", "audit", "complete"]
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        await engine.run(AuditedOrder(), timeout=20)
        await engine.run(OrderWorkflow(), timeout=20)
    assert stage.did == ["validate", "audit", "complete", "validate", "complete"]


# --- PREVIOUS ------------------------------------------------------------------------------------------------------


def test_i25_previous_is_bound_when_the_class_is_complete() -> None:
    """The problem that the seed's token solves: bound early, process would go round the inserted audit."""

    class OrderWorkflow(hf.Dag, registry=hf.Registry()):
        @hf.step
        async def validate(self) -> None: ...
        @hf.step(depends_on=hf.PREVIOUS)
        async def process(self) -> None: ...
        @hf.step(after_step="validate")
        async def audit(self) -> None: ...

    class Inserted(OrderWorkflow):
        @hf.step(before_step="process")
        async def enrich(self) -> None: ...

    assert chain_of(OrderWorkflow) == ["validate", "audit", "process"]
    assert chain_of(Inserted) == ["validate", "audit", "enrich", "process"], "a subclass binds it again"


async def test_i27_previous_is_in_nothing_that_is_stored_or_exported(url: str) -> None:
    """What is kept has names or ids of nodes, whatever was written; so no name can collide with the token."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def work() -> None: ...

    class Written(hf.Dag, registry=registry):
        @hf.step
        async def PREVIOUS(self) -> None: ...
        @hf.step(depends_on=[hf.PREVIOUS])
        async def after(self) -> None: ...

    builder = hf.DagBuilder("written", registry=registry)
    first = builder.node("previous", job=work)
    builder.node("after", job=work, depends_on=[hf.PREVIOUS])
    async with engine_on(url, registry) as engine:
        of_class = json.loads(await (await engine.start(Written())).export_dag())
        built = json.loads(await (await engine.start(builder.build())).export_dag())
    assert of_class["nodes"]["after"]["depends_on"] == ["PREVIOUS"], "the node of that name"
    (after,) = [node for node in built["nodes"].values() if node["name"] == "after"]
    assert after["depends_on"] == [first.id]


# --- the unified namespace -----------------------------------------------------------------------------------------


def big_order(stage: Stage) -> type[hf.Dag]:
    """The seed's OrderWorkflow in our syntax."""

    class OrderWorkflow(hf.Dag, registry=stage.registry):
        order_id: int

        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.step
        async def enrich_data(self) -> None:
            stage.play()

        @hf.task(depends_on="validate")
        async def check_inventory(self) -> None:
            stage.play()

        @hf.task(depends_on="validate")
        def check_fraud(self) -> None:
            stage.play()

        @hf.step(depends_on=["check_inventory", "check_fraud"])
        async def ready_to_charge(self) -> None:
            stage.play()

        @hf.step
        async def charge_card(self) -> None:
            stage.play()

        @hf.task(depends_on="charge_card")
        async def send_receipt(self) -> None:
            stage.play()

        @hf.task(depends_on="charge_card")
        async def update_analytics(self) -> None:
            stage.play()

        @hf.step(depends_on=["charge_card", "send_receipt", "update_analytics"])
        async def complete(self) -> None:
            stage.play()

    return OrderWorkflow


def test_i26_the_order_workflow_has_exactly_the_edges_of_the_drawing() -> None:
    """Steps and tasks in one graph, each naming the other; a step with its own depends_on is still PREVIOUS."""
    order = big_order(Stage())
    assert edges_of(order.compiled_dag()) == DRAWN_ORDER
    assert drawn_edges(order.mermaid()) == DRAWN_ORDER
    assert order.mermaid().startswith("graph TD\n")


async def test_g4_the_order_workflow_runs_every_node_once_after_what_it_depends_on(url: str) -> None:
    """And completes only when the leaf off the chain (enrich_data) has, too; the drawing shows the states."""
    stage = Stage()
    order = big_order(stage)
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(order(order_id=123))
        await handle.result(timeout=20)
        assert_in_order(stage.did, order.compiled_dag())
        drawing = await handle.mermaid()
    assert drawn_edges(drawing) == DRAWN_ORDER
    assert drawing.count("<br/>completed") == len(order.compiled_dag())


async def test_i26_a_run_is_not_complete_while_a_leaf_off_the_chain_is_missing(url: str) -> None:
    """The last step of the chain is done, and the run goes on until the node beside it is."""
    stage = Stage()
    go = asyncio.Event()

    class OrderWorkflow(hf.Dag, registry=stage.registry):
        @hf.step
        async def validate(self) -> None:
            stage.play()

        @hf.task(depends_on="validate")
        async def analytics(self) -> None:
            await go.wait()
            stage.play()

        @hf.step
        async def complete(self) -> None:
            stage.play()

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(OrderWorkflow())

        async def complete_is_done() -> bool:
            return any(row.node == "complete" and row.state == "completed" for row in await handle.step_executions())

        await until(complete_is_done, "the last step of the chain completes")
        assert await handle.status() == "running"
        go.set()
        await handle.result(timeout=20)
        assert stage.did == ["validate", "complete", "analytics"]


def test_i26_also_depends_on_adds_to_the_place_in_the_chain() -> None:
    """The seed's ship_order: PREVIOUS and one node more, in three spellings that mean the same."""

    def spelled(**options: Any) -> set[tuple[str, str]]:
        class OrderWorkflow(hf.Dag, registry=hf.Registry()):
            @hf.step
            async def charge_card(self) -> None: ...
            @hf.task
            async def fraud_final_check(self) -> None: ...
            @hf.step(**options)
            async def ship_order(self) -> None: ...

        return edges_of(OrderWorkflow.compiled_dag())

    expected = {("charge_card", "ship_order"), ("fraud_final_check", "ship_order")}
    assert spelled(also_depends_on="fraud_final_check") == expected
    assert spelled(depends_on=[hf.PREVIOUS, "fraud_final_check"]) == expected
    assert spelled(depends_on=["charge_card", "fraud_final_check"]) == expected


def test_i25_a_step_and_a_task_of_one_name_are_an_error_when_the_class_is_created() -> None:
    """One namespace: a collision is told with both places, never resolved in silence."""
    with pytest.raises(hf.DagError, match="'charge' is used twice"):

        class OrderWorkflow(hf.Dag, registry=hf.Registry()):
            @hf.step
            async def charge(self) -> None: ...
            @hf.task(name="charge")
            async def charge_again(self) -> None: ...


# --- the API reference ---------------------------------------------------------------------------------------------


async def test_i26_the_reference_example_of_a_class_runs(url: str) -> None:
    """Chain, insertion, tasks, fan-in and one dependency more, in one class; started with its field."""
    stage = Stage()
    seen: list[int] = []

    class OrderWorkflow(hf.Dag, registry=stage.registry):
        order_id: int

        @hf.step
        async def validate(self) -> None:
            seen.append(self.order_id)
            stage.play()

        @hf.step
        async def enrich(self) -> None:
            stage.play()

        @hf.step(after_step="validate")
        async def audit(self) -> None:
            stage.play()

        @hf.task(depends_on="enrich")
        async def check_inventory(self) -> None:
            stage.play()

        @hf.task(depends_on="enrich")
        async def check_fraud(self) -> None:
            stage.play()

        @hf.task
        async def external_validation(self) -> None:
            stage.play()

        @hf.step(depends_on=["check_inventory", "check_fraud"])
        async def charge(self) -> None:
            stage.play()

        @hf.step(also_depends_on="external_validation")
        async def ship(self) -> None:
            stage.play()

    assert edges_of(OrderWorkflow.compiled_dag()) == {
        ("validate", "audit"),
        ("audit", "enrich"),
        ("enrich", "check_inventory"),
        ("enrich", "check_fraud"),
        ("check_inventory", "charge"),
        ("check_fraud", "charge"),
        ("charge", "ship"),
        ("external_validation", "ship"),
    }
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        await engine.run(OrderWorkflow(order_id=123), timeout=20)
    assert_in_order(stage.did, OrderWorkflow.compiled_dag())
    assert seen == [123]
