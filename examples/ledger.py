"""200 ledger mutations at once, then a statement, then a notification: a DAG that is built when it is started.

    python examples/ledger.py

How many nodes there are depends on the data, so the graph is built and stored with the run. Balances and mutations are
real rows in holdfast.db, and every job writes in the transaction that records it: stop the program anywhere, run it
again, and each mutation has been applied once.
"""

from __future__ import annotations

import asyncio

import holdfast as hf

TABLES = (
    "CREATE TABLE ledger (owner TEXT PRIMARY KEY, cents INTEGER NOT NULL)",
    "CREATE TABLE mutation (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, cents INTEGER NOT NULL, applied TEXT)",
    "CREATE TABLE statement (owner TEXT PRIMARY KEY, mutations INTEGER NOT NULL, cents INTEGER NOT NULL)",
    "CREATE TABLE mail (recipient TEXT PRIMARY KEY, message TEXT NOT NULL)",
)


@hf.action(transactional=True)
async def open_ledger(mutations: int) -> None:
    tx = hf.current().tx
    for table in TABLES:
        await tx.execute(table)
    await tx.execute("INSERT INTO ledger VALUES ('Ada', 0)")
    for number in range(1, mutations + 1):
        await tx.execute("INSERT INTO mutation VALUES (?, 'Ada', ?, NULL)", number, number * 10)


@hf.action(transactional=True)
async def pending_mutations(owner: str) -> list[int]:
    rows = await hf.current().tx.fetch("SELECT id FROM mutation WHERE owner = ? AND applied IS NULL ORDER BY id", owner)
    return [row[0] for row in rows]


@hf.action(transactional=True)
async def apply_mutation(mutation: int) -> None:
    """One of many that run at the same time. It passes nothing on: who needs its effect reads the rows."""
    running = hf.current()
    [owner, cents] = await running.tx.fetchrow("SELECT owner, cents FROM mutation WHERE id = ?", mutation)
    await running.tx.execute("UPDATE ledger SET cents = cents + ? WHERE owner = ?", cents, owner)
    await running.tx.execute("UPDATE mutation SET applied = ? WHERE id = ?", running.idempotency_key, mutation)


@hf.action(transactional=True)
async def write_statement(owner: str) -> None:
    await hf.current().tx.execute(
        "INSERT INTO statement SELECT owner, count(applied), sum(cents) FROM mutation WHERE owner = ?", owner
    )


@hf.action(transactional=True)
async def notify(owner: str) -> None:
    """Mails are sent by whoever reads this table; what is in it is in it exactly once."""
    tx = hf.current().tx
    [mutations, cents] = await tx.fetchrow("SELECT mutations, cents FROM statement WHERE owner = ?", owner)
    await tx.execute("INSERT INTO mail VALUES (?, ?)", owner, f"{mutations} mutations, {cents} cents")


def processing(owner: str, mutations: list[int]) -> hf.BuiltDag:
    """One node for every mutation, one that follows them all, and one that follows that."""
    dag = hf.DagBuilder("ledger")
    dag.fan_out(
        mutations,
        name=lambda number: f"mutation_{number}",
        job=apply_mutation,
        args=lambda number: {"mutation": number},
    )
    dag.node("statement", job=write_statement, args={"owner": owner})  # follows the whole fan-out
    dag.node("notify", job=notify, args={"owner": owner})  # follows the statement
    return dag.build()


async def main() -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        await engine.run(open_ledger, 200, key="open-ledger")
        # Under a key: asked again after a crash it answers as before, and the same list is the same graph.
        mutations = await engine.run(pending_mutations, "Ada", key="pending-in-may")
        handle = await engine.start(processing("Ada", mutations), key="ledger-in-may")
        print((await handle.dag()).ascii())
        await handle.result()
        states = [node.state for node in await handle.nodes_with_state()]
        print(f"{states.count('completed')} of {len(states)} nodes completed")
        print(f"every attempt followed its parents: {bool(await handle.verify_ancestry())}")


if __name__ == "__main__":
    asyncio.run(main())
