"""The plan of the guarded flush: a batch costs what its rows cost, also once the server uses its generic plan.

Joining every write with the locked runs looks harmless for the first five executions. Then the server stops looking
at the arrays, takes them for a handful of rows, and a batch of 1,000 costs a million comparisons.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.rows import WORK, History, Run, Work
from holdfast.core.view import Changes
from holdfast.store.postgres_flush import guarded_flush
from tests.kernel.postgres_watch import outsider
from tests.support.stores import Site, change

EXECUTIONS_BEFORE_MEASURING = 12
MEASURED = 7
JOINS = ("Nested Loop", "Hash Join", "Merge Join")


def _rows(count: int) -> list[tuple[Run, Work]]:
    return [
        (
            Run(id=f"r{number:05d}", workflow="w", model="dag", status="running", active=1),
            Work(run=f"r{number:05d}", node="n", attempt=1, workflow="w", status="leased", token=1, worker="w"),
        )
        for number in range(count)
    ]


def _step(rows: list[tuple[Run, Work]], number: int) -> tuple[Changes, list[tuple[Run, Work]]]:
    """A batch as completions make it: runs and items updated, an item and an entry inserted for each."""
    after = [
        (replace(run, version=run.version + 1, entries=number), replace(work, losses=number)) for run, work in rows
    ]
    updates: list[Any] = []
    for (run, work), (new_run, new_work) in zip(rows, after, strict=True):
        updates += [(run, new_run), (work, new_work)]
    inserts: list[Any] = []
    for run, work in after:
        inserts.append(replace(work, node=f"n{number}", status="ready", worker=None))
        inserts.append(History(run=run.id, sequence=number, kind="noted", at=0))
    return change(insert=tuple(inserts), update=tuple(updates)), after


def _full_step(rows: list[tuple[Run, Work]]) -> Changes:
    """Runs that end and runs that start, items cancelled: every part of the statement that reads arrays."""
    changes, _ = _step(rows, 1)
    return change(
        insert=(*(replace(run, id=f"new-{run.id}", key=run.id) for run, _ in rows), *changes.inserts[WORK]),
        update=tuple((run, replace(run, version=run.version + 1, status="completed", finished=1)) for run, _ in rows),
    )


@pytest.mark.timing
async def test_k1_a_batch_of_1000_costs_at_most_twice_as_much_per_operation_as_one_of_100(postgres_site: Site) -> None:
    """After a dozen executions, when the generic plan is in use. A busy machine may spoil a try, but not three."""
    for _ in range(3):
        cost = await _cost_per_operation(postgres_site)
        if cost[1000] <= 2 * cost[100]:
            return
    raise AssertionError(f"{cost[100] * 1e6:.0f} µs at 100, {cost[1000] * 1e6:.0f} µs at 1,000")


async def _cost_per_operation(postgres_site: Site) -> dict[int, float]:
    cost: dict[int, float] = {}
    async with postgres_site.opened() as store:
        for size in (100, 1000):
            rows = _rows(size)
            async with store.transaction() as tx:
                await tx.write(change(insert=tuple(row for pair in rows for row in pair)))
            seconds = []
            for number in range(1, EXECUTIONS_BEFORE_MEASURING + MEASURED + 1):
                changes, rows = _step(rows, number)
                started = time.perf_counter()
                assert await store.flush(changes) == frozenset()
                seconds.append(time.perf_counter() - started)
            cost[size] = median(seconds[EXECUTIONS_BEFORE_MEASURING:]) / size
            async with outsider(postgres_site.url) as connection:
                await connection.execute("DELETE FROM runs; DELETE FROM work; DELETE FROM history")
    return cost


async def test_k1_the_generic_plan_joins_no_array_with_the_locked_runs(postgres_site: Site) -> None:
    """Every join looks rows of a table up; none pairs an array with another, or with a part of this statement."""
    rows = _rows(3000)
    async with postgres_site.opened() as store:
        async with store.transaction() as tx:
            await tx.write(change(insert=tuple(row for pair in rows for row in pair)))
        async with outsider(postgres_site.url) as connection:
            await connection.execute("ANALYZE runs; ANALYZE work")
        for changes in (_step(rows[:50], 1)[0], _full_step(rows[:50])):
            sql, args = guarded_flush(changes)
            async with outsider(postgres_site.url) as connection:
                await connection.execute("SET plan_cache_mode = force_generic_plan")
                await connection.execute(f"PREPARE flush AS {sql}")
                nothing = ", ".join("NULL" for _ in args)
                answer = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE flush({nothing})")
            plan = json.loads(answer)[0]["Plan"]
            for join in (node for node in _nodes(plan) if node["Node Type"] in JOINS):
                sides = [side for side in join["Plans"] if side["Parent Relationship"] in ("Outer", "Inner")]
                tables = [any("Relation Name" in node for node in _nodes(side)) for side in sides]
                assert any(tables), json.dumps(join, indent=1)
            assert "Function Scan" in {node["Node Type"] for node in _nodes(plan)}


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
