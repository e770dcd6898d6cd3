"""From a leased work item to something that can be called, and back to bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.context import Context, NodeInfo, Tx
from holdfast.authoring.dags import Dag, callable_of
from holdfast.core.errors import MissingJob
from holdfast.core.graph import Node
from holdfast.core.ids import idempotency_key
from holdfast.core.retry import Retry
from holdfast.core.rows import Run, Work
from holdfast.runtime.definitions import RegistryDefinitions

NO_RESULT = b"null"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One attempt of a node: what to call, where, under which policy, and how to store what it returns."""

    work: Work
    run: Run
    instance: Dag | None
    call: Callable[[], Any]
    encode: Callable[[Any], bytes]
    retry: Retry
    is_async: bool
    transactional: bool
    isolation: str | None
    action: Action[..., Any] | None

    def context(
        self,
        worker: str,
        *,
        tx: Tx | None = None,
        on_heartbeat: Any = None,
        on_note: Callable[[str], None] | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Context:
        work = self.work
        return Context(
            run_id=work.run,
            workflow_name=work.workflow,
            node=NodeInfo(id=work.node, name=work.node, attempt=work.attempt),
            idempotency_key=idempotency_key(work.workflow, work.run, work.node),
            workflow=self.instance,
            worker=worker,
            tx=tx,
            on_heartbeat=on_heartbeat,
            on_note=on_note,
            is_cancelled=is_cancelled,
        )


def invocation_of(definitions: RegistryDefinitions, work: Work, run: Run, result_limit_bytes: int) -> Invocation:
    """Look the code up and decode the arguments. Whatever is raised here makes the item a dead letter (I8)."""
    found = definitions.thing(work.workflow)
    if isinstance(found, Action):
        args, kwargs = found.call.decode_call(run.input, run.codec)
        return Invocation(
            work=work,
            run=run,
            instance=None,
            call=lambda: found.fn(*args, **kwargs),
            encode=partial(found.call.encode_result, limit=result_limit_bytes),
            retry=_retry(work, found.policy.retry),
            is_async=found.is_async,
            transactional=found.transactional,
            isolation=found.isolation,
            action=found,
        )
    if not (isinstance(found, type) and issubclass(found, Dag)):
        raise MissingJob(f"workflow {work.workflow} is not registered here", hint="import its module in this worker")
    instance = found.decode_fields(run.input, run.codec)
    node = found.compiled_dag().node(work.node)
    ready = callable_of(instance, node)
    return Invocation(
        work=work,
        run=run,
        instance=instance,
        call=ready.call,
        encode=_discard,  # DAG nodes speak through side effects
        retry=_retry(work, node.policy.retry),
        is_async=ready.is_async,
        transactional=ready.transactional,
        isolation=ready.isolation,
        action=_job(definitions, node),
    )


def _job(definitions: RegistryDefinitions, node: Node) -> Action[..., Any] | None:
    return None if node.job is None else definitions.registry.action(node.job)


def _discard(value: Any) -> bytes:
    return NO_RESULT


def _retry(work: Work, policy: Retry) -> Retry:
    if work.policy is None:
        return policy
    numbers = msgspec.json.decode(work.policy)
    return Retry(attempts=numbers["attempts"], base=numbers["base"], cap=numbers["cap"], retry_on=policy.retry_on)
