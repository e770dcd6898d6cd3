"""How a worker settles what a flow waits for without an action: barriers, times, and runs that it started."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from holdfast.authoring.startable import resolve_start
from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import CallCodec, Codecs, decode_error, encode_error
from holdfast.core.errors import MissingJob, RunFailed, StoreError
from holdfast.core.ids import child_id
from holdfast.core.operations import (
    CompleteWork,
    FailWork,
    KillWork,
    Offer,
    Operation,
    Settled,
    Started,
    StartRun,
    SteerWork,
)
from holdfast.core.rows import CHILD, COMPLETED, Run, Work
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.folds import submit
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.worker")


class FlowWork:
    """Settles barriers and sleeps at once; starts children, and comes back when they have ended."""

    def __init__(
        self,
        *,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        codecs: Codecs,
        limit: int,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._codecs = codecs
        self._limit = limit

    async def settle(self, work: Work, run: Run, offer: Callable[[], Offer | None]) -> Settled:
        if failpoints.armed:
            await failpoints.reach("flow.before")
        try:
            if work.kind == CHILD:
                return await self._submit(await self._child(work, run, offer))
            return await self._submit(CompleteWork(**_lease(work), offer=offer()))
        except StoreError:
            raise
        except Exception as error:
            log.error("%s of run %s cannot be settled: %s", work.node, work.run, error)
            return await self._submit(KillWork(**_lease(work), error=encode_error(error)))

    async def _child(self, work: Work, run: Run, offer: Callable[[], Offer | None]) -> Operation:
        """Start the child, or see how it ended. Its id is derived, so it is started once however often this runs."""
        child = child_id(run.id, work.node)
        found = await self._store.runs([child])
        if not found:
            child = await self._start(work, run, child)
            found = await self._store.runs([child])
        row = found[0]
        if not row.ended:
            return SteerWork(**_lease(work), wish="reattempt", reason=f"waits for run {child}", after_runs=(child,))
        if row.status == COMPLETED:
            return CompleteWork(**_lease(work), result=row.result or b"null", offer=offer())
        told = "" if row.error is None else decode_error(row.error).message
        error = RunFailed(f"run {child} of {row.workflow} is {row.status}{': ' if told else ''}{told}")
        return FailWork(**_lease(work), error=encode_error(error), retryable=False)

    async def _start(self, work: Work, run: Run, child: str) -> str:
        registry = self._definitions.registry
        found: Any = registry.workflows.get(work.name)
        codec = getattr(found, "call", None)
        if not isinstance(codec, CallCodec):
            raise MissingJob(f"{work.name} is not registered here", hint="import its module in this worker")
        args, kwargs = codec.decode_call(work.payload or b"", work.codec, codecs=self._codecs)
        spec = resolve_start(found.bind(*args, **kwargs), (), registry, self._limit, self._codecs)
        started: Started = await self._submit_start(
            StartRun(
                run=child,
                workflow=spec.workflow,
                model=spec.model,
                input=spec.input,
                codec=spec.codec,
                input_digest=spec.input_digest,
                on_failure=spec.on_failure,
                queue=spec.queue or run.queue,
                priority=run.priority,
                tags=run.tags,
                parent=run.id,
                depth=run.depth + 1,
                signature=spec.signature,
            )
        )
        return started.run

    async def _submit_start(self, operation: StartRun) -> Any:
        return await submit(operation, coordinator=self._coordinator, store=self._store, definitions=self._definitions)

    async def _submit(self, operation: Operation) -> Settled:
        settled: Settled = await submit(
            operation, coordinator=self._coordinator, store=self._store, definitions=self._definitions
        )
        return settled


def _lease(work: Work) -> dict[str, Any]:
    return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}
