"""What running code may know about itself: `hf.current()`.

The context lives in a context variable, so it follows `await` and `asyncio.to_thread` by itself.
It knows nothing of stores: whoever runs the code passes in what a heartbeat or a note should do.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Never, Protocol, runtime_checkable

import msgspec

from holdfast.authoring.flow_control import (
    CancelThisRun,
    FinishThisRun,
    PauseThisRun,
    ReattemptThisNode,
    SkipThisNode,
    checked_delay,
    checked_reason,
)
from holdfast.authoring.function_calls import FunctionRun, running_function
from holdfast.core.errors import UsageError
from holdfast.core.ids import idempotency_key

if TYPE_CHECKING:
    from holdfast.authoring.conditions import Identified
    from holdfast.authoring.dags import Dag

__all__ = [
    "Context",
    "NodeInfo",
    "Tx",
    "current",
    "enter_function",
    "entered",
    "entered_function",
    "from_an_action",
    "is_running",
    "refuse_inside_a_workflow",
    "require_transaction",
    "stand_in_context",
]

ACTION_LOGGER = logging.getLogger("holdfast.actions")
WORKFLOW_LOGGER = logging.getLogger("holdfast.workflows")


@runtime_checkable
class Tx(Protocol):
    """The transaction in which a transactional action's result will be committed."""

    async def execute(self, sql: str, *args: object) -> int:
        """Run one statement and return how many rows it changed."""

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """All rows; each can be indexed by position and by column name."""

    async def fetchrow(self, sql: str, *args: object) -> Any:
        """The first row, or None."""

    async def fetchval(self, sql: str, *args: object) -> Any:
        """The first column of the first row, or None."""

    @property
    def raw(self) -> Any:
        """The driver's own connection. Committing or rolling back through it breaks the promise."""


class NodeInfo(msgspec.Struct, frozen=True, gc=False):
    """The node that is running. `str()` gives its name."""

    id: str
    name: str
    attempt: int

    def __str__(self) -> str:
        return self.name


class ContextLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the run's identity to every record, and keeps what the caller passes as `extra`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


class FunctionLogger(ContextLogger):
    """A workflow's logger: silent while the run replays what it has logged before."""

    def __init__(self, run: FunctionRun) -> None:
        super().__init__(WORKFLOW_LOGGER, {"run": run.run_id, "workflow": run.workflow_name})
        self._run = run

    def isEnabledFor(self, level: int) -> bool:
        return not self._run.replaying and super().isEnabledFor(level)


class InnerCalls:
    """The actions that are awaited inside one context: the same code asks for the same ones in every attempt."""

    __slots__ = ("_numbers", "_place")

    def __init__(self, place: str) -> None:
        self._place = place
        self._numbers: dict[str, Iterator[int]] = {}

    def next_key(self, name: str) -> str:
        """I13: where it is called, what is called, and the number of that call among its like."""
        return f"{self._place}/{name}#{next(self._numbers.setdefault(name, itertools.count(1)))}"


class Context:
    """Who is running: the run, the node, the attempt, and what they may tell the engine meanwhile."""

    __slots__ = (
        "_function",
        "_inner",
        "_is_cancelled",
        "_logger",
        "_on_heartbeat",
        "_on_note",
        "_tx",
        "idempotency_key",
        "node",
        "run_id",
        "worker",
        "workflow",
        "workflow_name",
    )

    def __init__(
        self,
        *,
        run_id: str,
        workflow_name: str,
        node: NodeInfo,
        idempotency_key: str,
        workflow: Dag | None = None,
        worker: str = "",
        tx: Tx | None = None,
        on_heartbeat: Callable[[], Awaitable[None]] | None = None,
        on_note: Callable[[str], None] | None = None,
        is_cancelled: Callable[[], bool] | None = None,
        function: FunctionRun | None = None,
    ) -> None:
        self.run_id = run_id
        self.workflow_name = workflow_name
        self.node = node
        self.idempotency_key = idempotency_key
        self.workflow = workflow
        self.worker = worker
        self._tx = tx
        self._on_heartbeat = on_heartbeat
        self._on_note = on_note
        self._is_cancelled = is_cancelled
        self._function = function  # set for the code of a workflow itself, which is no node
        # Made at the first use: most actions never log, nor call others, and this is on the path of every one.
        self._logger: ContextLogger | None = None
        self._inner: InnerCalls | None = None

    def __repr__(self) -> str:
        return f"<Context of {self.workflow_name}, run {self.run_id}, node {self.node}, attempt {self.attempt}>"

    @property
    def attempt(self) -> int:
        """The number of this execution, from 1."""
        return self.node.attempt

    @property
    def transactional(self) -> bool:
        """Whether `tx` can be used."""
        return self._tx is not None

    @property
    def tx(self) -> Tx:
        """The transaction that commits this action's result; UsageError unless it is transactional."""
        if self._tx is None:
            raise UsageError(
                f"{self.node.name} has no transaction: it is not transactional, or runs outside a run",
                hint="declare it with transactional=True and start it through an engine on PostgreSQL or SQLite",
            )
        return self._tx

    @property
    def cancelled(self) -> bool:
        """True once this execution should stop. For threads, which nothing can interrupt."""
        return self._is_cancelled is not None and self._is_cancelled()

    @property
    def logger(self) -> ContextLogger:
        """A logger whose records carry `run`, `workflow`, `node`, `attempt` and `worker`.

        In the code of a workflow: `run` and `workflow`, and nothing is logged again when the run is replayed.
        """
        if self._logger is None and self._function is not None:
            self._logger = FunctionLogger(self._function)
        if self._logger is None:
            identity = {
                "run": self.run_id,
                "workflow": self.workflow_name,
                "node": self.node.name,
                "attempt": self.attempt,
                "worker": self.worker,
            }
            self._logger = ContextLogger(ACTION_LOGGER, identity)
        return self._logger

    async def heartbeat(self) -> None:
        """Tell the engine that this is still alive; raises when the right to run it has been lost."""
        if self._on_heartbeat is not None:
            await self._on_heartbeat()

    def note(self, text: str) -> None:
        """Keep a line for people in this attempt's outcome. No other node can read it."""
        if not isinstance(text, str):
            raise UsageError(
                f"a note of {self.node.name} is a {type(text).__name__}, not a text", hint="write note(str(value))"
            )
        if self._on_note is not None:
            self._on_note(text)

    # -- what is called in here. For the engine.

    def for_call(self, name: str) -> Context:
        """The context of an action that is awaited in here: all of this one, but with a key of its own (I13)."""
        if self._inner is None:
            self._inner = InnerCalls(self.idempotency_key)
        return self._with_key(self._inner.next_key(name))

    def for_record(self, name: str, number: int) -> Context:
        """This context for a recorded call, whose inner calls are numbered apart from the others.

        A call that is answered from its record makes none, and must not change the keys of those that follow (I42).
        """
        same = self._with_key(self.idempotency_key)
        same._inner = InnerCalls(f"{self.idempotency_key}/{name}#{number}")
        return same

    def _with_key(self, key: str) -> Context:
        return Context(
            run_id=self.run_id,
            workflow_name=self.workflow_name,
            node=self.node,
            idempotency_key=key,
            workflow=self.workflow,
            worker=self.worker,
            tx=self._tx,
            on_heartbeat=self.heartbeat,
            on_note=self.note,
            is_cancelled=lambda: self.cancelled,
        )

    # -- what becomes of this node and its run. Each raises a signal, so that no code after it runs.

    def skip(self, reason: str = "") -> Never:
        """End this node here as skipped: what depends on it goes on as if it had completed."""
        raise SkipThisNode(self._reason(reason))

    def pause(self, reason: str = "") -> Never:
        """Stop here and pause the run; this node runs again from its beginning when the run is resumed."""
        raise PauseThisRun(self._reason(reason))

    def cancel(self, reason: str = "") -> Never:
        """Stop here and cancel the run."""
        raise CancelThisRun(self._reason(reason))

    def reattempt(
        self, after: float | timedelta | None = None, reason: str = "", *, after_run: str | Identified | None = None
    ) -> Never:
        """Stop here and run this node again from its beginning; this is no failure.

        Now, or `after` seconds, or when another run has ended, however it did.
        """
        runs: tuple[str, ...] = ()
        if after_run is not None:
            from holdfast.authoring.conditions import checked_run_id  # for those who wait

            runs = (checked_run_id("reattempt(after_run=…)", after_run),)
        raise ReattemptThisNode(checked_delay(after, self.node.name), self._reason(reason), runs)

    def finish(self, reason: str = "") -> Never:
        """End this node as completed and the run with it: nodes that have not started are not run."""
        raise FinishThisRun(self._reason(reason))

    def _reason(self, reason: object) -> str:
        if self._function is not None:
            raise UsageError(
                f"workflow {self.workflow_name} said what should become of a node, and its own code is none",
                hint="return or raise to end the run, or call it in an action",
            )
        return checked_reason(reason, self.node.name)


current_context: ContextVar[Context | None] = ContextVar("holdfast_context", default=None)


def current() -> Context:
    """The context of the action, step or workflow that is running here; UsageError when none is."""
    context = current_context.get()
    if context is None:
        run = running_function.get()
        if run is not None:
            return _context_of(run)
        raise UsageError(
            "hf.current() was called where no action or step is running, and no workflow",
            hint="call it inside one; in tests await the action itself instead of its .fn, or use "
            "holdfast.testing.action_context()",
        )
    return context


def is_running() -> bool:
    """Whether an action or step is running here. The code of a workflow is neither."""
    return current_context.get() is not None


def refuse_inside_a_workflow() -> None:
    """I49: the code of a workflow that uses the engine itself would do so again whenever it is replayed."""
    run = running_function.get()
    if run is not None and not is_running():
        raise run.not_durable(
            "the engine itself",
            "inside a workflow call hf.start_child(…), hf.send(…), hf.broadcast(…), hf.execute(…) or hf.wait_for(…); "
            "whatever else the engine is to do, do it in an @action",
        )


def from_an_action(call: str) -> str:
    """The fix for what only the code of a workflow may ask for, where an action or a step did: `call` of an engine."""
    return (
        "do it in a @hf.workflow, with what the action returns; or open an engine of the same database there, "
        f"`async with hf.Engine(…) as engine`, and write {call}"
    )


class _Entered:
    """`entered`: a class and no generator, because every attempt of every node goes through it."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> Context:
        self._token = current_context.set(self._context)
        return self._context

    def __exit__(self, *exc: object) -> None:
        current_context.reset(self._token)


def entered(context: Context) -> AbstractContextManager[Context]:
    """Make this the current context until the end of the block."""
    return _Entered(context)


class _EnteredFunction:
    """`entered_function`: a class and no generator, as its other two are."""

    __slots__ = ("_context_token", "_function_token", "_run")

    def __init__(self, run: FunctionRun) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._function_token, self._context_token = running_function.set(self._run), current_context.set(None)

    def __exit__(self, *exc: object) -> None:
        # ValueError: the code is being closed in another context, where there is nothing to put back.
        with suppress(ValueError):
            current_context.reset(self._context_token)
            running_function.reset(self._function_token)


def entered_function(run: FunctionRun) -> AbstractContextManager[None]:
    """Make the code in this block the code of a workflow's run, whatever it was started from.

    The context of an action would come first, and one may be inherited: an action that opens an engine passes its
    context on to every task of that engine.
    """
    return _EnteredFunction(run)


def enter_function(run: FunctionRun) -> None:
    """`entered_function` for a contextvars.Context of the caller's own, in which nothing has to be put back."""
    running_function.set(run)
    current_context.set(None)


def _context_of(run: FunctionRun) -> Context:
    return Context(
        run_id=run.run_id,
        workflow_name=run.workflow_name,
        node=NodeInfo(id="", name=run.workflow_name, attempt=1),
        idempotency_key=idempotency_key(run.workflow_name, run.run_id, ""),
        function=run,
    )


def stand_in_context(name: str = "stand-in", *, workflow: Dag | None = None) -> Context:
    """A context for a call outside a run: attempt 1, heartbeats and notes go nowhere.

    Every call gets a run id of its own. A fixed one would make a real payment service take the
    second call outside a run for a repetition of the first.
    """
    workflow_name = name if workflow is None else type(workflow).__holdfast__.name
    run_id = f"outside-{uuid.uuid4().hex}"
    return Context(
        run_id=run_id,
        workflow_name=workflow_name,
        node=NodeInfo(id=name, name=name, attempt=1),
        idempotency_key=idempotency_key(workflow_name, run_id, name),
        workflow=workflow,
        worker="none",
    )


def require_transaction(name: str) -> None:
    """UsageError unless the code about to run as `name` is inside a transaction of the engine."""
    context = current_context.get()
    if context is None:
        raise UsageError(
            f"{name} is transactional and was called outside a run, where there is no transaction to commit its "
            "result with",
            hint="start it through an engine on PostgreSQL or SQLite; in tests use "
            "holdfast.testing.action_context(tx=…)",
        )
    if not context.transactional:
        raise UsageError(
            f"{name} is transactional and was called inside {context.node.name}, which has no transaction",
            hint=f"make {context.node.name} transactional too, or make {name} a node of its own",
        )
