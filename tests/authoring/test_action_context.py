"""`holdfast.testing.action_context`: what a user's test puts around code that asks for its context."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import action_context


class Recorded:
    """A transaction that remembers what was asked of it."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.raw = None

    async def execute(self, sql: str, *args: object) -> int:
        self.statements.append(sql)
        return 1

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        return []

    async def fetchrow(self, sql: str, *args: object) -> Any:
        return None

    async def fetchval(self, sql: str, *args: object) -> Any:
        return None


async def test_code_that_asks_for_its_context_can_be_tested_without_an_engine() -> None:
    registry = hf.Registry()

    @hf.action(registry=registry, transactional=True)
    async def debit(cents: int) -> int:
        await hf.current().tx.execute("UPDATE account")
        return hf.current().attempt

    tx = Recorded()
    with action_context("debit", attempt=3, tx=tx) as context:
        assert await debit(5) == 3
        assert context.idempotency_key == "debit:test-run:debit"
    assert tx.statements == ["UPDATE account"]
    with pytest.raises(hf.UsageError, match="no action or step is running"):
        hf.current()
