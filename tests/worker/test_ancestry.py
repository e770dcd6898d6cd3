"""The proof that attempts followed the attempts they claim to follow."""

from __future__ import annotations

import json
from typing import Any

import pytest

import holdfast as hf
from tests.worker.support import engine_on
from tests.worker.test_known_work import execute_sql


def diamond(registry: hf.Registry, fails: list[str]) -> type[hf.Dag]:
    class Diamond(hf.Dag, registry=registry):
        @hf.step
        async def top(self) -> None: ...

        @hf.task(depends_on="top", retry=hf.Retry(attempts=2, base=0.01))
        async def left(self) -> None:
            if fails:
                raise ValueError(fails.pop())

        @hf.task(depends_on="top")
        async def right(self) -> None: ...

        @hf.step(depends_on=["left", "right"])
        async def bottom(self) -> None: ...

    return Diamond


async def test_i28_the_ancestry_of_a_run_verifies_and_a_tampered_row_is_named(shared_url: str) -> None:
    """I28: after a retry too; and whoever edits a row behind our back is found out."""
    registry = hf.Registry()
    graph = diamond(registry, ["once"])
    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        handle = await engine.start(graph())
        await handle.result(timeout=10)
        report = await handle.verify_ancestry()
        assert report, report
        assert report.checked == 5  # four nodes, and the second attempt of left
    await execute_sql(shared_url, "UPDATE work SET ancestry = 'x' WHERE node = 'left' AND attempt = 2")
    async with engine_on(shared_url, registry) as later:
        tampered = await later.get(handle.id).verify_ancestry()
        assert not tampered
        assert tampered.first_break is not None
        assert "attempt 2 of node left" in tampered.first_break


async def test_i27_the_exported_graph_is_structure_and_nothing_else(url: str) -> None:
    """I27: the keys are fixed; a class DAG has no stored definition."""
    registry = hf.Registry()
    graph = diamond(registry, [])
    async with engine_on(url, registry) as engine:
        handle = await engine.start(graph())
        document: dict[str, Any] = json.loads(await handle.export_dag())
        assert await handle.dag_definition() is None
    assert set(document) == {"version", "signature", "frozen_at", "nodes"}
    assert document["frozen_at"] is None
    assert set(document["nodes"]["bottom"]) == {"name", "job", "method", "args", "depends_on", "policy"}
    assert document["nodes"]["bottom"]["depends_on"] == ["left", "right"]
    assert document["signature"] == graph.dag_signature()


@pytest.mark.parametrize("model", ["a flow", "a function"])
async def test_i28_a_run_that_is_no_dag_says_what_it_is_and_where_to_look(model: str) -> None:
    """Its code is known here: to import it would help nobody."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def step() -> int:
        return 1

    @hf.flow(registry=registry)
    async def flow() -> int:
        return await step()

    @hf.workflow(registry=registry)
    async def function() -> int:
        return await step()

    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(flow if model == "a flow" else function)
        await handle.result(timeout=20)
        for ask in (handle.dag, handle.export_dag, handle.freeze_dag, handle.verify_ancestry, handle.mermaid):
            with pytest.raises(hf.DagError, match=f"{handle.id} of .* is {model}, and no DAG.*holdfast .* {handle.id}"):
                await ask()


def chain(registry: hf.Registry, *names: str, fails: str = "") -> type[hf.Dag]:
    """A class with these steps, one after the other, of which one may fail."""

    def body(name: str) -> Any:
        async def step(self: hf.Dag) -> None:
            if name == fails:
                raise ValueError(name)

        step.__name__, step.__qualname__ = name, f"Chain.{name}"
        return hf.step(step)

    steps = {name: body(name) for name in names}
    return type("Chain", (hf.Dag,), {"__module__": __name__, "__qualname__": "Chain", **steps}, registry=registry)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("DELETE FROM work WHERE node = 'b'", "node b"),
        ("DELETE FROM work WHERE node = 'c'", "node c"),
        ("UPDATE work SET status = 'failed' WHERE node = 'a'", "node a"),
        ("UPDATE work SET node = 'x' WHERE node = 'b'", "node b"),
        ("UPDATE work SET ancestry = NULL WHERE node = 'c'", "node c"),
    ],
)
async def test_i28_rows_that_were_removed_renamed_undone_or_stripped_break_the_chain(
    shared_url: str, change: str, named: str
) -> None:
    registry = hf.Registry()
    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        handle = await engine.start(chain(registry, "a", "b", "c")())
        await handle.result(timeout=10)
        assert await handle.verify_ancestry()
    await execute_sql(shared_url, change)
    async with engine_on(shared_url, registry) as later:
        report = await later.get(handle.id).verify_ancestry()
    assert not report
    assert named in str(report.first_break)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("DELETE FROM work WHERE node = 'a'", "attempt 1 of node b"),
        ("UPDATE work SET ancestry = NULL WHERE node = 'b'", "attempt 1 of node b"),
        ("UPDATE work SET node = 'x' WHERE node = 'b'", "attempt 1 of node x"),
    ],
)
async def test_i28_a_run_that_has_not_ended_is_verified_as_far_as_it_went(
    shared_url: str, change: str, named: str
) -> None:
    registry = hf.Registry()
    engine = engine_on(shared_url, registry)
    async with engine, engine.worker():
        handle = await engine.start(chain(registry, "a", "b", "c", fails="b")())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
        assert await handle.verify_ancestry()
    await execute_sql(shared_url, change)
    async with engine_on(shared_url, registry) as later:
        report = await later.get(handle.id).verify_ancestry()
    assert not report
    assert named in str(report.first_break)


async def test_i28_a_run_is_verified_by_the_graph_that_it_followed_and_not_by_later_code(shared_url: str) -> None:
    """A deploy after its end changes nothing about what happened."""
    before, after = hf.Registry(), hf.Registry()
    async with engine_on(shared_url, before) as engine, engine.worker():
        handle = await engine.start(chain(before, "a", "b", "c")())
        await handle.result(timeout=10)
    chain(after, "c", "new", "a")
    async with engine_on(shared_url, after) as engine, engine.worker():
        report = await engine.get(handle.id).verify_ancestry()
        assert (report.ok, report.checked) == (True, 3), report


async def test_i28_nodes_that_nobody_needed_break_nothing(url: str) -> None:
    """Skipped by the policy, by an operator before they began, or because a node said that the run is finished."""
    registry = hf.Registry()

    class Finishes(hf.Dag, registry=registry):
        @hf.step
        async def a(self) -> None:
            hf.current().finish("enough")

        @hf.step
        async def b(self) -> None: ...

    class Skips(hf.Dag, registry=registry, on_failure="skip"):
        @hf.step
        async def a(self) -> None:
            raise ValueError

        @hf.step
        async def b(self) -> None: ...

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        for dag in (Finishes, Skips):
            handle = await engine.start(dag())
            await handle.result(timeout=10)
            assert await handle.verify_ancestry()
        held = await engine.start(chain(registry, "a", "b", "c", fails="a")())
        with pytest.raises(hf.RunPaused):
            await held.result(timeout=10)
        await held.skip("b")
        assert await held.verify_ancestry()
        await held.skip("a")
        await held.result(timeout=10)
        assert await held.verify_ancestry()


async def test_i28_a_fork_shares_what_an_import_rewired_and_verifies_as_its_source_does(url: str) -> None:
    registry, fails = hf.Registry(), ["once"]

    @hf.action(registry=registry)
    async def work() -> None: ...

    @hf.action(registry=registry)
    async def flaky() -> None:
        if fails:
            raise ValueError(fails.pop())

    builder = hf.DagBuilder("imported", registry=registry)
    builder.node("x", job=work)
    builder.node("y", job=work, depends_on=None)
    builder.node("z", job=flaky, depends_on="y")
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(builder.build())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
        document = json.loads(await handle.export_dag())
        ids = {node["name"]: each for each, node in document["nodes"].items()}
        document["nodes"][ids["y"]]["depends_on"] = [ids["x"]]
        await handle.import_dag(json.dumps(document))
        await handle.resume()
        await handle.result(timeout=10)
        assert await handle.verify_ancestry()
        fork = await engine.fork(handle, from_node="z")
        await fork.result(timeout=10)
        assert await fork.verify_ancestry()
        assert [entry.kind for entry in await fork.history()] == ["forked", "graph changed"]
        again = await engine.fork(fork, from_node="z")
        await again.result(timeout=10)
        assert await again.verify_ancestry()


async def test_i28_a_fork_under_later_code_verifies_with_the_nodes_that_the_code_has_left(shared_url: str) -> None:
    before, after = hf.Registry(), hf.Registry()
    async with engine_on(shared_url, before) as engine, engine.worker():
        handle = await engine.start(chain(before, "a", "gone", "b", "c")())
        await handle.result(timeout=10)
    chain(after, "a", "new", "b", "c")
    async with engine_on(shared_url, after) as engine, engine.worker():
        source = engine.get(handle.id)
        assert await source.verify_ancestry()
        fork = await engine.fork(source, from_node="c")
        await fork.result(timeout=10)
        assert await fork.verify_ancestry()
        assert {row.node for row in await fork.step_executions()} == {"a", "gone", "new", "b", "c"}


async def test_i28_a_failed_run_verifies_after_an_import_that_it_does_not_follow_yet(url: str) -> None:
    """What was done is only made to agree with the new graph when the run is retried."""
    registry, fails = hf.Registry(), ["once"]

    @hf.action(registry=registry)
    async def work() -> None: ...

    @hf.action(registry=registry)
    async def flaky() -> None:
        if fails:
            raise ValueError(fails.pop())

    builder = hf.DagBuilder("imported", registry=registry, on_failure="fail")
    builder.node("x", job=work)
    builder.node("y", job=work, depends_on=None)
    builder.node("z", job=flaky, depends_on="y")
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        handle = await engine.start(builder.build())
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        document = json.loads(await handle.export_dag())
        ids = {node["name"]: each for each, node in document["nodes"].items()}
        document["nodes"][ids["y"]]["depends_on"] = [ids["x"]]
        await handle.import_dag(json.dumps(document))
        assert await handle.verify_ancestry()
        await handle.retry()
        await handle.result(timeout=10)
        assert await handle.verify_ancestry()
