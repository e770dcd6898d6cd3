"""What the flow machine needs of an author's code: the graph, what its expressions name, and the bytes of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.core.flow_expressions import Environment
    from holdfast.core.flow_graph import CallOptions, FlowGraph
    from holdfast.core.flow_waits import FlowWait

FLOW = "flow"  # the model


class NewCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call of an action, or of a workflow, as a work item keeps it. Of what the flow does itself: the flow's name."""

    name: str
    payload: bytes | None
    codec: str
    queue: str | None = None
    timeout: int | None = None  # microseconds
    policy: str | None = None  # what was given for this call alone, as JSON: numbers of retries, or a child's queue


class FlowNotLoaded(HoldfastError):
    """A run follows a version of its flow that this process has not read yet: read it, then submit again."""

    default_hint = "this is caught by whoever completes a node"

    def __init__(self, workflow: str, signature: str = "") -> None:
        super().__init__(f"version {signature[:12]} of flow {workflow} is read first")
        self.workflow = workflow
        self.signature = signature


class NotAhead(HoldfastError):
    """What follows a sleep can't wait for its time: the run ends, or joins others. Users never see it."""

    default_hint = "this is caught by whoever settles a sleep"


class FlowCode(Protocol):
    """One version of a flow, as the machine sees it."""

    @property
    def graph(self) -> FlowGraph: ...

    @property
    def environment(self) -> Environment: ...

    def arguments(self, data: bytes, codec: str) -> Mapping[str, Any]:
        """What a run was started with, by the names of the parameters."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CallOptions | None) -> NewCall:
        """A call of an action or workflow, encoded."""

    def value_of(self, name: str, stored: bytes | None) -> Any:
        """What the action or workflow of this name returned."""

    def outcome_of(self, wait: FlowWait) -> Any:
        """What a wait gives: the event that came, or its time."""

    def result(self, value: Any) -> bytes:
        """What the flow returns, as its run keeps it."""

    def store(self, value: Any, variable: str, node: str) -> bytes:
        """A value as the inbox of a node keeps it; refused if it is too large, or would not come back the same."""

    def load(self, data: bytes) -> Any:
        """A value that an inbox keeps."""
