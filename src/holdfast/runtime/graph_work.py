"""How a worker runs what a state graph has in its frontier: nodes, and subgraphs in runs of their own.

A node gets a copy of the state that the step began with: from memory where the step before was merged in this process,
else put together from the checkpoints. It is then called like any action, and its outcome is an ordinary result.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.authoring.node_context import NodeContext
from holdfast.authoring.startable import resolve_start
from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import Codecs, encode_error
from holdfast.core.errors import MissingJob, StoreError
from holdfast.core.ids import idempotency_key
from holdfast.core.operations import CompleteWork, FailWork, KillWork, Offer, Operation, Settled, StartRun, SteerWork
from holdfast.core.queries import RecordedBy, StateChain
from holdfast.core.rows import COMPLETED, Checkpoint, Recorded, Run, Work
from holdfast.core.seams import Clock
from holdfast.core.state_items import Item, node_of, step_of
from holdfast.core.state_outcomes import encode_outcome, split, with_sent
from holdfast.models.state_graph import recording_attempt, subgraph_run
from holdfast.models.state_memory import Known, mark_of, missing_checkpoint, put_together
from holdfast.runtime.child_failures import stored_child_failure
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.invocation import Invocation
from holdfast.runtime.recorded_calls import CallCoding, LiveCalls, coding_of
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.authoring.state_code import BoundGraph
    from holdfast.runtime.attempt import Attempt

log = logging.getLogger("holdfast.worker")

Beat = Callable[[], Awaitable[None]]


class GraphWork:
    """Makes calls of nodes, and settles subgraphs."""

    def __init__(
        self,
        *,
        store: Store,
        coordinator: Coordinator,
        definitions: RegistryDefinitions,
        codecs: Codecs,
        limit: int,
        clock: Clock,
        heartbeat: Beat,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._definitions = definitions
        self._codecs = codecs
        self._limit = limit
        self._clock = clock
        self._heartbeat = heartbeat
        self._codings: dict[BoundGraph, CallCoding] = {}

    # -- nodes

    async def invocation_of(self, attempt: Attempt) -> Invocation:
        """A node with its state and context, ready to be called. What is raised here makes a dead letter (I8)."""
        work, run = attempt.work, attempt.run
        code = self._code(run)
        name = node_of(work.node)
        node = code.definition(name)
        fn = node.fn
        if fn is None:
            raise MissingJob(f"{name} of graph {run.workflow} is a subgraph now", hint="bring the node's function back")
        known, item = await self._place(run, work, code)
        state = code.state_for(known.fields, item.sent)
        own_key = code.own_key(name, state)
        call, calls = partial(fn, state), None
        if node.takes_context:
            calls = await self._calls(attempt, code)
            context = self._context(attempt, name, known, item, own_key, calls)
            call = partial(_begun, calls, fn, state, context)

        def encode(returned: Any) -> bytes:
            if calls is not None:
                calls.end()
            return code.seal(encode_outcome(code.outcome(name, returned, state)))

        return Invocation(
            name=name,
            instance=None,
            call=call,
            arguments=(b"", "json"),
            encode=encode,
            retry=node.policy.retry,
            is_async=node.is_async,
            transactional=False,
            isolation=None,
            action=None,
            timeout=code.nodes[name].timeout,
            own_key=own_key,
        )

    async def _calls(self, attempt: Attempt, code: BoundGraph) -> LiveCalls:
        recording = recording_attempt(attempt.work)
        return LiveCalls(
            work=attempt.work,
            recording=recording,
            known=await self._recorded(attempt.work, recording),
            coding=self._coding(code),
            clock=self._clock,
            submit=self._coordinator.submit,
            heartbeat=self._heartbeat,
            note=attempt.notes.append,
            is_cancelled=lambda: attempt.stop_requested,
        )

    def _context(
        self, attempt: Attempt, name: str, known: Known, item: Item, own_key: str | None, calls: LiveCalls
    ) -> NodeContext:
        work, run = attempt.work, attempt.run
        return NodeContext(
            run_id=run.id,
            workflow_name=run.workflow,
            node=name,
            step=known.step + 1,
            attempt=work.attempt,
            idempotency_key=own_key or idempotency_key(run.workflow, run.id, work.node),
            path=item.path,
            now_us=known.at,
            services=calls,
        )

    def _coding(self, code: BoundGraph) -> CallCoding:
        coding = self._codings.get(code)
        if coding is None:
            coding = self._codings[code] = coding_of(code)
        return coding

    def _code(self, run: Run) -> BoundGraph:
        code = self._definitions.state_graph(run.workflow)
        if code is None:
            raise MissingJob(f"graph {run.workflow} is not registered here", hint="import its module in this worker")
        return code

    async def _place(self, run: Run, work: Work, code: BoundGraph) -> tuple[Known, Item]:
        """The checkpoint that the item is in the frontier of, and the item."""
        memory, step = self._definitions.states, step_of(work.node) - 1
        known = memory.remembered(run) if run.base == step else None
        if known is None:
            chain: list[Checkpoint] = await self._store.rows(StateChain(run.id, step))
            if not chain or chain[-1].step != step:
                raise missing_checkpoint(run)
            known = put_together(chain, code)
            memory.learn(run.id, mark_of(chain[-1].key, chain[-1].at), known)
        return known, memory.item(run.id, known, work.node)

    async def _recorded(self, work: Work, recording: int) -> dict[int, Recorded]:
        if work.attempt == 1 and work.token == 1:
            return {}  # nobody has run it before
        rows: list[Recorded] = await self._store.rows(RecordedBy(work.run, work.node))
        return {row.call: row for row in rows if row.attempt == recording}

    # -- subgraphs

    async def settle(self, work: Work, run: Run, offer: Callable[[], Offer | None]) -> Settled:
        if failpoints.armed:
            await failpoints.reach("flow.before")
        try:
            return await self._submit(await self._child(work, run, offer))
        except StoreError:
            raise
        except Exception as error:
            log.error("%s of run %s cannot be settled: %s", work.node, work.run, error)
            return await self._submit(KillWork(**_lease(work), error=encode_error(error)))

    async def _child(self, work: Work, run: Run, offer: Callable[[], Offer | None]) -> Operation:
        """Start the subgraph's run, or see how it ended. Its id is derived, so it is started once."""
        code, name = self._code(run), node_of(work.node)
        child = subgraph_run(work)
        known, item = await self._place(run, work, code)
        given = dict(with_sent(known.fields, item.sent))
        found = await self._store.runs([child])
        if not found:
            await self._start(code, name, run, child, given)
            found = await self._store.runs([child])
        row = found[0]
        if not row.ended:
            return SteerWork(**_lease(work), wish="reattempt", reason=f"waits for run {child}", after_runs=(child,))
        if row.status == COMPLETED:
            outcome = code.subgraph_outcome(name, given, split(code.unseal(row.result or b"{}")))
            return CompleteWork(**_lease(work), result=code.seal(encode_outcome(outcome)), offer=offer())
        return FailWork(**_lease(work), error=stored_child_failure(row), retryable=False)

    async def _start(self, code: BoundGraph, name: str, run: Run, child: str, given: dict[str, bytes]) -> None:
        graph, initial = code.subgraph_input(name, given)
        spec = resolve_start(graph, (initial,), self._definitions.registry, self._limit, self._codecs)
        await self._coordinator.submit(
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

    async def _submit(self, operation: Operation) -> Settled:
        settled: Settled = await self._coordinator.submit(operation)
        return settled


def _begun(calls: LiveCalls, fn: Callable[..., Any], state: Any, context: NodeContext) -> Any:
    calls.begins()
    return fn(state, context)


def _lease(work: Work) -> dict[str, Any]:
    return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}
