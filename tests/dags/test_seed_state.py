"""Seed 002, execution state: kept apart from the definition, proved by ancestry hashes, read by people."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

import pytest

import holdfast as hf
from holdfast.core.operations import RECORDED, REPEATED, STALE, CompleteWork
from holdfast.core.queries import ByAncestry
from holdfast.store.contract import ClaimRequest
from tests.dags.side_effects import Stage, ancestry_by_hand, execute_sql, hashed, query_sql
from tests.worker.support import assert_sound, engine_on, until, work_of


def checked_order(stage: Stage, go: asyncio.Event | None = None) -> type[hf.Dag]:
    """validate, then check_inventory (which may wait for the test), then check_fraud."""

    class CheckedOrder(hf.Dag, registry=stage.registry):
        order_id: int = 123

        @hf.step
        async def validate(self) -> str:
            hf.current().note("looked at the order")
            stage.play()
            return "valid"

        @hf.step
        async def check_inventory(self) -> None:
            if go is not None:
                await go.wait()
            stage.play()

        @hf.step
        async def check_fraud(self) -> None:
            stage.play()

    return CheckedOrder


# --- definition and state ------------------------------------------------------------------------------------------


async def test_i27_definition_and_state_are_stored_apart(shared_url: str) -> None:
    """The stored graph is the same row before and after the run; what happened is in the work items alone."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def job() -> None: ...

    w = hf.DagBuilder("two", registry=registry)
    w.node("a", job=job)
    w.node("b", job=job)
    engine = engine_on(shared_url, registry)
    question = "SELECT signature, nodes FROM definitions"
    async with engine:
        handle = await engine.start(w.build())
        before = await query_sql(shared_url, question)
        async with engine.worker():
            await handle.result(timeout=20)
        after = await query_sql(shared_url, question)
        assert len(before) == 1
        assert after == before
        states = "SELECT node, attempt, status FROM work ORDER BY started"
        ids = [node.id for node in (await handle.dag()).nodes]
        assert await query_sql(shared_url, states) == [(node, 1, "completed") for node in ids]


async def test_i32_a_row_of_execution_state_has_what_the_seed_lists(url: str) -> None:
    """Run, node, attempt, state, hash, begin, end, outcome and error: the seed's columns, under our names."""
    stage = Stage()
    dag = checked_order(stage)
    stage.broken["check_fraud"] = ValueError("a fraud")
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(dag())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=20)
        rows = {row.node: row for row in await handle.step_executions()}
        validate, inventory, fraud = (rows[node] for node in ("validate", "check_inventory", "check_fraud"))
        assert (validate.state, validate.attempt, validate.error) == ("completed", 1, None)
        assert isinstance(validate.started_at, datetime)
        assert isinstance(validate.completed_at, datetime)
        assert validate.started_at <= validate.completed_at <= inventory.started_at
        assert None not in {row.ancestry_hash for row in rows.values()}
        assert fraud.state == "failed"
        assert fraud.error is not None
        assert (fraud.error.type, fraud.error.message) == ("ValueError", "a fraud")
        stored = {work.node: work.run for work in await work_of(engine, handle.id)}
        assert set(stored.values()) == {handle.id}


async def test_i32_an_outcome_is_for_people_and_no_node_can_read_it(url: str) -> None:
    """Timing, bytes, notes and the repr of what came back are kept; a return value goes nowhere else."""
    stage = Stage()
    dag = checked_order(stage)
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker() as worker:
        handle = await engine.start(dag())
        assert await handle.result(timeout=20) is None, "a DAG returns nothing: its nodes speak through side effects"
        outcome = (await handle.step_executions("validate"))[0].outcome
        assert outcome is not None
        assert outcome["worker"] == worker.id
        assert outcome["notes"] == ["looked at the order"]
        assert outcome["returned"] == "'valid'"
        assert outcome["wall_seconds"] >= 0
        assert outcome["cpu_seconds"] >= 0
        assert {work.result for work in await work_of(engine, handle.id)} == {b"null"}
    assert not [name for name in dir(hf.Context) if "outcome" in name or "result" in name]


# --- the ancestry hash ---------------------------------------------------------------------------------------------


async def test_i28_the_ancestry_hash_is_over_node_attempt_and_the_hashes_of_the_parents(url: str) -> None:
    """Computed here by hand: each hash holds all that led to it, back to the entry points."""
    stage = Stage()
    dag = checked_order(stage)
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(dag())
        await handle.result(timeout=20)
        found = {row.node: row.ancestry_hash for row in await handle.step_executions()}
        validate = ancestry_by_hand("validate", 1)
        inventory = ancestry_by_hand("check_inventory", 1, validate)
        fraud = ancestry_by_hand("check_fraud", 1, inventory)
        assert found == {"validate": validate, "check_inventory": inventory, "check_fraud": fraud}
        assert all(len(each) == 64 for each in (validate, inventory, fraud))
        report = await handle.verify_ancestry()
        assert (report.ok, report.checked, report.first_break) == (True, 3, None)


async def test_i28_an_attempt_is_found_by_its_ancestry_hash_through_an_index(shared_url: str) -> None:
    """The seed indexes the column, so that a hash in a log leads to its run."""
    stage = Stage()
    dag = checked_order(stage)
    engine = engine_on(shared_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(dag())
        await handle.result(timeout=20)
        wanted = (await handle.step_executions("check_inventory"))[0].ancestry_hash
        (found,) = await engine.store.rows(ByAncestry(str(wanted)))
        assert (found.run, found.node, found.attempt) == (handle.id, "check_inventory", 1)
    indexes = (
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'work'"
        if shared_url.startswith("sqlite")
        else "SELECT indexdef FROM pg_indexes WHERE tablename = 'work'"
    )
    assert any("(ancestry)" in str(row[0]) for row in await query_sql(shared_url, indexes) if row[0])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("ancestry = 'forged' WHERE node = 'validate'", "node validate"),
        ("parents = 'forged' WHERE node = 'check_inventory'", "node check_inventory"),
        # Whoever knows the formula can give one row a hash of its own; its parents do not bear it out.
        (
            f"parents = 'forged', ancestry = '{hashed('check_fraud', '1', 'forged')}' WHERE node = 'check_fraud'",
            "node check_fraud",
        ),
    ],
)
async def test_i28_a_changed_row_breaks_the_chain_where_it_was_changed(
    sqlite_url: str, change: str, named: str
) -> None:
    """What the hash is for: whoever edits an execution behind our back is found, and told where."""
    stage = Stage()
    dag = checked_order(stage)
    engine = engine_on(sqlite_url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(dag())
        await handle.result(timeout=20)
        assert await handle.verify_ancestry()
    await execute_sql(sqlite_url, f"UPDATE work SET {change}")
    async with engine_on(sqlite_url, stage.registry) as later:
        report = await later.get(handle.id).verify_ancestry()
    assert not report
    assert named in str(report.first_break)


# --- querying ------------------------------------------------------------------------------------------------------


async def test_i2_nodes_with_state_merges_the_graph_with_what_happened(url: str) -> None:
    """The seed's three lines: one completed, one running, one that has not been reached; then all completed."""
    stage, go = Stage(), asyncio.Event()
    dag = checked_order(stage, go)
    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(dag())

        async def inventory_runs() -> bool:
            return [row.state for row in await handle.step_executions("check_inventory")] == ["leased"]

        await until(inventory_runs, "the second step runs")
        validate, inventory, fraud = await handle.nodes_with_state()
        assert (validate.id, validate.name, validate.state) == ("validate", "validate", "completed")
        assert validate.completed_at is not None
        assert (inventory.name, inventory.state, inventory.completed_at) == ("check_inventory", "leased", None)
        assert inventory.started_at is not None
        assert (fraud.name, fraud.state, fraud.started_at) == ("check_fraud", "pending", None)
        go.set()
        await handle.result(timeout=20)
        assert [each.state for each in await handle.nodes_with_state()] == ["completed"] * 3


async def test_i2_a_node_that_waits_shows_how_many_of_its_parents_are_in(url: str) -> None:
    """`blocked (1 of 2)`: what a join still waits for can be seen."""
    stage, go = Stage(), asyncio.Event()

    class Join(hf.Dag, registry=stage.registry):
        @hf.task
        async def quick(self) -> None: ...

        @hf.task
        async def slow(self) -> None:
            await go.wait()

        @hf.task(depends_on=["quick", "slow"])
        async def both(self) -> None: ...

    engine = engine_on(url, stage.registry)
    async with engine, engine.worker():
        handle = await engine.start(Join())

        async def shown() -> bool:
            state = {each.name: each for each in await handle.nodes_with_state()}["both"]
            return (state.state, state.detail) == ("blocked", "1 of 2")

        await until(shown, "the join waits for one of two")
        go.set()
        await handle.result(timeout=20)


async def test_i31_the_queries_of_the_seed_all_have_their_call(url: str) -> None:
    """dag, dag_definition, nodes_with_state, step_executions, export_dag, import_dag: on a class, then stored."""
    stage = Stage()
    dag = checked_order(stage)
    async with engine_on(url, stage.registry) as engine:
        handle = await engine.start(dag())
        assert await handle.dag() == dag.compiled_dag()
        assert await handle.dag_definition() is None, "a class DAG is not stored"
        exported = await handle.export_dag()
        assert json.loads(exported)["frozen_at"] is None
        assert [each.name for each in await handle.nodes_with_state()] == [
            "validate",
            "check_inventory",
            "check_fraud",
        ]
        assert [row.state for row in await handle.step_executions()] == ["ready"]
        await handle.import_dag(exported, by="Ada")
        stored = await handle.dag_definition()
        assert stored is not None
        assert stored["nodes"] == json.loads(exported)["nodes"]
        assert stored["frozen_at"] is not None


# --- idempotency ---------------------------------------------------------------------------------------------------


async def test_g2_a_completion_that_is_repeated_changes_nothing(url: str) -> None:
    """The seed's uniqueness constraint: the same report twice is one completion and one follower."""
    stage = Stage()
    dag = checked_order(stage)
    async with engine_on(url, stage.registry) as engine:
        handle = await engine.start(dag(), paused=True)
        await handle.resume()
        async with engine.worker():
            await handle.result(timeout=20)
        before = await work_of(engine, handle.id)
        first = before[0]
        report = CompleteWork(
            run=handle.id, node=first.node, attempt=first.attempt, token=first.token, result=b"null", outcome=b"{}"
        )
        again = await engine.coordinator.submit(report)
        assert again.verdict == REPEATED
        assert await work_of(engine, handle.id) == before
        late = CompleteWork(
            run=handle.id, node=first.node, attempt=first.attempt, token=first.token - 1, result=b"null", outcome=b"{}"
        )
        assert (await engine.coordinator.submit(late)).verdict == STALE
        assert await work_of(engine, handle.id) == before
        await assert_sound(engine)


async def test_g4_two_reports_of_two_parents_at_once_enqueue_their_child_once(url: str) -> None:
    """In one batch and each repeated: the child has one work item, and is counted to two and no further."""
    registry = hf.Registry()

    class Diamond(hf.Dag, registry=registry):
        @hf.task
        async def left(self) -> None: ...
        @hf.task
        async def right(self) -> None: ...
        @hf.task(depends_on=["left", "right"])
        async def bottom(self) -> None: ...

    async with engine_on(url, registry) as engine:
        handle = await engine.start(Diamond())
        request = ClaimRequest(
            worker="w",
            queue="default",
            limit=9,
            workflows=engine.definitions.known_workflows(),
            actions=engine.definitions.known_actions(),
        )
        claimed = await engine.store.claim(request)
        reports = [
            CompleteWork(run=item.work.run, node=item.work.node, attempt=1, token=item.work.token, result=b"null")
            for item in claimed
        ]
        answers = await asyncio.gather(*(engine.coordinator.submit(report) for report in (*reports, *reports)))
        assert sorted(answer.verdict for answer in answers) == sorted([RECORDED] * 2 + [REPEATED] * 2)
        (bottom,) = await work_of(engine, handle.id, "bottom")
        assert (bottom.status, bottom.completed, bottom.required) == ("ready", 2, 2)


# --- side effects and concurrency ----------------------------------------------------------------------------------


async def test_g4_a_node_finds_what_the_node_before_it_wrote(shared_url: str) -> None:
    """The seed's validate_order and check_inventory: nothing is handed over, the order's row says it all."""
    registry = hf.Registry()
    seen: list[str] = []

    class OrderWorkflow(hf.Dag, registry=registry):
        order_id: int

        @hf.step(transactional=True)
        async def validate_order(self) -> None:
            await hf.current().tx.execute(f"UPDATE orders SET status = 'validated' WHERE id = {self.order_id}")

        @hf.step(transactional=True)
        async def check_inventory(self) -> None:
            seen.append(await hf.current().tx.fetchval(f"SELECT status FROM orders WHERE id = {self.order_id}"))

    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        await execute_sql(shared_url, "DROP TABLE IF EXISTS orders")
        await execute_sql(shared_url, "CREATE TABLE orders (id INTEGER, status TEXT)")
        await execute_sql(shared_url, "INSERT INTO orders VALUES (123, 'new')")
        await engine.run(OrderWorkflow(order_id=123), timeout=20)
    assert seen == ["validated"]


async def test_i26_nodes_share_nothing_but_their_input(url: str) -> None:
    """Every attempt gets an instance of its own, and assigning to it is an error that says where to write instead."""
    registry = hf.Registry()
    instances: list[object] = []

    class OrderWorkflow(hf.Dag, registry=registry):
        items: list[int]

        @hf.step
        async def first(self) -> None:
            instances.append(self)
            self.items.append(99)

        @hf.step
        async def second(self) -> None:
            instances.append(self)
            assert self.items == [1, 2]
            with pytest.raises(hf.UsageError, match="cannot be assigned"):
                self.items = []

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        await engine.run(OrderWorkflow(items=[1, 2]), timeout=20)
    assert instances[0] is not instances[1]
