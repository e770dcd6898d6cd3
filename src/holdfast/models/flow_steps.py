"""What goes into the plan of a completion and what comes out of it: frozen values, in the words of the seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.core.codec_failure import ErrorRecord
from holdfast.core.flow_addresses import FlowAddress
from holdfast.core.flow_graph import CallOptions, Category
from holdfast.core.operations import LogLine

__all__ = [
    "LENGTH",
    "Completion",
    "CompletionPlan",
    "FlowCall",
    "FrontierNode",
    "InboxRead",
    "InboxReader",
    "InboxWrite",
    "InstanceCompletion",
    "LogLine",
    "ReadinessIncrement",
    "Release",
    "SubgraphAnalysis",
]

LENGTH: Final = -1
"""The index of the inbox row that has the length of a loop's sequence; its chunks are 0, 1, …"""


# --- what goes in ------------------------------------------------------------------------------------------------


class InboxReader(Protocol):
    """The inbox of the node that completed. May raise to say that a row must be loaded first."""

    def read(self, target: str, variable: str, index: int | None) -> Any:
        """The value at this address; KeyError if there is none. `index` is a chunk of a loop's sequence."""

    def gathered(self, target: str, variable: str) -> list[Any]:
        """The values that the elements of a branch wrote to a barrier, in index order."""


class Completion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node has ended: with a value, or with a failure. A barrier ends with neither; its value is its inbox."""

    node_id: str
    delivery_token: Any = None
    value: Any = None
    failure: ErrorRecord | None = None


# --- what comes out ----------------------------------------------------------------------------------------------


class FrontierNode(msgspec.Struct, frozen=True, gc=False):
    """A node where the walk may stop. `required_count` is None for a spread's barrier until the spread is known."""

    node_id: str
    category: Category
    required_count: int | None


class InboxRead(msgspec.Struct, frozen=True, gc=False):
    """A row that the completion may need: fetch them all at once."""

    target: str
    variable: str
    is_sequence: bool = False


class SubgraphAnalysis(msgspec.Struct, frozen=True, gc=False):
    """What a completion can reach, whatever the values are."""

    inline_nodes: tuple[str, ...]
    frontier_nodes: tuple[FrontierNode, ...]
    all_node_ids: frozenset[str]
    inbox_reads: tuple[InboxRead, ...]


class InboxWrite(msgspec.Struct, frozen=True, gc=False):
    """A value for the code after `target`. Replaces the row at (target, variable, index)."""

    target: str
    variable: str
    value: Any
    source: str
    index: int | None = None


class FlowCall(msgspec.Struct, frozen=True, gc=False):
    """What a frontier node is enqueued with: an action's or child's arguments; a timer's only argument is seconds."""

    name: str | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: CallOptions | None = None


class ReadinessIncrement(msgspec.Struct, frozen=True, gc=False):
    """One predecessor more for a node. `required_count` None: the row exists, since its fork made it."""

    node_id: str
    category: Category
    required_count: int | None
    increment: int = 1
    call: FlowCall | None = None


class InstanceCompletion(msgspec.Struct, frozen=True, gc=False):
    """How the run ends: completed with a result, or failed with an error at a node."""

    status: Literal["completed", "failed"]
    node_id: str
    result: Any = None
    failure: ErrorRecord | None = None


class Release(msgspec.Struct, frozen=True, gc=False):
    """Rows that nobody will read again: of these nodes, all whose passes begin with `passes`."""

    node_ids: tuple[str, ...]
    passes: tuple[int, ...]

    def covers(self, address: FlowAddress) -> bool:
        """Whether the rows of this address go."""
        return address.node in self.node_ids and address.passes[: len(self.passes)] == self.passes


class CompletionPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that one completion changes."""

    completed_node_id: str
    delivery_token: Any
    success: bool
    result: Any
    inbox_writes: tuple[InboxWrite, ...] = ()
    readiness_increments: tuple[ReadinessIncrement, ...] = ()
    instance_completion: InstanceCompletion | None = None
    released: tuple[Release, ...] = ()
    log_lines: tuple[LogLine, ...] = ()
