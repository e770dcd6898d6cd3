"""What `hf.current()` gives to an attempt of a node.

Every attempt of every node has one and most never look at it, so what it says is put together when it is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from holdfast.authoring.context import Context, NodeInfo
from holdfast.core.ids import idempotency_key

if TYPE_CHECKING:
    from holdfast.authoring.dags import Dag
    from holdfast.core.rows import Run
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.invocation import Invocation


class LeaseLost(Exception):
    """This worker may not settle the item any more."""


class AttemptContext(Context):
    """The context of an attempt that is running here."""

    __slots__ = ("_attempt", "_beat", "_invocation")

    def __init__(
        self, attempt: Attempt, invocation: Invocation, worker: str, tx: Any, beat: Callable[[], Awaitable[None]]
    ) -> None:
        self._attempt = attempt
        self._invocation = invocation
        self._beat = beat
        self._tx = tx
        self._logger = self._inner = None
        self.worker = worker

    _function = None  # it is no workflow's own code

    @property
    def workflow(self) -> Dag | None:  # type: ignore[override]  # read-only here
        return self._invocation.instance

    @property
    def _on_note(self) -> Callable[[str], None]:  # type: ignore[override]
        return self._attempt.notes.append

    @property
    def run_id(self) -> str:  # type: ignore[override]
        return self._attempt.work.run

    @property
    def workflow_name(self) -> str:  # type: ignore[override]
        return self._attempt.work.workflow

    @property
    def node(self) -> NodeInfo:  # type: ignore[override]
        work = self._attempt.work
        return NodeInfo(id=work.node, name=self._invocation.name, attempt=work.attempt)

    @property
    def idempotency_key(self) -> str:  # type: ignore[override]
        work = self._attempt.work
        return self._invocation.own_key or idempotency_key(work.workflow, work.run, work.node)

    @property
    def cancelled(self) -> bool:
        return self._attempt.stop_requested

    async def heartbeat(self) -> None:
        if self._tx is None:  # a transaction may hold the store's one writer, which a heartbeat would wait for
            await self._beat()
        if self._attempt.stop_requested:
            work = self._attempt.work
            raise LeaseLost(
                f"node {work.node} of {work.workflow} (run {work.run}, attempt {work.attempt}) lost its lease or its "
                "run was cancelled: stop here"
            )


class CallContext(Context):
    """The context of an action that a function calls in this process. What it notes is nobody's to read."""

    __slots__ = ("_name", "_node", "_number", "_run")

    # The same for all of them, and so not set in each: one is made with every call.
    _tx = _function = _on_note = _is_cancelled = workflow = None

    def __init__(
        self, run: Run, node: str, number: int, name: str, worker: str, beat: Callable[[], Awaitable[None]]
    ) -> None:
        self._run = run
        self._node = node
        self._number = number
        self._name = name
        self._on_heartbeat = beat
        self._logger = self._inner = None
        self.worker = worker

    @property
    def run_id(self) -> str:  # type: ignore[override]  # read-only here
        return self._run.id

    @property
    def workflow_name(self) -> str:  # type: ignore[override]
        return self._run.workflow

    @property
    def node(self) -> NodeInfo:  # type: ignore[override]
        return NodeInfo(id=self._node, name=self._name, attempt=self._number)

    @property
    def idempotency_key(self) -> str:  # type: ignore[override]
        return idempotency_key(self._run.workflow, self._run.id, self._node)
