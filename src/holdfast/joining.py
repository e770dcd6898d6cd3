"""`tx=`: a start or a send that joins a PostgreSQL transaction of the caller's own."""

from __future__ import annotations

from typing import Any

from holdfast.coordinator import Coordinator
from holdfast.core.errors import KeyConflict
from holdfast.core.operations import Operation, Started, StartRun
from holdfast.store.contract import Conflict, Store


async def apply_in(connection: Any, operation: Operation, store: Store, coordinator: Coordinator) -> Any:
    """Apply an operation in the caller's transaction, which the caller commits; its result."""
    transaction = store.join(connection)
    # A savepoint: losing a race must not cost the caller's own writes.
    async with connection.transaction():
        answer, _ = await coordinator.apply_in(transaction, operation)
        # Delivered by the server when the caller commits. In the caller's own transaction, not in ours.
        await transaction.user.execute("SELECT pg_notify('holdfast', 'work')")
    return answer


async def start_in(connection: Any, operation: StartRun, store: Store, coordinator: Coordinator) -> str:
    """Start a run in the caller's transaction; its id, or that of the run which has the key."""
    tries = 0
    while True:
        try:
            started: Started = await apply_in(connection, operation, store, coordinator)
            return started.run
        except Conflict as error:  # somebody else has just committed a run under this key: look again
            tries += 1
            if tries == 3:  # a snapshot from before (REPEATABLE READ) never shows it
                raise KeyConflict(
                    f"key {operation.key!r} of {operation.workflow} was taken while this transaction was open",
                    hint="roll back and try again",
                ) from error
