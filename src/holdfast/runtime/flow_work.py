"""How a worker settles what a flow waits for without an action: barriers, times, and runs that it started."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.authoring.flows import Flow
from holdfast.authoring.startable import resolve_start
from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import CallCodec, Codecs, encode_error
from holdfast.core.errors import MissingJob, PayloadRefused, StoreError
from holdfast.core.flow_addresses import parse_address
from holdfast.core.flow_waits import AwaitEvents, WakeAhead, read_wait
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
from holdfast.core.rows import BARRIER, CHILD, COMPLETED, FAILED, SETTLE, SLEEP, WAIT, Run, Work
from holdfast.models.flow_code import FlowCode, FlowNotLoaded
from holdfast.runtime.child_failures import stored_child_failure
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.folds import submit
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.worker")

SETTLED_BY_FLOWS = frozenset({BARRIER, SLEEP, CHILD, WAIT, SETTLE})


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
            if work.kind == WAIT:
                return await self._submit(await self._wait(work, run, offer))
            if work.kind == CHILD:
                return await self._submit(await self._child(work, run, offer))
            return await self._submit(CompleteWork(**_lease(work), offer=offer()))
        except StoreError:
            raise
        except Exception as error:
            log.error("%s of run %s cannot be settled: %s", work.node, work.run, error)
            return await self._submit(KillWork(**_lease(work), error=encode_error(error)))

    async def wake_ahead(self, work: Work, run: Run, offer: Callable[[], Offer | None]) -> Settled | None:
        """Settle a sleep that is claimed ahead of its time; None if it can only be settled then, as any other."""
        if self._store.time_left(work.due) <= 0:
            return None
        try:
            graph = (await self._code(run)).graph
            if not graph.leads_to_work(parse_address(work.node).node):
                return None
            return await self._submit(WakeAhead(**_lease(work), offer=offer()))
        except StoreError:
            raise
        except Exception:  # NotAhead, or something that is told when it is due
            return None

    async def _wait(self, work: Work, run: Run, offer: Callable[[], Offer | None]) -> Operation:
        """Begin to wait, or go on: an event came, or the time. What came is looked at before the flow is told."""
        wait = read_wait(work.payload)
        refused = ""
        if wait.answer is not None:
            code = await self._code(run)
            try:
                code.outcome_of(wait)
                return CompleteWork(**_lease(work), result=work.payload, offer=offer())
            except PayloadRefused as wrong:  # sent by who did not know its type: the flow goes on waiting
                log.error("event %s of run %s becomes a dead letter: %s", wait.answer.event, work.run, wrong)
                refused = str(wrong)
        return AwaitEvents(**_lease(work), events=wait.events, refused=refused, offer=offer())

    async def _code(self, run: Run) -> FlowCode:
        try:
            code = self._definitions.flow(run.workflow, run.signature or "")
        except FlowNotLoaded as late:
            await self._definitions.load_flow(self._store, late.workflow, late.signature)
            code = self._definitions.flow(run.workflow, run.signature or "")
        if code is None:
            raise MissingJob(f"flow {run.workflow} is not registered here", hint="import its module in this worker")
        return code

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
        error = stored_child_failure(row)
        if row.status == FAILED and isinstance(self._definitions.registry.workflows.get(work.name), Flow):
            error = row.error or error  # a flow beside others in a gather is part of this one: it raises what it raised
        return FailWork(**_lease(work), error=error, retryable=False)

    async def _start(self, work: Work, run: Run, child: str) -> str:
        registry = self._definitions.registry
        found: Any = registry.workflows.get(work.name)
        codec = getattr(found, "call", None)
        if not isinstance(codec, CallCodec):
            raise MissingJob(f"{work.name} is not registered here", hint="import its module in this worker")
        args, kwargs = codec.decode_call(work.payload or b"", work.codec, codecs=self._codecs)
        spec = resolve_start(found.bind(*args, **kwargs), (), registry, self._limit, self._codecs)
        queue = spec.queue if work.policy is None else msgspec.json.decode(work.policy)["queue"]
        started: Started = await self._submit_start(
            StartRun(
                run=child,
                workflow=spec.workflow,
                model=spec.model,
                input=spec.input,
                codec=spec.codec,
                input_digest=spec.input_digest,
                on_failure=spec.on_failure,
                queue=queue or run.queue,
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
