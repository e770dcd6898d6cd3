"""G6: who has claimed ahead of the time waits by the server's clock as it is, also when it has been set back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.runtime.system import RealClock
from holdfast.store.postgres import PostgresStore
from tests.support.stores import SERVER_TIME

HALF_A_SECOND_US = 500_000


class ServerWhoseClockIsSet(PostgresStore):
    """Its statements read a clock that somebody sets."""

    set_by_us = 0

    async def _run(self, connection: Any, method: str, sql: str, *args: Any) -> Any:
        return await super()._run(
            connection, method, sql.replace(SERVER_TIME, f"({SERVER_TIME} + {self.set_by_us})"), *args
        )


@pytest.mark.parametrize("set_by_us", [-HALF_A_SECOND_US, 0, HALF_A_SECOND_US])
async def test_g6_the_time_left_follows_a_server_whose_clock_was_set(postgres_url: str, set_by_us: int) -> None:
    """`now` does not go back with it: times that leases are compared with must not."""
    store = ServerWhoseClockIsSet(postgres_url, clock=RealClock())
    try:
        await store.open()
        await store.migrate()
        await store.promote(["default"])
        store.now()
        store.set_by_us = set_by_us
        await store.promote(["default"])
        due = time.time_ns() // 1000 + set_by_us + HALF_A_SECOND_US // 2
        left = store.time_left(due)
        after = time.time_ns() // 1000 + set_by_us
        assert due - after <= left <= HALF_A_SECOND_US  # never too few, and hardly more
    finally:
        await store.close()
