"""What people and programs see of a state graph's run: the seed's values, under the seed's names.

`document()` of each is plain JSON with a `version`. Attempts are numbered from 1 (I3), and an order key is 16 hex
digits, since as a number it fits neither a database nor a browser (I39).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

VERSION = 1
S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem(Generic[S]):
    """A node that runs in a step: where it came from, and what it is given."""

    step_id: int
    order_key: str
    node_id: str  # the node's name
    state: S
    attempt: int = 1
    parent_node_id: str | None = None
    edge_index: int = 0
    path: str = ""
    parents: tuple[tuple[str, int], ...] = ()
    status: str = "queued"

    def document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "step_id": self.step_id,
            "order_key": self.order_key,
            "node_id": self.node_id,
            "state": _plain(self.state),
            "attempt": self.attempt,
            "parent_node_id": self.parent_node_id,
            "edge_index": self.edge_index,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedIO:
    """A call to the outside world that a node made: what it asked, what came back, when and for how long."""

    node_id: str  # the item's address, such as think@3: a node runs in many steps
    attempt: int
    call: int
    name: str
    request: Any
    response: Any
    hash: str | None
    request_hash: str
    timestamp: datetime
    duration_ms: float
    step_id: int = 0
    error: str | None = None
    kind: str = "call"

    def document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "step_id": self.step_id,
            "node_id": self.node_id,
            "attempt": self.attempt,
            "call": self.call,
            "name": self.name,
            "kind": self.kind,
            "request": self.request,
            "response": self.response,
            "error": self.error,
            "hash": self.hash,
            "request_hash": self.request_hash,
            "timestamp": _iso(self.timestamp),
            "duration_ms": self.duration_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Generic[S]):
    """What a run had become after a step, what runs next, and what its nodes asked of the world in that step."""

    run_id: str
    step_id: int
    state: S
    frontier: tuple[WorkItem[S], ...]
    rng_seed: int
    recorded_ios: tuple[RecordedIO, ...]
    idempotency_key: str
    timestamp: datetime
    label: str | None = None
    labels: tuple[str, ...] = ()
    state_digest: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "run_id": self.run_id,
            "step_id": self.step_id,
            "state": _plain(self.state),
            "frontier": [item.document() for item in self.frontier],
            "rng_seed": str(self.rng_seed),  # 64 bits, more than JavaScript's numbers hold
            "recorded_ios": [call.document() for call in self.recorded_ios],
            "idempotency_key": self.idempotency_key,
            "timestamp": _iso(self.timestamp),
            "label": self.label,
            "labels": list(self.labels),
            "state_digest": self.state_digest,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerMetrics:
    """What a run has done so far."""

    total_steps: int = 0
    total_nodes_executed: int = 0
    avg_step_latency_ms: float = 0.0
    max_queue_depth: int = 0
    total_retries: int = 0
    total_backpressure_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """What a run does now: nodes that run, items that wait in the frontier, and items that found it full."""

    active_nodes: int
    queue_depth: int
    completed_steps: int
    spilled: int = 0
    waiting_for_people: int = 0
    step: int = 0
    max_concurrent: int = 0
    capacity: int = 0
    metrics: SchedulerMetrics = field(default_factory=SchedulerMetrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """A question that a node asks a person, and waits for."""

    node: str
    payload: Any
    since: datetime


def _iso(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """What JSON holds, as it is stored: of sets lists in order, of times texts."""
    import msgspec

    from holdfast.core.codec_hooks import encode_hook
    from holdfast.core.codec_order import with_sets_in_order

    return msgspec.json.decode(msgspec.json.encode(with_sets_in_order(value), enc_hook=encode_hook))
