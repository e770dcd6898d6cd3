"""Money moves exactly once: an action's writes and its result in one commit.

    python examples/transactional.py

The accounts are a table in the database that holds the runs. A transactional action writes through `hf.current().tx`;
what it wrote and the fact that it ran are committed together or not at all. Here the first attempt fails *after* its
UPDATE, and a process that dies there does no more harm than that.
"""

from __future__ import annotations

import asyncio

import holdfast as hf


@hf.action(transactional=True)
async def open_accounts() -> None:
    tx = hf.current().tx
    await tx.execute("CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
    await tx.execute("INSERT INTO account VALUES ('Ada', 10000), ('Grace', 0)")


@hf.action(transactional=True, retry=hf.Retry(attempts=3, base=0.1, cap=1.0))
async def debit(name: str, cents: int) -> int:
    """Take from an account; the balance that is left."""
    running = hf.current()
    left: int | None = await running.tx.fetchval(
        "UPDATE account SET cents = cents - ?1 WHERE name = ?2 AND cents >= ?1 RETURNING cents", cents, name
    )
    print(f"  attempt {running.attempt}: {name} has {left} cents left", flush=True)
    if left is None:
        raise hf.NonRetryable(f"{name} does not have {cents} cents")
    if running.attempt == 1:
        raise ConnectionError("the line broke after the UPDATE")
    return left


@hf.action(transactional=True)
async def balance(name: str) -> int:
    cents: int = await hf.current().tx.fetchval("SELECT cents FROM account WHERE name = ?", name)
    return cents


async def main() -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        await engine.run(open_accounts, key="open-accounts")
        left = await engine.run(debit, "Ada", 2500, key="invoice-17")
        print(f"Invoice 17 is paid: {left} cents left. The account says {await engine.run(balance, 'Ada')}.")
        left = await engine.run(debit, "Ada", 2500, key="invoice-17")
        print(f"Asked again under the same key: {left} cents left, and nothing was taken.")


if __name__ == "__main__":
    asyncio.run(main())
