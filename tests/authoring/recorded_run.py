"""A run for tests of what workflow code asks for: it keeps every request and answers as it is told."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Never

from holdfast.authoring.actions import Action
from holdfast.authoring.context import entered_function
from holdfast.authoring.function_calls import ContinueRequested, FunctionRun, Request
from holdfast.authoring.functions import Workflow
from holdfast.authoring.registry import Registry

START = datetime(2031, 5, 1, 12, tzinfo=UTC)


class RecordedRun:
    """Implements FunctionRun. A request is made when it is awaited; `answer` gives its outcome, or raises it."""

    def __init__(self, registry: Registry, answer: Callable[[Any], Any] = lambda request: None) -> None:
        self.run_id = "run-1"
        self.workflow_name = "onboard"
        self.replaying = False
        self.registry = registry
        self.requests: list[Any] = []
        self.rollbacks: list[tuple[Action[..., Any], tuple[Any, ...], Mapping[str, Any]]] = []
        self.exposed: dict[str, Callable[[], Any]] = {}
        self.asked: list[str] = []
        self._answer = answer

    async def call(self, request: Request) -> Any:
        self.requests.append(request)
        answer = self._answer(request)
        return await answer if isinstance(answer, Coroutine) else answer

    def now(self) -> datetime:
        return START

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=4)

    def rng(self) -> random.Random:
        return random.Random(17)

    def on_rollback(self, action: Action[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.rollbacks.append((action, args, kwargs))

    def expose(self, name: str, fn: Callable[[], Any]) -> None:
        self.exposed[name] = fn

    def patched(self, name: str) -> bool:
        self.asked.append(name)
        return False

    def continue_as(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Never:
        raise ContinueRequested(workflow, args, kwargs)


def inside(run: RecordedRun) -> AbstractContextManager[None]:
    """The block is code of this run's workflow."""
    checked: FunctionRun = run
    return entered_function(checked)
