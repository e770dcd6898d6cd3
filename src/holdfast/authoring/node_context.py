"""`hf.NodeContext`: what a node of a state graph may know and ask for while it runs.

It knows nothing of stores and of replays: whoever runs the node passes in the services behind it.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import wraps
from typing import Any, Protocol, TypeVar, cast, overload

from holdfast.authoring.context import ACTION_LOGGER, ContextLogger
from holdfast.authoring.durations import instant
from holdfast.core.errors import UsageError
from holdfast.core.state_items import ORDER_KEY_DIGITS, item_seed

__all__ = ["NodeContext", "NodeServices"]

T = TypeVar("T")


class NodeServices(Protocol):
    """What is behind a context: the engine, or a replay."""

    @property
    def replaying(self) -> bool:
        """Whether all of this happened before, so that nothing is to be logged again."""

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop."""

    async def record(self, name: str, request: object, call: Callable[[], Awaitable[Any]]) -> Any:
        """The recorded response to this request; `call` is made if there is none yet."""

    def record_blocking(self, name: str, request: object, call: Callable[[], Any]) -> Any:
        """The same for a node in a thread."""

    async def interrupt(self, payload: object) -> Any:
        """What a person answered; does not return while there is no answer."""

    def interrupt_blocking(self, payload: object) -> Any:
        """The same for a node in a thread."""

    async def heartbeat(self) -> None:
        """Tell that the attempt is alive; raises when the right to run it is lost."""

    def note(self, text: str) -> None:
        """Keep a line for people."""


class _NodeLogger(ContextLogger):
    """A node's logger: silent in a replay, whose lines were logged when they happened."""

    def __init__(self, identity: dict[str, object], services: NodeServices) -> None:
        super().__init__(ACTION_LOGGER, identity)
        self._services = services

    def isEnabledFor(self, level: int) -> bool:
        return not self._services.replaying and super().isEnabledFor(level)


class NodeContext:
    """Who is running: the run, the node, the step and the attempt; and the ways to the world that can be replayed."""

    __slots__ = (
        "_logger",
        "_now_us",
        "_rng",
        "_services",
        "attempt",
        "idempotency_key",
        "node",
        "path",
        "run_id",
        "step",
        "workflow_name",
    )

    def __init__(
        self,
        *,
        run_id: str,
        workflow_name: str,
        node: str,
        step: int,
        attempt: int,
        path: str,
        idempotency_key: str,
        now_us: int,
        services: NodeServices,
    ) -> None:
        self.run_id = run_id
        self.workflow_name = workflow_name
        self.node = node
        self.step = step
        self.attempt = attempt  # from 1
        self.path = path
        self.idempotency_key = idempotency_key
        self._now_us = now_us
        self._services = services
        # Made at the first use: most nodes need neither.
        self._rng: random.Random | None = None
        self._logger: ContextLogger | None = None

    def __repr__(self) -> str:
        return (
            f"<NodeContext of {self.workflow_name}, run {self.run_id}, node {self.node}, step {self.step}, "
            f"attempt {self.attempt}>"
        )

    @property
    def order_key(self) -> str:
        """By which this item's delta is merged among those of its step: 16 hex digits of its path."""
        return self.path[:ORDER_KEY_DIGITS]

    @property
    def is_retry(self) -> bool:
        """Whether an earlier attempt may have reached the world."""
        return self.attempt > 1

    @property
    def cancelled(self) -> bool:
        """True once this execution should stop. For plain `def` nodes, which nothing can interrupt."""
        return self._services.cancelled

    @property
    def now(self) -> datetime:
        """The time of the checkpoint that this step began with: the same in every attempt and in a replay."""
        return instant(self._now_us)

    @property
    def rng(self) -> random.Random:
        """Randomness of this item's own: the same numbers in every attempt and in a replay (I43)."""
        if self._rng is None:
            self._rng = random.Random(item_seed(self.run_id, self.path))  # noqa: S311 - it has to be repeatable
        return self._rng

    @property
    def logger(self) -> ContextLogger:
        """A logger whose records carry `run`, `workflow`, `node`, `step` and `attempt`; silent in a replay."""
        if self._logger is None:
            identity: dict[str, object] = {
                "run": self.run_id,
                "workflow": self.workflow_name,
                "node": self.node,
                "step": self.step,
                "attempt": self.attempt,
            }
            self._logger = _NodeLogger(identity, self._services)
        return self._logger

    def note(self, text: str) -> None:
        """Keep a line for people in this attempt's outcome. No other node can read it."""
        if not isinstance(text, str):
            raise UsageError(
                f"a note of node {self.node} is a {type(text).__name__}, not a text", hint="write note(str(value))"
            )
        self._services.note(text)

    async def heartbeat(self) -> None:
        """Tell the engine that this is still alive; raises when the right to run it has been lost."""
        await self._services.heartbeat()

    @overload
    async def record(self, name: str, request: object, call: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def record(self, name: str, request: object, call: Callable[[], T]) -> T: ...
    async def record(self, name: str, request: object, call: Callable[[], Any]) -> Any:
        """What the call gave, recorded with its request: made once, and answered from the record ever after.

        `call` is a function without arguments, plain or async; if it says what it returns, that may be of any type that
        can be stored. A plain one that waits holds up the event loop: make the
        node a plain `def` for it, with `record_blocking`.
        """
        self._check_call(name, call, "record")

        @wraps(call, updated=())  # its annotation is how the answer is stored
        async def calling() -> Any:
            given = call()
            return await given if inspect.isawaitable(given) else given

        return await self._services.record(name, request, calling)

    def record_blocking(self, name: str, request: object, call: Callable[[], T]) -> T:
        """`record` for a node that is a plain `def`."""
        self._check_call(name, call, "record_blocking")

        @wraps(call, updated=())
        def calling() -> Any:
            given: Any = call()
            if inspect.isawaitable(given):
                _close(given)
                raise UsageError(
                    f"the call {name!r} of node {self.node} gave something to be awaited, and the node is a plain def",
                    hint="make the node an async def and write await ctx.record(…)",
                )
            return given

        return cast("T", self._services.record_blocking(name, request, calling))

    async def interrupt(self, payload: object) -> Any:
        """Wait for a person, durably: they see the payload, and what they answer is returned."""
        return await self._services.interrupt(payload)

    def interrupt_blocking(self, payload: object) -> Any:
        """`interrupt` for a node that is a plain `def`."""
        return self._services.interrupt_blocking(payload)

    def _check_call(self, name: object, call: object, method: str) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"ctx.{method} of node {self.node} was given the name {name!r:.80}",
                hint=f'name the call: ctx.{method}("search", request, call)',
            )
        if callable(call):
            return
        if inspect.isawaitable(call):
            _close(call)
            raise UsageError(
                f"the call {name!r} of node {self.node} was made already: a {type(call).__name__} was given",
                hint=f'give a function, which is called only if there is no record: ctx.{method}("{name}", request, '
                "lambda: …)",
            )
        raise UsageError(
            f"the call {name!r} of node {self.node} is {call!r:.80}, a {type(call).__name__}",
            hint="give a function without arguments: lambda: …",
        )


def _close(given: object) -> None:
    """A coroutine that nobody will await would make Python warn, far from the mistake."""
    if inspect.iscoroutine(given):
        given.close()
