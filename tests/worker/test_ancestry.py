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
