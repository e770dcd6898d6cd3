"""What the machine of state graphs needs of a graph's code: its shape, its reducers, its conditions.

The authors' functions behind `merge` and `taken` run inside decisions: pure, quick, and called again when a decision is
made again. States go in and out as fields of canonical JSON, so nobody can change in place what another one holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from holdfast.core.state_outcomes import Fields, Route

GRAPH = "graph"
"""The model of runs of state graphs."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the machine must know of a node to make its work."""

    name: str
    timeout: int | None = None  # microseconds an attempt may take
    queue: str | None = None
    label: str | None = None  # of the checkpoint after a step in which it ran
    subgraph: bool = False


class Unsealing(Protocol):
    """Whoever can read what was stored of a run; no code of the graph is needed for that."""

    def unseal(self, stored: bytes) -> bytes:
        """JSON again, as canonical as it was."""


class GraphCode(Protocol):
    """A state graph as the machine sees it."""

    @property
    def name(self) -> str: ...

    @property
    def nodes(self) -> Mapping[str, NodePlan]: ...

    @property
    def entries(self) -> Sequence[str]:
        """The nodes that a run begins with."""

    @property
    def finish(self) -> frozenset[str]: ...

    @property
    def max_concurrent(self) -> int: ...

    @property
    def queue_depth(self) -> int: ...

    @property
    def max_steps(self) -> int: ...

    @property
    def backpressure(self) -> int | None:
        """For how many microseconds spilled items may wait before the run is paused."""

    @property
    def keep_checkpoints(self) -> int | None: ...

    def initial(self, data: bytes, codec: str) -> dict[str, bytes]:
        """The fields of a run's input."""

    def merge(self, state: Fields, deltas: Sequence[tuple[str, Fields]]) -> dict[str, bytes]:
        """The state after these nodes' deltas, in this order; ConflictingWrites (I41), or what a reducer raised."""

    def taken(self, node: str, state: Fields) -> list[tuple[int, str]]:
        """The node's edges whose condition holds for the merged state: their numbers and targets, in order (I40)."""

    def route_to(self, route: Route) -> str:
        """The node that a node's own answer leads to; GraphError if the graph has none of that name."""

    def seal(self, data: bytes) -> bytes:
        """JSON as it is stored: written with the engine's codec, under its label."""

    def unseal(self, stored: bytes) -> bytes:
        """The JSON again, as canonical as it was."""

    def result(self, state: Fields) -> bytes:
        """The final state as the result of the run is stored."""
