"""A workflow outside any run: its requests are simply done, and nothing is recorded.

This is what `await onboard("u1")` in a script or a unit test means. What needs an engine, waiting for events first
of all, is refused with the way to get one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Never

from holdfast.authoring.function_calls import ActionCall, ContinueRequested, Request, SideEffect
from holdfast.core.errors import UsageError

if TYPE_CHECKING:
    import random

    from holdfast.authoring.actions import Action
    from holdfast.authoring.functions import Workflow
    from holdfast.authoring.registry import Registry

__all__ = ["PlainRun", "outside_a_run"]


class PlainRun:
    """Stands for a run where there is none."""

    __slots__ = ("_rollbacks", "registry", "run_id", "workflow_name")

    replaying = False

    def __init__(self, workflow_name: str, registry: Registry, before: PlainRun | None = None) -> None:
        self.run_id = f"outside-{uuid.uuid4().hex}"
        self.workflow_name = workflow_name
        self.registry = registry
        self._rollbacks: list[ActionCall] = [] if before is None else before._rollbacks

    def call(self, request: Request) -> Coroutine[Any, Any, Any]:
        if isinstance(request, ActionCall):
            return request.action.directly(*request.args, **request.kwargs)
        if isinstance(request, SideEffect):
            return _done(request.fn)
        raise outside_a_run(f"{request.name} in workflow {self.workflow_name}")

    def not_durable(self, what: str, hint: str) -> Exception:
        return UsageError(f"workflow {self.workflow_name} used {what}, which can't be repeated in a run", hint=hint)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def uuid4(self) -> uuid.UUID:
        return uuid.uuid4()

    def rng(self) -> random.Random:
        from random import Random  # for those who use it

        return Random()  # noqa: S311 - for people's dice, not for secrets

    def on_rollback(self, action: Action[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._rollbacks.append(ActionCall(action, args, kwargs))

    def expose(self, name: str, fn: Callable[[], Any]) -> None:
        """Nobody can ask."""

    def patched(self, name: str) -> bool:
        return True  # there is no history that could be older than the code

    def continue_as(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Never:
        raise ContinueRequested(workflow, args, kwargs)

    async def roll_back(self, cause: BaseException) -> None:
        """Undo in reverse. One that fails is noted on the cause, and does not keep the others from running."""
        while self._rollbacks:
            undo = self._rollbacks.pop()
            try:
                await undo.action.directly(*undo.args, **undo.kwargs)
            except Exception as error:
                cause.add_note(f"its rollback {undo.name} failed: {type(error).__name__}: {error}")


async def _done(fn: Callable[[], Any]) -> Any:
    return fn()


def outside_a_run(what: str) -> UsageError:
    """The refusal of what only a run can do."""
    return UsageError(
        f"{what} was called outside a run, where nothing can be waited for or recorded",
        hint="start the workflow with engine.start(…) or hf.run(…); outside of workflows use the engine's own methods",
    )
