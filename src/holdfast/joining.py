"""`tx=`: a start, a send or an input that joins a PostgreSQL transaction of the caller's own."""

from __future__ import annotations

from typing import Any

from holdfast.coordinator import Coordinator
from holdfast.core.decider_operations import Executed, ExecuteInput
from holdfast.core.errors import KeyConflict, StoreUnavailable, UsageError
from holdfast.core.operations import Operation, Started, StartRun
from holdfast.models.folding import FOLD_LIMIT, FoldFirst
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.folds import fold_committed
from holdfast.store.contract import Conflict, Store

TRIES = 3


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
            if tries == TRIES:  # a snapshot from before (REPEATABLE READ) never shows it
                raise KeyConflict(
                    f"key {operation.key!r} of {operation.workflow} was taken while this transaction was open",
                    hint="roll back and try again",
                ) from error


async def execute_in(
    connection: Any,
    operation: ExecuteInput,
    *,
    store: Store,
    coordinator: Coordinator,
    definitions: RegistryDefinitions,
) -> Executed:
    """Give an instance an input in the caller's transaction; of a long stream, what is committed is folded first."""
    tries, folded = 0, False
    while True:
        try:
            executed: Executed = await apply_in(connection, operation, store, coordinator)
            return executed
        except FoldFirst as late:
            if folded:
                raise UsageError(
                    f"this transaction wrote over {FOLD_LIMIT:,} events of {operation.workflow} {operation.key!r}",
                    hint="commit between inputs that make so many",
                ) from None
            await fold_committed(late.run, store, definitions)
            folded = True
        except Conflict as error:  # somebody else has just committed the instance's first input: look again
            tries += 1
            if tries == TRIES:
                raise StoreUnavailable(
                    f"{operation.workflow} {operation.key!r} was changed while this transaction was open: {error}",
                    hint="roll back and try again",
                ) from error
