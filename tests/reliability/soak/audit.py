"""What is asked of the database itself when the storm is over: in SQL, and not through the code that was tried."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from holdfast.core.projection_operations import PROJECTION_MODEL
from tests.reliability.simulation.ledger import must
from tests.reliability.soak.plan import LEASE_SECONDS

STANDSTILL_SECONDS = 3 * LEASE_SECONDS
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

OPEN_RUNS = f"""
SELECT id FROM runs WHERE model NOT IN ('decider', '{PROJECTION_MODEL}')
    AND status NOT IN ('completed', 'failed', 'cancelled') LIMIT 20
"""
OPEN_WORK = f"""
SELECT DISTINCT work.run FROM work JOIN runs ON runs.id = work.run
WHERE runs.model <> '{PROJECTION_MODEL}' AND work.status IN ('blocked', 'ready', 'leased') LIMIT 20
"""
# Ready and due while there is room for it, or leased to nobody who lives: for longer than three leases.
STANDING_STILL = f"""
SELECT work.run, work.node, work.attempt, work.status, ({_NOW} - greatest(work.due, work.created)) / 1000000 AS age
FROM work JOIN runs ON runs.id = work.run
WHERE runs.status <> 'paused' AND (
    (work.status = 'ready' AND work.gate IN (0, 1) AND greatest(work.due, work.created, runs.updated) < {_NOW} - $1
        AND (SELECT count(*) FROM work busy WHERE busy.status = 'leased') < $2)
    OR (work.status = 'leased' AND NOT EXISTS (
        SELECT FROM workers WHERE workers.id = work.worker AND workers.lease_until > {_NOW} - $1)))
LIMIT 5
"""
TWICE = """
SELECT run, node, count(*) FROM work WHERE status = 'completed' GROUP BY run, node HAVING count(*) > 1 LIMIT 5
"""
FALLING_TOKENS = """
SELECT older.run, older.node, older.token, newer.token FROM work older JOIN work newer
ON newer.run = older.run AND newer.node = older.node AND newer.attempt = older.attempt + 1
WHERE newer.token < older.token LIMIT 5
"""
ENTERED = "SELECT label, count(*) FROM entered GROUP BY label HAVING count(*) > 1 LIMIT 5"
NOT_ENTERED = """
SELECT work.run FROM work WHERE work.name = 'enter' AND work.status = 'completed'
EXCEPT SELECT work.run FROM work JOIN runs ON runs.id = work.run JOIN entered ON entered.label = runs.key LIMIT 5
"""
NOT_PROJECTED = """
SELECT runs.key, stream.sequence, count(projected.number) FROM stream JOIN runs ON runs.id = stream.run
LEFT JOIN projected ON projected.till = runs.key AND projected.sequence = stream.sequence
WHERE NOT stream.system GROUP BY runs.key, stream.sequence HAVING count(projected.number) <> 1 LIMIT 5
"""
# Each with the one before it: pairs of all would be the square of a soak's length.
OUT_OF_ORDER = """
SELECT till, before, sequence FROM (
    SELECT till, sequence, lag(sequence) OVER (PARTITION BY till ORDER BY number) AS before FROM projected) pairs
WHERE sequence <= before LIMIT 5
"""


async def fetch(engine: hf.Engine, sql: str, *args: object) -> list[Any]:
    async with engine.store.transaction(user=True) as tx:
        return await tx.user.fetch(sql, *args)


async def attempts(engine: hf.Engine) -> list[Any]:
    """How attempts ended, and how many of each."""
    return await fetch(engine, "SELECT status, count(*) FROM work GROUP BY status")


async def what_is_open(engine: hf.Engine) -> list[str]:
    """Runs that have not come to where they must, a few of them; and `projections` if one is behind."""
    rows = await fetch(engine, OPEN_RUNS) or await fetch(engine, OPEN_WORK)
    if rows:
        return [row[0] for row in rows]
    behind = await fetch(engine, NOT_PROJECTED)
    return ["projections"] if behind else []


async def explained(engine: hf.Engine, runs: list[str]) -> str:
    known = [run for run in runs if run != "projections"][:5]
    told = [str(await engine.get(run).explain()) for run in known]
    return "; ".join(told) or str(await engine.projections())


async def check_nothing_stands_still(engine: hf.Engine, slots: int) -> None:
    """G9: no work that could run, on one of so many slots, has waited for longer than three leases."""
    rows = await fetch(engine, STANDING_STILL, int(STANDSTILL_SECONDS * 1_000_000), slots)
    if rows:
        told = await explained(engine, list({row[0] for row in rows}))
        must(False, "G9", f"{[tuple(row) for row in rows]} could run and do not: {told}")


async def check_rows(engine: hf.Engine, acknowledged: set[str]) -> None:
    """G1, G2, G3, G10, I36, K3: nothing is lost, nothing is there twice, and no row contradicts another."""
    stored = {row[0] for row in await fetch(engine, "SELECT id FROM runs")}
    must(acknowledged <= stored, "G1", f"{sorted(acknowledged - stored)[:5]} were acknowledged and are not there")
    for promise, sql, told in (
        ("G2", TWICE, "completed twice"),
        ("K3", FALLING_TOKENS, "a token became smaller"),
        ("G3", ENTERED, "the writes of a transactional action took effect twice"),
        ("I36", NOT_PROJECTED, "projected not exactly once"),
        ("I36", OUT_OF_ORDER, "projected out of order"),
    ):
        rows = await fetch(engine, sql)
        must(not rows, promise, f"{told}: {[tuple(row) for row in rows]}")
    dead = await engine.dead()
    must(not dead, "G9", f"dead letters: {[(work.run, work.node) for work in dead[:5]]}")
    found = [finding for finding in await engine.doctor() if finding.severity == "error"]
    found = [finding for finding in found if finding.subject not in ("fsync", "full_page_writes")]
    must(not found, "G10", f"doctor says: {found[:5]}")
